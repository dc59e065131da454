#!/usr/bin/env python3
"""What coverage.sh prints: for each folder, and each file from the least on, how many branches and lines the tests took.

Reads llvm-cov's JSON (export -summary-only) from standard input. A branch is one outcome of one condition.
"""

import collections
import json
import pathlib
import sys


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folders, files = collections.defaultdict(lambda: [0, 0, 0, 0]), []
    for file in json.load(sys.stdin)["data"][0]["files"]:
        path = pathlib.Path(file["filename"]).relative_to(root)
        of = file["summary"]
        counts = [of[what][number] for what in ("branches", "lines") for number in ("covered", "count")]
        files.append((path, counts))
        folders[path.parent] = [a + b for a, b in zip(folders[path.parent], counts)]
    rows = sorted(folders.items()) + sorted(files, key=lambda row: share(*row[1][:2]))
    print(f"{'':44} {'branches':>8} {'taken':>7} {'lines':>8} {'run':>7}")
    for path, (taken, branches, run, lines) in rows:
        print(f"{path!s:44} {branches:8} {share(taken, branches):7.1%} {lines:8} {share(run, lines):7.1%}")


def share(part, whole):
    return part / whole if whole else 1


if __name__ == "__main__":
    main()
