"""The check of the rooms finds what goes against the table in docs/design.md, types of one name, a public header that includes too
little, and nothing else."""

import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = """
| room | holds | its public headers | may include |
|---|---|---|---|
| `src/core/` | [Tensor](x.md) | tensor | |
| `src/kernels/` | loops | | core |
| `src/io/` | files | io | core |
| `benchmarks/` | speed | | the public headers |
| `tests/` | | | everything |
"""
GOOD = {
    "include/attend/attend.h": '#include "attend/tensor.h"',
    "include/attend/io.h": '#include <string>\n#include "attend/tensor.h"',
    "src/core/tensor.cpp": '#include <fmt/format.h>\n#include "attend/tensor.h"\n#include "core/message.h"',
    "src/kernels/simd/avx2.h": '#include <immintrin.h>\n#include "core/half.h"\n#include "core/message.h"',
    "benchmarks/bench.cpp": '#include <attend/io.h>\n#include "roofs.h"',
    "tests/io/npy_test.cpp": '#include "kernels/fused.h"\n#include "tests/expect.h"',
}


def check(tree, files, table=TABLE):
    for name, text in {"docs/design.md": table, **GOOD, **files}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text + "\n")
    done = subprocess.run([sys.executable, REPOSITORY / "scripts/check_rooms.py", tree], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_what_the_table_allows_passes(tmp_path):
    assert check(tmp_path, {}) == (0, "rooms: every include is one that docs/design.md allows, and no two types have one name\n")


@pytest.mark.parametrize("name, include, says", [
    ("src/core/a.cpp", '"kernels/fused.h"', "src/core/a.cpp: core may not include kernels/fused.h"),
    ("src/core/a.h", '"attend/io.h"', "src/core/a.h: core may not include attend/io.h"),
    ("src/io/a.cpp", '"kernels/fused.h"', "src/io/a.cpp: io may not include kernels/fused.h"),
    ("src/kernels/simd/a.h", '"../../io/npy.h"', "src/kernels/simd/a.h: kernels may not include ../../io/npy.h"),
    ("src/kernels/a.h", '"attend/attend.h"', "src/kernels/a.h: kernels may not include attend/attend.h"),
    ("include/attend/tensor.h", '"attend/io.h"', "include/attend/tensor.h: core may not include attend/io.h"),
    ("include/attend/tensor.h", "<fmt/format.h>", "include/attend/tensor.h: a public header shows a dependency"),
    ("include/attend/new.h", "<string>", "include/attend/new.h: docs/design.md knows no room for it"),
    ("src/new/a.cpp", "<string>", "src/new/a.cpp: docs/design.md knows no room for it"),
    ("benchmarks/a.cpp", '"kernels/fused.h"', "benchmarks/a.cpp: benchmarks may not include kernels/fused.h"),
    ("benchmarks/a.cpp", "<core/message.h>", "benchmarks/a.cpp: benchmarks may not include core/message.h"),
])
def test_what_it_does_not_is_found(tmp_path, name, include, says):
    assert check(tmp_path, {name: f"#include {include}"}) == (1, says + "\n")


def test_a_room_may_include_those_above_it_alone(tmp_path):
    status, text = check(tmp_path, {}, TABLE.replace("| tensor | |", "| tensor | io |"))
    assert status == 1 and "docs/design.md: core may include io, which is no room above it" in text


def in_namespaces(*namespaces, text):
    return "\n".join([*(f"namespace {name} {{".replace("  ", " ") for name in namespaces), text, *("}  // namespace" for _ in namespaces)])


@pytest.mark.parametrize("first, second, name", [
    (in_namespaces("attend", text="class Line {\n};"), in_namespaces("attend", text="struct Line {\n};"), "attend::Line"),
    (in_namespaces("attend", text="template <class T> struct Line : T {\n};"),
     in_namespaces("attend", "", text="class Line {\n};") + "\n" + in_namespaces("attend", text="enum class Line { a };"), "attend::Line"),
    (in_namespaces("attend", text="struct Row::Line {\n};"), in_namespaces("attend", text="struct Row::Line {\n};"), "attend::Row::Line"),
])
def test_types_of_one_name_are_found(tmp_path, first, second, name):
    status, text = check(tmp_path, {"src/io/a.h": first, "src/kernels/b.cpp": second})
    assert (status, text) == (1, f"src/kernels/b.cpp: {name} is a type of src/io/a.h\n")


@pytest.mark.parametrize("other", [
    in_namespaces("attend", text="struct Line;\nenum class Line : int;"),
    in_namespaces("attend", text="struct Page::Line {\n};\nstruct Lines {\n};"),
    in_namespaces("attend", "", text="struct Line {\n};"),
    in_namespaces("attend::page", text="struct Line {\n};"),
    in_namespaces("attend", text="struct Page {\n  struct Line {\n  };\n};"),
])
def test_other_names_pass(tmp_path, other):
    assert check(tmp_path, {"src/io/a.h": in_namespaces("attend", text="struct Line {\n};"), "src/kernels/b.cpp": other})[0] == 0


def test_files_may_have_types_of_their_own(tmp_path):
    own = in_namespaces("attend", "", text="struct Line {\n};")
    assert check(tmp_path, {"src/io/a.cpp": own, "src/kernels/b.cpp": own})[0] == 0


@pytest.mark.parametrize("text, says", [
    ("#include <string>\nstd::string a;  // std::equal\nbool b = std::equal(a.begin(), a.end(), 'x');", "std::equal without <algorithm>"),
    ("std::int64_t a;", "std::int64_t without <cstdint>"),
    ("std::jthread a;", "std::jthread, whose header scripts/check_rooms.py does not know"),
])
def test_a_public_header_includes_what_it_names(tmp_path, text, says):
    assert check(tmp_path, {"include/attend/tensor.h": text}) == (1, f"include/attend/tensor.h: a public header names {says}\n")
    assert check(tmp_path / "src", {"src/core/tensor.h": text})[0] == 0
