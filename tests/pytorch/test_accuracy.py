"""Gradients beside PyTorch's MATH backend: of the same inputs, ours are at most twice as far from float64."""

import functools

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.testing._internal.common_methods_invocations import op_db

import attend
import attend.torch

DRAWS = 20  # the largest of few errors is a matter of luck
SAMPLES = next(op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention").sample_inputs


def gradients(function, tensors, dout, dtype):
    leaves = [x.detach().to(dtype).requires_grad_() for x in tensors]
    function(*leaves).backward(dout.to(dtype))
    return [x.grad.double() for x in leaves]


class Errors:
    """The largest distances from float64, of ours and of a backend of PyTorch's, for each of dq, dk and dv."""

    def __init__(self, backend=SDPBackend.MATH):
        self.backend, self.ours, self.theirs = backend, torch.zeros(3), torch.zeros(3)

    def take(self, other):
        self.ours, self.theirs = torch.maximum(self.ours, other.ours), torch.maximum(self.theirs, other.theirs)

    def add(self, ours, tensors, dout, call=lambda function, *tensors: function(*tensors)):
        def by(backend, dtype):
            def sdpa(*tensors):
                with sdpa_kernel(backend):
                    return call(scaled_dot_product_attention, *tensors)

            return gradients(sdpa, tensors, dout, dtype)

        exact = by(SDPBackend.MATH, torch.float64)
        theirs = by(self.backend, tensors[0].dtype)
        for largest, got in ((self.ours, ours), (self.theirs, theirs)):
            distances = [(x.double() - y).abs().max() for x, y in zip(got, exact)]
            largest[:] = torch.maximum(largest, torch.stack(distances))

    def check(self, factor=2):
        assert (self.theirs > 0).all()
        assert (self.ours <= factor * self.theirs).all(), self.ours / self.theirs


class Sample:
    """One of PyTorch's, in a dtype. Its mask is of that dtype too, and of float64 for the exact gradients; without dropout, since
    what it draws differs."""

    def __init__(self, sample, dtype):
        self.tensors = [x.detach().to(dtype) for x in (sample.input, *sample.args)]
        self.options = {name: x for name, x in sample.kwargs.items() if name != "dropout_p"}
        self.mask = self.options.pop("attn_mask", None)

    def call(self, function, *tensors):
        return function(*tensors, self.mask if self.mask is None else self.mask.to(tensors[0].dtype), **self.options)

    def draw(self, generator):
        """Others of the same shapes and range; PyTorch draws the same ones each time."""
        self.tensors = [torch.empty(x.shape).uniform_(-9, 9, generator=generator).to(x.dtype) for x in self.tensors]

    def roundings(self, dout):
        """The most that rounding may put dq, dk and dv off by. dp and delta are sums of Dv products, delta of numbers that are
        rounded themselves, and they cancel, in a row of one key to 0; a weight is off by as much as the score whose exponential
        it is, which is a sum of products too. In bf16, out, weights and gradients of logits are rounded once."""
        dtype, unit = self.tensors[0].dtype, torch.finfo(self.tensors[0].dtype).eps / 2
        exact, dout = [x.double() for x in self.tensors], dout.double()
        keys = torch.eye(exact[1].shape[-2], dtype=torch.float64).expand(*exact[1].shape[:-1], -1)
        with sdpa_kernel(SDPBackend.MATH):
            weights, out = (self.call(scaled_dot_product_attention, *exact[:2], v) for v in (keys, exact[2]))
        q, k, v = (x.abs().requires_grad_() for x in exact)
        scale, terms = q.shape[-1]**-0.5, v.shape[-1] + 1
        with torch.no_grad():
            scores = (scale * q @ k.mT).amax(-1, keepdim=True)
            dlogits = (dout @ exact[2].mT - (dout * out).sum(-1, keepdim=True)).abs()
            magnitudes = dout.abs() @ v.mT + (dout * out).abs().sum(-1, keepdim=True)
            if dtype == torch.float32:
                of_logits, of_weights = terms * magnitudes + scores * dlogits, terms + scores
            else:
                of_logits, of_weights = 2 * magnitudes, 2
        # Sums along the axes that a broadcast operand lacks are autograd's.
        sums = (scale * weights * of_logits * (q @ k.mT)).sum() + (weights * of_weights * (dout.abs() @ v.mT)).sum()
        return unit * torch.stack([x.max() for x in torch.autograd.grad(sums, (q, k, v))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_pytorchs_own_samples(dtype):
    """All together, and each gradient by itself, beyond what rounding does."""
    together, generator = Errors(), torch.Generator().manual_seed(0)
    for each in SAMPLES("cpu", torch.float32):
        sample = Sample(each, dtype)
        ours = functools.partial(sample.call, attend.torch.scaled_dot_product_attention)
        for _ in range(DRAWS):
            sample.draw(generator)
            shape = sample.call(scaled_dot_product_attention, *sample.tensors).shape
            dout = torch.randn(shape, generator=generator).to(dtype)
            alone = Errors()
            alone.add(gradients(ours, sample.tensors, dout, dtype), sample.tensors, dout, sample.call)
            assert (alone.ours <= 2 * alone.theirs + sample.roundings(dout)).all(), (each, alone.ours / alone.theirs)
            together.take(alone)
    together.check(2 if dtype == torch.float32 else 3)  # bf16: 1.0 to 2.3, by the draws


def with_out_in_f32(*tensors, dout, **options):
    """Gradients of attend's own functions, where out is not rounded before it is read again."""
    out = torch.empty(dout.shape)
    _, lse, low = attend.attention(*tensors, out=out, return_lse_low=True, **options)
    got = attend.attention_backward(dout, *tensors, out, lse, lse_low=low, **options)
    return [x.double() for x in (got.dq, got.dk, got.dv)]


def test_of_single_calls_with_out_in_f32():
    """Delta from a rounded out is nearly all that bf16 loses: of single calls, the medians are within twice MATH's."""
    ratios, generator = [], torch.Generator().manual_seed(0)
    for each in SAMPLES("cpu", torch.float32):
        sample = Sample(each, torch.bfloat16)
        if sample.mask is not None or len({x.shape[:-2] for x in sample.tensors}) > 1:
            continue
        for _ in range(DRAWS):
            sample.draw(generator)
            dout = torch.randn((*each.input.shape[:-1], each.args[1].shape[-1]), generator=generator).bfloat16()
            alone = Errors()
            ours = with_out_in_f32(*sample.tensors, dout=dout, causal=sample.options["is_causal"], offset=0)
            alone.add(ours, sample.tensors, dout, sample.call)
            ratios.append(alone.ours / alone.theirs)
    assert (torch.stack(ratios).median(0).values <= 2).all()


def peaked(queries, keys, largest, generator):
    """q, k, v and dout whose scores reach that magnitude."""
    q, k, v, dout = (torch.randn(2, 3, rows, 32, generator=generator) for rows in (queries, keys, keys, queries))
    return [q * (largest / ((q @ k.mT).abs().max() / 32**0.5)), k, v, dout]


CASES = [(queries, largest) for queries in (5, 70) for largest in (5, 100, 500)]


@pytest.mark.parametrize("queries, largest", CASES)
def test_of_large_scores(queries, largest):
    errors, generator = Errors(), torch.Generator().manual_seed(1)
    for _ in range(DRAWS):
        *tensors, dout = peaked(queries, 90, largest, generator)
        errors.add(gradients(attend.torch.attention, tensors, dout, torch.float32), tensors, dout)
    errors.check()


@pytest.mark.parametrize("queries, largest", CASES)
def test_of_large_scores_in_bf16(queries, largest):
    """Beside FLASH_ATTENTION: the gradients of logits are rounded to bf16 before they are multiplied, as there; MATH computes
    bf16 in f32."""
    errors, generator = Errors(SDPBackend.FLASH_ATTENTION), torch.Generator().manual_seed(1)
    for _ in range(DRAWS):
        *tensors, dout = (x.bfloat16() for x in peaked(queries, 90, largest, generator))
        errors.add(gradients(attend.torch.attention, tensors, dout, torch.bfloat16), tensors, dout)
    errors.check(1.5)


@pytest.mark.parametrize("queries, largest", CASES)
def test_without_lse_low(queries, largest):
    errors, generator = Errors(), torch.Generator().manual_seed(1)
    for _ in range(DRAWS):
        *tensors, dout = peaked(queries, 90, largest, generator)
        out, lse = attend.attention(*tensors, return_lse=True)
        got = attend.attention_backward(dout, *tensors, out, lse)
        errors.add((got.dq, got.dk, got.dv), tensors, dout)
    errors.check()


@pytest.mark.parametrize("queries, largest", CASES)
def test_of_merged_parts(queries, largest):
    errors, generator = Errors(), torch.Generator().manual_seed(2)
    for _ in range(DRAWS):
        q, k, v, dout = peaked(queries, 90, largest, generator)
        parts = [(k[:, :, keys], v[:, :, keys]) for keys in (slice(0, 33), slice(33, 90))]
        (a, lse_a, low_a), (b, lse_b, low_b) = (attend.attention(q, *part, return_lse_low=True) for part in parts)
        out, lse, low = attend.merge(a, lse_a, b, lse_b, lse_low_a=low_a, lse_low_b=low_b)
        first, second = (attend.attention_backward(dout, q, *part, out, lse, lse_low=low) for part in parts)
        joined = (torch.cat((getattr(first, name), getattr(second, name)), 2) for name in ("dk", "dv"))
        errors.add((first.dq + second.dq, *joined), (q, k, v), dout)
    errors.check()


@pytest.mark.parametrize("largest", [5, 100, 500])
def test_of_sequences_one_after_another(largest):
    errors, generator = Errors(), torch.Generator().manual_seed(3)
    for _ in range(DRAWS):
        sequences = [[x[0] for x in peaked(queries, 90, largest, generator)] for queries in (5, 70)]
        q, k, v, dout = (torch.cat(x, 1).transpose(0, 1).contiguous() for x in zip(*sequences))
        starts = [0, 5, 75], [0, 90, 180]
        out, lse, low = attend.attention_varlen(q, k, v, *starts, return_lse_low=True)
        got = attend.attention_varlen_backward(dout, q, k, v, out, lse, *starts, lse_low=low)
        for n, (*tensors, dout) in enumerate(sequences):
            rows, keys = slice(*starts[0][n:n + 2]), slice(*starts[1][n:n + 2])
            own = (got.dq[rows], got.dk[keys], got.dv[keys])
            errors.add([x.transpose(0, 1) for x in own], tensors, dout)
    errors.check()


# Not 1e6: f32 still tells some of the scores apart there, each program in its own way.
@pytest.mark.parametrize("constant", [-1e9, torch.finfo(torch.float32).min, 1e12])
@pytest.mark.parametrize("queries", [5, 70])
def test_rows_that_share_a_large_constant(queries, constant):
    generator = torch.Generator().manual_seed(4)
    *tensors, dout = peaked(queries, 90, 5, generator)
    mask = torch.full((queries, 90), constant)

    def by(function):
        return gradients(lambda *x: function(*x, attn_mask=mask), tensors, dout, torch.float32)

    with sdpa_kernel(SDPBackend.MATH):
        theirs = by(scaled_dot_product_attention)
    for ours, expected in zip(by(attend.torch.scaled_dot_product_attention), theirs):
        torch.testing.assert_close(ours, expected, rtol=0, atol=2e-6 * expected.abs().max().item())
