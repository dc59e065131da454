"""What Model.attribute(), lens(), ablate() and patch() give."""

from typing import NamedTuple

import numpy


class Part(NamedTuple):
    """One part of an Attribution: kind is "head", "mlp", "embedding", "bias" or "rounding"; of a head key is the token it read.

    >>> import attend
    >>> attend.Part("head", 23, 4, 3, 2.5)
    Part(kind='head', layer=23, head=4, key=3, value=2.5)
    >>> [type(part) is attend.Part for part in attend.Model.load("tiny").attribute([1, 2, 3]).top(2)]
    [True, True]
    """

    kind: str
    layer: int | None
    head: int | None
    key: int | None
    value: float


class Lens(NamedTuple):
    """What the stream before each layer, and at last after all, would answer (Model.lens()).

    >>> import attend
    >>> found = attend.Model.load("tiny").lens([1, 2, 3], top=4)
    >>> found.ids.shape, found.log_probabilities.shape, found.rank[-1].tolist()  # 2 layers
    ((3, 3, 4), (3, 3, 4), [0, 0, 0])
    """

    ids: numpy.ndarray  # [L+1,P,top]
    log_probabilities: numpy.ndarray  # [L+1,P,top]
    rank: numpy.ndarray  # [L+1,P]

    def to_pandas(self):
        """A pandas.DataFrame, a row for each token: layer, position, place, id, log_probability; ImportError without pandas."""
        return _long({"layer": 0, "position": 1, "place": 2}, {"id": self.ids, "log_probability": self.log_probabilities})


class Ablation(NamedTuple):
    """What changes where heads are taken out (Model.ablate()): arrays [L,H], or numbers; None for what the model does not have.

    >>> import attend
    >>> model = attend.Model.load("tiny")
    >>> model.ablate([1, 2, 3]).kl.shape == (model.info.layers, model.info.heads)
    True
    >>> type(model.ablate([1, 2, 3], token=7, heads=[(0, 1), (1, 0)]).logit)
    <class 'float'>
    """

    logit: numpy.ndarray | float | None
    log_probability: numpy.ndarray | float | None
    kl: numpy.ndarray | float | None
    cosine_distance: numpy.ndarray | float | None

    def to_pandas(self):
        """A pandas.DataFrame, a row for each head: layer, head and what changed; ImportError without pandas."""
        known = {name: value for name, value in self._asdict().items() if value is not None}
        if any(numpy.ndim(value) == 0 for value in known.values()):
            raise ValueError("Ablation.to_pandas: the heads were taken out together: there is one number of each")
        return _long({"layer": 0, "head": 1}, known)


class Patching(NamedTuple):
    """How much of the clean text's answer came back (Model.patch()): recovered [L,H] or [L+1,T].

    >>> import attend
    >>> found = attend.Model.load("tiny").patch([1, 2, 3], [1, 4, 3], token=7, against=8, what="residual")
    >>> found.recovered.shape, found.recovered[-1].tolist()  # after the last layer, the row itself
    ((3, 3), [0.0, 0.0, 1.0])
    """

    recovered: numpy.ndarray
    clean: float
    corrupt: float


def attribution_table(attribution):
    import pandas

    layers, heads, keys = numpy.indices(attribution.heads.shape).reshape(3, -1)
    mlps = range(len(attribution.mlps))
    rest = [(kind, getattr(attribution, kind)) for kind in ("embedding", "bias", "rounding")]
    return pandas.concat([
        pandas.DataFrame({"kind": "head", "layer": layers, "head": heads, "key": keys, "value": attribution.heads.ravel()}),
        pandas.DataFrame({"kind": "mlp", "layer": mlps, "value": attribution.mlps}),
        pandas.DataFrame(rest, columns=["kind", "value"]),
    ], ignore_index=True).astype(dict.fromkeys(("layer", "head", "key"), "Int64"))


def _long(axes, values):
    import pandas

    shape = next(iter(values.values())).shape
    places = numpy.indices(shape)
    return pandas.DataFrame({name: places[axis].ravel() for name, axis in axes.items()} |
                            {name: value.ravel() for name, value in values.items()})
