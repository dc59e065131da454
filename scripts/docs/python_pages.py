"""The pages of the Python reference: one for each class and each module, from the package's sources and the stub of its compiled part."""

import ast
import inspect
import re
import shutil

import griffe
from text import code, first_sentence, inline, markdown

MODULES = ("attend", "attend.torch", "attend.transformers", "attend.onnx", "attend.widget")


def read_package(sources, stub, folder):
    """The package as it is installed: its modules beside the stub."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sources, folder / "attend", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "attend/_core.pyi").write_text(without_last_overload(stub.read_text()))
    return griffe.load("attend", search_paths=[folder], resolve_aliases=True, resolve_external=False, allow_inspection=False)


def without_last_overload(text):
    """A stub in which the last overload of a name stands for all, as griffe wants it: it knows no name without an implementation."""
    lines, tree = text.splitlines(), ast.parse(text)
    for body in [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]:
        last = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        for node in last.values():
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Name) and decorator.id == "overload":
                    lines[decorator.lineno - 1] = ""
    return "\n".join(lines)


def target(thing):
    return thing.final_target if thing.is_alias else thing


def public(package, module):
    """name -> what it is, as __all__ has them; modules among them are pages of their own."""
    owner = package if module == "attend" else package[module.removeprefix("attend.")]
    found = {name: target(owner[name]) for name in sorted(map(str, owner.exports), key=str.lower)}
    return {name: thing for name, thing in found.items() if not thing.is_module}


def doc(thing):
    return inspect.cleandoc(thing.docstring.value) if thing.docstring else ""


def members_of(kind):
    """Its public members, inherited ones too, with what the class says of those that it shares: name -> (member, docstring)."""
    said = {}
    node = ast.parse("\n".join(kind.lines).lstrip()).body[0] if kind.lines else None
    for keyword in getattr(node, "keywords", []):
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
            said[keyword.arg] = keyword.value.value
    found = {}
    for name, member in kind.all_members.items():
        if name.startswith("_"):
            continue
        member = target(member)
        if member.is_function or member.is_attribute:
            found[name] = (member, said.get(name) or doc(member) or behind(member))
    for name, text in set_in_a_loop(kind).items():
        found[name] = (griffe.Attribute(name, parent=kind), text)
    own = [name for name in kind.members if name in found]
    return {name: found[name] for name in [*own, *(name for name in found if name not in own)]}


def set_in_a_loop(kind):
    """The arrays of a RecordedLayer, which its module sets in a loop: its own, and those of an AttentionSummary. name -> text."""
    if kind.path != "attend._recording.RecordedLayer":
        return {}
    tree = ast.parse(kind.module.filepath.read_text())
    arrays = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "_ARRAYS")
    found = ast.literal_eval(arrays.left)
    if ast.unparse(arrays.right) != "dict(_summary_statistics)":
        raise SystemExit("scripts/docs/python_pages.py no longer knows what attend/_recording.py sets in a loop")
    summary = target(kind.package["AttentionSummary"])
    return found | {name: text for name, (_, text) in members_of(summary).items()}


def behind(member):
    """The comment behind a field."""
    line = (member.lines or [""])[0] if member.is_attribute else ""
    return line.partition("  # ")[2]


def shown(annotation):
    text = "" if annotation is None else str(annotation)
    return re.sub(r"\b(?:typing|collections\.abc|attend|_core|_recording)\.(?=[A-Z])", "", text)


def merged(functions):
    """Overloads of the same parameters as one signature: (parameters, what they return)."""
    found = {}
    for function in functions:
        found.setdefault(tuple(each.name for each in function.parameters), []).append(function)
    for alike in found.values():
        parameters = []
        for place, parameter in enumerate(alike[-1].parameters):
            same = [list(each.parameters)[place] for each in alike]
            kinds = list(dict.fromkeys(shown(each.annotation) for each in same if each.annotation is not None))
            if len(kinds) > 1 and all(kind in ("bool", "Literal[True]", "Literal[False]") for kind in kinds):
                kinds = ["bool"]
            default = next((str(each.default) for each in reversed(same) if each.default is not None), None)
            parameters.append((parameter.kind.value, parameter.name, " | ".join(kinds), default))
        yield parameters, " | ".join(dict.fromkeys(shown(each.returns) for each in reversed(alike) if each.returns is not None))


def signature(name, functions, bound, most=84):
    """On one line where it fits. bound: the first parameter is the object's own."""
    out = []
    for parameters, returns in merged(functions):
        parts, before = [], ""
        for kind, parameter, annotation, default in parameters[1:] if bound else parameters:
            if before == "positional-only" != kind:
                parts.append("/")
            if kind == "keyword-only" and before not in ("keyword-only", "variadic positional"):
                parts.append("*")
            stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
            text = stars + parameter + (f": {annotation}" if annotation else "")
            if default is not None and not stars:
                text += f" = {default}" if annotation else f"={default}"
            parts.append(text)
            before = kind
        if before == "positional-only":
            parts.append("/")
        end = f") -> {returns}" if returns else ")"
        line = f"{name}({', '.join(parts)}{end}"
        out.append(line if len(line) <= most else f"{name}(\n{filled(parts, most)}\n{end}")
    return ("\n\n" if "\n" in out[0] else "\n").join(out)


