"""rank, classify and tag: a task's head over the lines of a file. What they compute is held in tests/pytorch/test_task_answers.py."""

import json
import subprocess

import numpy
import pytest
import tiny

import attend

LINES = ["the cat sat", "a mat", "the mat the cat", "word4 sat", "sat on a mat"]


@pytest.fixture
def run(command, tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")

    def attend_(*arguments, text=None):
        return subprocess.run([command, *arguments], cwd=tmp_path, capture_output=True, text=True, input=text)

    return attend_


@pytest.fixture
def folder(tmp_path):
    """folder(head, labels): a BERT with that head."""
    def get(head, labels):
        path = tmp_path / head
        tiny.write_task(path, head, labels)
        return path

    return get


def test_rank(run, folder):
    model = attend.Model.load(folder("SequenceClassification", ["fits"]))
    expected = model.rank("a cat", LINES)
    done = run("rank", "SequenceClassification", "a cat", "lines.txt", "-k", "3", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"schema_version": 1, "ranked": [
        {"line": each.passage + 1, "score": each.score, "text": each.text} for each in expected[:3]]}
    done = run("rank", "SequenceClassification", "a cat", "-", text="\n".join(LINES * 3000))
    rows = done.stdout.splitlines()
    assert done.returncode == 0 and rows[0].split() == ["score", "line", "text"] and len(rows) == 11
    assert [int(row.split()[1]) for row in rows[1:]] == [expected[0].passage + 1 + 5 * n for n in range(10)]  # of equal ones the first
    logits = run("rank", "SequenceClassification", "a cat", "lines.txt", "--function", "none", "--json")
    best = expected[0]
    assert json.loads(logits.stdout)["ranked"][0]["score"] == float(model.classify(("a cat", best.text)).logits[0, 0])


def test_near_then_rank(run, folder, tmp_path):
    reranker = attend.Model.load(folder("SequenceClassification", ["fits"]))
    tiny.write(tmp_path / "tiny")
    lines = LINES[:3]
    (tmp_path / "three.txt").write_text("\n".join(lines) + "\n")
    assert run("embed", "tiny", "three.txt", "-o", "v.npy").returncode == 0
    done = run("near", "v.npy", "three.txt", "tiny", "a cat", "--rerank", "SequenceClassification", "--json", "-k", "2")
    found = json.loads(done.stdout)["nearest"]
    assert [(each["line"], each["score"]) for each in found] == [(each.passage + 1, pytest.approx(each.score)) for each in
                                                                 reranker.rank("a cat", lines, 2)]
    assert all(set(each) == {"line", "similarity", "score", "text"} for each in found)
    assert run("near", "v.npy", "three.txt", "tiny", "a cat", "--rerank", "SequenceClassification").stdout.split()[:4] == [
        "score", "cosine", "line", "text"]
    refused = run("near", "v.npy", "three.txt", "tiny", "a cat", "--candidates", "3")
    assert refused.returncode == 2 and "--candidates: nothing uses it without --rerank" in refused.stderr


def test_classify(run, folder, tmp_path):
    model = attend.Model.load(folder("SequenceClassification", ["bad", "good", "so so"]))
    expected = model.classify(LINES)
    done = run("classify", "SequenceClassification", "lines.txt", "--json")
    rows = [json.loads(row) for row in done.stdout.splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5] and list(rows[0]["scores"]) == ["bad", "good", "so so"]
    numpy.testing.assert_allclose([list(row["scores"].values()) for row in rows], expected.scores, rtol=1e-6)
    assert [row["label"] for row in rows] == [label for label, _ in expected.best()]
    table = run("classify", "SequenceClassification", "lines.txt").stdout.splitlines()
    assert table[0].split() == ["score", "line", "label", "text"] and table[1].endswith("the cat sat") and len(table) == 6
    (tmp_path / "pairs.tsv").write_text("a cat\tthe mat\na\tb\n")
    pair = json.loads(run("classify", "SequenceClassification", "pairs.tsv", "--pairs", "--json").stdout.splitlines()[0])
    numpy.testing.assert_allclose(list(pair["scores"].values()), model.classify(("a cat", "the mat")).scores[0], rtol=1e-6)
    refused = run("classify", "SequenceClassification", "lines.txt", "--pairs")
    assert refused.returncode == 3 and "line 1 has no tab between two texts, as --pairs expects" in refused.stderr


def test_tag(run, folder):
    model = attend.Model.load(folder("TokenClassification", ["O", "B-X", "I-X"]))
    rows = [json.loads(row) for row in run("tag", "TokenClassification", "lines.txt", "--json").stdout.splitlines()]
    for row, text, found in zip(rows, LINES, model.tag(LINES), strict=True):
        assert [(tag["label"], tag["begin"], tag["end"], tag["text"]) for tag in row["tags"]] == [
            (tag.label, tag.start, tag.end, text[tag.start : tag.end]) for tag in found.tags]
    assert any(row["tags"] for row in rows)
    table = run("tag", "TokenClassification", "lines.txt", "--aggregation", "none").stdout.splitlines()
    assert table[0].split() == ["score", "line", "label", "text"] and len(table) > 1
    refused = run("rank", "TokenClassification", "a", "lines.txt")
    assert refused.returncode == 1 and "expected a model with a head for classify, and this one's is for tag" in refused.stderr


def test_a_line_that_is_wrong_is_named(run, folder, tmp_path):
    folder("SequenceClassification", ["a", "b"])
    (tmp_path / "wrong.txt").write_bytes(b"a cat\n\xff\n")
    done = run("classify", "SequenceClassification", "wrong.txt")
    assert done.returncode == 1 and "line 2: " in done.stderr
