"""Whose threads do the work."""

import os
import subprocess
import sys

import pytest

PROLOGUE = """
import os, numpy, sys
def threads():
    return len(os.listdir("/proc/self/task"))
def work(x):
    return attend.attention(x, x, x)
x = numpy.random.default_rng(0).standard_normal((1, 8, 700, 64), numpy.float32)
"""


def run(program):
    done = subprocess.run([sys.executable, "-c", PROLOGUE + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: there are no other threads")
def test_pytorchs_threads_are_used_where_there_are_tensors():
    program = """
import torch, attend
t = torch.from_numpy(x)
torch.nn.functional.scaled_dot_product_attention(t, t, t)
before = threads()
same = (work(t).numpy() == work(x)).all()
after = threads()
torch.set_num_threads(1)
print(attend.num_threads(), after - before, same)
"""
    assert run(program) == ["1", "0", "True"]
    # without PyTorch's: a thread more, sooner or later
    assert run("import attend\nbefore = threads()\nwhile threads() == before:\n    work(x)\nprint('more')") == ["more"]


FORK = """
child = os.fork()
if child == 0:
    os._exit(0 if (work(CHILDS).numpy() == expected).all() else 3)
print(os.waitpid(child, 0)[1], (work(x).numpy() == expected).all())
"""


@pytest.mark.parametrize("childs", ["x", "torch.nn.Parameter(x, False)"], ids=["a type seen before", "a type first seen there"])
def test_a_forked_process_goes_on_without_pytorchs_threads(childs):
    program = """
import torch, attend
x = torch.from_numpy(x)
expected = work(x).numpy()
"""
    assert run(program + FORK.replace("CHILDS", childs)) == ["0", "True"]


def test_a_process_forked_after_pytorchs_own_loops_goes_on():
    program = """
import torch, attend
expected = work(x)
x = torch.from_numpy(x)
torch.nn.functional.scaled_dot_product_attention(x, x, x)
"""
    assert run(program + FORK.replace("CHILDS", "x")) == ["0", "True"]
