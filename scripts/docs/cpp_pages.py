"""The pages of the C++ reference: one for each header of include/attend, from what Clang reads there and from the comments.

A comment above a declaration is about it and about those right below that are like it and have none; a comment behind a field is
about that field. `// ---- Heads ----` is a heading, and a comment between empty lines is a paragraph of the page."""

import dataclasses
import itertools
import re
import subprocess

import clang.cindex
from clang.cindex import CursorKind as Kind
from text import code, escape, first_sentence, inline, markdown

TYPES = {Kind.STRUCT_DECL: "struct", Kind.CLASS_DECL: "class", Kind.CLASS_TEMPLATE: "class", Kind.ENUM_DECL: "enum"}
FUNCTIONS = {Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.CONVERSION_FUNCTION}
VALUES = {Kind.FIELD_DECL, Kind.ENUM_CONSTANT_DECL}
# Clang's C interface has no name for a template of a variable.
OTHERS = {Kind.TYPE_ALIAS_DECL: "using", Kind.TYPE_ALIAS_TEMPLATE_DECL: "using", Kind.VAR_DECL: "constant", Kind.UNEXPOSED_DECL: "constant"}
COMPILERS = ("ATTEND_API", "ATTEND_LIFETIMEBOUND", "ATTEND_ELEMENT")  # macros that are no part of what a user reads


@dataclasses.dataclass
class Entry:
    kind: str  # struct, class, enum, function, value, using, constant, macro; section, note
    name: str  # without attend::
    declaration: str = ""
    text: list = dataclasses.field(default_factory=list)  # the lines of its comment
    first: int = 0  # lines, from 1
    last: int = 0
    behind: bool = False  # the comment stands behind it
    type: str = ""
    default: str = ""
    members: list = dataclasses.field(default_factory=list)

    @property
    def short(self):
        return self.name.rsplit("::", 1)[-1]

    @property
    def is_type(self):
        return self.kind in TYPES.values()


class Header:
    """A header's text, and what stands in it."""

    def __init__(self, path):
        self.source = path.read_bytes()
        self.lines = path.read_text().splitlines()
        self.begin = self.lines.index("#pragma once")
        self.text = uncommented(self.lines[:self.begin])
        self.includes = re.findall(r'^#include "(attend/\w+\.h)"', path.read_text(), re.MULTILINE)
        self.entries = []

    def above(self, first):
        """The comment right above a line, at its indent."""
        indent = re.match(r" *", self.lines[first - 1])[0]
        begin = first - 1
        while begin > 0 and re.match(indent + r"//(?! -{4})", self.lines[begin - 1]):
            begin -= 1
        return uncommented(self.lines[begin:first - 1])

    def behind(self, last, column):
        """The comment behind what ends there, and the line in which it ends."""
        line = self.lines[last - 1]
        at = line.find("//", len(line.encode()[:column - 1].decode()))
        end = last
        while at > 0 and end < len(self.lines) and self.lines[end].startswith(" " * at + "//") and line[:at].strip():
            end += 1
        return uncommented([line[at:], *self.lines[last:end]]) if at > 0 else [], end


def uncommented(lines):
    return [re.sub(r"^\s*// ?", "", line).rstrip() for line in lines]


def laid_out(declaration, most=84):
    """On one line where it fits; else its parameters on the next one, or on a line each."""
    template = re.match(r"template <[^>]*> ", declaration)
    if template:
        return template[0].rstrip() + "\n" + laid_out(declaration[template.end():], most)
    opened = re.search(r"[\w~]\(|\boperator\S+\(", declaration)
    if len(declaration) <= most or not opened or declaration.startswith("#"):
        return declaration
    depth, begin, parameters = 0, opened.end(), []
    for at in range(begin, len(declaration)):
        letter = declaration[at]
        if depth == 0 and letter in ",)":
            parameters.append(declaration[begin:at].strip())
            begin = at + 1
            if letter == ")":
                break
        depth += (letter in "(<{[") - (letter in ")>}]" and declaration[at - 1] != "-")
    separator = ", " if len(", ".join(parameters)) + 4 <= most else ",\n    "
    return declaration[:opened.end()] + "\n    " + separator.join(parameters) + declaration[at:]


