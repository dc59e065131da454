"""What every subcommand shares: exit status, streams, help, suggestions, pipes."""

import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys

import pytest

COMMANDS = ["explain", "run", "plan", "inspect", "picture", "show", "model", "chat", "embed", "near", "rank", "match", "classify", "tag",
            "quantize", "steer", "lens", "class", "completion", "help"]


def attend(command, *arguments, **options):
    return subprocess.run([command, *arguments], capture_output=True, text=True, **options)


def test_version(command):
    result = attend(command, "--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"attend \d+\.\d+\.\d+(-rc\d+)?\n", result.stdout)


def test_diagnose_says_what_a_report_needs_and_names_nobody(command):
    for target, kernels in ((None, r"\w+, the fastest that this processor runs"), ("baseline", "baseline, as ATTEND_TARGET says"),
                            ("abacus", "ATTEND_TARGET is 'abacus', expected a target that this processor runs: .*")):
        if target == "baseline" and platform.machine() != "x86_64":
            continue
        without = {key: value for key, value in os.environ.items() if key != "ATTEND_TARGET"}
        result = attend(command, "--diagnose", env=without | ({"ATTEND_TARGET": target} if target else {}))
        assert (result.returncode, result.stderr) == (0, "")
        version, *lines = result.stdout.splitlines()
        said = {line[:12].strip(): line[12:] for line in lines}
        assert version == attend(command, "--version").stdout.strip()
        assert list(said) == ["build", "kernels", "processor", "threads", "memory", "system"]
        assert re.fullmatch(kernels, said["kernels"])
        assert said["threads"] == f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} processors"
        assert platform.machine() in said["processor"] and platform.release() in said["system"]
        assert str(pathlib.Path.home()) not in result.stdout


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_begins_with_examples_and_fits_80_columns(command, name):
    result = attend(command, *([name] if name else []), "--help")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "Examples:"
    usage = next(i for i, line in enumerate(lines) if line.startswith("Usage: attend"))
    examples = [line for line in lines[1:usage] if line]
    assert 2 <= len(examples) <= 5
    assert all("attend" in line for line in examples)
    assert max(map(len, lines)) <= 80
    assert not any(line != line.rstrip() for line in lines)
    assert attend(command, "help", *([name] if name else [])).stdout == result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_use_options_that_exist(command, name):
    text = attend(command, name, "--help").stdout
    examples, rest = text.split("Usage:", 1)
    for option in re.findall(rf"(?<!\S)attend {name}[^|\n]*", examples):
        for used in re.findall(r"(?<!\S)-{1,2}[a-z][a-z-]*", option):
            assert re.search(rf"^  .*{re.escape(used)}\b", rest, re.M), used


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "no command given"),
        (["explian"], "no command 'explian'; did you mean 'explain'?"),
        (["xyzzy"], "no command 'xyzzy'"),
        (["--versoin"], "no option '--versoin'; did you mean '--version'?"),
        (["explain", "--hed", "2"], "no option '--hed'; did you mean '--head'?"),
        (["explain", "--hed=2"], "no option '--hed'; did you mean '--head'?"),
        (["run", "--casual", "q.npy"], "no option '--casual'; did you mean '--causal'?"),
        (["model", "--generat", "2"], "no option '--generat'; did you mean '--generate'?"),
        (["model", "--get", "minlm"], "--get: expected minilm or smollm2, got 'minlm'; did you mean 'minilm'?"),
        (["model"], "no model given: a folder, a .gguf file, or a name that --list says"),
        (["model", "FOLDER"], "no text given: in quotes, or with --file FILE, or - for standard input"),
        (["explain", "--preset", "jurney"], "no preset 'jurney'; did you mean 'journey'?"),
        (["explain", "--focus", "shrot"], "--focus: the sentence has no word 'shrot'; did you mean 'short'?"),
        (["explain", "žába skáče", "--focus", "zába"], "--focus: the sentence has no word 'zába'; did you mean 'žába'?"),
        (["explain", "--focus", "7"], "--focus: expected a word of the sentence or a position from 1 to 6, got '7'"),
        (["explain", "--head", "1"], "--head: expected 0, the only head, got 1"),
        (["explain", "--preset", "life-multihead", "--head", "3"], "--head: expected a head from 0 to 2, got 3"),
        (["explain", "--preset", "journey", "--seed", "1"], "--preset and --seed can't stand together"),
        (["explain", "--preset", "journey", "a cat"], "--preset and TEXT can't stand together"),
        (["explain", "--preset", ""], "--preset: expected a value, got ''"),
        (["explain", "--seed"], "--seed needs a value"),
        (["explain", "--seed", "-1"], "--seed: expected a whole number of at least 0, got '-1'"),
        (["explain", "--seed", "18446744073709551616"],
         "--seed: expected a whole number from 0 to 18446744073709551615, got '18446744073709551616'"),
        (["explain", "--heads", "9223372036854775808"],
         "--heads: expected a whole number from 0 to 9223372036854775807, got '9223372036854775808'"),
        (["explain", "--causal=false"], "--causal takes no value"),
        (["explain", "--json=3"], "--json takes no value"),
        (["inspect", "--values=0", "q.npy"], "--values takes no value"),
        (["explain", "--d-k", "0"], "--d-k: expected a whole number of at least 1, got '0'"),
        (["explain", "--weights", "lineer"],
         "--weights: expected linear or uniform, got 'lineer'; did you mean 'linear'?"),
        (["explain", "the", "cat"], "unexpected argument 'cat'; put a text of several words in quotes"),
        (["explain", "-o", "cat.gif"],
         "--output: 'cat.gif' should end in .json, .npz, .safetensors, .attend, .svg, .png or .html"),
        (["run", "q.npy", "k.npy", "v.npy", "-o", "o.npx"],
         "--output: 'o.npx' should end in .npy, .npz or .safetensors; did you mean '.npy'?"),
        (["run", "q.npy"], "K is required"),
        (["run", "q.npy", "k.npy"], "V is required without --summary or --weights"),
        (["run", "q.npy", "k.npy", "v.npy", "-o", "o.npy", "--window", "3"],
         "--window: expected LEFT,RIGHT, two whole numbers such as 128,0 (-1 is open), got '3'"),
        (["run", "q.npy", "k.npy", "v.npy", "-o", "o.npy", "--offset", "botom_right"],
         "--offset: expected top_left, bottom_right or a whole number, got 'botom_right'; "
         "did you mean 'bottom_right'?"),
        (["run", "q.npy", "k.npy", "v.npy", "-o", "o.npy", "--scale", "x"], "--scale: expected a number, got 'x'"),
        (["run", "q.npy", "k.npy", "v.npy", "-o", "o.npy", "--lse", "o.npy"],
         "--lse and -o name the same file, and .npy holds one tensor: use .npz or .safetensors"),
        (["run", "q.npy", "k.npy", "v.npy", "-o", "o.npy", "--lse", "./o.npy"],
         "--lse and -o name the same file, and .npy holds one tensor: use .npz or .safetensors"),
        (["picture", "w.npy", "--scale", "cubic"], "--scale: expected linear, sqrt, log or diverging, got 'cubic'"),
        (["picture", "w.npy", "-o", "w.gif"], "--output: 'w.gif' should end in .svg or .png"),
        (["picture"], "FILE is required"),
        (["completion", "fiish"], "SHELL: expected bash, zsh or fish, got 'fiish'; did you mean 'fish'?"),
        (["help", "rnu"], "no command 'rnu'; did you mean 'run'?"),
        (["two\nlines\x1b[1m"], r"no command 'two\x0alines\x1b[1m'"),
        (["one\u009b1mé"], r"no command 'one\x9b1mé'"),
    ],
)
def test_usage_errors(command, arguments, message):
    result = attend(command, *arguments)
    named = arguments and arguments[0] in COMMANDS
    expected = f"attend: {message}\ntry: attend {arguments[0] + ' ' if named else ''}--help\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", expected)


