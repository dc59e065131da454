"""Arrays in and out: whose they are, where their memory is, who keeps it alive; threads, signals and processes."""

import array
import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import warnings

import array_api_strict
import ml_dtypes
import numpy as np
import pytest
from arrays import Exported, X, nothing_holds_the_arguments, refused, results_live_and_die_by_themselves, same
from faults import to_be_armed

import attend


class ExportedAsBefore2023(Exported):
    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()


class Subclass(np.ndarray):
    pass


def field_of_records():
    records = np.zeros(X.shape, [("other", "f4"), ("x", "f4")])
    records["x"] = X
    return records["x"]


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


KINDS = {
    "NumPy": (lambda: X, np.ndarray),
    "read-only": (lambda: read_only(X), np.ndarray),
    "field of records": (field_of_records, np.ndarray),
    "subclass": (lambda: X.view(Subclass), np.ndarray),
    "recarray": (lambda: X.view(np.recarray), np.ndarray),
    "memoryview": (lambda: memoryview(array.array("f", X.ravel())).cast("B").cast("f", X.shape), np.ndarray),
    "ctypes": (lambda: (ctypes.c_float * 4 * 3 * 2).from_buffer(X.copy()), np.ndarray),  # no strides, though asked for
    "array API": (lambda: array_api_strict.asarray(X), type(array_api_strict.asarray(X))),
    "DLPack of NumPy": (lambda: Exported(X), np.ndarray),
    "DLPack, read-only": (lambda: Exported(read_only(X)), np.ndarray),
    "DLPack of old": (lambda: ExportedAsBefore2023(X), np.ndarray),
}


@pytest.mark.parametrize("make, kind", KINDS.values(), ids=KINDS)
def test_the_result_is_of_the_arguments_kind(make, kind):
    result = same(make())
    assert type(result) is kind and "float32" in str(result.dtype) and result.shape == X.shape


def test_a_matrix_has_two_axes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy advises against the type
        matrix = np.asmatrix(X[0])
    assert type(attend.attention(matrix, matrix, matrix)) is np.ndarray


def test_bfloat16_comes_back_as_bfloat16():
    x = X.astype(ml_dtypes.bfloat16)
    result = attend.attention(x, x, x)
    assert result.dtype == ml_dtypes.bfloat16
    exact = attend.attention(*[x.astype("f4")] * 3)  # weights and result are rounded once each
    np.testing.assert_allclose(result.astype("f4"), exact, rtol=0, atol=2 * 2**-8 * np.abs(X).max())


@pytest.mark.parametrize("view", [
    lambda x: x.transpose(2, 0, 1), lambda x: x[::-1, ::-1, ::-1], lambda x: x[:, 1:, ::2], lambda x: x[:, :0],
    lambda x: np.broadcast_to(x[:1], (5, 3, 4)), lambda x: x[None, :, None, 1]])
def test_no_strides_need_a_copy(view):
    """Only bytes that are read in place can change the result, and only those of `out` are written."""
    x = view(X.copy())
    expected = attend.attention(*[np.ascontiguousarray(x)] * 3)
    np.testing.assert_array_equal(attend.attention(x, x, x), expected)
    around = np.full([2 * size + 1 for size in x.shape], 7, np.float32)
    inside = tuple(slice(2 * size, 0, -2) for size in x.shape)
    assert attend.attention(x, x, x, out=around[inside]).base is around
    np.testing.assert_array_equal(around[inside], expected)
    around[inside] = 7
    assert (around == 7).all()


def test_a_large_broadcast_array_takes_no_memory():
    keys = np.broadcast_to(X[:1, :1], (1, 2**38, 4))  # 4 TiB, were it copied
    np.testing.assert_array_equal(attend.attention(X[None, :1], keys[None], keys[None], key_lengths=[5]),
                                  attend.attention(X[None, :1], keys[None, :, :5], keys[None, :, :5]))


def test_bottom_right_is_the_last_key_that_exists():
    x = np.random.default_rng(5).standard_normal((2, 3, 7, 4)).astype(np.float32)
    options = {"causal": True, "window": (3, 0), "alibi_slopes": np.float32([0.5, 0.25, 0.125])}
    out = attend.attention(x[:, :, :2], x, x, offset="bottom_right", key_lengths=[5, 7], **options)
    for b, length in enumerate([5, 7]):
        keys = x[b, :, :length]
        np.testing.assert_array_equal(out[b], attend.attention(x[b, :, :2], keys, keys, offset=length - 2, **options))


# What is refused.