def declaration_of(cursor, source):
    """As it is written, without comments, bodies and what only the compiler needs."""
    body = next((each for each in cursor.get_children() if each.kind == Kind.COMPOUND_STMT), None)
    end = body.extent.start.offset if body else cursor.extent.end.offset
    text = re.sub(r"//[^\n]*", "", source[cursor.extent.start.offset:end].decode())
    text = " ".join(re.sub(rf"\b({'|'.join(COMPILERS)})\b ?", "", text).split()).rstrip(" ;").replace("( ", "(")
    if cursor.kind == Kind.CONSTRUCTOR and body:
        text = re.sub(r"\)(?: noexcept)? ?:(?!:).*", ")", text)  # what it begins its fields with
    return re.sub(r"= defaul$", "= default", re.sub(r"= delet$", "= delete", text))  # Clang's end of these is a letter early


def type_of(cursor, source, first_ones={}):  # noqa: B006  # one for all
    """The type of a field as it is written; a later declarator has that of the first one."""
    place = (cursor.location.file.name, cursor.extent.start.offset)
    return first_ones.setdefault(place, " ".join(source[place[1]:cursor.location.offset].decode().split()))


def read_entry(cursor, header, scope, around=0):
    """None: what is no part of the interface. around: the line in which that begins which it is a part of."""
    if cursor.kind == Kind.FRIEND_DECL:
        cursor = next((each for each in cursor.get_children() if each.kind in FUNCTIONS and each.is_definition()), None)
        if cursor is None:
            return None
    kind, name, first = cursor.kind, cursor.spelling, cursor.extent.start.line
    entry = Entry("", "::".join([*scope, name]), declaration_of(cursor, header.source), first=first, last=cursor.extent.end.line)
    if first != around:
        entry.text = header.above(first)
    if kind in TYPES:
        if not cursor.is_definition():
            return None
        entry.kind, entry.declaration = TYPES[kind], re.sub(r"\s*\{.*", "", entry.declaration)
        entry.members = members(cursor, header, [*scope, name])
        return entry
    if kind in VALUES:
        entry.kind = "value"
        if kind == Kind.FIELD_DECL:
            rest = header.source[cursor.location.offset + len(name.encode()):cursor.extent.end.offset].decode()
            pointer = "(*" in entry.declaration
            entry.type = entry.declaration if pointer else type_of(cursor, header.source)
            entry.default = "" if pointer else " ".join(rest.replace("= ", "", 1).split())
    elif kind in FUNCTIONS:
        if re.search(r"operator=\(|^(virtual )?~|^<", entry.declaration) or name.startswith("<"):
            return None
        entry.kind = "function"
    elif kind in OTHERS:
        named = re.search(r"(?:using|constexpr .*?\b|const .*?\b)\s*(\w+)\s*=", entry.declaration)
        if named is None or entry.declaration.startswith(("ATTEND_ELEMENT", "template <>")):
            return None
        entry.kind, entry.name = OTHERS[kind], "::".join([*scope, named[1]])
    else:
        return None
    behind, entry.last = header.behind(entry.last, cursor.extent.end.column)
    entry.behind = not entry.text
    entry.text = [*entry.text, *([""] if entry.text and behind else []), *behind]
    return entry


def members(cursor, header, scope):
    found = []
    for child in cursor.get_children():
        if cursor.kind == Kind.ENUM_DECL or child.access_specifier.name == "PUBLIC" or child.kind == Kind.FRIEND_DECL:
            entry = read_entry(child, header, scope, cursor.extent.start.line)
            found += [entry] if entry else []
    return sharing(found)


def sharing(found):
    """A declaration without a comment, right below another that it is like, shares the comment above that one."""
    def shape(entry):
        return entry.kind, entry.declaration.split("(")[0].rsplit(" ", 1)[0] if entry.kind == "function" else "", "()" in entry.declaration

    for above, entry in itertools.pairwise(found):
        near = entry.first in (above.last, above.last + 1) and above.text and not above.behind and not entry.text
        same = above.name == entry.name or shape(above) == shape(entry) if above.kind == entry.kind == "function" else entry.kind != "value"
        if near and (same or above.kind == entry.kind == "value"):
            entry.text, entry.behind = above.text, False
    return found


def macros(header):
    undone = re.findall(r"^#undef (\w+)", "\n".join(header.lines), re.MULTILINE)
    for number, line in enumerate(header.lines, 1):
        name = re.match(r"#define (\w+)", line)
        if name and name[1] not in {*COMPILERS, *undone}:
            yield Entry("macro", name[1], line, header.above(number), number, number)


