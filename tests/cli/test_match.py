"""match, and what embed, near and rank make of a model with a vector for each token. tests/pytorch/test_token_vectors.py holds the
vectors."""

import json
import subprocess
import xml.etree.ElementTree

import numpy
import pytest
import tiny

import attend

LINES = ["the cat sat", "a mat", "the mat the cat", "word4 sat", "sat on a mat"]


@pytest.fixture
def run(command, tmp_path):
    tiny.write_colbert(tmp_path / "colbert")
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")

    def attend_(*arguments, code=0):
        done = subprocess.run([command, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done

    return attend_


def test_embed_then_near(run, tmp_path):
    model = attend.Model.load(tmp_path / "colbert")
    done = run("embed", "colbert", "lines.txt", "-o", "v.npy")
    passages = model.embed_tokens(LINES)
    assert f"{sum(len(each.ids) for each in passages)} vectors of 8 numbers, of 5 lines" in done.stderr
    file = attend.TokenVectorFile(tmp_path / "v.npy")
    assert all((file[n] == each.vectors).all() for n, each in enumerate(passages))
    expected = file.nearest(model.embed_tokens("the mat", role="query"), 3)
    found = json.loads(run("near", "v.npy", "lines.txt", "colbert", "the mat", "-k", "3", "--json").stdout)["nearest"]
    assert [(each["line"], each["max_sim"], each["text"]) for each in found] == [(n + 1, score, LINES[n]) for n, score in expected]
    table = run("near", "v.npy", "lines.txt", "colbert", "the mat", "-k", "3").stdout.splitlines()
    assert table[0].split() == ["maxsim", "line", "text"] and len(table) == 4
    ranked = json.loads(run("rank", "colbert", "the mat", "lines.txt", "-k", "3", "--json").stdout)["ranked"]
    assert [(each["line"], each["score"]) for each in ranked] == [(each["line"], each["max_sim"]) for each in found]


def test_match(run, tmp_path):
    model = attend.Model.load(tmp_path / "colbert")
    expected = model.embed_tokens("the cat", role="query").match(model.embed_tokens("a cat sat"))
    found = json.loads(run("match", "colbert", "the cat", "a cat sat", "--json").stdout)
    assert found["score"] == expected.score
    assert [(each["query"], each["passage"], numpy.float32(each["similarity"])) for each in found["matches"]] == expected.words()
    table = run("match", "colbert", "the cat", "a cat sat").stdout.splitlines()
    assert table[0].split() == ["similarity", "query", "passage"] and table[-1].split() == [f"{expected.score:.4f}", "in", "all"]
    own = [word for word, _, _ in expected.words() if word != "word9"]
    masks = len(expected.query) - len(own)
    assert len(table) == len(own) + 3 and table[-2].split()[1:] == [str(masks), "word9", "together"]
    run("match", "colbert", "the cat", "a cat sat", "-o", "m.svg")
    svg = xml.etree.ElementTree.parse(tmp_path / "m.svg").getroot()
    text = " ".join(" ".join(svg.itertext()).split())
    assert f"{masks} word9 that fill the query up add" in text and "attention" not in text and text.count("word9") == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (["match", "tiny", "a", "b"], "expected a model with a vector for each token"),
    (["embed", "colbert", "lines.txt", "-o", "v.npy", "--normalize"], "token vectors have length 1 already"),
    (["near", "other.npy", "lines.txt", "colbert", "a"], "vectors of 3 numbers, but colbert makes vectors of 8"),
    (["near", "v.npy", "two.txt", "colbert", "a"], "has 2 lines, but 'v.npy' has 5 rows"),
])
def test_what_does_not_belong_together(run, tmp_path, arguments, message):
    tiny.write(tmp_path / "tiny")
    run("embed", "colbert", "lines.txt", "-o", "v.npy")
    attend.TokenVectorFile.write(tmp_path / "other.npy", [numpy.eye(3, dtype=numpy.float32)] * 5)
    (tmp_path / "two.txt").write_text("a\nb\n")
    assert message in run(*arguments, code=2 if "--normalize" in arguments else 1 if arguments[0] == "match" else 3).stderr
