"""Plain text, as comments of headers and docstrings have it, as Markdown.

The text is not Markdown: `a * b`, `[B,H,Tq,D]` and `x < y` mean themselves. What is recognised: paragraphs (a line that ends
early after a full stop ends one), lists with "- ", lines that are indented as code, examples of doctest, names in a column with what
they mean beside them, and, in a line, names of the library, shapes, files and addresses."""

import re

INLINE = re.compile(r"""
    (?P<tick>``?[^`\n]+``?)
  | (?P<url>https?://[^\s<>()]*[^\s<>().,;:])
  | arXiv:(?P<arxiv>\d{4}\.\d{4,5})
  | (?P<file>\b(?:[\w.-]+/)*[\w-]+\.(?:md|h|cpp|py|json|txt|tsv|safetensors|npz|npy|gguf)\b(?:\#[\w-]+)?)
  | (?P<name>~?\b[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*\(\))
  | (?P<call>\b[A-Za-z_][\w.:]*\([^()]*\)(?=[\s.,;:)]|$))
  | (?P<shape>\[(?:[A-Za-z0-9_+*/.\ -]|::|\(\))+(?:,\ ?(?:[A-Za-z0-9_+*/.\ -]|::)+)*\](?!\())
  | (?P<word>\b[A-Za-z_]\w*(?:::[A-Za-z_]\w*|\.[A-Za-z_]\w*(?=\W|$))*)
""", re.VERBOSE)


def escape(text):
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]#!])", r"\\\1", text)


def code(text, **attributes):
    ticks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}" + "".join(attributes.values())


def inline(text, link):
    """One paragraph. link(name, kind) gives the address of a name or a file, or None."""
    parts, last = [], 0
    for found in INLINE.finditer(text):
        kind = found.lastgroup
        whole, shown = found[0], None
        if kind == "tick":
            shown = whole.strip("`")
            target = link(shown.removesuffix("()"), "tick")
        elif kind == "url":
            parts += [escape(text[last:found.start()]), f"<{whole}>"]
            last = found.end()
            continue
        elif kind == "arxiv":
            parts += [escape(text[last:found.start()]), f"[arXiv:{found['arxiv']}](https://arxiv.org/abs/{found['arxiv']})"]
            last = found.end()
            continue
        elif kind == "file":
            target = link(whole, "file")
            shown = whole if target or "/" in whole or not whole.endswith((".cpp", ".h")) else None  # llama.cpp is a project
        elif kind == "name":
            shown, target = whole, link(whole.removesuffix("()"), "name")
        elif kind == "call":
            target = link(whole.split("(")[0], "name")
            shown = whole if target or re.search(r"[_.:]", whole.split("(")[0]) else None
        elif kind == "shape":
            shown, target = (None if " " in whole.replace(", ", "").replace(" + ", "") else whole), None
        else:
            plain = not re.search(r"_|::|\w\.\w|[a-z][A-Z]|[A-Z]{2,}[a-z]", whole)
            target = None if plain else link(whole, "word")
            shown = whole if target or (not plain and re.search(r"_|::", whole)) else None
        if shown is None:
            continue
        parts += [escape(text[last:found.start()]), f"[{code(shown)}]({target})" if target else code(shown)]
        last = found.end()
    return "".join(parts) + escape(text[last:])


def first_sentence(text, most=150):
    """The beginning of a text, for a list of names."""
    text = " ".join(text.split())
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<!et al)[.:;](?=\s|$)", text)
    text = text[:end.start()] if end else text
    if text.count("(") > text.count(")"):  # the mark stood in brackets
        text = text[:text.rindex("(")].rstrip()
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0].rstrip(",;") + " …"


def column_of(line, at):
    """(name, what it means) of a line of a list in two columns; the second begins at `at`, or where two spaces end the first."""
    several = re.match(r"((?:\w+, )+\w+): (?=\S)", line)
    if at:
        if several:
            return several[1], line[several.end():]
        if len(line) > at and line[:at].strip() and line[at - 1] == " " and line[at] != " ":
            return line[:at].strip(), line[at:]
        return None
    name, gap, rest = line.partition("  ")
    return (name, rest.lstrip()) if gap and name and rest.strip() and len(name) < 40 else None


def blocks(lines, width, language):
    """("text", [line...]), ("code", language, [line...]), ("item", [line...]), ("columns", [(name, [line...])...]) in order."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        begin = at
        if line.startswith(">>> "):
            while at < len(lines) and lines[at].strip():
                at += 1
            yield "code", "pycon", lines[begin:at]
            continue
        if line.startswith("```"):
            at += 1
            while at < len(lines) and not lines[at].startswith("```"):
                at += 1
            yield "code", line.strip("` ") or language, lines[begin + 1:at]
            at += 1
            continue
        if re.match(r" {2,}\S", line):
            while at < len(lines) and (lines[at].startswith("  ") or
                                       (not lines[at].strip() and at + 1 < len(lines) and lines[at + 1].startswith("  "))):
                at += 1
            indent = min(len(each) - len(each.lstrip()) for each in lines[begin:at] if each.strip())
            block = [each[indent:] for each in lines[begin:at]]
            yield "code", language if re.search(r"[;(]|::", "".join(block)) else "text", block
            continue
        if re.match(r"(-|\d+\.) ", line):
            indent = len(re.match(r"\S+ ", line)[0])
            at += 1
            while at < len(lines) and lines[at].startswith(" " * indent):
                at += 1
            yield "item", line[:indent].strip(), [line[indent:]] + [each[indent:] for each in lines[begin + 1:at]]
            continue
        row = column_of(line, 0)
        if row and row[0].count(" ") <= 6 and not re.search(r"[.:]$", row[0]):
            column, rows = len(line) - len(row[1]), []
            while at < len(lines) and lines[at].strip():
                row = column_of(lines[at], column)
                if row:
                    rows.append((row[0], [row[1]]))
                elif rows and lines[at].startswith(" " * min(column, 4)):
                    rows[-1][1].append(lines[at].strip())
                else:
                    break
                at += 1
            yield "columns", rows
            continue
        paragraph = []
        while at < len(lines) and lines[at].strip() and not re.match(r">>> | {2,}\S|- |\d+\. |```", lines[at]):
            if paragraph and column_of(lines[at], 0) and re.search(r"[.:]$", paragraph[-1]):
                break
            if paragraph and re.search(r"[.:]$", paragraph[-1]) and len(paragraph[-1]) + 1 + len(lines[at].split()[0]) <= width:
                break
            paragraph.append(lines[at].strip())
            at += 1
        yield "text", paragraph


def markdown(text, link, width=117, language="text"):
    """Blocks of Markdown of a whole text."""
    out = []
    for kind, *rest in blocks(text.rstrip().splitlines(), width, language):
        if kind == "text":
            out.append(inline(" ".join(rest[0]), link))
        elif kind == "code":
            out.append("\n".join([f"```{rest[0]}", *rest[1], "```"]))
        elif kind == "item":
            out.append(f"{rest[0]} " + inline(" ".join(rest[1]), link))
        else:
            out += [f"{code(name)}\n:   {inline(' '.join(lines), link)}" for name, lines in rest[0]]
    return "\n\n".join(out)
