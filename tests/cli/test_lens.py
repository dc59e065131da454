"""attend lens fit, and attend model --lens --with."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
import tiny

import attend

TEXT = "\n".join(" ".join(f"word{(7 * line + 3 * n) % 90 + 5}" for n in range(17)) for line in range(8)) + "\n"


@pytest.fixture
def folder(tmp_path):
    return pathlib.Path(tiny.write(tmp_path / "tiny"))


@pytest.fixture
def run(command, tmp_path):
    def run(*arguments, status=0, given=None):
        done = subprocess.run([command, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, input=given)
        assert done.returncode == status, done.stderr
        return done if status == 0 else done.stderr
    return run


def prompts_of(model, count, tokens):
    ids = [number for line in TEXT.splitlines() for number in model.tokenizer.encode(line + "\n", special=False).ids]
    return [ids[tokens * n:tokens * (n + 1)] for n in range(count)]


def test_a_fit_is_pythons_and_goes_on(run, folder, tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT)
    model = attend.Model.load(folder)
    prompts = prompts_of(model, 3, 24)
    fit = ["lens", "fit", folder, "corpus.txt", "--tokens", "24"]
    run(*fit, "--prompts", "3", "-o", "all.safetensors")
    found, expected = attend.JacobianLens.load(tmp_path / "all.safetensors"), model.jacobian_lens(prompts)
    assert found.prompts == 3 and np.array_equal(found.jacobians, expected.jacobians)
    run(*fit, "--prompts", "1", "-o", "x.safetensors")
    told = run(*fit, "--prompts", "3", "-o", "x.safetensors").stderr
    assert "x.safetensors has 1 prompts already; going on from there" in told
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "all.safetensors").read_bytes()
    run("lens", "fit", folder, "-", "--tokens", "24", "--prompts", "3", "-o", "y.safetensors", given=TEXT)
    assert (tmp_path / "y.safetensors").read_bytes() == (tmp_path / "all.safetensors").read_bytes()
    # What the layers say with it.
    lens = json.loads(run("model", folder, "word5 word9 word7", "--lens", "--with", "all.safetensors", "--json").stdout)["lens"]
    ids = model.tokenizer.encode("word5 word9 word7").ids
    ours = model.lens(ids, jacobian=found)
    assert np.array_equal(lens["ids"], ours.ids) and not np.array_equal(ours.log_probabilities, model.lens(ids).log_probabilities)
    np.testing.assert_allclose(lens["log_probabilities"], ours.log_probabilities, rtol=1e-6)


def test_what_does_not_fit(run, folder, tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT)
    (tmp_path / "short.txt").write_text("word5 word6\n")
    fit = ["lens", "fit", folder, "corpus.txt", "--prompts", "2", "-o", "x.safetensors"]
    told = run("lens", "fit", folder, "short.txt", "-o", "z.safetensors", status=1)
    assert "short.txt has 2 tokens, expected at least 64, the size of one prompt" in told
    assert "expected fit, got 'fitt'" in run("lens", "fitt", folder, "corpus.txt", "-o", "x.safetensors", status=2)
    assert "--tokens" in run(*fit, "--tokens", "10", status=2)
    run(*fit, "--tokens", "24")
    before = (tmp_path / "x.safetensors").read_bytes()
    assert "x.safetensors: the Jacobian lens so far was made from other prompts" in run(*fit, "--tokens", "30", status=1)
    assert "has 2 prompts already, expected at most 1" in run(*fit[:5], "1", "--tokens", "24", "-o", "x.safetensors", status=1)
    assert (tmp_path / "x.safetensors").read_bytes() == before
    assert "--with: nothing uses it without --lens" in run("model", folder, "word5", "--with", "x.safetensors", status=2)
    assert "it is not a Jacobian lens" in run("model", folder, "word5", "--lens", "--with", "tiny/model.safetensors", status=3)
    assert "it is not a Jacobian lens" in run("lens", "fit", folder, "corpus.txt", "-o", "tiny/model.safetensors", status=3)
