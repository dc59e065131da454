"""Generator's numbers are PyTorch's."""

import numpy
import torch

import attend


def test_random_numbers_are_pytorchs():
    ours = attend.Generator(42)
    torch.manual_seed(42)
    assert (ours.rand((3, 5)) == torch.rand(3, 5).numpy()).all()
    ours.seed(1)
    torch.manual_seed(1)
    assert (ours.rand((40,)) == torch.rand(40).numpy()).all()
    assert (ours.rand((3, 2), numpy.float64) == torch.rand(3, 2, dtype=torch.float64).numpy()).all()
    assert (ours.uniform((8,), -2, 3) == torch.empty(8).uniform_(-2, 3).numpy()).all()
    numpy.testing.assert_allclose(ours.randn((64,)), torch.randn(64), atol=1e-6)
    numpy.testing.assert_allclose(ours.normal((5,), 1, 2), torch.empty(5).normal_(1, 2), atol=1e-6)
    assert (ours.kaiming_uniform((4, 6)) == torch.nn.init.kaiming_uniform_(torch.empty(4, 6), a=5**0.5).numpy()).all()
    assert (ours.xavier_uniform((4, 6)) == torch.nn.init.xavier_uniform_(torch.empty(4, 6)).numpy()).all()
    numpy.testing.assert_allclose(ours.xavier_normal((4, 6)), torch.nn.init.xavier_normal_(torch.empty(4, 6)), atol=1e-6)
