"""Which positions of a sequence each rank of a ring has."""

import zlib
from typing import Any, Literal

from . import _core
from ._calls import short

Runs = list[list[tuple[int, int]]]  # [rank][run], (begin, end)
Axis = str | Runs
Sharding = Literal["contiguous", "zigzag"] | Runs | tuple[Axis, Axis]

_EXPECTED = "'contiguous', 'zigzag', or for each rank a list of (begin, end)"


def read_axis(function: str, axis: Any) -> Axis:
    """Checked, as far as its types go."""
    if isinstance(axis, str):
        if axis not in ("contiguous", "zigzag"):
            raise ValueError(f"{function}: sharding: expected {_EXPECTED}, got {axis!r}")
        return axis
    try:
        if not isinstance(axis, list):
            raise TypeError
        return [[(_whole(begin), _whole(end)) for begin, end in rank] for rank in axis]
    except (TypeError, ValueError):
        raise TypeError(f"{function}: sharding: expected {_EXPECTED}, got {type(axis).__name__} {short(axis)}") from None


def shown(x: Any) -> str:
    text = repr(x)
    return text if len(text) <= 200 else f"{text[:150]}... (crc32 {zlib.crc32(text.encode()):08x})"


def _whole(number: Any) -> int:
    if not isinstance(number, int) or not -2**62 < number < 2**62:
        raise TypeError
    return number


def _length(runs: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in runs)


def runs_of(function: str, name: str, axis: Axis, lengths: list[int]) -> Runs:
    """Of all ranks, whose shares have these lengths."""
    if axis == "contiguous":
        begins = [sum(lengths[:rank]) for rank in range(len(lengths))]
        return [[(begin, begin + length)] for begin, length in zip(begins, lengths)]
    runs = _core._ring_runs("zigzag", len(lengths), sum(lengths)) if isinstance(axis, str) else axis
    if len(runs) != len(lengths):
        raise ValueError(f"{function}: sharding: {name} are cut for {len(runs)} ranks, there are {len(lengths)}")
    for rank, (of_rank, length) in enumerate(zip(runs, lengths)):
        if _length(of_rank) != length:
            raise ValueError(f"{function}: rank {rank} has {length} {name}, expected {_length(of_rank)}, as the sharding "
                             f"of {sum(map(_length, runs))} says; ring_shard() cuts so")
    return runs


def runs_to_cut(function: str, axis: Any, ranks: int, length: int) -> Runs:
    axis = read_axis(function, axis)
    runs = _core._ring_runs(axis, ranks, length) if isinstance(axis, str) else axis
    if len(runs) != ranks:
        raise ValueError(f"{function}: sharding: positions are cut for {len(runs)} ranks, there are {ranks}")
    check_cover(function, runs, length)
    return runs


def check_cover(function: str, runs: Runs, length: int) -> None:
    end = 0
    for run in sorted(run for rank in runs for run in rank if run[0] != run[1]):
        if run[0] != end or run[1] < end:
            break
        end = run[1]
    if end != length or sum(map(_length, runs)) != length:
        raise ValueError(f"{function}: sharding: expected runs that have each of {length} positions once, got {shown(runs)}")
