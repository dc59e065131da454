"""The table of .ci/steps: the steps that it leaves out run nothing of what changed, and what it does not know needs everything."""

import fnmatch
import pathlib
import re
import shutil
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS = (REPOSITORY / ".ci/steps").read_text()
EVERY = set(re.search(r'^every_step="(.*)"$', STEPS, re.MULTILINE)[1].split())
TABLE = re.search(r"^table='\n(.*?)^'$", STEPS, re.MULTILINE | re.DOTALL)[1]
ROWS = [[part.split() for part in line.split("|")] for line in TABLE.splitlines()]
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
    ("python/attend/torch.py", {"nohup"}),
    ("tests/pytorch/test_torch.py", {"nohup"}),
    ("python/src/module.cpp", {"nohup", "tidy"}),
    ("page/src/main.tsx", {"browser", "wasm"}),
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


# What the steps' builds are made of, and what their tests read.
@pytest.mark.skipif(not TRACKED, reason="not a clone")
def test_what_is_compiled_or_read_by_the_tests_in_cpp_needs_everything():
    folders = r"(src|include|cli|cmake|tests|examples|benchmarks|scripts|\.ci|page/engine)/(.*/)?"
    read = r"tests/(golden|fuzz/corpus)/.*(?<!\.py)|Makefile|CMake.*"
    needed = re.compile(folders + r"(CMakeLists\.txt|[^/]*\.(cpp|h|S|cmake|sh|map))|" + read)
    paths = [path for path in TRACKED if needed.fullmatch(path)]
    assert len(paths) > 500
    for path in paths:
        row = next((names for patterns, names in ROWS if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)), ["all"])
        assert row == ["all"], path


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
