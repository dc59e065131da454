"""attention_summary() and its relatives beside the same computed by PyTorch from the whole matrix of weights."""

import numpy
import pytest
import torch

import attend

B, H, HKV, TQ, TK, D = 2, 4, 2, 150, 900, 16


def scores(q, k, causal=False, bias=None, window=None, softcap=0.0, mask=None):
    """The logits that the softmax sees, float64; -inf where hidden. Query i stands at key i + TK - TQ."""
    s = q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) / D**0.5
    s = softcap * torch.tanh(s / softcap) if softcap else s
    s = s if bias is None else s + bias.double()
    level = torch.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]
    key = torch.arange(k.shape[-2])[None]
    hidden = (key > level) if causal else torch.zeros(1, 1, dtype=torch.bool)
    hidden = hidden | (key < level - window) if window is not None else hidden
    hidden = hidden if mask is None else hidden | ~mask
    return s.masked_fill(hidden, -torch.inf)


CASES = [{}, {"causal": True}, {"causal": True, "window": 40}, {"bias": True}, {"mask": True}, {"softcap": 3.0}]


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def inputs(request):
    generator = torch.Generator().manual_seed(1)
    make = lambda heads, length: torch.randn(B, heads, length, D, generator=generator).to(request.param)
    return make(H, TQ), make(HKV, TK), generator


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_matrix_of_weights(inputs, case):
    q, k, generator = inputs
    case = dict(case)
    if case.get("bias"):
        case["bias"] = torch.randn(H, TQ, TK, generator=generator)
    if case.get("mask"):
        case["mask"] = torch.rand(B, 1, TQ, TK, generator=generator) < 0.3
    options = {key: value for key, value in case.items() if key != "window"}
    if "window" in case:
        options["window"] = (case["window"], None)
    if case.get("causal"):
        options["offset"] = "bottom_right"
    logits = scores(q, k, **case)
    w = logits.softmax(-1)
    v = torch.zeros(B, HKV, TK, 1, dtype=q.dtype)
    _, lse, lse_low = attend.attention(q, k, v, return_lse_low=True, **options)
    s = attend.attention_summary(q, k, lse, lse_low=lse_low, top=4, map=(6, 9), **options)

    largest, keys = w.topk(4)
    torch.testing.assert_close(s.top_weights.double(), largest, rtol=1e-4, atol=0)
    assert (s.top_keys == keys).double().mean() > 0.99  # but where two weights are equal to rounding
    entropy = -(w * torch.where(w > 0, logits - logits.logsumexp(-1, keepdim=True), 0)).sum(-1)
    torch.testing.assert_close(s.entropy.double(), entropy, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(s.received.double(), w.sum(-2), rtol=1e-4, atol=1e-30)
    visible = torch.isfinite(logits).double()
    even = (visible / visible.sum(-1, keepdim=True)).sum(-2)
    torch.testing.assert_close(s.lift.double(), torch.where(even > 0, w.sum(-2) / even, 0), rtol=1e-4, atol=1e-30)
    if case.get("causal"):
        level = torch.arange(TQ)[:, None] + TK - TQ
        torch.testing.assert_close(s.distance.double(), (w * (level - torch.arange(TK)).abs()).sum(-1), rtol=1e-4, atol=1e-4)
    else:
        assert s.distance is None
    rows = torch.nn.functional.one_hot(torch.arange(TQ) * 6 // TQ).double()
    columns = torch.nn.functional.one_hot(torch.arange(TK) * 9 // TK).double()
    torch.testing.assert_close(s.map.double(), rows.T / rows.sum(0)[:, None] @ w @ columns, rtol=1e-4, atol=1e-30)
    part = attend.attention_weights(q, k, lse, lse_low=lse_low, queries=(20, 50), keys=(800, 900), **options)
    torch.testing.assert_close(part.double(), w[:, :, 20:50, 800:], rtol=1e-4, atol=1e-30)
    pairs = attend.attention_weights(q, k, lse, lse_low=lse_low, pairs=numpy.array([[149, 899], [3, 2]]), **options)
    torch.testing.assert_close(pairs.double(), w[:, :, [149, 3], [899, 2]], rtol=1e-4, atol=1e-30)


def test_packed_sequences_are_each_alone():
    generator = numpy.random.default_rng(3)
    q, k = generator.standard_normal((2, 90, 2, 8), numpy.float32)
    starts = [0, 20, 20, 90]
    _, lse = attend.attention_varlen(q, k, k, starts, starts, causal=True, return_lse=True)
    together = attend.attention_summary_varlen(q, k, lse, starts, starts, causal=True, map=(5, 5))
    for n, (begin, end) in enumerate([(0, 20), (20, 90)]):
        part = slice(begin, end)
        alone = attend.attention_summary(q[None, part], k[None, part], lse[None, :, part], causal=True, map=(5, 5),
                                         layout="bthd")
        keys = alone.top_keys[0]
        numpy.testing.assert_array_equal(together.top_keys[:, part], numpy.where(keys >= 0, keys + begin, -1))
        for name in ("top_weights", "entropy", "distance", "received", "lift"):
            numpy.testing.assert_array_equal(getattr(together, name)[:, part], getattr(alone, name)[0])
        numpy.testing.assert_array_equal(together.map[2 * n], alone.map[0])
    assert not together.map[1].any()


def test_arrays_are_of_the_kind_that_came():
    x = numpy.zeros((1, 1, 3, 4), numpy.float64)
    assert isinstance(attend.attention_summary(x, x).entropy, numpy.ndarray)
    assert attend.attention_summary(x, x).entropy.dtype == numpy.float64
    assert isinstance(attend.attention_weights(torch.from_numpy(x), torch.from_numpy(x)), torch.Tensor)
    assert attend.attention_summary(x, x).top_keys.dtype == numpy.int64


@pytest.mark.parametrize("call, message", [
    (lambda x: attend.attention_weights(x, x, queries=(0, 9)), "queries are 0 to 9, expected a part of 0 to 3"),
    (lambda x: attend.attention_weights(x, x, queries=(0, 1), pairs=[[0, 0]]), "queries and keys, or pairs, not both"),
    (lambda x: attend.attention_summary(x, x, top=-1), "top is -1, expected 0 or more"),
    (lambda x: attend.attention_summary(x, x, lse_low=x[..., 0]), "lse_low is given without lse"),
    (lambda x: attend.head_scores(x, x, tokens=[1, 2]), r"tokens have shape \[2\], expected \[Tk\] = \[3\]"),
])
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call(numpy.zeros((1, 1, 3, 4), numpy.float32))


@pytest.mark.parametrize("call, message", [
    (lambda x: attend.attention_map(x, x, blocks=(1, 2, 3)), r"blocks: expected \(rows, columns\), got \(1, 2, 3\)"),
    (lambda x: attend.attention_weights(x, x, queries=3), r"queries: expected \(begin, end\), two whole numbers, got 3"),
    (lambda x: attend.attention_weights(x, x, pairs=[1, 2]), r"pairs: expected \(query, key\) each, got 1"),
])
def test_wrong_kinds_of_arguments_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call(numpy.zeros((1, 1, 3, 4), numpy.float32))


def test_head_scores_print_well():
    q = numpy.zeros((1, 1, 50, 4), numpy.float32)
    score = attend.head_scores(q, q, causal=True, bias=numpy.eye(50, k=-1, dtype=numpy.float32) * 50,
                               tokens=numpy.arange(50))[0]
    assert repr(score).startswith("HeadScores(batch=0, head=0, 'previous 1.00', sink=")
    assert score.labels == [("previous", pytest.approx(1, abs=1e-6))] and score.without_sink is None
    assert score.has_label("previous") and not score.has_label("sink") and score.excess["duplicate"] is None
    assert score.previous == pytest.approx(1, abs=1e-6) and score.induction == pytest.approx(0, abs=1e-6)
