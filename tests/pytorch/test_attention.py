"""attention() and its relatives in Python, beside PyTorch in double."""

import numpy
import pytest
import torch

import attend

GENERATOR = numpy.random.default_rng(7)
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2, torch.float16: 1e-3}


def tensors(*shapes, dtype=torch.float32):
    return [torch.from_numpy(GENERATOR.standard_normal(shape)).to(dtype) for shape in shapes]


def close(got, expected, dtype=None):
    torch.testing.assert_close(torch.as_tensor(got).double(), expected.double(), rtol=0,
                               atol=TOLERANCE[dtype or torch.as_tensor(got).dtype])


def truth(q, k, v, **options):
    return torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), **options)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_result_is_of_the_same_dtype_and_near_the_truth(dtype):
    q, k, v = tensors((2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 5), dtype=dtype)
    out, lse = attend.attention(q, k, v, return_lse=True)
    assert out.dtype == dtype and out.shape == (2, 4, 9, 5)
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32) and lse.shape == (2, 4, 9)
    close(out, truth(q, k, v, enable_gqa=True))
    scores = q.double() @ k.double().repeat_interleave(2, 1).transpose(-1, -2) / 4
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{"scale": False}, {"window": 1}, {"window": 2, "causal": True, "scale": False, "heads": 2}])
def test_what_explain_computes(options):
    trace = attend.explain("the cat sat on the mat", **options)
    q, k, v = (torch.from_numpy(x.copy()) for x in (trace.queries, trace.keys, trace.values))
    distance = torch.arange(6)[:, None] - torch.arange(6)
    sees = (distance.abs() <= options.get("window", 6)) & (distance >= (0 if options.get("causal") else -6))
    close(trace.context.copy(), truth(q, k, v, attn_mask=sees, scale=1 if "scale" in options else None))
    assert (torch.from_numpy(trace.weights.copy()) > 0).equal(sees.expand(trace.weights.shape))


