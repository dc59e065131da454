"""The table of .ci/steps: the steps that it leaves out run nothing of what changed, and what it does not know needs everything."""

import fnmatch
import json
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS = (REPOSITORY / ".ci/steps").read_text()
EVERY = set(re.search(r'^every_step="(.*)"$', STEPS, re.MULTILINE)[1].split())
TABLE = re.search(r"^table='\n(.*?)^'$", STEPS, re.MULTILINE | re.DOTALL)[1].replace("\\\n", "")
ROWS = [[part.split() for part in line.split("|")] for line in TABLE.splitlines()]
# Those of what computes alone.
COMPUTING = {"tsan", "aarch64", "asan_kernels", "tidy_kernels"}
# Not where there is no clone.
TRACKED = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True).stdout.splitlines()


def steps(*paths, tree=REPOSITORY):
    return set(subprocess.check_output([tree / ".ci/steps", *paths], text=True).split())


def test_its_steps_are_those_that_run_asks_for():
    run = (REPOSITORY / ".ci/run").read_text()
    assert set(re.findall(r"\bwanted (\w+)", run)) == EVERY
    assert all(set(names) <= EVERY | {"all"} for _, names in ROWS)


@pytest.mark.parametrize("path, wanted", [
    ("docs/inside.md", set()),
    ("docs/pictures/attention.svg", set()),
    ("README.md", set()),
    ("CITATION.cff", set()),
    (".github/workflows/ci.yml", set()),
    ("packaging/vcpkg/ports/attend/portfile.cmake", set()),
    ("packaging/conan/test_package/program.cpp", set()),
    ("python/attend/torch.py", {"nohup"}),
    ("tests/pytorch/test_torch.py", {"nohup"}),
    ("examples/notebooks/001_journey.ipynb", {"nohup"}),
    ("python/src/module.cpp", {"nohup", "tidy"}),
    ("page/src/main.tsx", {"browser", "wasm"}),
    ("src/session/pass.cpp", EVERY - COMPUTING),
    ("include/attend/model_info.h", EVERY - COMPUTING),
    ("tests/fuzz/mutators/gguf_form.cpp", {"nohup", "asan", "tidy"}),
    ("tests/fuzz/corpus/npz/a", EVERY),
    ("src/core/tensor.cpp", EVERY),
    ("src/io/npy.cpp", EVERY),
    ("include/attend/attention.h", EVERY),
    ("tests/expect.h", EVERY),
    ("page/engine/engine.cpp", EVERY),
    ("scripts/README.md", EVERY),
    ("tests/requirements.txt", EVERY),
    ("tests/golden/layers.safetensors", EVERY),
    ("a/new/place", EVERY),
    ("new", EVERY),
    ("", EVERY),
])
def test_a_path_has_the_steps_of_its_row(path, wanted):
    assert steps(path) == wanted


def test_a_change_has_the_steps_of_all_its_paths():
    assert steps("docs/inside.md", "python/src/module.cpp", "page/src/main.tsx") == {"nohup", "tidy", "browser", "wasm"}
    assert steps("docs/inside.md", "src/core/tensor.cpp") == EVERY


@pytest.mark.skipif(not TRACKED, reason="not a clone")
def test_each_pattern_has_a_file():
    for patterns, _ in ROWS:
        for pattern in patterns:
            assert fnmatch.filter(TRACKED, pattern), pattern


def row(path):
    return next((names for patterns, names in ROWS if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)), ["all"])


def lacks(path, *names):
    """Whether the table leaves out one of these steps where this path has changed."""
    return row(path) != ["all"] and not set(names) <= set(row(path))


# What the steps' builds are made of, and what their tests read.
@pytest.mark.skipif(not TRACKED, reason="not a clone")
def test_what_is_compiled_or_read_by_the_tests_in_cpp_needs_every_step_that_could_meet_it():
    folders = r"(src|include|cli|cmake|tests|examples|benchmarks|scripts|\.ci|page/engine)/(.*/)?"
    read = r"tests/(golden|fuzz/corpus)/.*(?<!\.py)|Makefile|CMake.*"
    needed = re.compile(folders + r"(CMakeLists\.txt|[^/]*\.(cpp|h|S|cmake|sh|map))|" + read)
    paths = [path for path in TRACKED if needed.fullmatch(path)]
    assert len(paths) > 500
    for path in paths:
        assert not lacks(path, "nohup", "asan", "tidy"), path
        # Of tests/ the pages' tests build two programs; the rest is linked to the tests in C++ alone.
        if not path.startswith("tests/") or path.startswith(("tests/wasm/", "tests/golden/", "tests/same_bits")):
            assert not lacks(path, "browser", "wasm"), path
        if not path.startswith(("src/", "include/", "cli/", "tests/")) or not path.endswith((".cpp", ".h", ".S")):
            assert row(path) == ["all"], path


