"""What Model.attribute(), lens(), ablate() and patch() give."""

import csv
import io
import operator
import types
from typing import Any, NamedTuple, TypeVar

import numpy

from . import _core

__all__ = ["Ablation", "Average", "Composition", "Lens", "Part", "Passages", "Patching", "Results", "Saliency", "ScoreSplit",
           "ValueSplit", "Variants"]


class Part(NamedTuple):
    """One part of an Attribution. kind is "head", "cross", "mlp", "neuron", "embedding", "bias" or "rounding". For a head, key and token
    are the position and the text of what it read. name is "23.4", "mlp 15", "mlp 15, unit 812" or the kind.

    >>> import attend
    >>> attend.Part("head", 23, 4, 3, 2.5, "23.4", " France")
    Part(kind='head', layer=23, head=4, key=3, value=2.5, name='23.4', token=' France', unit=None)
    >>> [type(part) is attend.Part for part in attend.Model.load("tiny").attribute([1, 2, 3]).top(2)]
    [True, True]
    """

    kind: str
    layer: int | None
    head: int | None
    key: int | None
    value: float
    name: str | None = None
    token: str | None = None
    unit: int | None = None


class _Found:
    """What the results below share: a class names its functions of _core, and says as keywords what its methods' help does."""

    _of = None  # what it was found of, where a Model's method found it
    _look: Any

    def __init_subclass__(cls, **docs: str) -> None:
        for name, text in docs.items():
            shared = getattr(_Found, name)
            own = types.FunctionType(shared.__code__, shared.__globals__, name)
            own.__doc__, own.__qualname__, own.__annotations__ = text, f"{cls.__name__}.{name}", shared.__annotations__
            setattr(cls, name, own)

    def to_csv(self) -> str:
        """The rows of to_pandas() as CSV."""
        return self._look.csv(self)

    def to_json(self) -> str:
        """What `attend model --json` prints of it (docs/json.md)."""
        return self._look.json(self)

    def to_pandas(self):
        """A pandas.DataFrame, a row for each number; ImportError without pandas."""
        return table(self)

    def _repr_html_(self) -> str | None:
        """The picture, which a notebook shows; None where there is none, as for heads that were taken out together."""
        try:
            return self.picture()._repr_svg_()
        except ValueError:
            return None


class _Lens(NamedTuple):
    ids: numpy.ndarray  # [L+1,P,top]
    log_probabilities: numpy.ndarray  # [L+1,P,top]
    rank: numpy.ndarray  # [L+1,P]


class Lens(
    _Lens, _Found,
    to_csv="The rows of to_pandas() as CSV, with the tokens.",
    to_json="`lens` of `attend model --json` (docs/json.md).",
    to_pandas="A pandas.DataFrame, a row for each token: layer, position, place, id, token, log_probability; ImportError without pandas.",
):
    """What the stream would answer before each layer, and after the last one (Model.lens()).

    >>> import attend
    >>> found = attend.Model.load("tiny").lens([1, 2, 3], top=4)
    >>> found.ids.shape, found.log_probabilities.shape, found.rank[-1].tolist()  # 2 layers
    ((3, 3, 4), (3, 3, 4), [0, 0, 0])
    """

    _look = _core._LensLook

    def picture(self, most=32, title=None):
        """The likeliest token of each layer at each position, coloured by its probability: an attend.Picture.

        It shows the last `most` positions, and the title says which.
        """
        return self._look.picture(self, most, title)


class _Ablation(NamedTuple):
    logit: numpy.ndarray | float | None
    log_probability: numpy.ndarray | float | None
    kl: numpy.ndarray | float | None
    cosine_distance: numpy.ndarray | float | None


class Ablation(
    _Ablation, _Found,
    to_csv="The rows of to_pandas() as CSV.",
    to_json="`ablation` of `attend model --json` (docs/json.md).",
    to_pandas="A pandas.DataFrame, a row for each head: layer, head, name and what changed; of heads that were taken out together one\n"
              "row, whose name has all of theirs. ImportError without pandas.",
):
    """What changes when heads are taken out (Model.ablate()): arrays [L,H], or numbers. None for what the model does not have.

    >>> import attend
    >>> model = attend.Model.load("tiny")
    >>> model.ablate([1, 2, 3]).kl.shape == (model.info.layers, model.info.heads)
    True
    >>> type(model.ablate([1, 2, 3], token=7, heads=[(0, 1), (1, 0)]).logit)
    <class 'float'>
    """

    _look = _core._AblationLook

    def picture(self, change=None, title=None):
        """What changes without each head, [L,H], as an attend.Picture.

        change: "log_probability" (the default for decoders), "logit", "kl", or "cosine_distance" (the default for encoders).
        """
        return self._look.picture(self, change, title)


