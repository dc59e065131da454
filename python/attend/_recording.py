"""Recording: what every head of a model attended to, as attend.transformers.record() and the command make it."""

import collections
import functools
import operator
import os
import pathlib
import tempfile
import warnings

import numpy

from ._core import (
    _head_fields,
    _head_links,
    _head_name,
    _head_picture,
    _head_strip,
    _heads,
    _heads_csv,
    _heads_json,
    _Recording,
    _recording_page,
    _recording_picture,
    _summary_statistics,
    _telling_heads,
)

_HEADS = numpy.dtype([("layer", object), ("head", numpy.int64), ("name", object), ("labels", object), *_head_fields])
_ARRAYS = {
    "lse": "[B,H,Tq] the logarithm of the sum of a row's exponentials",
    "lse_low": "[B,H,Tq] what rounding took from lse",
    "key_sizes": "[B,H,Tk] what a key carries, abs(W_O v); None where it was not recorded",
} | dict(_summary_statistics)

TopKey = collections.namedtuple("TopKey", "key weight token")
Link = collections.namedtuple("Link", "query key weight query_token key_token")
TellingHead = collections.namedtuple("TellingHead", "name labels links")
HeadSteps = collections.namedtuple(
    "HeadSteps", "queries keys scores scaled_scores logits weights lse entropy context", defaults=[None])


class Heads(numpy.ndarray):
    """A structured array with a line for each head, which prints as a table. Its excess is in the labels there."""

    def largest(self, score, count=None) -> "Heads":
        """The heads with the largest values of a field such as "induction", largest first; those where it is unknown come last.

        ValueError where it is known for no head.
        """
        self._check_known(score)
        values = self[score].astype(numpy.float64)
        return self[numpy.argsort(-numpy.where(numpy.isnan(values), -numpy.inf, values), kind="stable")[:count]]

    def sort(self, axis=-1, kind=None, order=None, **keywords):
        """numpy.ndarray.sort(); ValueError for a score that is known for no head, whose order would be arbitrary."""
        self._check_known(order)
        super().sort(axis=axis, kind=kind, order=order, **keywords)

    def argsort(self, axis=-1, kind=None, order=None, **keywords):
        """numpy.ndarray.argsort(); ValueError for a score that is known for no head, whose order would be arbitrary."""
        self._check_known(order)
        return super().argsort(axis=axis, kind=kind, order=order, **keywords)

    def _check_known(self, order):
        """order: a field, several or None, as numpy.sort() takes it."""
        for name in () if order is None else (order,) if isinstance(order, str) else order:
            if name not in (self.dtype.names or ()):
                raise ValueError(f"heads: no field {name!r}, expected one of {', '.join(self.dtype.names or ())}")
            if len(self) and self.dtype[name] == numpy.float64 and numpy.isnan(self[name]).all():
                raise ValueError(f"heads: {name} is not known for any of these heads: {_why_unknown(name)}")

    def __str__(self):
        if self.dtype != _HEADS or self.ndim != 1:
            return super().__str__()
        names = [name for name in _HEADS.names if not name.endswith("_excess") and (
            self.dtype[name] != numpy.float64 or not numpy.isnan(self[name]).all())]
        rows = [names] + [[_text(row[name]) for name in names] for row in self]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ("  ".join(cell.ljust(width) if name in ("layer", "name", "labels") else cell.rjust(width)
                           for cell, width, name in zip(row, widths, names)) for row in rows)
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def to_pandas(self):
        """The same as a pandas.DataFrame; ImportError without pandas."""
        import pandas

        return pandas.DataFrame({name: numpy.asarray(self[name]) for name in self.dtype.names})


def _why_unknown(name):
    if name.endswith("_excess"):
        return "fewer than 8 queries see a key that counts, or uniform attention leaves less than 0.1 to gain"
    if name in ("duplicate", "induction"):
        return "the ids of the tokens are not known, or nobody said which key is level with a query"
    return "nobody said which key is level with a query, or the file is of an older version"


def _text(value):
    if isinstance(value, (float, numpy.floating)):
        return "-" if numpy.isnan(value) else f"{value:.3f}"
    return str(value)