def test_every_option():
    q, k, v, bias = tensors((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (2, 1, 5, 7))
    slopes, sinks, distances = tensors((3,), (3,), (3, 5))
    mask = torch.rand(3, 5, 7) < 0.8
    out = attend.attention(q, k, v, causal=True, window=(4, None), offset="bottom_right", mask=mask, bias=bias,
                           distance_bias=distances, alibi_slopes=slopes, sinks=sinks, softcap=3.0, scale=0.4,
                           key_lengths=[7, 6])
    i, j = torch.arange(5)[:, None] + 2, torch.arange(7)
    expected = []
    for b, length in enumerate([7, 6]):
        level = i - (7 - length)  # bottom right of the valid keys
        scores = 3 * torch.tanh(q[b].double() @ k[b].double().transpose(-1, -2) * 0.4 / 3) + bias[b]
        scores = scores + distances[:, (j - level).clamp(-2, 2) + 2] - slopes[:, None, None] * (level - j).abs()
        visible = mask & (j <= level) & (j >= level - 4) & (j < length)
        scores = torch.cat([scores.masked_fill(~visible, -torch.inf), sinks[:, None, None].expand(3, 5, 1)], -1)
        expected.append(scores.softmax(-1)[..., :7] @ v[b].double())
    close(out, torch.stack(expected))


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_bias_by_distance_is_the_bias_that_it_stands_for(dtype):
    """Bit for bit: it is added where a bias is."""
    q, k, v = tensors((2, 4, 9, 16), (2, 2, 13, 16), (2, 2, 13, 5), dtype=dtype)
    table, = tensors((7, 4))
    table[6, 1] = -torch.inf  # hides what is 3 keys or more ahead
    table = table.T

    def bias(queries, keys, offset):
        return table[:, (torch.arange(keys) - torch.arange(queries)[:, None] - offset).clamp(-3, 3) + 3]

    def same(got, expected):
        assert all(torch.equal(*each) for each in zip(got, expected, strict=True))

    for options in {"causal": True, "offset": 2}, {"offset": 0, "layout": "bhtd"}, {"offset": "bottom_right"}:
        offset = {"bottom_right": 4}.get(options["offset"], options["offset"])
        same(attend.attention(q, k, v, distance_bias=table, return_lse=True, **options),
             attend.attention(q, k, v, bias=bias(9, 13, offset), return_lse=True, **options))
    steps = attend.attention_steps(q, k, v, distance_bias=table, offset=2)
    same([steps.logits, steps.context], [(x := attend.attention_steps(q, k, v, bias=bias(9, 13, 2))).logits, x.context])

    packed = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    starts = [0, 9, 18], [0, 13, 26]
    same(attend.attention_varlen(*packed, *starts, distance_bias=table, offset="bottom_right", return_lse=True),
         attend.attention_varlen(*packed, *starts, bias=bias(9, 13, 4).tile(1, 2, 2), return_lse=True))
    if dtype != torch.float64:
        cache = attend.KvCache(2, 2, 16, 5, dtype=dtype)
        cache.append(k, v)
        same([cache.attention(q[:, :, -2:], distance_bias=table)],
             [attend.attention(q[:, :, -2:], k, v, bias=bias(2, 13, 11))])


def test_a_bias_by_distance_has_a_place_for_each_distance():
    q, k = tensors((2, 5, 8), (2, 7, 8))
    for shape in (2, 4), (3, 5), (5,), (1, 2, 5):
        with pytest.raises(ValueError, match=r"attention: distance_bias has shape \[.*\], expected \[H,2R\+1\]"):
            attend.attention(q, k, k, distance_bias=torch.ones(shape), offset=0)
    with pytest.raises(ValueError, match="attention: 5 queries and 7 keys with .* need an offset"):
        attend.attention(q, k, k, distance_bias=torch.ones(2, 5))
    with pytest.raises(TypeError, match="attention: distance_bias"):
        attend.attention(q, k, k, distance_bias=torch.ones(2, 5, dtype=torch.int64), offset=0)


def test_a_bias_by_distance_takes_no_memory_of_queries_times_keys():
    shape, table = (1, 4, 4096, 32), torch.ones(4, 257)
    assert attend.plan(shape, shape, shape, distance_bias=table).scratch_bytes < 4 * 4096**2
    plan = attend.plan_backward(shape, shape, shape, distance_bias=table, ddistance_bias=True)
    assert plan.path == "fused" and plan.scratch_bytes < 4 * 4096**2


def test_layout_bthd_is_bhtd_transposed():
    q, k, v = tensors((2, 9, 4, 16), (2, 13, 2, 16), (2, 13, 2, 5))
    out, lse = attend.attention(q, k, v, layout="bthd", return_lse=True)
    expected, expected_lse = attend.attention(*(x.transpose(1, 2) for x in (q, k, v)), return_lse=True)
    assert out.shape == (2, 9, 4, 5) and out.is_contiguous()
    assert torch.equal(out.transpose(1, 2), expected) and torch.equal(lse, expected_lse)
    with pytest.raises(ValueError, match="attention: layout: expected 'bhtd' or 'bthd', got 'thd'"):
        attend.attention(q, k, v, layout="thd")


def test_varlen_is_each_sequence_by_itself():
    q, k, v = tensors((11, 4, 8), (12, 2, 8), (12, 2, 8))
    queries, keys = [0, 3, 3, 11], [0, 5, 7, 12]
    for starts in (list, numpy.array, lambda x: torch.tensor(x, dtype=torch.int32)):
        out, lse = attend.attention_varlen(q, k, v, starts(queries), starts(keys), causal=True, offset="bottom_right",
                                           return_lse=True)
        for n in range(3):
            rows, columns = slice(*queries[n:n + 2]), slice(*keys[n:n + 2])
            alone, alone_lse = attend.attention(q[rows], k[columns], v[columns], causal=True, offset="bottom_right",
                                                layout="bthd", return_lse=True)
            assert torch.equal(out[rows], alone) and torch.equal(lse[:, rows], alone_lse)
    with pytest.raises(ValueError, match="attention_varlen: cu_seqlens_q"):
        attend.attention_varlen(q, k, v, [0, 12], [0, 12])


def test_out_is_written_and_returned():
    q, = tensors((2, 3, 8))
    out = torch.empty(3, 2, 8).transpose(0, 1)
    assert attend.attention(q, q, q, out=out) is out
    assert torch.equal(out, attend.attention(q, q, q))
    fixed = numpy.zeros((2, 3, 8), numpy.float32)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match=r"attention: out \[2,3,8\] is read-only"):
        attend.attention(q.numpy(), q.numpy(), q.numpy(), out=fixed)
    with pytest.raises(ValueError, match=r"attention: out has shape \[2,3,7\], expected \[2,3,8\]"):
        attend.attention(q, q, q, out=out[..., :7])
    with pytest.raises(ValueError, match="attention: out shares memory with q"):
        attend.attention(q, q, q, out=q)


