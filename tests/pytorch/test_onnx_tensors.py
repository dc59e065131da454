"""attend.onnx.attention of PyTorch's tensors."""

import numpy as np
import onnx_cases
import pytest
import torch

import attend


def to_torch(x):
    """The same memory as a tensor; PyTorch does not know the bfloat16 of ml_dtypes."""
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def to_numpy(x, like):
    return x.view(torch.int16).numpy().view(like.dtype) if like.dtype.name == "bfloat16" else x.numpy()


def test_tensors_give_the_same_bits():
    for case in onnx_cases.published():
        arrays, tensors = (onnx_cases.run(attend.onnx.attention, case, convert) for convert in (np.asarray, to_torch))
        for name, expected in arrays.items():
            assert isinstance(tensors[name], torch.Tensor), (case.name, name)
            got = to_numpy(tensors[name], expected)
            assert got.dtype == expected.dtype and np.array_equal(got, expected, equal_nan=True), (case.name, name)


def test_arrays_and_tensors_do_not_mix():
    x = np.zeros((1, 2, 3, 4), np.float32)
    with pytest.raises(TypeError, match="attention: .*expected NumPy arrays or PyTorch tensors, got .* Tensor"):
        attend.onnx.attention(x, x, torch.from_numpy(x))


@pytest.mark.parametrize("shape, attribute, kind, message", [
    ((1, 2, 3, 4), "is_causal", ValueError, "is_causal: expected one of 0, 1, got tensor"),
    ((1, 2, 3, 4), "return_qk_matmul_output", ValueError, "return_qk_matmul_output: expected one of False"),
    ((1, 3, 8), "q_num_heads", TypeError, "q_num_heads: expected a whole number, got Tensor"),
])
def test_a_tensor_is_no_number(shape, attribute, kind, message):
    x = np.zeros(shape, np.float32)
    with pytest.raises(kind, match=message):
        attend.onnx.attention(x, x, x, **{attribute: torch.ones(2)})
