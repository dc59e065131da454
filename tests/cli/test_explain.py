"""attend explain: streams, files, colour and width. The numbers are the library's tests' business."""

import json
import os
import pty
import re
import struct
import subprocess
import termios
from fcntl import ioctl

import numpy as np
import pytest

ESCAPE = "\x1b["


def clean_environment(**extra):
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "TERM")}
    return {**environment, "TERM": "xterm-256color", **extra}


@pytest.fixture
def explain(command, tmp_path):
    def attend(*arguments, status=0, environment=None, **options):
        result = subprocess.run([command, "explain", *arguments], cwd=tmp_path, capture_output=True, text=True,
                                env=environment or clean_environment(), **options)
        assert result.returncode == status, result.stderr
        return result

    return attend


@pytest.fixture
def in_terminal(command):
    """What the command writes to a terminal of that many columns."""

    def attend(*arguments, columns=100, **environment):
        try:
            leader, follower = pty.openpty()
        except OSError as error:
            pytest.skip(f"no pseudo-terminal to be had: {error}")
        ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen([command, "explain", *arguments], stdout=follower, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, env=clean_environment(**{"PAGER": ""} | environment))
        os.close(follower)
        output = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            output += piece
        os.close(leader)
        assert process.wait() == 0
        return output.decode().replace("\r\n", "\n")

    return attend


def test_what_is_longer_than_the_screen_is_paged(in_terminal, tmp_path):
    """By the program that PAGER names; what fits, and what goes into a file or a pipe, is not."""
    def shown(**environment):  # without the progress that a busy machine has time to show
        return re.sub(r"(\rattend: +\d+ %)+\r *\r", "", in_terminal("the cat sat", **environment))

    whole = shown()
    assert whole.count("\n") > 40
    assert shown(PAGER=f"cat > {tmp_path}/paged") == "" and (tmp_path / "paged").read_text() == whole
    assert shown(PAGER="head -2") == "".join(whole.splitlines(True)[:2])
    assert shown(PAGER="exit 127") == whole  # there is no such program
    assert "journey" in in_terminal("--list", PAGER="exit 1")


def widest(text):
    return max(map(len, text.splitlines()))


def test_the_documents_sentence(explain):
    result = explain()
    assert result.stderr == "" and ESCAPE not in result.stdout
    assert "dessert" in result.stdout and widest(result.stdout) <= 80


