"""What Model.features() gives."""

from typing import NamedTuple

import numpy

from . import _core

__all__ = ["Features"]


class Features(NamedTuple):
    """The features of a pass of N rows, float32 (Model.features()).

    activations [N,size]; reconstruction [N,out_size], what they decode to; error, what stands at the place less reconstruction, so
    that the two together are the place within the rounding of one addition; scales [N], by what normalize_activations multiplies
    what a row's features decode to, else 1.

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
        """The n largest of a row, falling, as (feature, value); those that are 0 are none."""
        return _core._strongest_features(self.activations, position, n)
