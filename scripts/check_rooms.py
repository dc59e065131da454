#!/usr/bin/env python3
"""Checks the includes of all C++ sources against the table of rooms in docs/design.md, the one place that says them; and that no two
rooms define types of one name, whose inline functions the linker would take for each other's; and that each public header includes what
it names of the standard library, since what another header happens to include differs between libraries.

Prints each include that the table does not allow, each folder and each public header that it does not know, each name that was
taken, and each that no include brings, and exits 1 if there is one. Usage: check_rooms.py [TREE]
"""
import re
import sys
from pathlib import Path

# | `src/io/` | what it holds | its public headers | what it may include |
ROW = re.compile(r"^\| `(?:src/)?(\w+)/` \|.*\|([\w, ]*)\|([\w, ]*)\|$", re.MULTILINE)
PUBLIC_DEPENDENCIES = re.compile(r"#include <(fmt|nlohmann|png|zlib|tbb|ft2build|freetype|CLI)[/.>]")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
# As clang-format writes them: at a line's beginning where they stand in namespaces alone.
SCOPE = re.compile(r"^namespace ?([\w: ]*?) ?\{$|^(\})  // namespace|"
                   r"^(?:template <.*> )?(?:struct|class|enum(?: class)?) (?:ATTEND_API )?([\w:]+)\b"
                   r"(?:.*\{|[^;\n]*:[^;\n]*$)", re.MULTILINE)
# What public headers may name of the standard library, by the header that brings it.
STANDARD = {name: header for header, names in {
    "algorithm": "copy equal find max min sort",
    "array": "array",
    "atomic": "atomic",
    "chrono": "chrono",
    "cstddef": "byte ptrdiff_t size_t",
    "cstdint": "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t",
    "exception": "exception exception_ptr",
    "filesystem": "filesystem",
    "functional": "function greater less",
    "initializer_list": "initializer_list",
    "iosfwd": "istream ostream",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "lock_guard mutex unique_lock",
    "new": "bad_alloc",
    "optional": "make_optional nullopt optional",
    "set": "set",
    "span": "dynamic_extent span",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string": "getline stod stoi stoll string to_string",
    "string_view": "string_view",
    "tuple": "get tie tuple",
    "type_traits": "decay_t enable_if_t is_arithmetic_v is_convertible_v is_integral_v is_same_v remove_cvref_t",
    "unordered_map": "unordered_map",
    "utility": "as_const exchange forward in_place move pair swap",
    "variant": "holds_alternative monostate variant visit",
    "vector": "vector",
}.items() for name in names.split()}
COMMENT = re.compile(r"//.*")
# What the last column may say besides rooms.
PUBLIC, EVERYTHING = "the public headers", "everything"


class Rooms:
    """The table: what each room may include, and to which room each public header belongs."""

    def __init__(self, page):
        rows = [(room, headers.strip(), allowed.strip()) for room, headers, allowed in ROW.findall(page)]
        whole = re.compile(f"{PUBLIC}|{EVERYTHING}|\\w+")
        self.allowed = {room: whole.findall(allowed) for room, _, allowed in rows}
        self.headers = {header: room for room, headers, _ in rows for header in re.findall(r"\w+", headers)}

    def upside_down(self):
        """Rooms that may include what stands in no row above them."""
        above = {PUBLIC, EVERYTHING}
        for room, allowed in self.allowed.items():
            yield from (f"docs/design.md: {room} may include {other}, which is no room above it" for other in allowed if other not in above)
            above.add(room)

    def may(self, room, include, quoted):
        """Whether a file of that room may include this. Other libraries' headers are no concern of the rooms."""
        first = include.split("/")[0]
        if first == "attend":
            return PUBLIC in self.allowed[room] or self.headers.get(Path(include).stem) in [room, *self.allowed[room]]
        if not quoted and first not in self.allowed:
            return True
        return "/" not in include or first in [room, *self.allowed[room]]


def room_of(parts, rooms):
    """The room of a source file; None for attend.h, which includes all public headers."""
    if parts[0] != "include":
        return parts[1] if parts[0] == "src" else parts[0]
    return None if parts[-1] == "attend.h" else rooms.headers.get(Path(parts[-1]).stem, parts[-1])


def types_of(text):
    """The types that a source defines in a namespace with a name."""
    scopes = []
    for namespace, end, name in (found.groups(default="") for found in SCOPE.finditer(text)):
        if end:
            scopes.pop()
        elif not name:
            scopes.append(namespace)
        elif "" not in scopes:
            yield "::".join([*scopes, name])


def missing_of(text):
    """The names of the standard library in a header that none of its includes brings, and what does."""
    included = {angled for _, angled in INCLUDE.findall(text)}
    for name in sorted(set(re.findall(r"\bstd::(\w+)", COMMENT.sub("", text)))):
        if name not in STANDARD:
            yield f"std::{name}, whose header scripts/check_rooms.py does not know"
        elif STANDARD[name] not in included:
            yield f"std::{name} without <{STANDARD[name]}>"


def faults(tree):
    taken = {}
    rooms = Rooms((tree / "docs/design.md").read_text())
    yield from rooms.upside_down()
    for folder in ("include", "src", *(room for room in rooms.allowed if not (tree / "src" / room).exists())):
        for path in sorted((tree / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            name, text = path.relative_to(tree), path.read_text()
            room = room_of(name.parts, rooms)
            if folder in ("include", "src"):
                yield from (f"{name}: {each} is a type of {taken[each]}" for each in types_of(text) if taken.setdefault(each, name) != name)
            if folder == "include":
                yield from (f"{name}: a public header names {each}" for each in missing_of(text))
            if folder == "include" and PUBLIC_DEPENDENCIES.search(text):
                yield f"{name}: a public header shows a dependency"
            if room is None or EVERYTHING in rooms.allowed.get(room, ()):
                continue
            if room not in rooms.allowed:
                yield f"{name}: docs/design.md knows no room for it"
                continue
            for quoted, angled in INCLUDE.findall(text):
                if not rooms.may(room, quoted or angled, bool(quoted)):
                    yield f"{name}: {room} may not include {quoted or angled}"


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
    print("\n".join(found) or "rooms: every include is one that docs/design.md allows, and no two types have one name")
    sys.exit(bool(found))
