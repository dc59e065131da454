"""What Model.edges(), circuit() and path_patch() give."""

from typing import NamedTuple

import numpy

__all__ = ["Circuit", "Edges", "PathPatching"]


def _frame(edges):
    import pandas
    return pandas.DataFrame(edges, columns=["source", "receiver", "score"])


def _graph(edges):
    import networkx
    graph = networkx.DiGraph()
    for source, receiver, score in edges:
        graph.add_edge(source, receiver.split(" ")[0] if receiver[-2:] in (" q", " k", " v") else receiver)
        own = graph.edges[source, receiver.split(" ")[0] if receiver[-2:] in (" q", " k", " v") else receiver]
        own["score"] = own.get("score", 0.0) + score
    return graph


class Edges(NamedTuple):
    """How much of the difference between two answers goes along each edge of a model (Model.edges()): scores [S,R], estimated.

    sources write into the stream: "embedding", "3.2", "mlp 3"; receivers read it: "4.1 q", "4.0 k", "4.0 v", "mlp 4", "output". A
    score is 0 where there is no edge, and a mean over the pairs: (clean_ids, corrupt_ids, token, against, position) each. clean and
    corrupt are the differences of the two tokens' logits, means too.

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
        """The n largest magnitudes, falling: (source, receiver, score)."""
        order = numpy.argsort(-abs(self.scores), axis=None, kind="stable")[: max(0, n)]
        places = zip(*numpy.unravel_index(order, self.scores.shape))
        return [(self.sources[s], self.receivers[r], float(self.scores[s, r])) for s, r in places]

    def to_pandas(self):
        """A pandas.DataFrame, a row for each edge whose score is not 0: source, receiver, score. ImportError without pandas."""
        return _frame(self.top(numpy.count_nonzero(self.scores)))


class Circuit(NamedTuple):
    """Edges that an answer needs, and how much of it they keep (Model.circuit()): edges (source, receiver, score), strongest first.

    faithfulness is (value - corrupt) / (clean - corrupt) of the differences of the two tokens' logits, means over the pairs. tried:
    where a faithfulness was asked for, how many edges were tried and what they keep.

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

    def to_pandas(self):
        """A pandas.DataFrame, a row for each edge: source, receiver, score. ImportError without pandas."""
        return _frame(self.edges)

    def to_networkx(self):
        """A networkx.DiGraph of what writes and "output"; an edge's score is the sum over a head's queries, keys and values.

        ImportError without networkx.
        """
        return _graph(self.edges)


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