def sections(header):
    """Headings, and comments that stand by themselves."""
    taken = {number for entry in header.entries for number in range(entry.first, entry.last + 1)}
    number = header.begin + 1
    while number < len(header.lines):
        line = header.lines[number]
        end = number + 1
        if line.startswith("// ----"):
            yield Entry("section", line.strip("/- "), first=end)
        elif line.startswith("//") and end not in taken:
            while end < len(header.lines) and re.match(r"//(?! -{4})", header.lines[end]):
                end += 1
            if end == len(header.lines) or not header.lines[end].strip():
                yield Entry("note", "", text=uncommented(header.lines[number:end]), first=number + 1)
        number = end


def read_headers(folder):
    """name -> Header of every header; its entries in their order."""
    headers = {path.name: Header(path) for path in sorted(folder.glob("*.h"))}
    everything = "".join(f'#include "attend/{name}"\n' for name in headers)
    builtin = subprocess.run(["g++", "-print-file-name=include"], capture_output=True, text=True, check=True).stdout.strip()
    unit = clang.cindex.Index.create().parse(
        "all.cpp", ["-x", "c++", "-std=c++20", f"-I{folder.parent}", "-I.", "-isystem", builtin],
        unsaved_files=[("all.cpp", everything), ("./mpi.h", "typedef struct mpi_comm* MPI_Comm;\n")])  # needs no MPI
    errors = [str(each) for each in unit.diagnostics if each.severity >= clang.cindex.Diagnostic.Error]
    if errors:
        raise SystemExit("\n".join(errors))

    def walk(cursor):
        for child in cursor.get_children():
            if child.kind == Kind.NAMESPACE and re.fullmatch(r"attend|v\d+", child.spelling):
                walk(child)
            elif child.kind != Kind.NAMESPACE and child.location.file and child.location.file.name.startswith(f"{folder}/"):
                header = headers[child.location.file.name.rsplit("/", 1)[-1]]
                entry = read_entry(child, header, [])
                header.entries += [entry] if entry else []

    walk(unit.cursor)
    for header in headers.values():
        header.entries = [*sharing(header.entries), *sharing(list(macros(header)))]
        header.entries = sorted([*header.entries, *sections(header)], key=lambda entry: entry.first)
    return headers


def all_entries(entries):
    for entry in entries:
        if entry.kind not in ("section", "note"):
            yield entry
            yield from all_entries(entry.members)


def anchor(name):
    return name.replace(" ", "-")


class Names:
    """Where each name of the library stands. file_link() gives the address of a document."""

    def __init__(self, headers, file_link):
        self.headers, self.file_link = headers, file_link
        self.where, self.values, self.functions = {}, {}, set()
        for name, header in headers.items():
            for entry in all_entries(header.entries):
                self.where.setdefault(entry.name, name)
                if entry.kind == "value":
                    self.values.setdefault(entry.short, []).append(entry.name)
                if entry.kind == "function" or entry.type.startswith("std::function"):
                    self.functions.add(entry.name)

    def linker(self, page, scope):
        """link() of text.inline(), on the page of a header, in the comment of what `scope` names."""
        def link(name, kind):
            if kind == "file":
                header = name.removeprefix("include/").removeprefix("attend/")
                if header in self.headers:
                    return None if header == page else f"{header[:-2]}.md"
                return self.file_link(name)
            name = name.removeprefix("attend::").removesuffix("()")
            known = self.functions if kind == "name" else self.where
            found = next((each for n in range(len(scope), -1, -1) if (each := "::".join([*scope[:n], name])) in known), None)
            if found is None and kind != "name" and len(self.values.get(name, ())) == 1:
                found = self.values[name][0]
            if found is None or found == "::".join(scope):
                return None
            header = self.where[found]
            return ("" if header == page else f"{header[:-2]}.md") + f"#{anchor(found)}"
        return link


def values(entries, link):
    """Fields and enumerators: a list of what each is for."""
    out = []
    for entry, following in itertools.zip_longest(entries, entries[1:]):
        term = f"**{code(entry.short)}**{{ #{entry.name} }}"
        if entry.type:
            term += f" `#!cpp {entry.type}`" + (f" = `#!cpp {entry.default}`" if entry.default not in ("", "{}") else "")
        out.append(term)
        if not (entry.text and following and following.text is entry.text):
            body = markdown("\n".join(entry.text), link) or '<span class="none"></span>'
            out.append(":   " + body.replace("\n", "\n    ") + "\n")
    return "\n".join(out)


