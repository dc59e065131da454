"""The command that the package brings: `attend` beside pip's own scripts, and `python -m attend`."""

import pathlib
import subprocess
import sys
from importlib.metadata import metadata

from packaging.version import Version

import attend

SAME = {"on the path": [str(pathlib.Path(sys.executable).parent / "attend")], "as a module": [sys.executable, "-m", "attend"]}


def run(how, *arguments):
    return subprocess.run([*how, *arguments], capture_output=True, text=True)


def test_both_are_the_command(command):
    for arguments in (["explain", "the cat sat", "--focus", "cat"], ["--version"], ["explain", "--hads", "2"], []):
        expected = run([command], *arguments)
        for how in SAME.values():
            got = run(how, *arguments)
            assert (got.returncode, got.stdout, got.stderr) == (expected.returncode, expected.stdout, expected.stderr)


def test_a_closed_pipe_ends_it_quietly():
    for how in SAME.values():
        first = subprocess.run(["bash", "-o", "pipefail", "-c", '"$@" explain "the cat sat" --json | head -c 1', "bash", *how],
                               capture_output=True, text=True)
        assert first.stdout == "{" and not first.stderr


def test_the_distribution_is_named_as_pypi_has_no_other():
    about = metadata("attend-cpu")
    of_command = run(SAME["as a module"], "--version").stdout.split()[-1]
    assert about["Version"] == attend.__version__ == str(Version(of_command))  # 1.0.0-rc1 is 1.0.0rc1 in Python
    assert set(about.get_all("Provides-Extra")) == {"torch", "transformers", "bfloat16", "corpus", "widget"}
