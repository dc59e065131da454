"""README.md and docs/ tell the truth: their commands run, their links lead somewhere, their pictures are today's."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((REPOSITORY / "docs").glob("*.md"))
COMMANDS = sorted(
    {
        line.strip().removeprefix("build/release/")
        for page in PAGES
        for line in page.read_text().splitlines()
        if re.match(r" {4}(build/release/)?attend ", line)
    }
)


def test_there_are_commands():
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line, command, tmp_path):
    rng = np.random.default_rng(0)
    for name, shape in {"q": (2, 3, 4), "k": (2, 5, 4), "v": (2, 5, 6), "out": (2, 3, 6)}.items():
        np.save(tmp_path / f"{name}.npy", rng.standard_normal(shape, dtype=np.float32))
    shutil.copy(REPOSITORY / "README.md", tmp_path)
    path = f"{pathlib.Path(command).parent}{os.pathsep}{os.environ['PATH']}"
    script = f"set -eo pipefail\n{line}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout or "wrote" in done.stderr or (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_pictures_are_those_of_the_presets(command, tmp_path):
    presets = [line.split()[0] for line in subprocess.check_output([command, "explain", "--list"], text=True).splitlines()]
    assert sorted(path.stem for path in (REPOSITORY / "docs/pictures").iterdir()) == sorted(presets)
    for preset in presets:
        subprocess.run([command, "explain", "--preset", preset, "-o", tmp_path / "now.svg"], check=True, capture_output=True)
        committed = REPOSITORY / f"docs/pictures/{preset}.svg"
        assert (tmp_path / "now.svg").read_bytes() == committed.read_bytes(), "run scripts/make_pictures.sh"


def test_the_readme_shows_the_example():
    example = (REPOSITORY / "examples/attention.cpp").read_text()
    snippet = re.search(r"```cpp\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL).group(1)
    for line in snippet.splitlines():
        code = line.split("//")[0].strip()
        assert code in example, code
