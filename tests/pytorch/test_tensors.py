"""PyTorch's tensors in and out: whose they are, where their memory is, who keeps it alive (tests/python/test_arrays.py: arrays)."""


import ml_dtypes
import numpy as np
import pytest
import torch
from arrays import Exported, X, nothing_holds_the_arguments, refused, results_live_and_die_by_themselves, same
from torch._subclasses.fake_tensor import FakeTensorMode

import attend

T = torch.from_numpy(X)


class SubclassOfTensor(torch.Tensor):
    pass


KINDS = {
    "tensor": (lambda: T, torch.Tensor),
    "subclass": (lambda: T.as_subclass(SubclassOfTensor), torch.Tensor),
    "parameter": (lambda: torch.nn.Parameter(T, requires_grad=False), torch.Tensor),
    "DLPack": (lambda: Exported(T), np.ndarray),
}


@pytest.mark.parametrize("make, kind", KINDS.values(), ids=KINDS)
def test_the_result_is_of_the_arguments_kind(make, kind):
    result = same(make())
    assert type(result) is kind and "float32" in str(result.dtype) and result.shape == X.shape


@pytest.mark.parametrize("make", [lambda x: x, Exported], ids=["tensor", "DLPack"])
def test_bfloat16_comes_back_as_bfloat16(make):
    x = make(T.bfloat16())
    result = attend.attention(x, x, x)
    assert str(result.dtype).endswith("bfloat16")
    bits = result.view(torch.int16).numpy() if isinstance(result, torch.Tensor) else result.view(np.int16)
    reference = X.astype(ml_dtypes.bfloat16)
    assert np.array_equal(bits, attend.attention(reference, reference, reference).view(np.int16))


# What is refused.

def negative():
    """A view of memory that holds -x: PyTorch keeps the sign in a bit of the tensor."""
    x = torch.complex(torch.zeros_like(T), -T).conj().imag
    assert x.is_neg() and torch.equal(x.resolve_neg(), T)
    return x


def fake():
    with FakeTensorMode():
        return torch.zeros(2, 3, 4)


DTYPE = "q: expected float32, float64, bfloat16 or float16 .a mask: bool., got "
REFUSED = {
    "9 axes": (lambda: torch.zeros((1,) * 9), ValueError, "q: expected at most 8 axes, got 9"),
    "complex": (lambda: T.to(torch.complex64), TypeError, DTYPE + "torch.complex64"),
    "conjugate": (lambda: T.to(torch.complex64).conj(), TypeError, DTYPE + "torch.complex64"),
    "int32": (lambda: T.int(), TypeError, DTYPE + "torch.int32"),
    "float8": (lambda: T.to(torch.float8_e4m3fn), TypeError, DTYPE + "torch.float8_e4m3fn"),
    "negative view": (negative, ValueError, "q is a view with PyTorch.s negative bit"),
    "meta": (lambda: T.to("meta"), TypeError, "q: expected an array on the CPU, got one on meta"),
    "fake": (fake, TypeError, "q: the array has no memory"),
    "sparse": (lambda: T[0].to_sparse(), TypeError, "q: Cannot access data pointer of Tensor"),
    "mkldnn": (lambda: T.to_mkldnn(), TypeError, "q: Cannot access data pointer of Tensor"),
}


@pytest.mark.parametrize("make, kind, message", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(make, kind, message):
    refused(make, kind, message)


@pytest.mark.parametrize("make, message", [
    (lambda: torch.zeros(4).expand(X.shape), r"out has strides \[0,0,1\] .* share memory"),
    (lambda: torch.zeros(X.shape, dtype=torch.complex64).conj().imag, "out is a view with"),
])
def test_what_can_not_be_written_to(make, message):
    with pytest.raises(ValueError, match=f"^attention: {message}"):
        attend.attention(X, X, X, out=make())


def test_whole_numbers_may_be_a_tensor():
    x = X[None]
    np.testing.assert_array_equal(attend.attention(x, x, x, key_lengths=torch.tensor([2])),
                                  attend.attention(x, x[:, :, :2], x[:, :, :2]))
    with pytest.raises(TypeError, match="attention: key_lengths: expected whole numbers"):
        attend.attention(x, x, x, key_lengths=torch.zeros(1, dtype=torch.int64, device="meta"))


# Who keeps what alive.

@pytest.mark.parametrize("make", [make for make, _ in KINDS.values()], ids=KINDS)
def test_nothing_holds_the_arguments_afterwards(make):
    nothing_holds_the_arguments(make)


def test_results_live_and_die_by_themselves():
    results_live_and_die_by_themselves(T.clone)