class _Patching(NamedTuple):
    recovered: numpy.ndarray
    clean: float
    corrupt: float


class Patching(
    _Patching, _Found,
    to_csv="The rows of to_pandas() as CSV, with the tokens.",
    to_json="`patching` of `attend model --json`, but for corrupt_ids (docs/json.md).",
    to_pandas='A pandas.DataFrame, a row for each number: layer, head, name, recovered; of "residual" layer, position, token,\n'
              "recovered. ImportError without pandas.",
):
    """How much of the clean text's answer came back (Model.patch()): recovered [L,H] or [L+1,T].

    >>> import attend
    >>> found = attend.Model.load("tiny").patch([1, 2, 3], [1, 4, 3], token=7, against=8, what="residual")
    >>> found.recovered.shape, found.recovered[-1].tolist()  # after the last layer, the row itself
    ((3, 3), [0.0, 0.0, 1.0])
    """

    _look = _core._PatchingLook

    def picture(self, title=None):
        """The heads [L,H], or the stream at each token [L+1,T], coloured by what they bring back: an attend.Picture."""
        return self._look.picture(self, title)


class _Saliency(NamedTuple):
    tokens: numpy.ndarray
    encoder: numpy.ndarray | None
    value: float
    baseline_value: float
    missing: float
    steps: int


class Saliency(
    _Saliency, _Found,
    to_csv="The rows of to_pandas() as CSV, with the tokens.",
    to_json="`saliency` of `attend model --json` (docs/json.md), but for token, against and position.",
    to_pandas="A pandas.DataFrame, a row for each token: text (of an encoder-decoder encoder or decoder), position, token, value.\n"
              "ImportError without pandas.",
):
    """Which tokens a number came from (Model.saliency()): tokens [N], and in an encoder-decoder encoder [M], else None.

    In an encoder-decoder, tokens are the decoder's. tokens + encoder + missing = value - baseline_value, where missing is what the
    path's `steps` points miss.

    >>> import attend
    >>> found = attend.Model.load("tiny").saliency([1, 2, 3], token=7, against=8)
    >>> bool(abs(found.tokens.sum() + found.missing - (found.value - found.baseline_value)) < 1e-4)
    True
    """

    _look = _core._SaliencyLook

    def picture(self, title=None):
        """The tokens, each coloured by what it did to the number: an attend.Picture. The caption says what is missed."""
        return self._look.picture(self, title)

    def words(self, encoder: bool = False) -> list[tuple[str, float]]:
        """What the tokens of each word did together, as (word, value), in the text's order; with encoder, for the encoder's text."""
        return _core._saliency_words(self, encoder)


class _Passages(NamedTuple):
    estimated: numpy.ndarray  # [S]
    hidden: numpy.ndarray  # [k], int64
    measured: numpy.ndarray  # [k]
    spans: list[tuple[int, int]]  # [S]
    value: float


class Passages(
    _Passages, _Found,
    to_csv="The rows of to_pandas() as CSV.",
    to_json="`passages` of `attend model --json` (docs/json.md), but for token, against and position.",
    to_pandas="A pandas.DataFrame, a row for each passage: passage, begin, end, text, estimated, measured (NaN where it was not hidden).\n"
              "ImportError without pandas.",
):
    """Which passages of a text made the answer (Model.passages()): estimated [S] for all, measured [k] for those that were hidden.

    What a passage gave is the number less what the number is when no later row sees the passage. hidden has the passages that were
    hidden, the largest estimates first. spans are in tokens.

    >>> import attend
    >>> found = attend.Model.load("tiny").passages([1, 2, 3, 4, 5], {"first": (0, 2), "second": (2, 4)}, token=7, hide=1)
    >>> found.estimated.shape, found.hidden.shape, found.measured.shape, found.spans
    ((2,), (1,), (1,), [(0, 2), (2, 4)])
    """

    _look = _core._PassagesLook

    def picture(self, title=None):
        """A row for each passage, [S,2], with what it gave by the estimate and by the measurement: an attend.Picture."""
        return self._look.picture(self, title)


class _Variants(NamedTuple):
    texts: list[str]
    ids: list[numpy.ndarray]  # of each text [N]
    words: list[list[tuple[str, tuple[int, int]]]]  # of each text: its words, and their tokens (begin, end)
    query: list[int]  # a token
    target: list[tuple[int, int] | None]  # tokens (begin, end)
    other: list[tuple[int, int] | None]
    weights: list[numpy.ndarray]  # of each text [L,H,N]
    held: numpy.ndarray  # [L,H]


