"""Clang warns where a View, or a pointer, looks into a tensor that is gone when the line ends."""

import re
import shutil
import subprocess

import pytest

CLANG = shutil.which("clang++-16") or shutil.which("clang++")
HEAD = """#include <attend/attention.h>
#include <attend/explain.h>
#include <attend/layers.h>
using namespace attend;
Tensor make();
Linear layer();
Trace trace();
void use(const View& view);
"""
DANGLE = [
    "View v = make(); use(v);",
    "const MutableView v = make().view(); use(v);",
    "const float* p = make().data<float>(); use(View(p, DType::f32, {1}));",
    "const Dims& shape = make().shape(); use(View(nullptr, DType::f32, shape));",
    "const View w = layer().weight(); use(w);",
    "const View x = trace().input(); use(x);",
]
LAST = [
    "const Tensor t = make(); const View v = t; use(v);",
    "Tensor t = make(); const View part = t.view().slice(0, 0, 1).reshape({-1}); use(part);",
    "use(make()); use(make().view().slice(0, 0, 1));",
    "const Tensor out = attention(make(), make(), make()).out; use(out);",
]


@pytest.mark.skipif(not CLANG, reason="no Clang")
def test_clang_tells_what_dangles(repository):
    lines = DANGLE + LAST
    program = HEAD + "".join(f"void f{n}() {{ {line} }}\n" for n, line in enumerate(lines))
    done = subprocess.run([CLANG, "-std=c++20", "-fsyntax-only", "-Wall", f"-I{repository}/include", "-x", "c++", "-"],
                          input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = re.findall(r"^<stdin>:(\d+):\d+: warning: .*\[(.*)\]$", done.stderr, re.M)
    found = [(lines[int(number) - 1 - HEAD.count("\n")], kind) for number, kind in told]
    assert found == [(line, "-Wdangling") for line in DANGLE]
