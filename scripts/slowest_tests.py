#!/usr/bin/env python3
"""The slowest 20 tests of a build, C++ and Python in one list, and how many C++ tests ran: ctest counts the processes that they run in.
Usage: slowest_tests.py FOLDER, in which gtest and pytest have written .xml files (make test)."""

import pathlib
import sys
import xml.etree.ElementTree


def tests_of(path):
    """(seconds, name, outcome) of each test that ran; the outcome is passed, skipped or failed."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.get("result", "completed") == "suppressed" or case.get("status") == "notrun":  # another shard's, or filtered out
            continue
        marks = {mark.tag for mark in case}
        skipped = "skipped" in marks or case.get("result") == "skipped"
        outcome = "failed" if marks & {"failure", "error"} else "skipped" if skipped else "passed"
        yield float(case.get("time")), f"{case.get('classname')}.{case.get('name')}", outcome


def main(folder):
    files = {path: list(tests_of(path)) for path in sorted(pathlib.Path(folder).glob("*.xml"))}
    cpp = [test for path, tests in files.items() if not path.stem.startswith("python") for test in tests]
    passed, skipped = (sum(outcome == wanted for _, _, outcome in cpp) for wanted in ("passed", "skipped"))
    if cpp:
        print(f"{passed} passed, {skipped} skipped in C++")
    slowest = sorted(((seconds, path.stem, name) for path, tests in files.items() for seconds, name, _ in tests), reverse=True)[:20]
    print("the slowest, in seconds:")
    for seconds, stem, name in slowest:
        print(f"{seconds:8.1f}  {name}" + (f" ({stem})" if stem.startswith("target.") else ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
