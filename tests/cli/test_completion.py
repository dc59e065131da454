"""The completion scripts parse, and complete what the command line takes."""

import os
import shutil
import subprocess

import pytest

BASH = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_attend
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(command, tmp_path_factory):
    def make(shell):
        path = tmp_path_factory.mktemp("completion") / shell
        path.write_text(subprocess.run([command, "completion", shell], check=True, capture_output=True, text=True).stdout)
        return str(path)

    return make


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_parses(script, shell):
    if not shutil.which(shell):
        pytest.skip(f"no {shell}")
    result = subprocess.run([shell, "-n", script(shell)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.fixture
def complete(script, tmp_path):
    (tmp_path / "keys.npy").touch()
    (tmp_path / "two words.npy").touch()

    def words(*line):
        result = subprocess.run(["bash", "-c", BASH, "bash", script("bash"), "attend", *line], cwd=tmp_path, check=True,
                                capture_output=True, text=True)
        assert result.stderr == ""
        return result.stdout.split("\n")[:-1]

    return words


@pytest.mark.parametrize(
    "line, expected",
    [
        (["ex"], ["explain"]),
        (["--v"], ["--version"]),
        (["explain", "--pre"], ["--preset"]),
        (["explain", "--no-s"], ["--no-scale"]),
        (["explain", "--op"], ["--open"]),
        (["explain", "--window", ""], [""]),
        (["explain", "--weights", ""], ["linear", "uniform"]),
        (["explain", "--color", "n"], ["never"]),
        (["explain", "--color", "=", "a"], ["auto", "always"]),
        (["explain", "--color", "="], ["auto", "always", "never"]),
        (["explain", "--preset", "life-multi"], ["life-multihead"]),
        (["explain", "--seed", ""], [""]),
        (["run", "--off"], ["--offset"]),
        (["run", "q.npy", "--offset", ""], ["top_left", "bottom_right"]),
        (["run", "q.npy", "--su"], ["--summary"]),
        (["run", "q.npy", "--weights", ""], [""]),
        (["run", "q.npy", "--summary", "k"], ["keys.npy"]),
        (["run", "k"], ["keys.npy"]),
        (["run", "q.npy", "--query-starts", "k"], ["keys.npy"]),
        (["plan", "--dtype", "b"], ["bf16"]),
        (["plan", "1,8,64,64", "--off"], ["--offset"]),
        (["plan", "k"], [""]),
        (["inspect", "keys.npy", "two"], ["two words.npy"]),
        (["run", "-o", "ke"], ["keys.npy"]),
        (["show", "k"], ["keys.npy"]),
        (["show", "keys.npy", "--sort", "e"], ["entropy"]),
        (["show", "keys.npy", "--strip", ""], ["received", "lift", "entropy"]),
        (["show", "keys.npy", "--layer", ""], [""]),
        (["model", "--get", ""], ["minilm", "smollm2"]),
        (["model", "--ge"], ["--get", "--generate"]),
        (["model", "k"], ["keys.npy"]),
        (["model", "keys.npy", "a text", "--layer", ""], [""]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["help", "r"], ["run", "rank"]),
    ],
)
def test_bash_completes(complete, line, expected):
    assert complete(*line) == expected


def test_bash_completes_every_preset(command, complete):
    listed = subprocess.run([command, "explain", "--list"], check=True, capture_output=True, text=True).stdout
    assert complete("explain", "--preset", "") == [line.split()[0] for line in listed.splitlines()]


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish")
@pytest.mark.parametrize(
    "line, expected",
    [
        ("attend ex", ["explain"]),
        ("attend explain --weights ", ["linear", "uniform"]),
        ("attend completion ", ["bash", "fish", "zsh"]),
    ],
)
def test_fish_completes(script, line, expected, tmp_path):
    result = subprocess.run(["fish", "-c", f"source {script('fish')}; complete -C '{line}'"], capture_output=True, text=True,
                            env=os.environ | {"HOME": str(tmp_path)})  # where fish makes folders
    assert sorted(answer.split("\t")[0] for answer in result.stdout.splitlines()) == expected
