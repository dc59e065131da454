"""Everything public from several threads at once, with signals, in forked and in new processes, and while Python ends.

Each program runs in a process of its own: a crash, or a call that never comes back, is a failure.
"""

import pathlib
import subprocess
import sys
import textwrap

import pytest
from faults import to_be_armed

PROLOGUE = """
import faults, itertools, multiprocessing, os, pickle, signal, sys, threading
import numpy as np
import attend

random_numbers = np.random.default_rng(0)


def together(*functions):
    # Calls the functions in threads that begin at once; what they raised.
    ready, errors = threading.Barrier(len(functions)), []

    def run(function):
        ready.wait()
        try:
            function()
        except BaseException as error:
            errors.append(repr(error))
    threads = [threading.Thread(target=run, args=(each,)) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors or ["done"]
"""


@pytest.fixture
def run(command):
    def run_program(program):
        done = subprocess.run([sys.executable, "-c", PROLOGUE + textwrap.dedent(program)], capture_output=True, text=True,
                              cwd=pathlib.Path(__file__).parent, env=to_be_armed(command))
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr

    return run_program


# Every function and method that test_garbage.py knows how to call, but for what others would notice, and random draws.
ALL_CALLS = """
import torch
import test_garbage

NOT_ALONE = ("num_threads", "replace_sdpa", "restore_sdpa", "save", "register", "Generator.", "KvCache", "Chat.", "torch.scaled",
             "transformers.record",  # of one model, whose attention is changed meanwhile
             "Model.forward",  # its caches grow
             "quantize")  # writes one file
calls = {name: call for name, call in test_garbage.right_calls(np, torch).items()
         if not any(each in name for each in NOT_ALONE)}


def value(name):
    function, arguments, keywords = calls[name]
    # Of two that compute with one cache at once, one is refused.
    keywords = {key: each.fork() if isinstance(each, attend.ModelCache) else each for key, each in keywords.items()}
    keywords |= ({"out": np.empty_like(arguments[0])} if "out" in keywords else {})
    try:
        result = function(*arguments, **keywords)
    except TypeError:  # a class that is only given, not made
        return "TypeError"
    if name == "attend.torch.attention":
        return result.shape  # its dropout draws
    fields = [each for each in dir(type(result)) if not each.startswith("_")] if type(result).__module__ == "attend._core" else ()
    parts = [getattr(result, each) for each in fields] or (result if isinstance(result, tuple) else [result])
    return [each.tobytes() if isinstance(each, np.ndarray) and not each.dtype.hasobject else repr(each)
            for each in parts if not callable(each)]


expected = {name: value(name) for name in calls}


def all_right(order=1, before=lambda: None):
    for name in list(calls)[::order]:
        before()
        assert value(name) == expected[name], name
"""


def test_every_function_from_many_threads_while_their_number_changes(run):
    run(ALL_CALLS + """
working, calling = 3, threading.Semaphore(0)  # beside each call of a thread the number changes

def change():
    for threads in itertools.cycle((1, 2, 5, 10**6)):
        calling.acquire()
        if not working:
            return
        attend.set_num_threads(threads)
        assert attend.num_threads() >= 1

def work(order):
    global working
    try:
        all_right(order, calling.release)
    finally:
        working -= 1
        calling.release(2)

print(*together(change, change, *[lambda order=order: work(order) for order in (1, 1, -1)]), sep="\\n")
""")


def test_signals_come_in_between(run):
    """At every third time that a call looks whether one has come."""
    run(ALL_CALLS + """
count, within = 0, False
x = random_numbers.standard_normal((1, 4, 300, 32), np.float32)
whole = attend.attention(x, x, x)

def handler(*_):
    global count, within
    count += 1
    if count < 60:
        faults.arm("clock", 2, signal.SIGALRM)
    if count % 20 == 0 and not within:  # a call within a call, and no more of them however long it takes
        within = True
        assert (attend.attention(x, x, x) == whole).all()
        within = False

signal.signal(signal.SIGALRM, handler)
faults.arm("clock", 2, signal.SIGALRM)
while count < 60:
    all_right()
    assert (attend.attention(x, x, x) == whole).all()
faults.arm("nothing")
print("done")
""")