def test_merge_joins_disjoint_keys():
    q, k, v = tensors((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4))
    parts = [attend.attention(q, k[:, :, part], v[:, :, part], return_lse=True) for part in (slice(3), slice(3, 7))]
    out, lse = attend.merge(*parts[0], *parts[1])
    whole, whole_lse = attend.attention(q, k, v, return_lse=True)
    torch.testing.assert_close(out, whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(lse, whole_lse, rtol=0, atol=1e-6)


def test_steps_are_those_of_attention():
    q, k, v = tensors((2, 5, 8), (2, 7, 8), (2, 7, 4))
    steps = attend.attention_steps(q, k, v, causal=True, offset=1)
    close(steps.scores, q.double() @ k.double().transpose(-1, -2), torch.bfloat16)
    assert steps.weights.shape == (2, 5, 7) and (steps.weights.triu(2) == 0).all()
    close(steps.context, attend.attention(q, k, v, causal=True, offset=1))
    assert torch.isneginf(steps.logits[:, 0, 2:]).all() and torch.isfinite(steps.lse).all()


def test_plan_says_what_runs():
    plan = attend.plan((1, 32, 1, 128), (1, 8, 4096, 128), (1, 8, 4096, 128), torch.bfloat16)
    assert plan.path == "decode" and plan.flops == 4 * 32 * 4096 * 128 and "8 query rows" in plan.reason
    assert "path='decode'" in repr(plan) and plan.scratch_bytes > 0
    x = numpy.zeros((1, 2, 64, 16))
    assert attend.plan(x, x, x).path == "reference"
    assert attend.plan(x.shape, x.shape, x.shape).path == "fused"
    with pytest.raises(ValueError, match="plan: k has head size 3, q has 4"):
        attend.plan((5, 4), (7, 3), (7, 4))
    with pytest.raises(TypeError, match="plan: dtype: expected float32, .* got int8"):
        attend.plan((5, 4), (7, 4), (7, 4), "int8")


def test_what_the_memory_of_a_tensor_does_not_say_is_refused():
    x, parameter = torch.ones(2, 3, 8), torch.nn.Parameter(torch.ones(2, 3, 8))
    message = "requires a gradient, which this function does not record: call it under torch.no_grad"
    for function in (attend.attention, attend.scaled_dot_product_attention):
        for position, name in enumerate(["q", "k", "v"]):
            arguments = [x] * 3
            arguments[position] = parameter
            with pytest.raises(ValueError, match=f"{function.__name__}: {name}.* {message}"):
                function(*arguments)
        with torch.no_grad():
            assert not function(parameter, parameter, parameter).requires_grad
        with torch.inference_mode():
            assert function(parameter, parameter, parameter).is_inference()
        negative = torch.ones(2, 3, 8, dtype=torch.complex64).conj().imag
        with pytest.raises(ValueError, match=f"{function.__name__}: v.* is a view with PyTorch's negative bit"):
            function(x, x, negative)
        assert (function(x, x, negative.resolve_neg()) == 0).all()
    assert attend.plan(parameter, x, x).path == attend.plan(x.to("meta"), x, x).path  # no memory is looked at
