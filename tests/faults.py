"""What tests/faults.cpp does to a program: at the n-th call of a function it fails, takes a signal, ends, or waits for the test.

So a test meets a program in the middle of something at a place, not after a time: on any machine, however slowly it runs there.
"""

import ctypes
import os
import pathlib
import resource


def fault(command, function, n, then=None):
    """Variables of the environment: the n-th call fails, or `then` comes just before it: a signal, "exit", or Held's words."""
    return {"LD_PRELOAD": str(pathlib.Path(command).parent / "libattend_faults.so"), "ATTEND_FAULT": words(function, n, then)}


def words(function, n, then):
    return f"{function} {n}" + ("" if then is None else f" {then}" if isinstance(then, str) else f" {int(then)}")


def with_fault(command, function, n, then=None, **environment):
    return {**os.environ, **fault(command, function, n, then), **environment}


def with_racing_clock(command, n=-1, then=None):
    """One in which every computation takes hours, and the signal comes when the clock is read the n-th time."""
    return with_fault(command, "clock", n, then)


def to_be_armed(command, **environment):
    """One for a program in Python that imports this module, and says itself when: arm()."""
    return with_fault(command, "nothing", -1, **environment, PYTHONPATH=str(pathlib.Path(__file__).parent))


# --- In such a program -------------------------------------------------------------------------------------------


def arm(function, n=-1, then=None):
    """From here on: counts the calls, and the n-th one meets that."""
    ctypes.CDLL(os.environ["LD_PRELOAD"]).attend_arm_fault(words(function, n, then).encode())


def calls():
    """How many there were since."""
    return ctypes.CDLL(os.environ["LD_PRELOAD"]).attend_fault_calls()


class Held:
    """The thread that makes the n-th call from here on waits there, until it is let go."""

    def __init__(self, function, n):
        self._here, here = os.pipe()
        go, self._go = os.pipe()
        arm(function, n, f"hold {here} {go}")

    def wait(self):
        """Until the thread is there."""
        os.read(self._here, 1)

    def let_go(self):
        os.write(self._go, b"x")


def limit(processor, memory):
    """From here on this process may take so many seconds of processor and so many bytes more than it has: else it ends, or gets none."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + processor
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    taken = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