class RecordedLayer:
    """One layer's attention, recording["decoder.3.cross"] or recording[7]: its numbers, weights and pictures.

    H are the heads that were recorded, and `heads` are their numbers in the model. Methods take such a number or a name, "18.6", and
    item, the item of the batch. Below 0, heads, queries and items count from the end.
    """

    def __init__(self, recording, number):
        if not isinstance(recording, Recording):
            raise TypeError(f"RecordedLayer: expected a Recording, whose item it is, got {type(recording).__name__}")
        self._recording, self._raw, self._number = recording, recording._made(), _whole("RecordedLayer", number)
        if not 0 <= self._number < len(self._raw):
            raise ValueError(f"RecordedLayer: {self._number}, expected 0 to {len(self._raw) - 1}")
        self._says = self._raw.layer(self._number)

    def __reduce__(self):
        return RecordedLayer, (self._recording, self._number)

    def __repr__(self):
        return (f"<attend.RecordedLayer {self.name!r}: {self._says['batch']} x {len(self.heads)} heads of "
                f"{self._says['head_size']}, {self.queries} queries, {self.keys} keys>")

    @property
    def name(self) -> str:
        """Such as "decoder.3.cross"."""
        return self._says["name"]

    @property
    def kind(self) -> str:
        """ "self" or "cross"."""
        return self._says["kind"]

    @property
    def heads(self) -> list:
        """The numbers of the recorded query heads."""
        return self._says["heads"]

    def head_name(self, head) -> str:
        """ "18.6" of layer "18.self"; "decoder.3.cross.6"."""
        return _head_name(self.name, self.heads[self._at(head)])

    @property
    def queries(self) -> int:
        """How many there are, Tq."""
        return self._says["queries"]

    @property
    def keys(self) -> int:
        """How many there are, Tk."""
        return self._says["keys"]

    @property
    def dtype(self) -> str:
        """Of the queries and keys: what the layer computed in."""
        return self._says["dtype"]

    @property
    def has_weights(self) -> bool:
        """Whether q and k were kept, so that weights() can be asked for."""
        return self._says["has_qk"]

    @property
    def has_key_sizes(self) -> bool:
        """Whether it is known by norm, too: record(key_sizes=True)."""
        return self._says["has_key_sizes"]

    def top(self, head, query, item=0) -> list:
        """The largest weights of a query, largest first: a list of (key, weight, token). token is None where it is unknown."""
        at, query, item = self._at(head), self._number_of("query", query, self.queries), self._item(item)
        tokens = self._raw.key_tokens(self._number)
        pairs = zip(self.top_keys[item, at, query].tolist(), self.top_weights[item, at, query].tolist())
        return [TopKey(key, weight, tokens[item][key] if tokens else None) for key, weight in pairs if key >= 0]

    def weights(self, head, queries=None, keys=None, item=0, by="weight"):
        """Exact weights of a head, [queries,keys] as a NumPy array. queries and keys are (begin, end); None: all.

        They are made from q and k, which must have been kept with record(keep="qk"). by="norm" multiplies each weight by its
        key's size, which gives what is carried; it needs record(key_sizes=True). ValueError otherwise.
        """
        return self._raw.weights(self._number, self._item(item), self.heads[self._at(head)], queries, keys, by)

    def steps(self, head, item=0, queries=None, keys=None, values=None) -> HeadSteps:
        """What makes a head's weights, as NumPy arrays by the names of docs/json.md's trace.

        queries and keys are [T,D]. scores are q k^T, followed by scaled_scores. logits are what the softmax sees, after softcap,
        biases and masks, and -inf where a pair is hidden. weights are exp(logits - lse), the same as weights() gives. lse and
        entropy have a number for each row. context is the weights times values, if values [Tk,Dv] of the head's keys are given,
        else None. The arguments queries and keys are (begin, end); None: all. ValueError where q and k were not kept.

        >>> import attend
        >>> layer = attend.Model.load("tiny").record("the cat sat", keep="qk")["0.self"]
        >>> steps = layer.steps(head=1)
        >>> float(steps.logits[0, 1]), float(steps.weights[0, 0])  # the first word sees itself alone
        (-inf, 1.0)
        """
        found = self._raw.steps(self._number, self._item(item), self.heads[self._at(head)], queries, keys, values)
        return HeadSteps(**found)

    def picture(self, head, queries=None, keys=None, item=0, scale="sqrt", title=None, by="weight"):
        """The head's map as an attend.Picture. With queries or keys, each (begin, end), it shows the exact weights of that part.

        by="norm" shows what is carried, as shares of what a query takes in the mean.
        """
        return _head_picture(*self._place(head), queries, keys, self._item(item), by, scale, title)

    def strip(self, head, values="received", item=0, scale="sqrt", title=None, by="weight"):
        """The tokens, coloured by what each received, its lift, or its row's entropy, as an attend.Picture."""
        if values not in ("received", "lift", "entropy"):
            raise ValueError(f"RecordedLayer.strip: values: expected 'received', 'lift' or 'entropy', got {values!r}")
        return _head_strip(*self._place(head), values, self._item(item), by, scale, title)

    def links(self, head, queries=None, item=0, scale="sqrt", title=None, by="weight"):
        """Lines from each query (begin, end) to its top keys, as an attend.Picture."""
        return _head_links(*self._place(head), queries, self._item(item), by, scale, title)

    def _place(self, head):
        return self._raw, self._number, self.heads[self._at(head)]

    def _at(self, head):
        if isinstance(head, str):
            names = [_head_name(self.name, number) for number in self.heads]
            if head not in names:
                raise ValueError(f"RecordedLayer: layer {self.name}: no head {head!r}, expected one of {listed(names, 'heads')}")
            return names.index(head)
        head = _whole("RecordedLayer: head", head)
        if -len(self.heads) <= head < 0:
            return head + len(self.heads)
        if head in self.heads:
            return self.heads.index(head)
        expected = f"0 to {len(self.heads) - 1}" if self.heads == list(range(len(self.heads))) else f"one of {self.heads}"
        raise ValueError(f"RecordedLayer: layer {self.name}: head {head!r}, expected {expected}")

    def _item(self, item):
        return self._number_of("item", item, self._says["batch"])

    def _number_of(self, name, value, size):
        value = _whole(f"RecordedLayer: {name}", value)
        if not -size <= value < size:
            raise ValueError(f"RecordedLayer: layer {self.name}: {name} {value}, expected 0 to {size - 1}, or {-size} to -1 from the end")
        return value % size