def filled(parts, most):
    """A few parameters on a line each, many in full lines."""
    lines = []
    for part in parts:
        if lines and len(parts) > 9 and len(lines[-1]) + 2 + len(part) < most:
            lines[-1] += f" {part},"
        else:
            lines.append(f"    {part},")
    return "\n".join(lines)


def overloads(function):
    stub = str(function.filepath).endswith(".pyi")  # whose last overload stands for all
    return [*(function.overloads or []), *([function] if stub or not function.overloads else [])]


class Names:
    """Where each name of the package stands. file_link() gives the address of a document."""

    def __init__(self, package, file_link):
        self.where, self.file_link = {}, file_link
        for module in MODULES:
            self.where[module] = f"{module}.md"
            for name, thing in public(package, module).items():
                page = f"{module}.{name}.md" if thing.is_class else f"{module}.md"
                self.where[f"{module}.{name}"] = page
                if thing.is_class:
                    self.where |= dict.fromkeys((f"{module}.{name}.{member}" for member in members_of(thing)), page)

    def linker(self, page, scope):
        """link() of text.inline(), on a page, in a docstring of what `scope` names: the module, and the class."""
        def link(name, kind):
            if kind == "file":
                return self.file_link(name)
            name = name.removesuffix("()")
            candidates = [".".join([*scope[:n], name]) for n in range(len(scope), 0, -1)] + [f"attend.{name}", name]
            found = next((each for each in candidates if each in self.where), None)
            if found is None or found == ".".join(scope):
                return None
            if kind == "tick" and "." not in name and found.count(".") < 2 and name.islower() and "_" not in name:
                return None  # a word such as `plan`
            here = self.where[found]
            anchor = "" if found in MODULES else f"#{found}"
            return anchor or None if here == page else here + anchor
        return link


def class_page(module, name, kind, names):
    full, page = f"{module}.{name}", f"{module}.{name}.md"
    link = names.linker(page, [module, name])
    found = members_of(kind)
    out = [f"---\ntitle: {full}\n---", f"# {full} {{ #{full} .class }}"]
    init = kind.members.get("__init__")
    if init is not None and init.is_function:
        out.append(f"```python\n{signature(full, overloads(init), True)}\n```")
    out.append(markdown(doc(kind), link, language="python"))
    methods = {name: each for name, each in found.items() if each[0].is_function}
    fields = {name: each for name, each in found.items() if each[0].is_attribute}
    if methods:
        rows = [f"| [{code(each)}](#{full}.{each}) | {inline(first_sentence(text), link).replace('|', '&#124;')} |"
                for each, (_, text) in methods.items()]
        out.append("\n".join(["| Method | Description |", "|---|---|", *rows]))
    if fields:
        out.append("## Attributes")
        for field, (member, text) in fields.items():
            annotation = shown(member.annotation)
            kinds = f" `#!python {annotation}`" if annotation else ""
            default = f" = `#!python {member.value}`" if member.value is not None and "class-attribute" not in member.labels else ""
            body = markdown(text, link, language="python").replace("\n", "\n    ") or '<span class="none"></span>'
            out.append(f"**{code(field)}**{{ #{full}.{field} }}{kinds}{default}\n:   {body}")
    if methods:
        out.append("## Methods")
    for method, (member, text) in methods.items():
        labels = "".join(f"@{label}\n" for label in ("staticmethod", "classmethod") if label in member.labels)
        out += [f"### {name}.{method} {{ #{full}.{method} .function }}",
                f"```python\n{labels}{signature(method, overloads(member), 'staticmethod' not in member.labels)}\n```",
                markdown(text, link, language="python")]
    return "\n\n".join(each for each in out if each) + "\n"


def module_page(package, module, names):
    page = f"{module}.md"
    link = names.linker(page, [module])
    owner = package if module == "attend" else package[module.removeprefix("attend.")]
    things = public(package, module)
    functions = {name: each for name, each in things.items() if each.is_function}
    classes = {name: each for name, each in things.items() if each.is_class}
    unknown = things.keys() - functions.keys() - classes.keys()
    if unknown:
        raise SystemExit(f"{module}: neither a class nor a function: {', '.join(unknown)}")
    out = [f"---\ntitle: {module}\n---", f"# {module} {{ #{module} }}", f"```python\nimport {module}\n```", markdown(doc(owner), link)]
    for heading, some in (("Function", functions), ("Class", classes)):
        if some:
            rows = [f"| [{code(name)}]({link(name, 'word')}) | {inline(first_sentence(doc(each)), link).replace('|', '&#124;')} |"
                    for name, each in some.items()]
            out.append("\n".join([f"| {heading} | Description |", "|---|---|", *rows]))
    for name, each in functions.items():
        full = f"{module}.{name}"
        out += [f"## {name} {{ #{full} .function }}", f"```python\n{signature(full, overloads(each), False)}\n```",
                markdown(doc(each), link, language="python")]
    return "\n\n".join(each for each in out if each) + "\n"


def pages(package, names):
    """path -> text; and the pages in the order of the navigation."""
    written, order = {}, []
    for module in MODULES:
        written[f"{module}.md"] = module_page(package, module, names)
        classes = {name: each for name, each in public(package, module).items() if each.is_class}
        for name, each in classes.items():
            written[f"{module}.{name}.md"] = class_page(module, name, each, names)
        order.append((module, [f"{module}.{name}" for name in classes]))
    return written, order
