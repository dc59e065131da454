"""benchmarks/rounding.py's divergences are PyTorch's."""

import pathlib
import sys

import numpy as np
import torch

import attend

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import rounding  # noqa: E402


def test_divergences_are_those_of_pytorch():
    path = ROOT / "tests" / "golden" / "gguf" / "llama.gguf"
    exact, rounded = attend.Model.load(path), attend.Model.load(path, activations="int8")
    ids = np.arange(1, 40) % exact.info.vocabulary
    logits = [torch.from_numpy(model.logits(model.forward(ids))).double().log_softmax(1) for model in (exact, rounded)]
    divergence, same = rounding.compare(exact, rounded, ids)
    expected = torch.nn.functional.kl_div(logits[1], logits[0], log_target=True, reduction="none").sum(1)
    np.testing.assert_allclose(divergence, expected.numpy(), rtol=1e-6, atol=1e-12)
    assert divergence.max() > 1e-9
    assert (same == (logits[0].argmax(1) == logits[1].argmax(1)).numpy()).all()
    assert rounding.compare(exact, exact, ids)[0].max() == 0
