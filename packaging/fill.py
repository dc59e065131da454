#!/usr/bin/env python3
"""Writes the recipes with the address and the hashes of an archive of the sources into build/packaging/.
Usage: fill.py ARCHIVE ADDRESS   ADDRESS: the folder that it is fetched from, such as https://example.org/attend"""

import hashlib
import pathlib
import shutil
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
PLACEHOLDER = "https://example.org/attend"


def main(archive, address):
    content = pathlib.Path(archive).read_bytes()
    # An archive of another version would make recipes that fit nothing.
    name = pathlib.Path(archive).name
    texts = {path: path.read_text() for path in sorted(FOLDER.rglob("*")) if path.is_file() and path.suffix not in (".md", ".py", ".pyc")}
    texts |= {path: path.read_text() for path in FOLDER.rglob("conanfile.py")}
    if not any(f"{PLACEHOLDER}/{name}" in text for text in texts.values()):
        sys.exit(f"fill.py: no recipe fetches {name}")
    out = FOLDER.parent / "build/packaging"
    shutil.rmtree(out, ignore_errors=True)
    for path, text in texts.items():
        text = text.replace(PLACEHOLDER, address.rstrip("/"))
        for digest in (hashlib.sha512(content).hexdigest(), hashlib.sha256(content).hexdigest()):
            text = text.replace("0" * len(digest), digest)
        to = out / path.relative_to(FOLDER)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)
    print(f"the recipes for {name} are in {out.relative_to(FOLDER.parent)}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