def test_a_cache_that_grows_and_shrinks_while_others_read(run):
    """What is at a position is always the same, so that each read is that of some length."""
    run("""
N = 40
q, k, v = (random_numbers.standard_normal((1, 2, size, 8), np.float32) for size in (3, N, N))
cache = attend.KvCache(1, 2, 8, 8)
expected = {attend.attention(q, k[:, :, :n], v[:, :, :n]).tobytes() for n in range(N + 1)}
keys = {k[:, :, :n].tobytes() for n in range(N + 1)}
reading, lock = True, threading.Lock()

def write():
    global reading
    for seed in range(4000):
        with lock:  # of several who write, one at a time
            length = len(cache)
            cache.truncate(length // 2) if length > N - 5 else cache.append(k[:, :, length:length + 3], v[:, :, length:length + 3])
    reading = False

def read():
    while reading:
        assert cache.attention(q).tobytes() in expected
        assert cache.keys().tobytes() in keys
        assert 0 <= len(cache) <= N and "length=" in repr(cache)
        try:
            fork = cache.fork(len(cache))
        except ValueError as error:  # it has shrunk since
            assert "length" in str(error)
            continue
        fork.append(k[:, :, :1], v[:, :, :1])
        assert fork.keys()[:, :, :-1].tobytes() in keys

print(*together(write, write, *[read] * 4), sep="\\n")
""")


def test_of_changes_at_once_each_is_done_or_refused(run):
    run("""
k = random_numbers.standard_normal((1, 1, 30_000, 64), np.float32)
cache, appended, refused = attend.KvCache(1, 1, 64, 64), [], []

def append():
    for _ in range(20):
        try:
            cache.append(k, k)
            appended.append(k.shape[2])
        except ValueError as error:
            refused.append(str(error))

errors = together(*[append] * 4)
assert len(cache) == sum(appended) and len(appended) + len(refused) == 80
assert len(set(refused)) <= 1, set(refused)
assert (cache.keys()[:, :, -30_000:] == k).all()
print(*errors, sep="\\n")
""")


def test_draws_from_many_threads_are_those_of_one(run):
    """Whoever comes first gets the first numbers; none is lost, none is given twice."""
    run("""
generator, drawn = attend.Generator(3), []

def draw():
    for _ in range(200):
        drawn.append(generator.rand((64,)).tobytes())

errors = together(*[draw] * 8)
again = attend.Generator(3)
assert sorted(drawn) == sorted(again.rand((64,)).tobytes() for _ in range(1600))
print(*errors, sep="\\n")
""")


@pytest.mark.parametrize("of", ["numpy", "torch"])
def test_forks_while_threads_compute(run, of):
    run(f"""
x = random_numbers.standard_normal((1, 8, 200, 32), np.float32)
whole, working = attend.attention(x, x, x), True
if "{of}" == "torch":
    import torch
    x = torch.from_numpy(x)
    attend.attention(x, x, x)
""" + """
def right():
    return (np.asarray(attend.attention(x, x, x)) == whole).all()

def work():
    while working:
        assert right()

def fork():
    global working
    for _ in range(30):
        child = os.fork()
        if child == 0:
            os._exit(0 if right() and len(attend.explain("the cat").tokens) == 2 else 3)
        status = os.waitpid(child, 0)[1]
        assert status == 0, status
    working = False

print(*together(work, work, fork), sep="\\n")
""")


def test_new_processes_compute_and_what_has_a_state_does_not_go_there(run):
    run("""
x = random_numbers.standard_normal((1, 2, 50, 8), np.float32)
with multiprocessing.get_context("spawn").Pool(2) as pool:
    for result in pool.starmap(attend.onnx.attention, [(x, x, x)] * 4):
        assert (result[0] == attend.attention(x, x, x)).all()
for thing in attend.KvCache(1, 1, 4, 4), attend.Generator(), attend.explain("cat"), attend.plan(x, x, x):
    try:
        pickle.dumps(thing)
        assert False, thing
    except TypeError as error:
        assert "pickle" in str(error)
print("done")
""")


@pytest.mark.parametrize("of", ["np", "torch"])
def test_python_ends_while_threads_compute(run, of):
    """Threads that call on and on, one that stays in the middle of a call, and a call from another atexit function."""
    run(f"""
import atexit
x = np.ones((1, 1000, 4), np.float32)
small = np.ones((1, 2, 20, 8), np.float32)
if "{of}" == "torch":
    import torch
    x, small = torch.from_numpy(x), torch.from_numpy(small)
""" + """
kept = []  # where a tensor dies PyTorch gives the GIL away, and aborts by itself if Python ends meanwhile

def call(x, called):
    while True:
        kept.append(attend.attention(x, x, x))
        called.release()

attend.set_num_threads(1)  # the one that reads the clock
held = faults.Held("clock", 1)
threading.Thread(target=attend.attention, args=(x, x, x), daemon=True).start()
held.wait()
attend.set_num_threads(10**6)
for each in [x] * 2 + [small] * 4:
    called = threading.Semaphore(0)
    threading.Thread(target=call, args=(each, called), daemon=True).start()
    called.acquire()
    called.acquire()
atexit.register(lambda: attend.attention(small, small, small))
print("done", flush=True)
""")
