"""What Model.embed_tokens(), embed_sparse() and max_sim() give."""

from typing import NamedTuple

import numpy

from . import _core


class TokenVectors(NamedTuple):
    """A text's tokens that have a vector (Model.embed_tokens()): vectors [N,V] float32, of length 1, and what each stands for.

    offsets: text[start:end] for each token, in characters; (0, 0) for those that stand for no text: markers, [CLS], [MASK]. cut:
    whether the text was longer and was cut.

    >>> import attend, numpy
    >>> query = attend.TokenVectors(numpy.eye(2, 4, dtype=numpy.float32), numpy.array([7, 8]), ("red", "cat"), ((0, 3), (4, 7)), False)
    >>> passage = attend.TokenVectors(numpy.eye(3, 4, 1, dtype=numpy.float32), numpy.array([8, 9, 5]), ("cat", "sat", "down"), (), False)
    >>> query.match(passage).words()
    [('red', 'cat', 0.0), ('cat', 'cat', 1.0)]
    """

    vectors: numpy.ndarray
    ids: numpy.ndarray
    tokens: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    cut: bool

    def match(self, passage: "TokenVectors") -> "TokenMatch":
        """Which passage tokens this query's tokens match, and how well the passage answers: MaxSim."""
        if not isinstance(passage, TokenVectors):
            raise TypeError(f"TokenVectors.match: passage: expected an attend.TokenVectors, got {type(passage).__name__}")
        return TokenMatch(*_core.max_sim(self.vectors, passage.vectors), self.tokens, passage.tokens)


class TokenMatch(NamedTuple):
    """How well a passage answers a query, by their token vectors: the sum of each query token's largest product with a passage token.

    similarities [Q,P] float32 has all products, and best [Q] the passage token that each query token takes.

    >>> import attend, numpy
    >>> found = attend.TokenMatch(1.5, numpy.array([[0.5, 0.25], [0, 1]]), numpy.array([0, 1]), ("who", "wrote"), ("Goethe", "wrote"))
    >>> found.words()
    [('who', 'Goethe', 0.5), ('wrote', 'wrote', 1.0)]
    """

    score: float
    similarities: numpy.ndarray
    best: numpy.ndarray
    query: tuple[str, ...]
    passage: tuple[str, ...]

    def words(self) -> list[tuple[str, str, float]]:
        """For each query token: the passage token that it matched, and their product."""
        rows = zip(self.query, self.best, self.similarities, strict=True)
        return [(token, self.passage[best], float(row[best])) for token, best, row in rows]

    def picture(self, title: str | None = None) -> "_core.Picture":
        """A line from each query token to the passage token that it matched, darker where they are nearer: an attend.Picture."""
        return _core._match_picture(self, title)

    def _repr_html_(self) -> str:
        return self.picture()._repr_svg_()


class NearText(NamedTuple):
    """A text of a TokenVectorFile, counted from 0, and its MaxSim with the query.

    >>> import attend
    >>> attend.NearText(3, 21.5).text
    3
    """

    text: int
    score: float


class SparseVector(NamedTuple):
    """The weights above 0 that a text gives to words (Model.embed_sparse()): ids [N] rising, weights [N] float32, and the words.

    >>> import attend, numpy
    >>> cat = attend.SparseVector(numpy.array([3, 7]), numpy.array([0.5, 2.0], numpy.float32), ("sat", "cat"))
    >>> cat.top(1), cat.dot(cat)
    ([('cat', 2.0)], 4.25)
    """

    ids: numpy.ndarray
    weights: numpy.ndarray
    words: tuple[str, ...]

    def top(self, count: int) -> list[tuple[str, float]]:
        """The `count` words with the largest weights, largest first."""
        order = numpy.argsort(-self.weights, kind="stable")[:count]
        return [(self.words[n], float(self.weights[n])) for n in order]

    def dot(self, other: "SparseVector") -> float:
        """How near two texts are: the sum of the products of the words that both have."""
        if not isinstance(other, SparseVector):
            raise TypeError(f"SparseVector.dot: other: expected an attend.SparseVector, got {type(other).__name__}")
        _, own, its = numpy.intersect1d(self.ids, other.ids, assume_unique=True, return_indices=True)
        return float(self.weights[own].astype(numpy.float64) @ other.weights[its].astype(numpy.float64))
