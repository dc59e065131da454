#!/usr/bin/env python3
"""Prints what the wheels and the static command have in them, as a CycloneDX 1.5 bill of materials (JSON)."""

import json
import pathlib
import re
from importlib.metadata import version

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def component(name, version, licence, kind="library", **more):
    return {"type": kind, "bom-ref": f"{name}@{version}", "name": name, "version": version,
            "licenses": [{"license": {"id": licence}}], **more}


def of_sources():
    """The libraries of scripts/sources.txt: Debian's names for their sources, and the hash of each archive."""
    for line in (REPOSITORY / "scripts/sources.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, archive, digest, licence, _ = line.split()
        number = re.search(r"_(.*?)(\+ds\d*|\+dfsg|\.dfsg)?\.orig\.", archive)[1]
        yield component(name, number, licence, hashes=[{"alg": "SHA-256", "content": digest}],
                        purl=f"pkg:deb/debian/{name}@{number}?arch=source")


def bill():
    ours = re.search(r'ATTEND_VERSION_STRING "(.*)"', (REPOSITORY / "include/attend/version.h").read_text())[1]
    zig = version("ziglang")
    parts = [
        *of_sources(),
        component("nanobind", version("nanobind"), "BSD-3-Clause", purl=f"pkg:pypi/nanobind@{version('nanobind')}"),
        component("libc++", f"zig-{zig}", "Apache-2.0", purl=f"pkg:pypi/ziglang@{zig}"),
        component("musl", f"zig-{zig}", "MIT", purl=f"pkg:pypi/ziglang@{zig}"),
        component("DejaVu Sans", "2.37", "Bitstream-Vera", kind="data"),
    ]
    attend = component("attend", ours, "Apache-2.0", kind="application")
    depends = [{"ref": attend["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": attend}, "components": parts,
            "dependencies": depends}


print(json.dumps(bill(), indent=1))