def read_by(preset, folder, *options):
    """The files of this tree that a build of the library and its C++ tests compiles, or includes in what it compiles."""
    subprocess.run(["cmake", "--preset", preset, "-B", folder, "-DATTEND_BUILD_TESTS=ON", "-DATTEND_UNITY_BUILD=OFF", *options],
                   cwd=REPOSITORY, check=True, capture_output=True)
    commands = json.loads((folder / "compile_commands.json").read_text())
    sources = [command["file"] for command in commands if command["file"].startswith((f"{REPOSITORY}/src/", f"{REPOSITORY}/tests/"))]
    assert len(sources) > 80
    compiler, flags = None, {}
    for command in commands:
        compiler, *words = shlex.split(command["command"].replace("-isystem ", "-isystem"))
        flags |= dict.fromkeys(word for word in words if re.match("-(I|isystem|D|std|m)", word))
    everything = "".join(f'#include "{source}"\n' for source in sources if source.endswith(".cpp"))
    rule = subprocess.run([compiler, *flags, "-MM", "-MG", "-x", "c++", "-"], input=everything, capture_output=True, text=True)
    assert rule.returncode == 0, rule.stderr
    words = sources + rule.stdout.split()
    return {str(pathlib.Path(word).relative_to(REPOSITORY)) for word in words if word.startswith(f"{REPOSITORY}/")}


def check_none_lacks(paths, *names):
    paths = set(paths) & set(TRACKED)
    assert len(paths) > 200
    assert [path for path in sorted(paths) if lacks(path, *names)] == []


# This machine's compiler reads what AArch64's does, but for the kernels of that target: all that is beside them counts.
@pytest.mark.skipif(not TRACKED, reason="not a clone")
def test_what_is_compiled_with_the_tests_of_what_computes_needs_their_steps(tmp_path):
    run, script = (REPOSITORY / ".ci/run").read_text(), (REPOSITORY / "scripts/test_aarch64.sh").read_text()
    thread = re.search(r"build_tests tsan '-DATTEND_TEST_FOLDERS=([\w;]+)' -DATTEND_MODELS=OFF -DATTEND_PICTURES=OFF\n", run)
    # What the address sanitizer leaves out is among them.
    without = re.search(r'local without="([\w;]+)"', run)[1]
    arm = re.search(r'whole=OFF folders="([\w;]+)" .*-DATTEND_MODELS=\$whole -DATTEND_PICTURES=\$whole ', script, re.DOTALL)
    read = read_by("release", tmp_path, f"-DATTEND_TEST_FOLDERS={thread[1]};{arm[1]}", "-DATTEND_MODELS=OFF", "-DATTEND_PICTURES=OFF")
    assert set(without.split(";")) <= {*thread[1].split(";"), *arm[1].split(";")}
    assert {"src/kernels/rows.h", "src/ring/call.cpp", "tests/layers/linear_test.cpp", "include/attend/layers.h"} <= read
    read |= {path for path in TRACKED if path.startswith(("src/kernels/", "tests/kernels/"))}
    check_none_lacks(read, *COMPUTING)


@pytest.mark.skipif(not TRACKED or not shutil.which("em++"), reason="not a clone, or no emscripten")
def test_what_is_compiled_to_webassembly_needs_its_step(tmp_path):
    models = (REPOSITORY / "build/sources/pcre2/.pinned").exists()
    read = read_by("wasm", tmp_path, f"-DATTEND_PAGE_MODELS={'ON' if models else 'OFF'}")
    assert not models or "src/models/config.cpp" in read
    check_none_lacks(read, "wasm")


def git(tree, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)


def test_what_changed_is_taken_since_the_merge_base(tmp_path):
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    for name in (".ci/steps", "src/a.cpp", "docs/a.md", "page/src/a.ts"):
        (origin / name).parent.mkdir(parents=True, exist_ok=True)
        (origin / name).write_text(name)
    shutil.copy(REPOSITORY / ".ci/steps", origin / ".ci/steps")
    assert steps(tree=origin) == EVERY  # no repository
    git(origin, "init")
    git(origin, "add", ".")
    git(origin, "commit", "-m", "first")
    assert steps(tree=origin) == EVERY  # no origin/main
    git(tmp_path, "clone", origin, clone)
    assert steps(tree=clone) == EVERY  # nothing changed: this is main itself
    (clone / "docs/b.md").write_text("not committed")
    assert steps(tree=clone) == set()
    git(clone, "mv", "docs/a.md", "page/src/a.md")
    git(clone, "commit", "-m", "second")
    assert steps(tree=clone) == {"browser", "wasm"}
    # What origin has meanwhile is none of this change's.
    (origin / "src/a.cpp").write_text("another")
    git(origin, "commit", "-am", "third")
    git(clone, "fetch")
    assert steps(tree=clone) == {"browser", "wasm"}
    git(clone, "mv", "src/a.cpp", "docs/a.cpp")  # it is gone from where it was
    git(clone, "commit", "-m", "fourth")
    assert steps(tree=clone) == EVERY