def test_the_same_numbers_on_every_target(explain, command):
    arguments = ["the cat sat on the mat", "--heads", "3", "--causal", "--json"]
    plain = explain(*arguments).stdout
    forced = 0
    for target in ["baseline", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16"]:
        environment = clean_environment(ATTEND_TARGET=target)
        if subprocess.run([command, "plan", "1,1,6,8"], capture_output=True, env=environment).returncode != 0:
            continue  # this processor lacks it
        assert explain(*arguments, environment=environment).stdout == plain, target
        forced += 1
    assert forced > 0 or os.uname().machine not in ("x86_64", "amd64")


def test_colour(explain, in_terminal):
    assert ESCAPE in in_terminal()
    assert ESCAPE in in_terminal(NO_COLOR="")
    assert ESCAPE not in in_terminal(NO_COLOR="1")
    assert ESCAPE not in in_terminal(TERM="dumb")
    assert ESCAPE not in in_terminal("--color", "never")
    assert ESCAPE in in_terminal("--color", "always", NO_COLOR="1")
    assert ESCAPE in explain("--color=always").stdout


def test_width(explain, in_terminal):
    sentence = " ".join(f"word{i}" for i in range(60))
    for columns in (40, 60):
        assert widest(in_terminal(sentence, "--causal", "--color=never", columns=columns)) <= columns
        assert widest(explain("the cat sat on the mat", "--heads=2", "--all", f"--width={columns}").stdout) <= columns
    assert 140 < widest(in_terminal(sentence, "--color=never", columns=150)) <= 150
    assert widest(in_terminal(sentence, "--color=never", "--width", "100", columns=150)) <= 100
    assert 80 < widest(explain(sentence, environment=clean_environment(COLUMNS="120")).stdout) <= 120
    assert widest(explain(sentence, environment=clean_environment(COLUMNS="99999999999")).stdout) <= 80  # no int
    assert widest(explain(sentence).stdout) <= 80


def test_words_cannot_steer_the_terminal(explain, tmp_path):
    word = "evil\x1b[31m\x07\u009b2J\u202eflip"
    for sentence in [f"{word} end", f"{word} {word} a\nb"]:
        explain(sentence, "--color=never", "-o", str(tmp_path / "page.html"))
        shown = explain(sentence, "--color=never").stdout + (tmp_path / "page.html").read_text()
        assert "evil\ufffd[31m\ufffd\ufffd2J\ufffdflip" in shown
        assert not set(shown) & set("\x1b\x07\u009b\u202e")
        assert json.loads(explain(sentence, "--json").stdout)["tokens"][0] == word


def test_long_words_leave_the_table_its_width(explain):
    lines = explain("pneumonoultramicroscopicsilicovolcanoconiosis is " + "x" * 5000).stdout.splitlines()
    assert widest("\n".join(lines)) <= 80
    assert any(line.startswith("      pneumonoultr") and "…" in line for line in lines)


def test_sentence_from_standard_input(explain):
    assert json.loads(explain("-", "--json", input="zwei kleine\nWörter").stdout)["tokens"] == ["zwei", "kleine", "Wörter"]
    marked = explain("-", input="\ufefftwo words", encoding="utf-8").stdout  # some editors begin a file with U+FEFF
    assert marked.startswith("two words\n") and "\ufeff" not in marked


def test_options_reach_the_library(explain):
    def tensors(*options):
        return {k: np.array(v) for k, v in json.loads(explain("a b c", *options, "--json").stdout)["tensors"].items()}

    sized = tensors("--embedding-size", "4", "--d-k", "5", "--d-v", "6", "--heads", "2")
    assert sized["embeddings"].shape == (3, 4)
    assert sized["queries"].shape == (2, 3, 5) and sized["values"].shape == (2, 3, 6)
    crossed = tensors("--cross", "d e f g")
    assert crossed["weights"].shape == (3, 4) and crossed["embeddings_2"].shape == (4, 16)
    assert np.triu(tensors("--causal")["weights"], 1).max() == 0
    assert tensors("--weights", "linear")["w_query"].min() < 0 <= tensors("--weights", "uniform")["w_query"].min()
    assert (tensors()["w_query"] == tensors("--weights", "linear")["w_query"]).all()
    assert sized["output"].shape == (3, 4) and "positions" not in sized
    assert tensors("--positions")["positions"].shape == (3, 16)
    unscaled = tensors("--no-scale")
    assert (unscaled["scaled_scores"] == unscaled["scores"]).all() and (unscaled["scores"] == tensors()["scores"]).all()
    assert (tensors("--window", "1")["weights"] == 0).tolist() == [[False, False, True], [False] * 3, [True, False, False]]
    assert (tensors("--window=0", "--causal")["weights"] == np.eye(3)).all()
    assert (tensors("--seed", "1")["embeddings"] != tensors("--seed", "18446744073709551615")["embeddings"]).all()


def test_focus_and_head(explain):
    by_word = explain("the cat saw the dog", "--focus", "the").stdout
    assert by_word == explain("the cat saw the dog", "--focus", "1").stdout
    assert by_word != explain("the cat saw the dog", "--focus", "4").stdout
    assert explain("3 2 1", "--focus", "1").stdout == explain("3 2 1", "--focus", "3", "--focus=1").stdout
    assert explain("--heads", "2").stdout == explain("--heads", "2", "--head", "0").stdout
    assert "Who attends to whom (head 1)" in explain("--heads", "2", "--head", "1").stdout


def test_a_picture_of_one_head(explain, tmp_path):
    def picture(*options):
        explain("a b c", "--heads", "3", "-o", "a.svg", *options)
        return (tmp_path / "a.svg").read_text()

    assert [f">head {head}<" in picture() for head in range(4)] == [True] * 3 + [False]
    assert [f">head {head}<" in picture("--head", "2") for head in range(4)] == [False, False, True, False]
    assert picture("--head", "2") == picture("--head", "2", "-o", "a.json")  # other files keep all heads


def test_characters_that_the_font_lacks(explain):
    result = explain("naïve 東京 東", "-o", "a.png", "-o", "a.svg")
    assert result.stderr == ("attend: a.png: the font has no 東京, which became boxes; set ATTEND_FONT to a .ttf or .otf file "
                             "that has them\nattend: wrote a.png\nattend: wrote a.svg\n")
    assert explain("naïve", "-o", "a.png").stderr == "attend: wrote a.png\n"


def test_a_long_sentence_is_announced_and_takes_what_it_draws(command, tmp_path):
    """1500 x 1500 weights of 64 heads with scores and scaled scores are 1.61 GiB, and one head's weights 9 MB."""
    sentence = " ".join(f"w{i}" for i in range(1500))
    for options, status, told in [(["-o", "a.npz"], 1, "attend: this will take about 1.61 GiB of memory"),
                                  (["-o", "a.svg", "--head=3"], 0, "attend: wrote a.svg\n")]:
        result = subprocess.run(["bash", "-c", 'ulimit -v 1000000; exec "$@"', "bash", command, "explain", sentence, "--heads=64",
                                 "--d-k=2", "--d-v=2", *options], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == status and result.stderr.startswith(told), result.stderr


def test_progress_on_a_terminal(in_terminal, explain):
    # 36 million pairs take over a second on two cores; progress is shown after 0.3 s.
    sentence = " ".join(f"w{i}" for i in range(6000))
    assert re.search(r"\rattend: +\d+ %", in_terminal(sentence))
    assert "%" not in explain(sentence).stderr


def test_files(explain, tmp_path):
    names = ["a.json", "a.npz", "a.safetensors", "a.svg", "a.png", "a.html"]
    result = explain("two words", *[word for name in names for word in ("-o", name)])
    assert result.stdout == ""
    told = [line for line in result.stderr.splitlines() if "does not compute" not in line]
    assert told == [f"attend: wrote {name}" for name in names]
    starts = [b"{", b"PK\x03\x04", None, b"<", b"\x89PNG", b"<!"]
    for name, start in zip(names, starts):
        content = (tmp_path / name).read_bytes()
        assert len(content) > 100 and (start is None or content.startswith(start)), name
    explain("two words", "--heads", "2", "--head", "1", "-o", "b.html")
    assert "(head 1)" in (tmp_path / "b.html").read_text()
    assert json.loads(explain("two words", "--json", "-o", "b.svg").stdout)["tokens"] == ["two", "words"]


def test_json_and_presets(explain):
    listed = [line.split()[0] for line in explain("--list").stdout.splitlines()]
    assert listed[:2] == ["journey", "journey-linear"] and len(listed) == 9
    for name in listed:
        assert json.loads(explain("--preset", name, "--json").stdout)["preset"] == name


def test_failures(explain):
    for text in ["", " , ", "-"]:
        result = explain(text, status=1, input="")
        assert result.stdout == "" and result.stderr.startswith("attend: ") and result.stderr.count("\n") == 1
    assert "UTF-8" in explain(b"\xff", status=1).stderr
    assert "window can't be used with a second sentence" in explain("a", "--cross=b", "--window=1", status=1).stderr
    assert "--window" in explain("a", "--window=-1", status=2).stderr
    assert "takes no value" in explain("--no-scale=false", status=2).stderr
    for option in ("--no-scale", "--window=1"):
        assert "stand together" in explain("--preset=life", option, status=2).stderr
    result = explain("-o", "nowhere/a.svg", status=1)
    assert result.stdout == "" and "nowhere/a.svg" in result.stderr
