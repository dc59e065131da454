"""What holds of any kind of array: tests/python/test_arrays.py asks it of NumPy's and others, tests/pytorch/test_tensors.py of tensors."""

import gc
import sys
import warnings
import weakref

import numpy as np
import pytest

import attend

X = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
EXPECTED = attend.attention(X, X, X)


def same(x):
    """attention() of x, which holds X's values, is attention() of X, to the bit."""
    result = attend.attention(x, x, x)
    np.testing.assert_array_equal(np.asarray(result), EXPECTED)
    return result


class Exported:
    """An array that has DLPack and nothing else."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def nothing_holds_the_arguments(make):
    x = make()
    holder = x.x if isinstance(x, Exported) else x

    def calls():
        attend.attention(x, x, x, return_lse=True)
        attend.attention(x, x, x, mask=np.ones((3, 3), bool))
        for wrong in ({"bias": X[0]}, {"out": x}, {"mask": x}, {"nothing": 1}, {"scale": "1"}):
            with pytest.raises((TypeError, ValueError)):
                attend.attention(x, x, x, **wrong)

    calls()
    gc.collect()
    before = sys.getrefcount(x), sys.getrefcount(holder)
    for _ in range(10):
        calls()
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(holder)) == before


def results_live_and_die_by_themselves(make):
    x = make()
    result = same(x)
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None
    junk = [np.full(X.shape, 9, np.float32) for _ in range(100)]
    np.testing.assert_array_equal(np.asarray(result), EXPECTED)
    alive = weakref.ref(result)
    del result, junk
    gc.collect()
    assert alive() is None


def refused(make, kind, message):
    """attention() of it ends with this error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's and PyTorch's, of such arrays
        with pytest.raises(kind, match=f"^attention: {message}"):
            attend.attention(make(), X, X)
