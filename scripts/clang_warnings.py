#!/usr/bin/env python3
"""What Clang says of the sources that a program of a build is not made of: its warnings, as errors. They are read, not compiled.
Usage: clang_warnings.py BUILD_FOLDER PROGRAM"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def compiling(entry):
    """The words of a command, without a cache before them."""
    words = shlex.split(entry["command"])
    return words[next(place for place, word in enumerate(words) if "clang++" in word) :]


def made_by(entry):
    words = compiling(entry)
    return words[words.index("-o") + 1]


def reading(entry):
    """The same, so that it only reads: whether its precompiled header is there or not."""
    words = compiling(entry)
    place = words.index("-o")
    del words[place : place + 2]
    while "-include-pch" in words:
        place = words.index("-include-pch")
        del words[place - 1 : place + 3]  # -Xclang -include-pch -Xclang FILE
    words[words.index("-c")] = "-fsyntax-only"
    return words


def said_of(entry):
    done = subprocess.run([*reading(entry), "-Werror"], cwd=entry["directory"], capture_output=True, text=True)
    return done.returncode, done.stderr


def main(folder, program):
    compiled = set(subprocess.check_output(["ninja", "-C", folder, "-t", "inputs", program], text=True).split())
    entries = json.loads((pathlib.Path(folder) / "compile_commands.json").read_text())
    others = [entry for entry in entries if entry["file"].endswith(".cpp") and made_by(entry) not in compiled]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(said_of, others))
    for _, words in results:
        sys.stderr.write(words)
    print(f"Clang has read the {len(others)} sources that {program} is not made of")
    return int(any(status != 0 for status, _ in results))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