class Variants(
    _Variants, _Found,
    to_csv="The rows of to_pandas() as CSV.",
    to_json="`variants` of `attend model --json` (docs/json.md), but for tokens and baselines.",
    to_pandas="A pandas.DataFrame, a row for each weight: text, layer, head, name, key, token, weight. ImportError without pandas.",
):
    """Whether a head does in other texts what it does in one (Model.vary()): weights of each text [L,H,N], and held [L,H].

    held counts the texts where the head gives target more than other; without these, where the word that gets most is that of the
    first text.

    >>> import attend, numpy
    >>> found = attend.Variants(["a b", "b a"], [[5, 6], [6, 5]], [[("a", (0, 1)), ("b", (1, 2))], [("b", (0, 1)), ("a", (1, 2))]],
    ...                         [1, 1], [(0, 1), (1, 2)], [(1, 2), (0, 1)], [numpy.array([[[0.75, 0.25]]], numpy.float32)] * 2, None)
    >>> found.baselines(), found.looks_at((0, 0))
    ({'first': 1, 'nearest': 1, 'chance': 1}, [('a', 0.75), ('b', 0.75)])
    """

    _look = _core._VariantsLook

    def picture(self, head=None, title=None):
        """The texts, coloured by what the query gives in a head, "3.1" or (3, 1); None: held, for all heads. An attend.Picture."""
        return self._look.picture(self, None if head is None else _head_name(head), title)

    def baselines(self) -> dict[str, int]:
        """How often the claim would hold without looking. "first" and "nearest" count the texts where target is the first or the nearest
        of the two words. "chance" is the count of the best of all heads, if each guessed (the median). 0 without target and other."""
        return _core._variant_baselines(self)

    def looks_at(self, head) -> list[tuple[str, float] | None]:
        """For each text, the word that the query gives most to in this head, "3.1" or (3, 1), and how much; None if it gives nothing."""
        return _core._variant_words(self, _head_name(head))


def _head_name(head):
    if isinstance(head, str):
        return head
    try:
        layer, number = head
    except NotImplementedError:  # of a memoryview with several axes
        raise TypeError("head: expected \"3.1\" or (3, 1), got a memoryview") from None
    return f"{operator.index(layer)}.{operator.index(number)}"


class Composition(NamedTuple):
    """How much heads read of what earlier heads write, by their weights alone (Model.composition()): q, k and v [L,H,L,H]. The later
    head comes first.

    >>> import attend
    >>> found = attend.Model.load("tiny").composition()
    >>> [type(value) for value in found.top("k", 1)[0]]
    [<class 'str'>, <class 'str'>, <class 'float'>]
    """

    q: numpy.ndarray  # [L,H,L,H], by a head's queries
    k: numpy.ndarray  # by its keys
    v: numpy.ndarray  # by its values

    def top(self, by: str = "k", n: int = 10) -> list[tuple[str, str, float]]:
        """The n largest of "q", "k" or "v", largest first: (the reading head, the head that it reads, value), as ("17.3", "16.0", 0.2)."""
        if by not in self._fields:
            raise ValueError(f"Composition.top: by is {by!r}, expected 'q', 'k' or 'v'")
        values = getattr(self, by)
        order = numpy.argsort(-values, axis=None, kind="stable")[: max(0, operator.index(n))]
        places = zip(*numpy.unravel_index(order, values.shape))
        return [(f"{layer}.{head}", f"{earlier}.{other}", float(values[layer, head, earlier, other]))
                for layer, head, earlier, other in places]


class ScoreSplit(NamedTuple):
    """Why a head gives a key its score (Model.explain_score()): pairs [A,B] of each part of the query's row and each part of the key's.

    parts names the query's parts: "embedding", a head ("16.0"), "mlp 3", "bias". key_parts names the key's, which are the same ones
    except in a cross-attention. If the key was not split, key_parts is empty and pairs are [A,1]. pairs.sum() + bias + rest is score.
    bias is what the score itself adds, such as T5's bias by distance, and rest is what rounding leaves.

    >>> import attend
    >>> found = attend.Model.load("tiny").explain_score([1, 2, 3, 4], "1.0", query=-1, key=1)
    >>> bool(abs(found.pairs.sum() + found.bias + found.rest - found.score) < 1e-4)
    True
    >>> [part for part, value in found.top("query", 2)] == [part for part, value in found.top("query", 9)][:2]
    True
    """

    parts: list[str]  # [A]
    pairs: numpy.ndarray  # [A,B]
    bias: float
    rest: float
    score: float
    key_parts: list[str]  # [B]

    def top(self, of: str = "pairs", n: int = 10) -> list[tuple]:
        """The n largest magnitudes, largest first: (part, value) for "query" or "key", or (query's part, key's part, value) for "pairs"."""
        if of not in ("query", "key", "pairs"):
            raise ValueError(f"ScoreSplit.top: of is {of!r}, expected 'query', 'key' or 'pairs'")
        values = {"query": self.pairs.sum(1), "key": self.pairs.sum(0), "pairs": self.pairs}[of]
        order = numpy.argsort(-abs(values), axis=None, kind="stable")[: max(0, operator.index(n))]
        names = {"query": (self.parts,), "key": (self.key_parts or ["key"],), "pairs": (self.parts, self.key_parts or ["key"])}[of]
        places = zip(*numpy.unravel_index(order, values.shape))
        return [(*(side[n] for side, n in zip(names, place)), float(values[place])) for place in places]


