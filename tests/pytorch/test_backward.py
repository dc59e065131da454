"""attention_backward() in Python, beside what PyTorch's autograd makes of the plain formula in double."""
import numpy
import pytest
import torch

import attend

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@pytest.fixture(autouse=True)
def afresh():
    torch.manual_seed(11)


def rand(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def plain(q, k, v, *, keep=None, causal=False, window=(None, None), offset=0, mask=None, bias=None, distance_bias=None,
          alibi_slopes=None, sinks=None, softcap=0.0, scale=None, key_lengths=None, p=0.0):
    """softmax(q k^T * scale) v with every option, of [B,H,T,D], as the documentation puts it; and lse."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    i, j = torch.arange(q.shape[2])[:, None] + offset, torch.arange(k.shape[2])
    visible = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand(scores.shape)
    left, right = (10**6 if side is None else side for side in window)
    visible = visible & (j >= i - left) & (j <= i + (0 if causal else right))
    if key_lengths is not None:
        visible = visible & (j < torch.as_tensor(key_lengths)[:, None, None, None])
    if bias is not None:
        scores = scores + bias
    if distance_bias is not None:
        reach = distance_bias.shape[1] // 2
        scores = scores + distance_bias[:, (j - i).clamp(-reach, reach) + reach]
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[:, None, None] * (i - j).abs().to(scores.dtype)
    scores = scores.masked_fill(~visible, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:3], 1)], -1)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == -torch.inf, 0)[..., None]).exp()[..., :k.shape[2]]
    if keep is not None:
        weights = torch.where(keep, weights / (1 - p), 0)
    return weights @ v, lse


OPTIONS = {
    "none": lambda: {},
    "causal": lambda: {"causal": True, "offset": 2, "scale": 0.5},
    "window, lengths": lambda: {"window": (3, 1), "offset": 1, "key_lengths": [7, 3]},
    "mask": lambda: {"mask": torch.rand(2, 1, 5, 7) < 0.7},
    "bias of keys": lambda: {"bias": rand(2, 1, 1, 7)},
    "bias of heads": lambda: {"bias": rand(4, 5, 7), "softcap": 3.0},
    "ALiBi, sinks": lambda: {"alibi_slopes": rand(4).abs(), "sinks": rand(4), "offset": 2},
    "distances": lambda: {"distance_bias": rand(4, 7), "offset": 1},
    "distances in a window": lambda: {"distance_bias": rand(4, 1), "window": (2, 3), "offset": 2},
    "all": lambda: {"causal": True, "offset": 3, "window": (4, None), "mask": torch.rand(5, 7) < 0.8,
                    "bias": rand(1, 4, 5, 1), "distance_bias": rand(4, 5), "alibi_slopes": rand(4), "sinks": rand(4),
                    "softcap": 2.0, "scale": 0.4, "key_lengths": [7, 6]},
}
DIFFERENTIABLE = ("bias", "distance_bias", "alibi_slopes", "sinks")


def autograd(inputs, options, dout, dlse, dtype, keep=None, p=0.0):
    """PyTorch's gradients of the plain formula in that dtype, by name."""
    leaves = {name: x.to(dtype).requires_grad_() for name, x in inputs.items()}
    options = {name: leaves.get(name, x) for name, x in options.items()}
    out, lse = plain(leaves["q"], leaves["k"], leaves["v"], keep=keep, p=p, **options)
    lse = lse.masked_fill(lse == -torch.inf, 0)
    total = (out * dout.to(dtype)).sum() + (lse * dlse.to(dtype)).sum()
    return dict(zip(leaves, torch.autograd.grad(total, leaves.values())))


def close(got, truth, usual):
    """The project's rule for gradients: at most three times the error of the plain computation in the same dtype, and
    where that is exact by chance, a few roundings of the largest number; more of them in float64, where the truth has
    its own: of sums of up to 70 products (dsinks, dalibi_slopes), in another order."""
    assert got.dtype == usual.dtype and got.shape == usual.shape
    floor = (64 if got.dtype == torch.float64 else 4) * torch.finfo(got.dtype).eps * truth.abs().max()
    assert (got.double() - truth).abs().max() <= 3 * (usual.double() - truth).abs().max() + floor


@pytest.mark.parametrize("dropout", [None, (0.3, 12345678901234567890)], ids=["whole", "dropout"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_as_near_the_truth_as_pytorchs(dtype, options, dropout):
    options = options()
    shapes = {"q": (2, 4, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 6)}
    inputs = {name: rand(*shape, dtype=dtype) for name, shape in shapes.items()}
    inputs |= {name: options[name].to(dtype) for name in DIFFERENTIABLE if name in options}
    options |= {name: inputs[name] for name in inputs if name in options}
    dout = rand(2, 4, 5, 6, dtype=dtype)
    dlse = rand(2, 4, 5, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    keep, p = None, 0.0
    if dropout:
        p = dropout[0]
        keep = attend.attention_steps(q, k, v, dropout=dropout).weights != 0
        assert 0.4 < keep.double().mean() < 0.95
    out, lse = attend.attention(q, k, v, return_lse=True, dropout=dropout, **options)
    got = attend.attention_backward(dout, q, k, v, out, lse, dlse=dlse, dropout=dropout, **options,
                                    **{f"d{name}": name in options for name in DIFFERENTIABLE})
    truth = autograd(inputs, options, dout, dlse, torch.float64, keep, p)
    usual = autograd(inputs, options, dout, dlse, dtype, keep, p)
    for name in inputs:
        close(getattr(got, f"d{name}"), truth[name], usual[name])
    for name in DIFFERENTIABLE:
        assert (getattr(got, f"d{name}") is None) == (name not in options)


def test_only_what_is_wanted_is_there():
    q = rand(2, 3, 8, dtype=torch.float32)
    options = {"bias": rand(3, 3, dtype=torch.float32), "sinks": rand(2, dtype=torch.float32)}
    out, lse = attend.attention(q, q, q, return_lse=True, **options)
    got = attend.attention_backward(q, q, q, q, out, lse, dsinks=True, **options)
    assert got.dbias is None and got.ddistance_bias is None and got.dalibi_slopes is None and got.dsinks.shape == (2,)
    assert got.dq.shape == got.dk.shape == got.dv.shape == (2, 3, 8)
    with pytest.raises(AttributeError):
        got.dq = None


def test_layout_bthd_is_bhtd_transposed():
    shapes = (2, 9, 4, 16), (2, 13, 2, 16), (2, 13, 2, 5), (2, 9, 4, 5)
    q, k, v, dout = (rand(*shape, dtype=torch.float32) for shape in shapes)
    out, lse = attend.attention(q, k, v, layout="bthd", return_lse=True)
    got = attend.attention_backward(dout, q, k, v, out, lse, layout="bthd")
    expected = attend.attention_backward(*(x.transpose(1, 2) for x in (dout, q, k, v, out)), lse)
    for name, x in ("dq", q), ("dk", k), ("dv", v):
        gradient = getattr(got, name)
        assert gradient.shape == x.shape and gradient.is_contiguous()
        assert torch.equal(gradient.transpose(1, 2), getattr(expected, name))
    with pytest.raises(ValueError, match="attention_backward: layout: expected 'bhtd' or 'bthd', got 'thd'"):
        attend.attention_backward(dout, q, k, v, out, lse, layout="thd")


def test_varlen_is_each_sequence_by_itself():
    q, k, v, dout = (rand(*shape, dtype=torch.float32) for shape in ((11, 4, 8), (12, 2, 8), (12, 2, 8), (11, 4, 8)))
    queries, keys, options = [0, 3, 3, 11], [0, 5, 7, 12], {"causal": True, "offset": "bottom_right"}
    options |= {"sinks": rand(4, dtype=torch.float32), "distance_bias": rand(4, 7, dtype=torch.float32)}
    wanted = {"dsinks": True, "ddistance_bias": True}
    out, lse = attend.attention_varlen(q, k, v, queries, keys, return_lse=True, **options)
    got = attend.attention_varlen_backward(dout, q, k, v, out, lse, queries, torch.tensor(keys), **wanted,
                                           **options)
    dsinks, ddistances = torch.zeros(4), torch.zeros(4, 7)
    for n in range(3):
        rows, columns = slice(*queries[n:n + 2]), slice(*keys[n:n + 2])
        alone = attend.attention_backward(dout[rows], q[rows], k[columns], v[columns], out[rows], lse[:, rows],
                                          layout="bthd", **wanted, **options)
        for name, part in ("dq", rows), ("dk", columns), ("dv", columns):
            assert torch.equal(getattr(got, name)[part], getattr(alone, name))
        dsinks += alone.dsinks
        ddistances += alone.ddistance_bias
    # Three sums of at most 8 numbers below 1 each, added in float32 here and in double there.
    torch.testing.assert_close(got.dsinks, dsinks, rtol=0, atol=1e-6)
    torch.testing.assert_close(got.ddistance_bias, ddistances, rtol=0, atol=4e-6)  # of up to 8 such in a sum
    with pytest.raises(ValueError, match="attention_varlen_backward: cu_seqlens_q"):
        attend.attention_varlen_backward(dout, q, k, v, out, lse, [0, 12], [0, 12])


def test_gradients_of_merged_halves_are_those_of_the_whole():
    q, k, v, dout = (rand(2, 3, 6, 8, dtype=torch.float32) for _ in range(4))
    halves = [slice(2), slice(2, 6)]
    parts = [attend.attention(q, k[:, :, half], v[:, :, half], return_lse=True) for half in halves]
    out, lse = attend.merge(*parts[0], *parts[1])
    whole = attend.attention_backward(dout, q, k, v, *attend.attention(q, k, v, return_lse=True))
    each = [attend.attention_backward(dout, q, k[:, :, half], v[:, :, half], out, lse) for half in halves]
    for name, got in (("dq", each[0].dq + each[1].dq), ("dk", torch.cat([x.dk for x in each], 2)),
                      ("dv", torch.cat([x.dv for x in each], 2))):
        torch.testing.assert_close(got, getattr(whole, name), rtol=0, atol=2e-6)  # 16 eps of numbers near 1


def test_numpy_gives_numpy():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype in (numpy.float32, numpy.float64, numpy.float16, ml_dtypes.bfloat16):
        q, k, v, dout = numpy.random.default_rng(0).standard_normal((4, 2, 3, 6, 8)).astype(dtype)
        bias = numpy.zeros((6, 6), dtype)
        out, lse = attend.attention(q, k, v, bias=bias, return_lse=True)
        got = attend.attention_backward(dout, q, k, v, out, lse, bias=bias, dbias=True)
        assert all(type(x) is numpy.ndarray and x.dtype == dtype for x in (got.dq, got.dk, got.dv, got.dbias))
        from_torch = attend.attention_backward(*(
            torch.from_numpy(numpy.asarray(x, numpy.float64)).to(getattr(torch, numpy.dtype(dtype).name))
            for x in (dout, q, k, v, out)), torch.from_numpy(lse), bias=torch.zeros(6, 6), dbias=True)
        assert numpy.array_equal(numpy.asarray(got.dk, numpy.float64), from_torch.dk.double().numpy())
        assert from_torch.dbias.dtype == torch.float32  # the option's own


def test_any_strides_and_mixed_kinds():
    q, k, v, dout = (rand(2, 3, 6, 8, dtype=torch.float32) for _ in range(4))
    out, lse = attend.attention(q, k, v, return_lse=True)
    expected = attend.attention_backward(dout, q, k, v, out, lse)
    strange = dout.mT.contiguous().mT
    got = attend.attention_backward(strange, q.flip(-1).flip(-1), k.numpy(), v.numpy(), out.numpy(), lse.numpy())
    assert all(torch.equal(getattr(got, name), getattr(expected, name)) for name in ("dq", "dk", "dv"))
    ones = attend.attention_backward(torch.ones(()).expand(out.shape), q, k, v, out, lse)
    assert torch.equal(ones.dv, attend.attention_backward(torch.ones_like(out), q, k, v, out, lse).dv)


def test_a_row_without_keys_and_nan_behind_a_mask():
    q, k, v, dout = (rand(2, 3, 4, 8, dtype=torch.float32) for _ in range(4))
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1], mask[:, 3] = False, False
    k[:, :, 3] = v[:, :, 3] = torch.nan
    q[:, :, 1] = torch.nan  # a query that sees nothing reaches no key
    out, lse = attend.attention(q, k, v, mask=mask, return_lse=True)
    got = attend.attention_backward(dout, q, k, v, out, lse, mask=mask)
    assert all(x.isfinite().all() for x in (got.dq, got.dk, got.dv))
    assert (got.dq[:, :, 1] == 0).all() and (got.dk[:, :, 3] == 0).all() and (got.dv[:, :, 3] == 0).all()


def test_dropout_drops_p_of_the_weights_everywhere_the_same():
    x = rand(2, 3, 64, 8, dtype=torch.float32)
    weights = attend.attention_steps(x, x, x).weights
    dropped = attend.attention_steps(x, x, x, dropout=(0.25, 9)).weights
    keep = dropped != 0
    # 24,576 draws: the standard deviation of their mean is 0.0028, of which 5 are one in a million.
    assert abs(keep.double().mean() - 0.75) < 0.014
    torch.testing.assert_close(dropped[keep], weights[keep] / 0.75, rtol=1e-6, atol=0)
    out = attend.attention(x, x, x, dropout=(0.25, 9))
    torch.testing.assert_close(out, dropped @ x, rtol=0, atol=2e-6)
    assert torch.equal(out, attend.attention(x, x, x, dropout=(0.25, 9)))
    assert not torch.equal(out, attend.attention(x, x, x, dropout=(0.25, 10)))
    assert torch.equal(attend.attention(x, x, x, dropout=(0, 9)), attend.attention(x, x, x))
    assert attend.plan(x, x, x, dropout=(0.25, 9)).flops > 0
