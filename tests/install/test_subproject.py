"""In another project, by add_subdirectory or FetchContent, attend is one library: nothing else of that project changes."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
# What finds no package that only models or pictures need, nor the command.
HIDDEN = ["-DATTEND_FONT_FILE=ATTEND_FONT_FILE-NOTFOUND",
          *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON" for package in ("PkgConfig", "PNG", "Freetype", "CLI11"))]
# How attend comes, and what the project says of its own libraries.
WAYS = {
    "static": ("fetched", ["-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON"]),
    "shared": ("subdirectory", ["-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", "-DBUILD_SHARED_LIBS=ON"]),
    "small static": ("fetched", ["-DSMALL=ON", *HIDDEN]),
    "small shared": ("subdirectory", ["-DSMALL=ON", *HIDDEN, "-DBUILD_SHARED_LIBS=ON"]),
}


def output_of(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


class Project:
    """tests/install/subproject, configured."""

    def __init__(self, folder, *options):
        self.folder = folder
        query = folder / ".cmake/api/v1/query"
        query.mkdir(parents=True, exist_ok=True)
        (query / "codemodel-v2").touch()
        output_of("cmake", "-G", "Ninja", "-S", HERE / "subproject", "-B", folder, *options)
        reply = folder / ".cmake/api/v1/reply"
        index = json.loads(max(reply.glob("index-*.json")).read_text())

        def read(file):
            return json.loads((reply / file).read_text())

        model = read(index["reply"]["codemodel-v2"]["jsonFile"])["configurations"][0]
        self.targets = {target["name"]: read(target["jsonFile"]) for target in model["targets"]}
        self.installing_folders = {folder["source"] for folder in model["directories"] if read(folder["jsonFile"]).get("installers")}
        lines = (folder / "CMakeCache.txt").read_text().splitlines()
        cache = dict(line.split("=", 1) for line in lines if "=" in line and line[0] not in "#/")
        self.cache = {name.split(":")[0]: value for name, value in cache.items() if not name.endswith(":INTERNAL")}


@pytest.mark.parametrize("kind", WAYS)
def test_it_adds_a_library_and_nothing_else(kind, repository, tmp_path):
    way, options = WAYS[kind]
    alone = Project(tmp_path, *options, "-DCMAKE_UNITY_BUILD=ON")
    project = Project(tmp_path, f"-DATTEND={way}", f"-DATTEND_TREE={repository}")

    assert set(project.targets) == {"own", "program", "attend", "attend_objects"}
    assert project.targets["attend"]["type"] == f"{kind.split()[-1].upper()}_LIBRARY"
    for what in ("type", "artifacts", "compileGroups"):
        assert project.targets["own"][what] == alone.targets["own"][what]
    assert project.installing_folders == {"."}
    without = {define["define"] for group in project.targets["program"]["compileGroups"] for define in group.get("defines", [])}
    assert without == ({"ATTEND_WITHOUT_MODELS", "ATTEND_WITHOUT_PICTURES"} if "small" in kind else set())
    assert not [source for source in project.targets["attend_objects"]["sources"] if "unity" in source["path"].lower()]

    changed = {name for name, value in alone.cache.items() if project.cache[name] != value}
    assert changed == {"ATTEND", "ATTEND_TREE"}
    added = {name for name in set(project.cache) - set(alone.cache) if not name.startswith("ATTEND_")}
    # Of CMake's own there are those of the assembler alone, which takes in the font.
    assert not {name for name in added if name.startswith(("CMAKE_", "BUILD_")) and ("small" in kind or not name.startswith("CMAKE_ASM_"))}


@pytest.mark.parametrize("switch", ["MODELS", "PICTURES"])
def test_the_headers_of_what_is_left_out_say_so(switch, repository):
    def errors_of(headers):
        compiler = ["c++", "-std=c++20", "-fsyntax-only", f"-I{repository}/include", f"-DATTEND_WITHOUT_{switch}", "-x", "c++", "-"]
        text = "".join(f"#include <attend/{header}>\n" for header in headers)
        done = subprocess.run(compiler, input=text, capture_output=True, text=True)
        errors = re.findall(r"(\w+\.h):\d+:\d+: error: #error \"?(.*?)\"?$", done.stderr, re.M)
        assert (done.returncode != 0) == bool(errors), done.stderr
        return dict(errors)

    without = f"#ifdef ATTEND_WITHOUT_{switch}\n#error"
    refused = [header.name for header in sorted(repository.glob("include/attend/*.h")) if without in header.read_text()]
    assert len(refused) > 3
    assert errors_of(refused) == {name: f"attend was built with ATTEND_{switch}=OFF: it has no {name}" for name in refused}
    assert errors_of(["attend.h"]) == {}


def test_the_header_of_mpi_says_what_it_needs(repository):
    text = (repository / "include/attend/mpi.h").read_text()
    # Where there is an MPI, as where there is none.
    refused = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-I{repository}/include", "-x", "c++", "-"],
                             input=text.replace("<mpi.h>", "<none/mpi.h>").replace("#pragma once", ""), capture_output=True, text=True)
    errors = [line for line in refused.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1 and "attend/mpi.h needs MPI 3" in errors[0] and "attend::mpi" in errors[0]


@pytest.mark.parametrize("program", ["BUILD_COMMAND", "FUZZ"])
def test_programs_need_the_whole_library(program, repository, tmp_path):
    done = subprocess.run(["cmake", "-S", repository, "-B", tmp_path, "-DATTEND_MODELS=OFF", f"-DATTEND_{program}=ON"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and f"ATTEND_{program}=ON needs ATTEND_MODELS=ON and ATTEND_PICTURES=ON" in done.stderr


@pytest.fixture
def built(request, command, repository):
    """A function that builds the project as the command was built."""
    build = pathlib.Path(command).parent
    if not request.config.getoption("--every-build"):
        pytest.skip("compiles the library four times: --every-build")
    same = re.findall(r"^((?:CMAKE_BUILD_TYPE|CMAKE_CXX_COMPILER|CMAKE_CXX_FLAGS\w*|ATTEND_WERROR|ATTEND_SANITIZE):\w+=.*)$",
                      (build / "CMakeCache.txt").read_text(), re.M)
    folder = build.parent / "subproject"

    def make(way, *options):
        shutil.rmtree(folder, ignore_errors=True)
        Project(folder, f"-DATTEND={way}", f"-DATTEND_TREE={repository}", *(f"-D{line}" for line in same), *options)
        output_of("cmake", "--build", folder)
        return folder

    yield make
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("kind", WAYS)
def test_the_project_works_and_installs_what_is_its_own(kind, built, command, tmp_path):
    way, options = WAYS[kind]
    folder = built(way, *options)
    assert output_of(folder / "program") == output_of(command, "--version").strip() + " 0.6698 caught\n"
    output_of("cmake", "--install", folder, "--prefix", tmp_path)
    library = "libown.so" if "shared" in kind else "libown.a"
    installed = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(installed) == ["bin/program", f"lib/{library}"]