class ValueSplit(NamedTuple):
    """What a head reads at a key along a direction (Model.explain_value()): values [A], one for each part of the key's row.

    parts names them, as in ScoreSplit. values.sum() + rest is value; rest is what rounding leaves.

    >>> import attend
    >>> found = attend.Model.load("tiny").explain_value([1, 2, 3, 4], "1.0", key=1, token=7)
    >>> bool(abs(found.values.sum() + found.rest - found.value) < 1e-4), len(found.top(2))
    (True, 2)
    """

    parts: list[str]  # [A]
    values: numpy.ndarray  # [A]
    rest: float
    value: float

    def top(self, n: int = 10) -> list[tuple[str, float]]:
        """The n largest magnitudes, largest first: (part, value)."""
        order = numpy.argsort(-abs(self.values), kind="stable")[: max(0, operator.index(n))]
        return [(self.parts[place], float(self.values[place])) for place in order]


class Average(NamedTuple):
    """A mean over texts, and the standard error of each of its numbers (Results.average()). Both look like one text's result.

    >>> import attend
    >>> mean, error, texts = attend.Average(0.5, 0.25, 3)
    >>> mean, error, texts
    (0.5, 0.25, 3)
    """

    mean: Any
    standard_error: Any
    texts: int


Found = TypeVar("Found")


class Results(list[Found]):
    """What a Model's attribute(), lens(), ablate(), patch() or gradient() found in several texts: a list with a result for each.

    >>> import attend
    >>> found = attend.Model.load("tiny").ablate([[1, 2, 3], [4, 5, 6, 7]], token=7)
    >>> len(found), type(found[0]) is attend.Ablation
    (2, True)
    >>> mean, error, texts = found.average()
    >>> mean.kl.shape == error.kl.shape == found[0].kl.shape, texts
    (True, 2)
    """

    def average(self, spans: Any = None) -> Average:
        """The mean over the texts with its standard error: the standard deviation between texts (n - 1) over the root of their number.

        For Attribution, heads are sums over all tokens, [L,H,1]. With spans, such as {"subject": (3, 5), "verb": 6} for all texts or a
        list with one for each, they are sums over the tokens of each span, [L,H,spans]. For Patching, recovered is the mean of its
        numerators over the mean of its denominators, so a pair whose answers hardly differ weighs little. Raises ValueError for
        Lens, whose tokens differ, and for results of different shapes.
        """
        averages = {
            _core.Attribution: lambda: _core._average_attributions(self, spans),
            Ablation: lambda: _core._average_ablations(self),
            Patching: lambda: _core._average_patchings(self),
        }
        kinds = {type(each) for each in self}
        if len(kinds) != 1 or not kinds <= set(averages):
            names = ", ".join(sorted(kind.__name__ for kind in kinds)) or "nothing"
            raise ValueError(f"Results.average: expected all Attribution, Ablation or Patching, got {names}")
        (kind,) = kinds
        if spans is not None and kind is not _core.Attribution:
            raise ValueError(f"Results.average: spans are for Attribution only, got {kind.__name__}")
        return Average(*averages[kind]())


def table(analysis):
    """The rows of to_csv() as a pandas.DataFrame: whole numbers as Int64, what is not there as <NA>, a text as it is."""
    import pandas

    header, *rows = csv.reader(io.StringIO(analysis.to_csv()))
    columns = dict(zip(header, zip(*rows)))
    for name, values in columns.items():
        if name in ("layer", "head", "key", "position", "place", "id"):
            columns[name] = pandas.array([int(value) if value else None for value in values], "Int64")
        elif name not in ("kind", "name", "token"):
            columns[name] = numpy.array(values, numpy.float64 if name == "value" else numpy.float32)
    return pandas.DataFrame(columns)
