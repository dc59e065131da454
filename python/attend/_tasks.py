"""What Model.classify(), rank(), tag() and fill() give."""

from typing import NamedTuple

import numpy


class Classification(NamedTuple):
    """Scores of texts: logits and scores [N,labels] float32, the model's labels, and the function that made scores from logits.

    >>> import attend, numpy
    >>> found = attend.Classification(("bad", "good"), numpy.zeros((1, 2)), numpy.array([[0.25, 0.75]]), "softmax", 0)
    >>> found.best()
    [('good', 0.75)]
    >>> found.top(2)
    [[('good', 0.75), ('bad', 0.25)]]
    """

    labels: tuple[str, ...]
    logits: numpy.ndarray
    scores: numpy.ndarray
    function: str
    cut: int

    def best(self) -> list[tuple[str, float]]:
        """For each text, the label with the highest score, and that score."""
        return [row[0] for row in self.top(1)]

    def top(self, count: int) -> list[list[tuple[str, float]]]:
        """For each text, the `count` labels with the highest scores, highest first."""
        order = numpy.argsort(-self.scores, axis=1, kind="stable")[:, :count]
        return [[(self.labels[label], float(row[label])) for label in labels] for labels, row in zip(order, self.scores, strict=True)]


class Ranked(NamedTuple):
    """A passage of rank(): its place in the list that was given, counted from 0, its score and itself.

    >>> import attend
    >>> attend.Ranked(3, 0.5, "Faust is a play by Goethe.").passage
    3
    """

    passage: int
    score: float
    text: str


class Tag(NamedTuple):
    """A span of a text with a label: text[start:end], and the mean score of its tokens.

    >>> import attend
    >>> tag = attend.Tag("PER", 0.99, 0, 5, "Alice")
    >>> "Alice ran"[tag.start : tag.end] == tag.text
    True
    """

    label: str
    score: float
    start: int
    end: int
    text: str


class Tagged(NamedTuple):
    """A text's tags, and what they were made from: its Encoding, and scores [tokens,labels] float32, each token's softmax.

    >>> import attend
    >>> attend.Tagged._fields
    ('tags', 'tokens', 'scores', 'labels', 'cut')
    """

    tags: list
    tokens: object
    scores: numpy.ndarray
    labels: tuple[str, ...]
    cut: bool


class Filling(NamedTuple):
    """A word for a mask: its token as text, its probability, its id, and the whole text with it.

    >>> import attend
    >>> attend.Filling("Paris", 0.75, 3000, "the capital is Paris").token
    'Paris'
    """

    token: str
    probability: float
    id: int
    text: str
