"""What would look into a tensor that is gone when the line ends: as a struct's field it doesn't compile, else Clang warns."""

import re
import shutil
import subprocess

import pytest

CLANG = shutil.which("clang++-16") or shutil.which("clang++")
HEAD = """#include <attend/attend.h>
using namespace attend;
Tensor make();
const Tensor make_const();
std::optional<Tensor> make_optional();
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
    "const std::span<const float> row = make_const().row<float>(); use(View(row.data(), DType::f32, {1}));",
]
# Each a field of a public struct: C is the struct, F the field.
SET = ["C x; x.F = make();", "C x; x.F = make_const();", "C x{.F = make()};", "C x; Tensor t; x.F = std::move(t);"]
SET_OPTIONAL = ["C x; x.F = make_optional();"]
LASTS = ["C x; Tensor t; x.F = t;", "C x; const Tensor t = make(); x.F = t;", "Tensor t; C x{.F = t};",
         "Tensor t; C x{.F = t.view().slice(0, 0, 1)};", "C x; x.F = View(); x.F = {};", "C x = C{.F = make().view()};"]
LASTS_OPTIONAL = ["C x; std::optional<Tensor> t; x.F = t;", "C x; std::optional<View> v; x.F = v; v = x.F;",
                  "C x; x.F = std::nullopt; if (x.F) use(*x.F);"]
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


def fields(repository):
    """(struct, field, whether it may be left out): every field of a public header that is a View."""
    found = []
    for header in sorted((repository / "include/attend").glob("*.h")):
        for struct, body in re.findall(r"^struct (?:ATTEND_API )?(\w+)[^;{]*\{\n(.*?)^\};", header.read_text(), re.M | re.S):
            for kind, names in re.findall(r"^  ((?:std::optional<)?\w*View>?) ((?:\w+(?: = \{\})?(?:, )?)+);", body, re.M):
                found += [(struct, name, kind) for name in re.findall(r"(\w+)(?: = \{\})?(?:, |$)", names)]
    return found


def test_a_field_that_would_dangle_does_not_compile(repository):
    all_fields = fields(repository)
    kinds = {kind for _, _, kind in all_fields}
    # What is written to has no such field: a Tensor never becomes a MutableView by itself.
    assert kinds == {"FieldView", "OptionalView", "MutableView", "std::optional<MutableView>"}, all_fields
    options = [(struct, name, kind == "OptionalView") for struct, name, kind in all_fields if "Mutable" not in kind]
    assert {"mask", "bias", "distance_bias", "alibi_slopes", "sinks", "key_lengths", "query_starts", "key_starts", "dlse", "lse_low",
            "key_sizes", "tokens", "key_padding_mask", "attn_mask", "values", "top_keys"} <= {name for _, name, _ in options}

    def of_each_field(lines, of_optional):
        return [line.replace("F", name).replace("C", struct)
                for struct, name, optional in options for line in lines + of_optional * optional]

    refused, taken = of_each_field(SET, SET_OPTIONAL), of_each_field(LASTS, LASTS_OPTIONAL)
    for compiler in filter(None, [shutil.which("c++"), CLANG]):
        program = HEAD + "".join(f"void f{n}() {{ {line} }}\n" for n, line in enumerate(refused + taken))
        flags = ["-fmax-errors=0"] if compiler.endswith("c++") else ["-ferror-limit=0", "-Wno-dangling"]
        done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", *flags, f"-I{repository}/include", "-x", "c++", "-"],
                              input=program, capture_output=True, text=True, cwd=repository)
        told = {int(number) - 1 - HEAD.count("\n") for number in re.findall(r"^<stdin>:(\d+):\d+: error: .*deleted", done.stderr, re.M)}
        assert [line for n, line in enumerate(refused + taken) if n in told] == refused, (compiler, done.stderr)
        assert done.stderr.count(" error: ") == len(refused), done.stderr
