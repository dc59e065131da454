"""What Model.gradient() gives."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy

__all__ = ["Gradient"]


class Gradient(Mapping[Any, numpy.ndarray]):
    """The gradient of a number by what stands at places of the pass, float32 (Model.gradient()).

    It maps each place, named as in `at`, to an array: g["z", 3] is [N,H*Dv], and g["residual"] has all layers [L+1,N,E]. If `of` asks
    for several numbers at once, by arrays [K,N,...], each array begins with an axis of K. value is the number itself, or an array
    [K]. token and position say which logit it was.

    >>> import attend
    >>> g = attend.Model.load("tiny").gradient([1, 2, 3], token=4, at=["embeddings", ("z", 0), "residual"])
    >>> list(g), g["z", 0].shape, g["residual"].shape, g.token
    (['embeddings', ('z', 0), 'residual'], (3, 16), (3, 3, 16), 4)
    """

    value: float | numpy.ndarray
    token: int | None
    position: int | None

    def __init__(self, arrays: dict[Any, numpy.ndarray], value: float | numpy.ndarray, token: int | None = None,
                 position: int | None = None) -> None:
        if not isinstance(arrays, Mapping):
            raise TypeError(f"Gradient: arrays: expected a dict of arrays by place, got {type(arrays).__name__}")
        self._arrays, self.value, self.token, self.position = dict(arrays), value, token, position

    def __getitem__(self, place: Any) -> numpy.ndarray:
        return self._arrays[place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{place!r}: {array.shape}" for place, array in self._arrays.items())
        return f"Gradient({{{shapes}}}, value={self.value!r}, token={self.token!r}, position={self.position!r})"
