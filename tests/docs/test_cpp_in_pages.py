"""The pages' C++ compiles, and the names of their CMake exist."""

import re
import shutil
import subprocess

import pytest
from page_code import PAGES, REPOSITORY, blocks, name_of

# What a page's snippets take for granted.
GIVEN = {
    "docs/inside.md": "extern const attend::Tensor q, k, v; extern const attend::AttentionOptions options;",
    "docs/models.md": "extern const attend::Model model; extern const attend::Tokenizer tokenizer;",
    "docs/ring.md": ("using namespace attend;"
                     "extern const Tensor q, k, v, own_k, own_v; extern const int T, n; extern RingTransport& ranks;"),
}
# Beside attend/attend.h.
INCLUDES = "#include <attend/attend.h>\n#include <string>\n#include <vector>\n"
HEADERS = "".join(path.read_text() for path in (REPOSITORY / "include/attend").glob("*.h"))


def snippets(page):
    """Between fences of cpp, or indented where lines end as statements of C++ do."""
    return [block for block in blocks(page) if block.language == "cpp" or (
        block.language == "indented" and any(line.split("//")[0].rstrip().endswith((";", "{")) for line in block.text.splitlines()))]


CPP = [page for page in PAGES if snippets(page)]


def program(page):
    """A function of each snippet, whose errors are those of the page's lines; what it includes stands before."""
    lines = [INCLUDES, GIVEN.get(name_of(page), "")]
    for n, block in enumerate(snippets(page)):
        text = re.sub(r"^#include .*$", "", block.text, flags=re.MULTILINE)
        lines.append("".join(re.findall(r"^#include .*\n", block.text, re.MULTILINE)))
        lines.append(f"void snippet_{n}() {{\n#line {block.line} \"{name_of(page)}\"\n{text}\n}}\n")
    return "\n".join(lines)


def test_there_are_snippets():
    assert {name_of(page) for page in CPP} >= {"docs/cpp.md", "docs/inside.md", "docs/models.md", "docs/ring.md"}
    assert set(GIVEN) <= {name_of(page) for page in CPP}
    assert len(snippets(REPOSITORY / "docs/models.md")) == 4


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("page", CPP, ids=name_of)
def test_snippets_compile(page):
    compiler = ["c++", "-std=c++20", "-fsyntax-only", f"-I{REPOSITORY}/include", "-x", "c++", "-"]
    done = subprocess.run(compiler, input=program(page), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["docs/cmake.md", "docs/cpp.md"])
def test_names_of_cmake_exist(name):
    text = (REPOSITORY / name).read_text()
    lists = "".join((REPOSITORY / path).read_text() for path in ("CMakeLists.txt", "src/CMakeLists.txt"))
    switches = set(re.findall(r"\bATTEND_[A-Z]\w*", text))
    for switch in switches:
        assert re.search(rf"(option|set)\({switch} ", lists) or re.search(rf"#define {switch}\b", HEADERS), switch
    for row, default in re.findall(r"^\| `(\w+)` \| (ON|OFF) \|", text, re.MULTILINE):
        value = re.search(rf'option\({row} "[^"]*" (\S+)\)', lists)[1]
        assert value == default or (default == "OFF" and value in ("${programs}", "${PROJECT_IS_TOP_LEVEL}")), row
    for target in set(re.findall(r"\battend::(?:attend|mpi)\b", text)):
        assert f"add_library({target} ALIAS " in lists, target
    assert "BUILD_SHARED_LIBS" not in text or "option(BUILD_SHARED_LIBS " in lists
    assert switches or "attend::attend" in text
