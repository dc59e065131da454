#!/usr/bin/env python3
"""Checks that includes follow the rooms' order: a room may include itself and the rooms that ROOMS gives it.

Prints each include that does not, and exits 1 if there is one. docs/design.md says what the rooms are for.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

ROOMS = {
    "core": [],
    "kernels": ["core"],
    "attention": ["core", "kernels"],
    "io": ["core"],
    "layers": ["core", "kernels", "attention", "io"],
    "picture": ["core"],
    "explain": ["core", "kernels", "attention", "io", "layers", "picture"],
    # The command and the Python package are thin doors: they see the public headers alone.
    "cli": [],
    "python": [],
}
# Which room a public header belongs to.
HEADERS = {"error": "core", "dtype": "core", "tensor": "core", "random": "core", "threads": "core", "attention": "attention", "kv_cache": "attention", "layers": "layers", "io": "io",
           "picture": "picture", "explain": "explain"}
PUBLIC_DEPENDENCIES = re.compile(r"#include <(fmt|nlohmann|png|zlib|tbb|ft2build|freetype|CLI)[/.>]")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def room_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "include":
        return HEADERS.get(path.stem)  # None: attend.h, which includes them all
    return parts[1] if parts[0] == "src" else parts[0]


def target_room(path, include):
    if include.startswith("attend/"):
        return HEADERS.get(Path(include).stem, "attend")
    first = include.split("/")[0]
    return first if "/" in include else room_of(path)


def faults():
    for folder in ("include", "src", "cli", "python"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            room, text, name = room_of(path), path.read_text(), path.relative_to(ROOT)
            if folder == "include" and PUBLIC_DEPENDENCIES.search(text):
                yield f"{name}: a public header shows a dependency"
            if room is None:
                continue
            if room not in ROOMS:
                yield f"{name}: no room is called {room}"
                continue
            for include in INCLUDE.findall(text):
                target = target_room(path, include)
                if room in ("cli", "python"):
                    allowed = include.startswith("attend/") or target == room
                else:
                    allowed = target == room or target in ROOMS[room]
                if not allowed:
                    yield f"{name}: {room} may not include {include} ({target})"


if __name__ == "__main__":
    found = list(faults())
    print("\n".join(found) or f"rooms: every include follows the order {' < '.join(ROOMS)}")
    sys.exit(bool(found))