DTYPE = "q: expected float32, float64, bfloat16 or float16 .a mask: bool., got "
REFUSED = {
    "list": (lambda: X.tolist(), TypeError, "q: expected an array .*, got list"),
    "number": (lambda: 1.0, TypeError, "q: expected an array .*, got float"),
    "0 axes": (lambda: np.float32(1), ValueError, "q has 0 axes"),
    "1 axis": (lambda: array.array("f", [1.0]), ValueError, "q has 1 axes"),
    "9 axes": (lambda: np.zeros((1,) * 9, "f4"), ValueError, "q: expected at most 8 axes, got 9"),
    "complex": (lambda: X.astype("c8"), TypeError, DTYPE + "complex64"),
    "longdouble": (lambda: X.astype("g"), TypeError, DTYPE + f"{np.dtype('g').name}"),
    "objects": (lambda: X.astype("O"), TypeError, DTYPE + "object"),
    "records": (lambda: X.view("f4,f4"), TypeError, DTYPE + r"\[\('f0'"),
    "int32": (lambda: X.astype("i4"), TypeError, DTYPE + "int32"),
    "int64": (lambda: X.astype("i8"), TypeError, "q is int64, expected float32, float64, bfloat16 or float16"),
    "uint8": (lambda: X.astype("u1"), TypeError, "q is uint8, expected float32"),
    "uint16": (lambda: X.astype("u2"), TypeError, DTYPE + "uint16"),
    "bool": (lambda: X > 0, TypeError, "q is bool, expected float32"),
    "bytes": (lambda: b"bytes", TypeError, "q is uint8, expected float32"),
    "float8": (lambda: X.astype(ml_dtypes.float8_e4m3fn), TypeError, DTYPE + "float8_e4m3fn"),
    "other byte order": (lambda: X.astype(X.dtype.newbyteorder()), TypeError, DTYPE + "[<>]f4"),
    "bfloat16 in other byte order": (
        lambda: X.astype(ml_dtypes.bfloat16).view(np.dtype(ml_dtypes.bfloat16).newbyteorder()), TypeError, DTYPE),
    "odd strides": (lambda: np.zeros((2, 3, 4), "i1,f4")["f1"], TypeError, "q: a stride is not a multiple of"),
    "masked array": (lambda: np.ma.masked_array(X, X > 0), TypeError, "q: a masked array, whose mask would be ignored"),
    "DLPack of complex": (lambda: Exported(X.astype("c8")), TypeError, "q: expected float32"),
    "DLPack that raises": (lambda: Exported(None), TypeError, "q: its __dlpack__ gives no array"),
}


@pytest.mark.parametrize("make, kind, message", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(make, kind, message):
    refused(make, kind, message)


@pytest.mark.parametrize("make, kind, message", [
    (lambda: read_only(X), ValueError, r"out \[2,3,4\] is read-only"),
    (lambda: Exported(read_only(X)), ValueError, r"out \[2,3,4\] is read-only"),
    (lambda: memoryview(bytes(X)).cast("f", X.shape), ValueError, r"out \[2,3,4\] is read-only"),
    (lambda: np.broadcast_to(np.zeros(4, "f4"), X.shape), ValueError, r"out \[2,3,4\] is read-only"),
    (lambda: X.astype("f8"), TypeError, "out is float64"),
    (lambda: X, ValueError, "out shares memory with q"),
])
def test_what_can_not_be_written_to(make, kind, message):
    with pytest.raises(kind, match=f"^attention: {message}"):
        attend.attention(X, X, X, out=make())


def test_a_list_is_whole_numbers_only_where_some_are_expected():
    x = X[None]
    for lengths in (np.array([2.5]), [2**70], [[1]], "1", 1):
        with pytest.raises(TypeError, match="attention: key_lengths: expected whole numbers"):
            attend.attention(x, x, x, key_lengths=lengths)
    for lengths in (np.array([2], ">i4"), (2,), array.array("B", [2])):
        np.testing.assert_array_equal(attend.attention(x, x, x, key_lengths=lengths),
                                      attend.attention(x, x[:, :, :2], x[:, :, :2]))


def test_what_can_not_say_what_it_is_is_named_by_its_type():
    class Mute:
        def __repr__(self):
            raise IndexError

        __str__ = __repr__

    for wrong in {"offset": Mute()}, {"window": Mute()}, {"key_lengths": Mute()}, {"softcap": Mute()}:
        with pytest.raises(TypeError, match=f"attention: {next(iter(wrong))}: expected .* got <Mute>"):
            attend.attention(X, X, X, **wrong)
    with pytest.raises(TypeError, match="dtype: expected float32, .* got <Mute>"):
        attend.Generator().rand((2,), Mute())
    with pytest.raises(TypeError, match=r"offset: expected .* got '\\udcff'"):  # no Unicode
        attend.attention(X, X, X, offset="\udcff")
    for function in attend.attention, attend.explain:
        with pytest.raises(TypeError, match=r"unexpected keyword argument '\\udcff'"):
            function(*([X, X, X] if function is attend.attention else []), **{"\udcff": 1})


# Who keeps what alive.

@pytest.mark.parametrize("make", [make for make, _ in KINDS.values()], ids=KINDS)
def test_nothing_holds_the_arguments_afterwards(make):
    nothing_holds_the_arguments(make)


def test_a_failed_call_releases_the_buffers():
    memory = bytearray(X.tobytes())
    x = memoryview(memory).cast("f", X.shape)
    with pytest.raises(ValueError):
        attend.attention(x, x, x, key_lengths=[1, 2, 3])
    with pytest.raises(TypeError):
        attend.attention(x, x, 3)
    x.release()
    memory.append(0)  # BufferError while anyone looks at it
    whole = array.array("i", [1, 2, 3])
    with pytest.raises(TypeError, match="attention: q: expected float32"):
        attend.attention(whole, whole, whole)
    whole.append(4)


@pytest.mark.parametrize("make", [lambda: X.copy(), lambda: array_api_strict.asarray(X.copy())], ids=["NumPy", "array API"])
def test_results_live_and_die_by_themselves(make):
    results_live_and_die_by_themselves(make)


# Threads, signals and processes.

@pytest.fixture
def run_python(command):
    """Runs a program that may arm faults, and ends by printing "done"."""

    def run(code):
        prologue = """
            import faults, numpy, os, signal, sys, threading
            import attend
            x = numpy.random.default_rng(0).standard_normal((1, 1000, 8), numpy.float32)
        """
        program = textwrap.dedent(prologue) + textwrap.dedent(code)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=to_be_armed(command))
        assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr

    return run


