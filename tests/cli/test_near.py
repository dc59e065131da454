"""attend embed and attend near: a model that NumPy made, and the vectors that it computes too."""

import json
import os
import re
import subprocess

import numpy as np
import pytest
from faults import with_racing_clock
from terminal import run_in_terminal
from test_model import BERT, WORDS, bert_by_numpy, wordpiece, write_model
from test_model import bert_tensors as bert_tensors  # the fixture

LINES = ["the cat sat", "", "the dog sat on the mat.", "naive", "mat " * 50, "the cat sat"]


@pytest.fixture
def run(command, tmp_path, bert_tensors):
    """Runs it where `bert` and lines.txt are; gives what it printed and told."""
    write_model(tmp_path / "bert", BERT, wordpiece(), bert_tensors)
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")

    def attend(*arguments, status=0, **options):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
        done = subprocess.run([command, *arguments], cwd=tmp_path, env=environment, capture_output=True, **options)
        assert done.returncode == status, done.stderr
        return done.stdout.decode(), done.stderr.decode()

    return attend


def vector(tensors, line):
    ids = [WORDS.index(word) for word in ["[CLS]", *line.replace(".", " .").split()[:38], "[SEP]"]]
    return bert_by_numpy(tensors, ids)[0].mean(0)


def test_a_row_for_each_line(run, bert_tensors, tmp_path):
    printed, told = run("embed", "bert", "lines.txt", "-o", "x.npy")
    assert printed == "" and told == "attend: wrote x.npy: 6 vectors of 24 numbers; 1 of the lines were longer than 40 tokens, and cut\n"
    vectors, expected = np.load(tmp_path / "x.npy"), np.stack([vector(bert_tensors, line) for line in LINES])
    assert vectors.dtype == np.float32 and vectors.shape == (6, 24)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    run("embed", "bert", "-", "-o", "y.npy", "--normalize", input="\r\n".join(LINES).encode())
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=2e-6)
    run("embed", "bert", "-", "-o", "z.npy", input=b"")
    assert np.load(tmp_path / "z.npy").shape == (0, 24)
    run("embed", "bert", "lines.txt", "-o", "p.npy", "--prompt", "the cat ")
    np.testing.assert_allclose(np.load(tmp_path / "p.npy")[1], vector(bert_tensors, "the cat"), atol=2e-6)


def test_lines_of_several_windows(run, tmp_path):
    """Rows stay in order, and each has the bits that it has alone."""
    lines = [" ".join(np.random.default_rng(n).choice(WORDS[4:], n % 37 + 1)) for n in range(9000)]
    (tmp_path / "many.txt").write_text("\n".join(lines))
    run("embed", "bert", "many.txt", "-o", "many.npy")
    vectors = np.load(tmp_path / "many.npy")
    chosen = [0, 4095, 4096, 5000, 8999]
    run("embed", "bert", "-", "-o", "few.npy", input="\n".join(lines[n] for n in chosen).encode())
    np.testing.assert_array_equal(np.load(tmp_path / "few.npy"), vectors[chosen])
    query = vectors[5000]
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    found = json.loads(run("near", "many.npy", "many.txt", "bert", lines[5000], "-k", "20", "--json")[0])["nearest"]
    np.testing.assert_allclose([each["similarity"] for each in found], np.sort(cosines)[::-1][:20], atol=1e-6)
    assert all(each["text"] == lines[each["line"] - 1] for each in found)
    equal = [each["line"] for each in found if each["similarity"] == found[0]["similarity"]]
    assert equal == sorted(equal) and 5001 in equal


def test_the_nearest_lines(run, bert_tensors, tmp_path):
    run("embed", "bert", "lines.txt", "-o", "x.npy")
    printed, _ = run("near", "x.npy", "lines.txt", "bert", "the cat sat", "-k", "3", "--width", "60")
    lines = printed.splitlines()
    assert lines[0].split() == ["cosine", "line", "text"] and len(lines) == 4
    assert lines[1].split(maxsplit=2) == ["1.0000", "1", "the cat sat"] and lines[2].split(maxsplit=2) == ["1.0000", "6", "the cat sat"]
    assert all(len(line) <= 60 for line in lines)
    assert len(run("near", "x.npy", "lines.txt", "bert", "mat", "-k", "99")[0].splitlines()) == 7


@pytest.mark.parametrize("arguments, status, said", [
    (["embed", "bert", "lines.txt"], 2, "--output is required"),
    (["embed", "bert", "lines.txt", "-o", "x.txt"], 2, "should end in .npy"),
    (["embed", "bert", "none.txt", "-o", "x.npy"], 3, "'none.txt' can't be read"),
    (["embed", "bert", "bert", "-o", "x.npy"], 3, "'bert' can't be read"),
    (["embed", "bert", "bad.txt", "-o", "x.npy"], 1, "attend: line 2: text is not UTF-8: byte 1"),
    (["embed", "bert", "lines.txt", "-o", "x.npy", "--prompt", "passage"], 1, "prompt 'passage' is not one of the model's"),
    (["embed", "bert", "lines.txt", "-o", "none/x.npy"], 1, "none/x.npy"),
    (["near", "lines.txt", "lines.txt", "bert", "a"], 3, "'lines.txt': byte 0: is not an .npy file"),
    (["near", "good.npy", "bad.txt", "bert", "a"], 3, "'bad.txt' has 2 lines, but 'good.npy' has 6 rows"),
    (["near", "small.npy", "lines.txt", "bert", "a"], 3, "'small.npy' has vectors of 5 numbers, but bert makes vectors of 24"),
    (["near", "ints.npy", "lines.txt", "bert", "a"], 3, "expected f32 [N,size]"),
    (["near", "good.npy", "lines.txt", "bert", "a", "-k", "0"], 2, "--count: expected a whole number"),
])
def test_mistakes(run, tmp_path, arguments, status, said):
    (tmp_path / "bad.txt").write_bytes(b"good\na\xff\n")
    np.save(tmp_path / "good.npy", np.ones((6, 24), np.float32))
    np.save(tmp_path / "small.npy", np.ones((6, 5), np.float32))
    np.save(tmp_path / "ints.npy", np.ones((6, 24), np.int64))
    before = sorted(path.name for path in tmp_path.iterdir())
    printed, told = run(*arguments, status=status)
    assert said in told and printed == "" and sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("given, progress", [("lines.txt", r"attend: +\d+ %"), ("-", r"attend: \d+ lines")])
def test_how_far_it_is_stands_on_a_terminal_alone(run, command, tmp_path, given, progress):
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 50))
    # On one core each pass is told of.
    with open(tmp_path / "lines.txt") as lines:
        status, text = run_in_terminal([command, "embed", "bert", given, "-o", "x.npy"], tmp_path, with_racing_clock(command), stdin=lines)
    assert status == 0
    shown, _, told = text.rpartition("\r")
    assert re.fullmatch(rf"(\r{progress})+\r +", shown), shown
    numbers = list(map(int, re.findall(r"\d+", shown)))
    assert numbers == sorted(numbers) and len(set(numbers)) > 3
    assert told.startswith("attend: wrote x.npy: 300 vectors")
    assert run("embed", "bert", "lines.txt", "-o", "x.npy")[1] == told  # nothing else where there is none
