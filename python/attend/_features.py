"""What Model.features() gives."""

from typing import NamedTuple

import numpy

from . import _core

__all__ = ["Features"]


class Features(NamedTuple):
    """The features of a pass of N rows, float32 (Model.features()).

    activations is [N,size]. reconstruction [N,out_size] is what they decode to. error is what stands at the place less reconstruction,
    so the two together are the place, within the rounding of one addition. scales [N] is what normalize_activations multiplies a row's
    decoded features by, else 1.

    >>> import attend
    >>> found = attend.Model.load("tiny").features([1, 2, 3, 4], attend.SparseAutoencoder.load("autoencoder"))
    >>> found.activations.shape, found.error.shape
    ((4, 3), (4, 16))
    >>> sorted(feature for feature, value in found.top(position=-1)) == (found.activations[-1] > 0).nonzero()[0].tolist()
    True
    """

    activations: numpy.ndarray
    reconstruction: numpy.ndarray
    error: numpy.ndarray
    scales: numpy.ndarray

    def top(self, position: int = -1, n: int = 10) -> list[tuple[int, float]]:
        """The n largest of a row, largest first, as (feature, value), without those that are 0."""
        return _core._strongest_features(self.activations, position, n)
