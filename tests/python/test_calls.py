"""What calls say of their arguments: what is refused, and by which words; what a plan and a KvCache are."""

import os
import subprocess
import sys

import numpy
import pytest

import attend

X = numpy.zeros((1, 2, 3, 8), numpy.float32)


def test_a_message_without_the_name_of_a_function_comes_whole():
    shape = (1, 1, -1, 8)
    with pytest.raises(ValueError, match=r"^plan: shape \[1,1,-1,8\] has a negative size$"):
        attend.plan(shape, shape, shape)
    with pytest.raises(ValueError, match="^explain: shape .* has more elements than 64 bits can count$"):
        attend.explain("a b", heads=2**62)
    program = "import attend; attend.plan((1, 1, 4, 8), (1, 1, 4, 8), (1, 1, 4, 8))"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"ATTEND_TARGET": "sse9"},
                          capture_output=True, text=True)
    assert "ValueError: plan: ATTEND_TARGET is 'sse9', expected a target that this processor runs: " in done.stderr


@pytest.mark.parametrize("read", [attend.Model.load, attend.Model.load_tokenizer, attend.Tokenizer.load])
def test_no_name_is_no_file(read):
    with pytest.raises(OSError, match="''"):
        read("")


@pytest.mark.parametrize("keywords, kind, message", [
    ({"window": 3}, TypeError, "window: expected .left, right., each a whole number, or -1 or None for open, got 3"),
    ({"window": (1, 2.5)}, TypeError, "window: expected .left, right.*, got 2.5"),
    ({"offset": "left"}, ValueError, "offset: expected 'top_left', 'bottom_right', a whole number or None, got 'left'"),
    ({"mask": numpy.zeros((3, 3), numpy.float32)}, TypeError, "mask is float32, expected bool"),
    ({"key_lengths": [1.5]}, TypeError, r"key_lengths: expected whole numbers, a list or an array \[N\], got \[1.5\]"),
    ({"scale": "big"}, TypeError, "scale: expected a number, got 'big'"),
    ({"wndow": (1, 1)}, TypeError, r"attention\(\) got an unexpected keyword argument 'wndow'"),
])
def test_a_bad_option_is_named(keywords, kind, message):
    x = numpy.zeros((1, 3, 8), numpy.float32)
    with pytest.raises(kind, match=message):
        attend.attention(x, x, x, **keywords)


def test_messages_have_pythons_names_of_dtypes():
    x = numpy.zeros((1, 1, 3, 4), numpy.float64)
    with pytest.raises(TypeError, match="^attention: q is int64, expected float32, float64, bfloat16 or float16$"):
        attend.attention(x.astype(int), x, x)
    assert attend.plan(x, x, x).reason.startswith("float64 is computed by the plain path")
    # A path is no message.
    with pytest.raises(OSError, match=r"^Trace.save: .*no/such/f32/f16\.json"):
        attend.explain("a b").save("no/such/f32/f16.json")


def test_plan_backward_says_what_runs():
    shape = (1, 8, 2048, 64)
    plan = attend.plan_backward(shape, shape, shape, "bfloat16", causal=True)
    assert plan.path == "fused" and plan.flops == 10 * 8 * 64 * 2048 * 2049 / 2 and plan.scratch_bytes > 0
    x = numpy.zeros((1, 2, 64, 16))
    assert attend.plan_backward(x, x, x, sinks=numpy.zeros(2), dsinks=True).path == "reference"
    with pytest.raises(ValueError, match="plan_backward: dbias is wanted, but bias is not given"):
        attend.plan_backward(shape, shape, shape, dbias=True)
    with pytest.raises(ValueError, match="plan_backward: k has head size 3, q has 4"):
        attend.plan_backward((5, 4), (7, 3), (7, 4))


@pytest.mark.parametrize("change, keywords, kind, message", [
    ({"dout": X[..., :7]}, {}, ValueError, r"dout has shape \[1,2,3,7\], expected \[1,2,3,8\]"),
    ({"dout": X.astype(numpy.float64)}, {}, TypeError, "dout is float64, expected float32"),
    ({"lse": X}, {}, ValueError, r"lse has shape \[1,2,3,8\], expected \[1,2,3\]"),
    ({"out": None}, {}, TypeError, "out: expected an array .*, got NoneType"),
    ({}, {"dlse": X}, ValueError, r"dlse has shape \[1,2,3,8\], expected \[1,2,3\]"),
    ({}, {"dbias": True}, ValueError, "dbias is wanted, but bias is not given"),
    ({}, {"dalibi_slopes": True}, ValueError, "dalibi_slopes is wanted, but alibi_slopes is not given"),
    ({}, {"dsinks": True}, ValueError, "dsinks is wanted, but sinks is not given"),
    ({}, {"dropout": 0.1}, TypeError, r"dropout: expected \(p, seed\), a number and a whole number of 0 .*, got 0.1"),
    ({}, {"dropout": (0.1, -1)}, TypeError, r"dropout: expected \(p, seed\), .* got -1"),
    ({}, {"dropout": (1.0, 1)}, ValueError, "dropout p is 1, expected 0 <= p < 1"),
    ({}, {"wndow": (1, 1)}, TypeError, r"\(\) got an unexpected keyword argument 'wndow'"),
])
def test_a_bad_argument_of_the_backward_is_named(change, keywords, kind, message):
    arguments = {"dout": X, "q": X, "k": X, "v": X, "out": X, "lse": X[..., 0]} | change
    with pytest.raises(kind, match="^attention_backward.*" + message):
        attend.attention_backward(**arguments, **keywords)


def test_what_a_kv_cache_is():
    cache = attend.KvCache(batch=1, heads=2, d_k=3, d_v=4, dtype="float16")
    assert (cache.batch, cache.heads, cache.d_k, cache.d_v, len(cache)) == (1, 2, 3, 4, 0)
    assert repr(cache) == "KvCache(batch=1, heads=2, d_k=3, d_v=4, dtype='float16', length=0)"


def test_weights_over_a_cache_are_those_over_its_keys():
    random = numpy.random.default_rng(3)
    q, k = random.standard_normal((1, 4, 2, 8), numpy.float32), random.standard_normal((1, 2, 300, 8), numpy.float32)
    cache = attend.KvCache(batch=1, heads=2, d_k=8, d_v=8)
    cache.append(k, k)
    options = {"causal": True, "softcap": 2.0, "window": (100, -1), "alibi_slopes": numpy.linspace(0.1, 0.4, 4, dtype=numpy.float32)}
    _, lse, lse_low = cache.attention(q, return_lse_low=True, **options)
    part = {"queries": (1, 2), "keys": (250, 300), "key_sizes": random.random((1, 4, 300), numpy.float32)}
    for given in ({}, {"lse": lse}, {"lse": lse, "lse_low": lse_low}):
        for wanted in ({}, part):
            expected = attend.attention_weights(q, k, offset="bottom_right", **given, **wanted, **options)
            numpy.testing.assert_array_equal(cache.attention_weights(q, **given, **wanted, **options), expected)
    with pytest.raises(ValueError, match="attention_weights: keys are 0 to 301, expected a part of 0 to 300"):
        cache.attention_weights(q, keys=(0, 301))
    with pytest.raises(TypeError, match=r"KvCache.attention_weights: queries: expected \(begin, end\)"):
        cache.attention_weights(q, queries=3)
