"""What Model.trace(), edges(), circuit() and path_patch() give."""

import html
import operator
from typing import NamedTuple

import numpy

from . import _core

__all__ = ["AnswerTrace", "Circuit", "Edges", "PathPatching", "TracedHead", "TracedPart"]


def _frame(edges):
    import pandas
    return pandas.DataFrame(edges, columns=["source", "receiver", "score"])


def _html(caption, columns, rows):
    """A table of texts and numbers, as a notebook shows it."""
    def line(tag, cells):
        texts = ("" if cell is None else f"{cell:+.3f}" if isinstance(cell, float) else str(cell) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"
    body = "".join(line("td", row) for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption><thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"


class TracedPart(NamedTuple):
    """A part of a row: its number, its share of its side's magnitudes, and the answer's number without it (None if it can't be set to 0).

    >>> import attend
    >>> attend.TracedPart("mlp 0", 1.5, 0.25, 6.5).without
    6.5
    """

    part: str
    value: float
    share: float
    without: float | None


class TracedHead(NamedTuple):
    """A head of an AnswerTrace: what it wrote into the answer by reading the token at key, why it looked there, and what it read.

    score is q . k above the mean of what the query sees; query_parts and key_parts are the parts of the two rows that made it. value is
    what it reads there with all of its weight; read_parts are the parts of the key's row that made it.

    >>> import attend
    >>> head = attend.Model.load("tiny").trace([1, 2, 3], token=7).heads[0]
    >>> type(head) is attend.TracedHead, [type(part) is attend.TracedPart for part in head.key_parts[:1]]
    (True, [True])
    """

    head: str
    key: int
    wrote: float
    share: float
    without: float | None
    score: float
    value: float
    query_parts: list[TracedPart]
    key_parts: list[TracedPart]
    read_parts: list[TracedPart]


class AnswerTrace(NamedTuple):
    """From the answer back to the words (Model.trace()): its strongest heads, each with why it looked and what it read.

    >>> import attend
    >>> found = attend.Model.load("tiny").trace([1, 2, 3], token=7, against=8, heads=2)
    >>> found.token, found.against, found.position, len(found.heads)
    (7, 8, 2, 2)
    """

    token: int
    against: int | None
    position: int
    logit: float
    heads: list[TracedHead]

    def _rows(self):
        return [(head.head, head.key, side, *part) for head in self.heads
                for side, parts in (("query", head.query_parts), ("key", head.key_parts), ("read", head.read_parts)) for part in parts]

    def _repr_html_(self) -> str:
        other = "" if self.against is None else f", and not {self.against}"
        wrote = [(head.head, head.key, "wrote", "", head.wrote, head.share, head.without) for head in self.heads]
        order = [row for head, first in zip(self.heads, wrote)
                 for row in (first, *(each for each in self._rows() if each[:2] == (head.head, head.key)))]
        return _html(f"Where token {self.token}{other} comes from: {self.logit:+.3f}", ["head", "key", "side", *TracedPart._fields], order)

    def to_pandas(self):
        """A pandas.DataFrame with a row for each part: head, key, side ("query", "key", "read"), part, value, share, without.

        ImportError without pandas.
        """
        import pandas
        return pandas.DataFrame(self._rows(), columns=["head", "key", "side", *TracedPart._fields])


class Edges(NamedTuple):
    """How much of the difference between two answers goes along each edge of a model (Model.edges()): scores [S,R], estimated.

    sources write into the stream: "embedding", "3.2", "mlp 3". receivers read it: "4.1 q", "4.0 k", "4.0 v", "mlp 4", "output". A score
    is 0 where there is no edge. It is a mean over pairs, which are (clean_ids, corrupt_ids, token, against, position) each. clean and
    corrupt are the differences between the two tokens' logits, and means too.

    >>> import attend
    >>> found = attend.Model.load("tiny").edges([1, 2, 3], [1, 4, 3], token=7, against=8)
    >>> found.scores.shape == (len(found.sources), len(found.receivers))
    True
    >>> [type(x) for x in found.top(1)[0]]
    [<class 'str'>, <class 'str'>, <class 'float'>]
    """

    sources: list[str]  # [S]
    receivers: list[str]  # [R]
    scores: numpy.ndarray  # [S,R]
    clean: float
    corrupt: float
    pairs: list[tuple[list[int], list[int], int, int, int]]

    def top(self, n: int = 10) -> list[tuple[str, str, float]]:
        """The n largest magnitudes, largest first: (source, receiver, score)."""
        order = numpy.argsort(-abs(self.scores), axis=None, kind="stable")[: max(0, operator.index(n))]
        places = zip(*numpy.unravel_index(order, self.scores.shape))
        return [(self.sources[s], self.receivers[r], float(self.scores[s, r])) for s, r in places]

    def _repr_html_(self) -> str:
        caption = f"The strongest edges; the answer is {self.clean:+.3f}, and {self.corrupt:+.3f} after the corrupt text"
        return _html(caption, ["source", "receiver", "score"], self.top(12))

    def to_pandas(self):
        """A pandas.DataFrame with a row for each edge whose score is not 0: source, receiver, score. ImportError without pandas."""
        return _frame(self.top(numpy.count_nonzero(self.scores)))


class Circuit(NamedTuple):
    """Edges that an answer needs, and how much of it they keep (Model.circuit()): edges (source, receiver, score), strongest first.

    faithfulness is (value - corrupt) / (clean - corrupt) of the differences between the two tokens' logits, as means over the pairs.
    If a faithfulness was asked for, tried has how many edges were tried and what they keep.

    >>> import attend
    >>> model = attend.Model.load("tiny")
    >>> found = model.circuit(model.edges([1, 2, 3], [1, 4, 3], token=7, against=8), keep=10**6)  # all of them
    >>> abs(found.faithfulness - 1) < 1e-3
    True
    """

    edges: list[tuple[str, str, float]]
    faithfulness: float
    value: float
    clean: float
    corrupt: float
    tried: list[tuple[int, float]]
    dot: str = ""  # a graph for Graphviz: green towards the clean answer, red against it
    group: int = 1  # so many heads share keys and values

    def to_pandas(self):
        """A pandas.DataFrame with a row for each edge: source, receiver, score. ImportError without pandas."""
        return _frame(self.edges)

    def picture(self, most: int = 40, title: str | None = None):
        """The `most` strongest edges that lead to the output, layers going up: an attend.Picture. The caption says what all edges keep.

        ValueError for a circuit without edges.
        """
        return _core._circuit_picture(self.edges, self.faithfulness, self.group, most, title)

    def _repr_html_(self) -> str | None:
        """The picture, which a notebook shows; None for a circuit without edges."""
        return self.picture()._repr_svg_() if self.edges else None

    def to_networkx(self):
        """A networkx.DiGraph. Edges from source to receiver have a score; those from a head's queries, keys and values to it have none.

        ImportError without networkx.
        """
        import networkx
        graph = networkx.DiGraph()
        graph.add_edges_from((source, receiver, {"score": score}) for source, receiver, score in self.edges)
        for head in [node for node in graph if node.replace(".", "").isdigit()]:
            layer, number = head.split(".")
            shared = f"{layer}.{int(number) // self.group}"
            graph.add_edges_from((reader, head) for reader in (f"{head} q", f"{shared} k", f"{shared} v") if reader in graph)
        return graph


class PathPatching(NamedTuple):
    """What an answer becomes along given paths (Model.path_patch()): recovered is (value - corrupt) / (clean - corrupt).

    >>> import attend
    >>> model = attend.Model.load("tiny")
    >>> found = model.path_patch([1, 2, 3], [1, 4, 3], 7, 8, senders=["embedding"], receivers=["output"])
    >>> abs(found.recovered - (found.value - found.corrupt) / (found.clean - found.corrupt)) < 1e-9
    True
    """

    recovered: float
    value: float
    clean: float
    corrupt: float