def _array(name, doc):
    def get(self):
        return None if name in self._says["missing"] else self._raw.numbers(self._number, name)

    get.__doc__ = doc
    return functools.cached_property(get)


for _name, _doc in _ARRAYS.items():
    setattr(RecordedLayer, _name, _array(_name, _doc))
    getattr(RecordedLayer, _name).__set_name__(RecordedLayer, _name)


class Recording:
    """What every head of a model attended to. Model.record(), attend.transformers.record() or `attend explain` makes it, load() reads it.

    recording.layers are the layers' names; recording["decoder.3.cross"] or recording[7] is one (RecordedLayer). Numbers are
    those of a query head, before dropout; docs/inside.md defines them. A loaded recording reads its numbers from the file
    when they are asked for, and raises OSError if the file has changed meanwhile.
    """

    def __init__(self, raw=None):
        self._raw = raw
        self._layers = {}

    def __reduce__(self):
        return _from_bytes, (None if self._raw is None else _as_bytes(self._raw),)

    @classmethod
    def load(cls, path) -> "Recording":
        """The recording in a file that save() wrote; OSError for a file that is not a complete recording."""
        return cls(_Recording.load(path))

    def save(self, path) -> None:
        """Write the recording to a .safetensors file, by custom named *.attend; or, if the path ends in .html, a page that shows
        every head (see show()). The file is replaced in one step.

        >>> import attend
        >>> recording = attend.Model.load("tiny").record("the cat sat", keep="qk")
        >>> recording.save("cat.html")
        """
        name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        if not name.endswith(".html"):
            self._made().save(path)
            return
        page = self._page("Recording.save")
        if page.left_out:
            warnings.warn(f"Recording.save: {path} leaves out {page.left_out}", stacklevel=2)
        page.save(path)

    def show(self, head=None, item=0, budget=64_000_000, strict=False):
        """A page that shows every head: an attend.Page, which a notebook shows in a frame, and which has save().

        head: the one that is shown first, such as "18.6".
        budget: bytes that the page may take. Beyond it, the page leaves out queries and keys of the layers with the broadest
        heads (Page.left_out); their weights are then shown in blocks and not exactly.
        strict: raise ValueError instead of leaving out.

        >>> import attend
        >>> recording = attend.Model.load("tiny").record("the cat sat", keep="qk")
        >>> page = recording.show(head="1.3")
        >>> page.left_out
        ''
        """
        if head is not None and not isinstance(head, str):
            raise TypeError(f'Recording.show: head: expected a name such as "18.6", got {type(head).__name__}')
        return self._page("Recording.show", head or "", _whole("Recording.show: item", item),
                          _whole("Recording.show: budget", budget), bool(strict))

    def _page(self, function, head="", item=0, budget=64_000_000, strict=False):
        return _recording_page(self._made(), function, head, item, budget, strict)

    @property
    def model(self) -> str:
        """The name of what was recorded; it may be set."""
        return self._made().model

    @model.setter
    def model(self, name):
        if not isinstance(name, str):
            raise TypeError(f"Recording.model: expected a text, got {type(name).__name__}")
        self._made().model = name

    @property
    def activations(self) -> str:
        """What the model's layers multiplied their weights by: "exact", "fast" or "int8", as Model.load() was told."""
        return self._made().activations

    @property
    def layers(self) -> list:
        """The names of the layers, in the order in which they computed."""
        return self._made().names

    def __len__(self):
        return len(self._made())

    def __getitem__(self, layer) -> RecordedLayer:
        raw = self._made()
        names = self.layers
        number = names.index(layer) if layer in names else layer
        if not isinstance(number, (int, numpy.integer)) or not -len(raw) <= number < len(raw):
            error = KeyError if isinstance(layer, str) else IndexError
            raise error(f"layer {layer!r}, expected a number below {len(raw)} or one of {listed(names)}")
        number = int(number) % len(raw)
        if number not in self._layers:
            self._layers[number] = RecordedLayer(self, number)
        return self._layers[number]

    def __repr__(self):
        if self._raw is None:
            return "<attend.Recording: nothing yet>"
        rounded = "" if self.activations == "exact" else f", {self.activations} activations"
        return f"<attend.Recording of {repr(self.model) if self.model else 'a model'}{rounded}: {len(self)} layers>"

    @property
    def ids(self):
        """The ids of the tokens, int64 [B,T], or None."""
        return self._made().ids

    @property
    def decoder_ids(self):
        """Those of an encoder-decoder's decoder, int64 [B,T], or None."""
        return self._made().decoder_ids

    @property
    def tokens(self) -> list:
        """The tokens of each item of the batch, tokens[item], as text; empty where they are unknown.

        It may be set at any time: to a tokenizer, which then names the ids that the model was given (in an encoder-decoder, the
        decoder's too); to a list of words; or for a batch to a list of such lists.
        """
        return self._made().tokens

    @tokens.setter
    def tokens(self, tokens):
        raw = self._made()
        if hasattr(tokens, "decode"):
            if raw.ids is None:
                raise ValueError("Recording.tokens: the model was given no ids that a tokenizer could name: "
                                 "expected a list of words")
            raw.tokens = _named(tokens, raw.ids)
            if raw.decoder_ids is not None:
                raw.decoder_tokens = _named(tokens, raw.decoder_ids)
            return
        raw.tokens = self._checked(tokens, "tokens")

    @property
    def decoder_tokens(self) -> list:
        """The tokens of an encoder-decoder's decoder, as `tokens`."""
        return self._made().decoder_tokens

    @decoder_tokens.setter
    def decoder_tokens(self, tokens):
        self._made().decoder_tokens = self._checked(tokens, "decoder_tokens")

    def heads(self, item=0, by="weight") -> Heads:
        """head_scores() of every head, as a structured NumPy array with the fields layer, head, name ("18.6"), labels, sink, sink_key,
        self, previous, duplicate, induction, local, entropy, effective_keys and distance. The fields sink_excess to local_excess
        have what is beyond uniform attention. What is not known is NaN, and its labels are "unknown". by="norm" measures what is
        carried instead of weights; it needs record(key_sizes=True).

        It prints as a table, has largest("induction", 5) and to_pandas(), and sorts: numpy.sort(heads, order="sink").
        """
        return numpy.array(_heads(self._made(), self._item(item), by), _HEADS).view(Heads)

    def telling_heads(self, count=8, item=0, by="weight") -> list:
        """The heads with the strongest links between words, as `attend model` tells them: (name, labels, links) each.

        A link is (query, key, weight, query_token, key_token): where a word looks most, among words that are 2 or more apart. The
        strongest comes first. Without tokens there are none.
        """
        return self._telling(self._item(item), None, None, _whole("Recording.telling_heads: count", count), by)

    def to_json(self, item=0, by="weight") -> str:
        """What `attend show --json` prints: tokens, layers and heads (docs/json.md)."""
        return _heads_json(self._made(), self._item(item), by)

    def to_csv(self, item=0, by="weight") -> str:
        """A line for each head, with its labels and scores; what is not known is empty."""
        return _heads_csv(self._made(), self._item(item), by)

    def _item(self, item):
        return self[0]._item(item) if len(self) else 0

    def _telling(self, item, layer, head, most, by):
        raw = self._made()
        heads = []
        for place, name, labels, links in _telling_heads(raw, item, layer, head, max(0, most), by):
            queries, keys = raw.query_tokens(place)[item], raw.key_tokens(place)[item]
            heads.append(TellingHead(name, labels, [Link(*link, queries[link[0]], keys[link[1]]) for link in links]))
        return heads

    def picture(self, item=0, layers=None, scale="sqrt", title=None, by="weight"):
        """All maps at a glance, layers x heads, as an attend.Picture. layers: which to show, by name or number."""
        try:
            shown = [self[layer] for layer in (range(len(self)) if layers is None else _listed("Recording.picture: layers", layers))]
        except LookupError as error:
            raise ValueError(f"Recording.picture: {error.args[0]}") from None
        if not shown:
            raise ValueError("Recording.picture: there are no layers to show")
        return _recording_picture(self._raw, [layer._number for layer in shown], shown[0]._item(item), by, scale, title)

    def _made(self):
        if self._raw is None:
            raise RuntimeError("Recording: nothing was recorded: call the model in the `with` block")
        return self._raw

    def _checked(self, tokens, name):
        items = [tokens] if all(isinstance(token, str) for token in tokens) else tokens
        items = [[str(token) for token in item] for item in items]
        sizes = sorted({size for layer in self for size in (layer.queries, layer.keys)})
        batches = {layer._says["batch"] for layer in self}
        if items and len(items) not in batches:
            raise ValueError(f"Recording.{name}: expected tokens of {max(batches)} items, got {len(items)}")
        for at, item in enumerate(items):
            if len(item) not in sizes:
                raise ValueError(f"Recording.{name}: item {at} has {len(item)} tokens, expected "
                                 f"{' or '.join(map(str, sizes))}, as the layers have")
        return items


def _as_bytes(raw):
    """A recording's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "recording.attend")
        raw.save(path)
        return path.read_bytes()


def _from_bytes(contents):
    """A recording of _as_bytes(): it keeps its file open, which has no name any more."""
    if contents is None:
        return Recording()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "recording.attend")
        path.write_bytes(contents)
        return Recording.load(path)


def _named(tokenizer, ids):
    return [[tokenizer.decode([token]) for token in item] for item in ids.tolist()]


def _whole(name, value):
    """An int; TypeError for what is none, whatever it raises when it is asked."""
    try:
        return operator.index(value)
    except Exception:
        raise TypeError(f"{name}: expected a whole number, got {type(value).__name__}") from None


def listed(names, what="layers"):
    """The first of a model's layers, or of a layer's heads, for a message."""
    return ", ".join(names[:6]) + (f", ... ({len(names)} {what})" if len(names) > 6 else "")


def _listed(name, values):
    try:
        return list(values)
    except Exception:
        raise TypeError(f"{name}: expected a list, got {type(values).__name__}") from None
