"""README.md and docs/ tell the truth: their commands run, their links lead somewhere, their pictures are today's."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy
import pytest
from page_code import PAGES, REPOSITORY, cache_of_models, commands, differs, name_of

# What a reader has: the files of the clone that pages name, and some of the reader's own.
CLONE = ("README.md", "tests/tasks", "examples/steering")
OWN = {"notes.txt": "The shutters are white.\n\nMarco keeps his keys in a blue box on the kitchen shelf.\n\nMarco keeps his keys in a",
       "corpus.txt": "The cat sat on the mat, and the dog looked at it for a long time. " * 6}
# What takes more than a minute: run by --every-number.
LONG = re.compile(r"attend lens fit|--with smollm2\.jlens\.safetensors")

# What fails here, and why.
NEEDS = {"attend show open.attend --layer decoder.1.cross": "a recording of a model that `make translate` trains"}


def test_there_are_commands():
    assert len(commands(REPOSITORY / "README.md")) >= 5
    assert len(commands(REPOSITORY / "docs/lessons.md")) > 10
    assert len(commands(REPOSITORY / "docs/why.md")) == 4
    assert set(NEEDS) <= {line.split("  ")[0] for page in PAGES for line, _ in commands(page)}
    assert any(shown for _, shown in commands(REPOSITORY / "docs/circuits.md"))


def test_what_a_page_shows_is_compared():
    printed = "a\nb\nc\nd\n"
    assert differs("a b c d".split(), printed) is None and differs("a ... d".split(), printed) is None
    assert differs("... b c ...".split(), printed) is None and differs(["..."], "") is None
    assert differs("a b".split(), printed) == "c" and differs("a c d".split(), printed) == "c"
    assert differs("... b d".split(), printed) == "d" and differs("... c b ...".split(), printed) == "b"
    assert differs("a b c d e".split(), printed) == "e"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_run_one_after_the_other_and_print_what_is_shown(page, command, tmp_path, tmp_path_factory, every_number):
    for name in CLONE:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy(REPOSITORY / name, tmp_path / name)
    for name, text in OWN.items():
        (tmp_path / name).write_text(text)
    for name in "qkv":
        numpy.save(tmp_path / f"{name}.npy", numpy.ones((1, 2, 5, 16), numpy.float32))
    cache = tmp_path_factory.mktemp("cache")
    others = cache_of_models(cache)
    environment = os.environ | {"PATH": f"{pathlib.Path(command).parent}{os.pathsep}{os.environ['PATH']}", "XDG_CACHE_HOME": str(cache)}
    left_out = []
    for line, shown in commands(page):
        missing = [name for name in others if re.search(rf"\b{name}\b", line)]
        needs = NEEDS.get(line.split("  ")[0])
        if missing or (LONG.search(line) and not every_number):
            left_out.append(f"{line} ({' and '.join(missing)} not installed: tests/models.txt)" if missing else f"{line} (--every-number)")
            continue
        done = subprocess.run(["bash", "-c", f"set -eo pipefail\n{line}"], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if done.returncode and "built without the pages that compute" in done.stderr:
            left_out.append(f"{line} (built without `make page`)")
            continue
        assert (done.returncode == 0) == (needs is None), f"{line}\n{done.stderr}"
        wrong = differs(shown, done.stdout) if shown else None
        assert wrong is None, f"{line}\nhas this line on the page alone, or here alone: {wrong}\n{done.stdout}"
    if left_out:
        pytest.skip("left out: " + "; ".join(left_out))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
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
    if "minilm" in cache_of_models(tmp_path):
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
    assert f"is right in more than {best}, and the best of 72 random guessers would be right in some {chance}" in words


def test_the_cpp_page_lists_every_header():
    table = re.search(r"^\| header \| holds \|\n(?:\|.*\n)+", (REPOSITORY / "docs/cpp.md").read_text(), re.M)[0]
    listed = [name for row in table.strip().splitlines()[2:] for name in re.findall(r"`attend/(\w+)\.h`", row.split("|")[1])]
    assert sorted(listed) == sorted(path.stem for path in (REPOSITORY / "include/attend").glob("*.h") if path.stem != "attend")


def test_the_tour_passes_files_that_are_there():
    stops = re.findall(r"`([a-z]+/[\w/]+\.\w+)`", (REPOSITORY / "docs/tour.md").read_text())
    assert len(set(stops)) > 25
    assert [stop for stop in stops if not (REPOSITORY / stop).is_file()] == []
