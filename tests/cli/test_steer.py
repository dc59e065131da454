"""attend steer, and attend model --steer."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file, save_file

import attend

PAIRS = "the cat sat\tthe mat sat\n\na cat\ta mat\n"


@pytest.fixture
def folder(tmp_path):
    """A decoder of 256 ids, each a byte."""
    path = pathlib.Path(tiny.write(tmp_path / "tiny", tiny.bytes_tokenizer()))
    tensors = load_file(path / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][:256].copy()
    save_file(tensors, path / "model.safetensors")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"vocab_size": 256}))
    return path


@pytest.fixture
def run(command, tmp_path):
    def run(*arguments, status=0, given=None):
        done = subprocess.run([command, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, input=given)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr
    return run


def test_what_it_writes_is_pythons(run, folder, tmp_path):
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    run("steer", folder, "pairs.tsv", "-o", "x.gguf")
    expected = attend.Model.load(folder).steering([("the cat sat", "the mat sat"), ("a cat", "a mat")])
    read = attend.Steering.load(tmp_path / "x.gguf")
    assert sorted(read.directions) == sorted(expected.directions)
    for layer, direction in expected.directions.items():
        assert np.array_equal(read.directions[layer], direction)
    run("steer", folder, "-", "-o", "y.gguf", "--method", "principal", "--layers", "1-1", given=PAIRS)
    principal = attend.Model.load(folder).steering([("the cat sat", "the mat sat"), ("a cat", "a mat")], "principal", (1, 1))
    assert np.array_equal(attend.Steering.load(tmp_path / "y.gguf").directions[1], principal.directions[1])


def test_a_steered_text_is_pythons(run, folder, tmp_path):
    model = attend.Model.load(folder)
    steering = model.steering([("the cat sat", "the mat sat")])
    steering.save(tmp_path / "a:b.gguf")
    for given, scale in (("a:b.gguf", 1.0), ("a:b.gguf:20", 20.0), ("a:b.gguf:-0.5", -0.5)):
        out = run("model", folder, "the cat", "--steer", given, "--generate", "8", "--json")
        found = json.loads(out)
        ids = model.tokenizer.encode("the cat").ids
        assert found["generated"]["ids"] == model.generate(ids, max_new_tokens=8, edits=steering.edits(scale)).tolist()
        logits = model.logits(model.forward(ids, edits=steering.edits(scale))[-1:])[0]
        assert found["next"][0]["id"] == int(logits.argmax())


@pytest.mark.parametrize("pairs, words", [
    ("a text without a tab\n", "pairs.tsv, line 1: expected two texts with a tab between them"),
    ("a\tb\nc\td\te\n", "pairs.tsv, line 2: expected two texts"),
    ("\n", "pairs.tsv has no pairs of texts"),
])
def test_pairs_that_are_none(run, folder, tmp_path, pairs, words):
    (tmp_path / "pairs.tsv").write_text(pairs)
    assert words in run("steer", folder, "pairs.tsv", "-o", "x.gguf", status=1)
    assert not (tmp_path / "x.gguf").exists()


def test_what_does_not_fit(run, folder, tmp_path):
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    assert "--layers: expected a layer or two with a dash" in run("steer", folder, "pairs.tsv", "-o", "x.gguf", "--layers", "a-b", status=2)
    assert "last layer 7" in run("steer", folder, "pairs.tsv", "-o", "x.gguf", "--layers", "1-7", status=1)
    run("steer", folder, "pairs.tsv", "-o", "x.gguf")
    for words, status, options in (("--why: can't stand together with --steer, as it explains the model itself", 2, ["--why", "a"]),
                                   ("expected a finite number", 1, ["--steer", "x.gguf:inf"])):
        assert words in run("model", folder, "the cat", "--steer", "x.gguf", *options, status=status)
    assert "tiny/model.safetensors" in run("model", folder, "the cat", "--steer", "tiny/model.safetensors", status=3)