@pytest.mark.parametrize("call", [
    "attend.attention(x, x, x)", "attend.scaled_dot_product_attention(x, x, x)",
    "attend.attention_varlen(*[x.transpose(1, 0, 2)] * 3, [0, 1000], [0, 1000])"], ids=lambda call: call.partition("(")[0])
def test_a_signal_handler_runs_in_the_middle_of_a_call_and_ends_it_where_it_raises(run_python, call):
    """The clock is read when a call begins and after each of its pieces. Where it has raced, Python is then asked for signals."""
    run_python(f"""
        attend.set_num_threads(1)  # the one that asks
        call = lambda: {call}

        class Alarm(Exception):
            pass

        def raise_alarm(*_):
            raise Alarm

        faults.arm("clock")
        whole = call()
        pieces = faults.calls() - 1
        assert pieces > 4, pieces
        count = sys.getrefcount(x)
        for handler, error in (raise_alarm, Alarm), (signal.default_int_handler, KeyboardInterrupt):
            signal.signal(signal.SIGINT, handler)
            faults.arm("clock", 3, signal.SIGINT)
            try:
                call()
                print("not ended")
            except error:
                assert faults.calls() == 1 + 3, faults.calls()  # no piece after the third
            assert sys.getrefcount(x) == count

        handled = []
        signal.signal(signal.SIGINT, lambda *_: handled.append(faults.calls()))
        faults.arm("clock", 3, signal.SIGINT)
        assert numpy.array_equal(call(), whole)
        assert handled == [1 + 3] and faults.calls() == 1 + pieces
        print("done")
    """)


def test_other_threads_run_meanwhile(run_python):
    """While one stays in the middle of a call."""
    run_python("""
        attend.set_num_threads(1)  # the one that reads the clock
        held = faults.Held("clock", 3)
        thread = threading.Thread(target=attend.attention, args=(x, x, x))
        thread.start()
        held.wait()
        assert thread.is_alive()
        held.let_go()
        thread.join()
        print("done")
    """)


def test_threads_that_call_at_once_get_the_same_bits():
    x = np.random.default_rng(0).standard_normal((2, 4, 300, 32)).astype(np.float32)
    expected = attend.attention(x, x, x, causal=True)
    ready, results = threading.Barrier(8), []

    def call():
        ready.wait()
        results.extend(attend.attention(x, x, x, causal=True) for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 40 and all(np.array_equal(result, expected) for result in results)


def test_a_forked_process_computes_too(run_python):
    """oneTBB's workers do not come along, so there the calling thread takes all of the work."""
    run_python("""
        x = numpy.random.default_rng(0).standard_normal((1, 8, 512, 64)).astype(numpy.float32)
        expected = attend.attention(x, x, x)
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(0 if (attend.attention(x, x, x) == expected).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
        print("done")
    """)


def test_the_number_of_threads():
    before = attend.num_threads()
    try:
        results = []
        for threads in (1, 2):
            attend.set_num_threads(threads)
            assert attend.num_threads() <= threads
            x = np.random.default_rng(0).standard_normal((2, 2, 200, 32)).astype(np.float32)
            results.append(attend.attention(x, x, x))
        assert np.array_equal(*results)
        with pytest.raises(ValueError, match="set_num_threads: expected at least 1 thread, got 0"):
            attend.set_num_threads(0)
        attend.set_num_threads(10**6)
        assert attend.num_threads() <= os.cpu_count()
    finally:
        attend.set_num_threads(before)
