"""What VectorFile.nearest() gives."""

from typing import NamedTuple


class Near(NamedTuple):
    """A row of a VectorFile, counted from 0, and the cosine of its vector with the query.

    >>> import attend
    >>> row, similarity = attend.Near(3, 0.5)
    >>> row
    3
    """

    row: int
    similarity: float
