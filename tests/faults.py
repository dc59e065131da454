"""What tests/faults.cpp does to a program: a call of the system that fails, a signal at a call, a clock that races."""

import os
import pathlib


def with_fault(command, call, n, signal=None, **environment):
    """An environment in which the n-th call of that name fails, or the signal comes just before it."""
    return {**os.environ, "LD_PRELOAD": str(pathlib.Path(command).parent / "libattend_faults.so"),
            "ATTEND_FAULT": f"{call} {n}" + (f" {int(signal)}" if signal else ""), **environment}


def with_racing_clock(command, n=10**6, signal=None):
    """One in which every computation takes hours, and the signal comes when the clock is read the n-th time."""
    return with_fault(command, "clock_gettime", n, signal)