def groups(entries):
    """Values are one list; functions and their like that share a comment or a name are one; others stand alone."""
    found = []
    for entry in entries:
        last = found[-1] if found else None
        alike = last and entry.kind == last[-1].kind and not entry.is_type and entry.kind not in ("section", "note")
        shared = alike and ({entry.name} == {each.name for each in last} or (entry.text and entry.text is last[-1].text))
        if alike and (shared or entry.kind == "value"):
            last.append(entry)
        else:
            found.append([entry])
    return found


def render(entries, level, names, page, scope):
    link = names.linker(page, scope)
    for group in groups(entries):
        entry = group[0]
        heading = "#" * level
        if entry.kind == "section":
            yield f"{'#' * (level - 1)} {entry.name}"
        elif entry.kind == "note":
            yield markdown("\n".join(entry.text), link)
        elif entry.kind == "value":
            yield values(group, link)
        elif entry.is_type:
            inside = [*scope, entry.short]
            yield f"{heading} {entry.name} {{ #{entry.name} .{entry.kind} }}"
            if entry.kind != "enum" and re.search(r" : |template", entry.declaration):
                yield f"```cpp\n{entry.declaration}\n```"
            yield markdown("\n".join(entry.text), names.linker(page, inside))
            yield from render(entry.members, level + 1, names, page, inside)
        else:
            shown = list(dict.fromkeys(each.name for each in group))
            more = "".join(f'<a id="{anchor(name)}"></a>' for name in shown[1:])
            title = escape(", ".join([shown[0], *(name.rsplit("::", 1)[-1] for name in shown[1:])]))
            yield f"{heading} {title}{more} {{ #{anchor(shown[0])} .{entry.kind} }}"
            for _, run in itertools.groupby(group, key=lambda each: each.text):
                run = list(run)
                lines = (laid_out(each.declaration) + (";" if each.kind != "macro" else "") for each in run)
                yield "\n".join(["```cpp", *lines, "```"])
                yield markdown("\n".join(run[0].text), link)


def page_of(name, header, names):
    link = names.linker(name, [])
    out = [f"---\ntitle: {name}\n---", f"# attend/{name}", f"```cpp\n#include <attend/{name}>\n```",
           markdown("\n".join(header.text), link, language="cpp")]
    declared = groups([each for each in header.entries if each.kind not in ("section", "note")])
    if declared:
        out.append("| Name | Description |\n|---|---|")
        for group in declared:
            linked = ", ".join(f"[{code(each)}](#{anchor(each)})" for each in dict.fromkeys(entry.name for entry in group))
            out[-1] += f"\n| {linked} | {inline(first_sentence(' '.join(group[0].text)), link).replace('|', '&#124;')} |"
    else:
        out.append("\n".join(f"- [`{each}`]({each[7:-2]}.md)" for each in header.includes if each != "attend/api.h"))
    first = next((n for n, entry in enumerate(header.entries) if entry.kind == "section"), len(header.entries))
    out += render(header.entries[:first], 2, names, name, [])
    out += render(header.entries[first:], 3, names, name, [])
    return "\n\n".join(each for each in out if each) + "\n"


def title_of(room):
    return {"io": "Files", "everything": "All of it"}.get(room, room.capitalize())


def overview(headers, rooms, names):
    """Every header, by the room that it belongs to, with what it declares."""
    out = ["---\ntitle: C++ reference\n---", "# C++ reference",
           "Each header has a page. `#include <attend/attend.h>` includes all of them but `attend/mpi.h`. Every name is in the "
           "namespace `attend`."]
    for room, found in rooms.items():
        out.append(f"## {title_of(room)}")
        for name in found:
            listed = dict.fromkeys(entry.name for entry in headers[name].entries if entry.kind not in ("section", "note"))
            out += [f"### [attend/{name}]({name[:-2]}.md)",
                    inline(first_sentence(" ".join(headers[name].text), 200), names.linker("", [])) + ".",
                    ", ".join(f"[{code(each)}]({name[:-2]}.md#{anchor(each)})" for each in listed)]
    return "\n\n".join(each for each in out if each) + "\n"
