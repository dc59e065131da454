"""Pictures of PyTorch's tensors: those of a model that records gradients, and of bfloat16."""

import numpy
import torch

import attend


def test_tensors_are_drawn_as_arrays_are():
    weights = torch.softmax(torch.arange(18.0, requires_grad=True).reshape(2, 3, 3) / 7, -1)
    assert weights.requires_grad
    array = weights.detach().numpy()
    assert attend.picture(weights).to_png() == attend.picture(array).to_png()
    assert attend.head_grid((weights, weights)).to_svg() == attend.head_grid(numpy.stack([array] * 2)).to_svg()
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    assert attend.picture(weights, mask=mask).to_svg() == attend.picture(array, mask=mask.numpy()).to_svg()
    narrow = weights.bfloat16()
    assert attend.picture(narrow).to_svg() == attend.picture(narrow.detach().float().numpy()).to_svg()
    top = weights[0].topk(2)
    assert attend.token_links(top.indices, top.values).to_svg().count("<line") > 4
