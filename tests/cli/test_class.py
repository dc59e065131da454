"""What `attend class` refuses. Its experiments: tests/pytorch/test_experiments.py and page/tests/class.test.mjs."""

import subprocess

import pytest


@pytest.fixture
def make(command, tmp_path):
    def run(*arguments, status):
        done = subprocess.run([command, "class", *arguments], capture_output=True, text=True, cwd=tmp_path, env={"HOME": str(tmp_path)})
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        return done.stderr

    return run


def test_without_a_folder_to_write_to(make, tmp_path):
    assert "--output is required" in make(status=2)
    (tmp_path / "file").write_text("mine")
    assert "-o file: no folder can be made there" in make("-o", "file", status=1)
    assert (tmp_path / "file").read_text() == "mine"


def test_without_its_models(make, tmp_path):
    told = make("-o", "class", status=3)
    assert "minilm" in told or "built without the pages" in told
    assert not list((tmp_path / "class").iterdir())
    assert "--with: expected smollm2, got 'gpt2'" in make("-o", "class", "--with", "gpt2", status=2)