def test_a_bad_input_file_is_status_3(command, tmp_path):
    (tmp_path / "bad.npy").write_bytes(b"not a tensor")
    for name in ["bad.npy", "missing.npy", "."]:
        result = attend(command, "inspect", name, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (3, "")
        assert result.stderr.startswith("attend: ") and name in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["explain", "--json"], ["completion", "bash"]])
def test_full_disk_on_standard_output_is_status_1(command, arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([command, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (1, "attend: standard output: No space left on device\n")


@pytest.mark.parametrize("closed, status", [([0], 0), ([1], 1), ([2], 0), ([0, 1, 2], 1)])
def test_closed_streams(command, tmp_path, closed, status):
    def prepare():
        for number in closed:
            os.close(number)

    result = subprocess.run([command, "explain", "-o", "trace.json", "--json"], capture_output=True, cwd=tmp_path,
                            preexec_fn=prepare)
    assert result.returncode == status
    assert (tmp_path / "trace.json").read_bytes().endswith(b"]]}}\n")
    if 1 not in closed:
        assert result.stdout == (tmp_path / "trace.json").read_bytes()


def test_closed_standard_input_is_no_empty_sentence(command):
    result = subprocess.run([command, "explain", "-"], capture_output=True, text=True, preexec_fn=lambda: os.close(0))
    assert (result.returncode, result.stdout, result.stderr) == (
        1, "", "attend: standard input: Bad file descriptor\n")


def test_full_disk_on_standard_error_changes_no_status(command, tmp_path):
    with open("/dev/full", "w") as full:
        fine = subprocess.run([command, "explain", "-o", "trace.json"], stderr=full, cwd=tmp_path)
        wrong = subprocess.run([command, "explian"], stderr=full)
    assert (fine.returncode, wrong.returncode) == (0, 2)
    assert (tmp_path / "trace.json").exists()


@pytest.mark.parametrize("ignored", [False, True])
def test_closed_pipe_is_quiet(command, ignored):
    reader, writer = os.pipe()
    os.close(reader)

    def prepare():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL)

    process = subprocess.run([command, "explain"], stdout=writer, stderr=subprocess.PIPE, preexec_fn=prepare,
                             restore_signals=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (-signal.SIGPIPE, b"")


def options_of(command, name):
    text = attend(command, *([name] if name else []), "--help").stdout
    return re.findall(r"^  (?:-\w, )?--([a-z0-9-]+)", text, re.M)


@pytest.mark.parametrize("name", ["run", "plan"])
def test_every_option_that_is_a_tensor_has_a_flag(command, repository, name):
    header = (repository / "include/attend/attention.h").read_text()
    struct = re.search(r"^struct ATTEND_API AttentionOptions \{.*?^\};", header, re.M | re.S)
    tensors = re.findall(r"OptionalView (\w+)", struct[0])
    assert len(tensors) >= 7
    assert {tensor.replace("_", "-") for tensor in tensors} <= set(options_of(command, name))


def test_man_page_says_what_the_help_says(command, repository, tmp_path):
    page = repository / "docs" / "attend.1"
    again = tmp_path / "attend.1"
    again.write_text(page.read_text())
    subprocess.run([sys.executable, repository / "scripts" / "man_page.py", command, again], check=True)
    assert again.read_text() == page.read_text(), "run scripts/man_page.py COMMAND"
    sections = dict(re.findall(r"^\.Ss attend (\w+)\n(.*?)(?=^\.S[sh])", again.read_text(), re.M | re.S))
    assert sorted(sections) == sorted(COMMANDS)
    for name in COMMANDS:
        for option in set(options_of(command, name)) - {"help"}:
            assert re.search(rf"^\.It .*Fl \\-{re.escape(option)}\b", sections[name], re.M), f"{name} --{option}"


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc")
def test_man_page_is_well_formed(repository):
    page = repository / "docs" / "attend.1"
    result = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")
