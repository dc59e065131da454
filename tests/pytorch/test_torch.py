"""attend.torch: the operators under PyTorch's compilers and transforms, and its function beside PyTorch's own."""

import contextlib
import copy
import gc
import io
import re
import threading
import warnings
import weakref

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.bias import causal_lower_right
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import attend
import attend.torch
from attend.torch import scaled_dot_product_attention as sdpa

own = torch._C._nn.scaled_dot_product_attention  # PyTorch's, whatever torch.nn.functional has
# Outputs are means of values below 4, which bf16 (8 bits) and f16 (11 bits) round by up to 4 * 2^-9 = 8e-3 and 1e-3;
# in f32 the sums of some 30 terms are off by a few units of 4 * 2^-24 = 2.4e-7.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}

# A call that goes to PyTorch without a test expecting it fails the test.
pytestmark = pytest.mark.filterwarnings("error:attend.torch")


@pytest.fixture(autouse=True)
def afresh():
    torch.manual_seed(5)
    attend.torch._warned.clear()
    torch.compiler.reset()


def rand(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype)


def close(got, expected):
    torch.testing.assert_close(got.double(), expected.double(), rtol=0, atol=TOLERANCE[got.dtype])


def truth(query, key, value, attn_mask=None, **options):
    if attn_mask is not None and attn_mask.is_floating_point():
        attn_mask = attn_mask.double()
    return own(query.double(), key.double(), value.double(), attn_mask, **options)


def bool_mask(*shape):
    return torch.rand(shape) < 0.7


CALLS = {
    "plain": lambda: ((rand(2, 3, 9, 16), rand(2, 3, 13, 16), rand(2, 3, 13, 16)), {}),
    "causal, Tq > Tk": lambda: ((rand(2, 3, 13, 16), rand(2, 3, 9, 16), rand(2, 3, 9, 5)), {"is_causal": True}),
    "causal, Tq < Tk": lambda: ((rand(2, 3, 9, 16), rand(2, 3, 13, 16), rand(2, 3, 13, 5)), {"is_causal": True}),
    "bool mask": lambda: ((rand(2, 3, 9, 16),) * 3 + (bool_mask(2, 1, 9, 9),), {}),
    "mask of keys": lambda: ((rand(2, 3, 9, 16),) * 3 + (bool_mask(2, 1, 1, 9),), {}),
    "added mask": lambda: ((rand(2, 3, 9, 16),) * 3 + (rand(9, 9),), {}),
    "scale": lambda: ((rand(3, 9, 16),) * 3, {"scale": 0.7}),
    "two axes": lambda: ((rand(9, 16), rand(7, 16), rand(7, 4)), {}),
    "five axes": lambda: ((rand(2, 2, 3, 9, 16),) * 3 + (bool_mask(2, 1, 9, 9),), {}),
    "broadcast": lambda: ((rand(2, 1, 5, 8), rand(1, 4, 6, 8), rand(4, 6, 8)), {}),
    "groups": lambda: ((rand(2, 8, 5, 8), rand(2, 2, 6, 8), rand(2, 2, 6, 8)), {"enable_gqa": True}),
    "groups, five axes": lambda: ((rand(2, 1, 8, 5, 8), rand(2, 3, 2, 6, 8), rand(2, 3, 2, 6, 8)),
                                  {"enable_gqa": True, "is_causal": True}),
    "no keys": lambda: ((rand(2, 3, 5, 8), rand(2, 3, 0, 8), rand(2, 3, 0, 8)), {}),
    "no queries": lambda: ((rand(2, 3, 0, 8), rand(2, 3, 5, 8), rand(2, 3, 5, 8)), {}),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.mark.parametrize("dtype", TOLERANCE)
@calls
def test_the_numbers_are_pytorchs(call, dtype):
    arguments, options = call()
    arguments = [x.to(dtype) if x.is_floating_point() else x for x in arguments]
    got = sdpa(*arguments, **options)
    assert got.dtype == dtype and got.is_contiguous()
    close(got, truth(*arguments, **options))


def test_masked_rows_give_0_and_nan_stays_behind_the_mask():
    x, mask = rand(2, 3, 8), torch.ones(3, 3, dtype=torch.bool)
    mask[1] = False
    out = sdpa(x, x, x, mask)
    assert (out[:, 1] == 0).all() and torch.isfinite(out).all()
    key, value = x.clone(), x.clone()
    key[:, 2] = value[:, 2] = torch.nan
    mask = torch.tensor([True, True, False])
    assert torch.equal(sdpa(x, key, value, mask[None]), sdpa(x, x[:, :2], x[:, :2]))


@calls
def test_operator_sdpa_passes_pytorchs_checks(call):
    arguments, options = call()
    causal = options.pop("is_causal", False)
    mask = arguments[3:] or (None,)
    op = torch.ops.attend.scaled_dot_product_attention.default
    torch.library.opcheck(op, (*arguments[:3], *mask, causal), options)


OPTIONS = {
    "none": {},
    "causal": {"causal": True, "offset": "bottom_right", "window": (2, None)},
    "all": {"causal": True, "offset": 3, "window": (4, 1), "mask": bool_mask(5, 7), "bias": rand(2, 1, 5, 7),
            "distance_bias": rand(4, 5), "alibi_slopes": rand(4), "sinks": rand(4), "softcap": 3.0, "scale": 0.4,
            "key_lengths": [7, 3]},
    "bthd": {"layout": "bthd", "causal": True, "offset": "top_left", "key_lengths": torch.tensor([7, 3])},
}
options_ = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def qkv(options):
    q, k, v = rand(2, 4, 5, 8), rand(2, 2, 7, 8), rand(2, 2, 7, 6)
    return [x.transpose(1, 2) for x in (q, k, v)] if options.get("layout") == "bthd" else [q, k, v]


@options_
def test_attention_compiled_is_attends(options):
    q, k, v = qkv(options)
    expected = attend.attention(q, k, v, return_lse=True, **options)
    compiled = torch.compile(lambda *x: attend.torch.attention(*x, return_lse=True, **options), backend="aot_eager",
                             fullgraph=True)
    for got in (attend.torch.attention(q, k, v, return_lse=True, **options), compiled(q, k, v)):
        assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(got, expected, strict=True))
    assert torch.equal(attend.torch.attention(q, k, v, **options), expected[0])


def test_operator_attention_passes_pytorchs_checks():
    q, k, v = qkv({})
    lengths = torch.tensor([7, 3])
    op = torch.ops.attend.attention.default
    torch.library.opcheck(op, (q, k, v, bool_mask(5, 7), rand(5, 7), rand(4, 3), rand(4), rand(4), lengths),
                          {"causal": True, "window_left": 2, "offset": 1, "softcap": 2.0, "scale": 0.3})
    torch.library.opcheck(op, (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)),
                          {"causal": True, "bottom_right": True, "layout": "bthd"})


@pytest.mark.parametrize("layout", ["bhtd", "bthd"])
def test_operators_with_gradients_pass_pytorchs_checks(layout):
    leaves = [x.requires_grad_() for x in qkv({"layout": layout})]
    bias, distances, slopes, sinks, seed = rand(5, 7), rand(4, 3), rand(4), rand(4), torch.tensor(3)
    options = {"causal": True, "window_left": 2, "offset": 1, "softcap": 2.0, "dropout_p": 0.2, "layout": layout}
    wanted = [x.requires_grad_() for x in (bias, distances, slopes, sinks)]
    tensors = (*leaves, bool_mask(5, 7), *wanted, torch.tensor([7, 3]), seed)
    torch.library.opcheck(torch.ops.attend.attention.default, tensors, options)
    if layout == "bhtd":
        torch.library.opcheck(torch.ops.attend.scaled_dot_product_attention.default, leaves, {"enable_gqa": True})
    plain = [x.detach() for x in tensors]
    out, *statistics = torch.ops.attend.attention(*plain, **options)
    torch.library.opcheck(torch.ops.attend.attention_backward.default, (rand(*out.shape), None, out, *statistics, *plain),
                          options | {"want_dbias": True, "want_ddistance_bias": True, "want_dsinks": True})


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_with_changing_shapes(backend):
    def block(x, mask):
        heads = (x * 2).unflatten(-1, (4, 8)).transpose(1, 2)
        first = sdpa(heads, heads, heads, mask)
        return attend.torch.attention(first, heads, heads, causal=True, window=(3, 0)).transpose(1, 2).flatten(2) + 1

    compiled = torch.compile(block, backend=backend, fullgraph=True, dynamic=True)
    for tokens in (5, 9):
        x, mask = rand(2, tokens, 32), bool_mask(tokens, tokens)
        torch.testing.assert_close(compiled(x, mask), block(x, mask), rtol=0, atol=1e-6)  # the 2 and 1 may be fused


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(32, 32)

    def forward(self, x):
        heads = self.project(x).unflatten(-1, (4, 8)).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


@pytest.mark.parametrize("strict", [False, True])
@torch.no_grad()
def test_exported(strict):
    block, tokens = Block(), torch.export.Dim("tokens", min=2)
    with attend.torch.replace_sdpa():
        program = torch.export.export(block, (rand(2, 6, 32),), dynamic_shapes=({1: tokens},), strict=strict)
    assert "attend.scaled_dot_product_attention" in program.graph_module.code
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    x = rand(2, 9, 32)
    close(torch.export.load(file).module()(x), block(x))


@pytest.mark.parametrize("backend, dropout", [("aot_eager", 0.0), ("aot_eager", 0.2), ("inductor", 0.0)])
def test_compiled_training_with_changing_shapes(backend, dropout):
    def loss(x, mask, slopes):
        first = sdpa(x * 2, x, x, mask, dropout)
        second = attend.torch.attention(first, x, x, alibi_slopes=slopes, window=(3, 0), offset=0, dropout=dropout)
        return second.square().sum()

    compiled = torch.compile(loss, backend=backend, fullgraph=True, dynamic=True)
    for tokens in (5, 9):
        leaves = [rand(2, 3, tokens, 8), rand(tokens, tokens), rand(3)]
        grads = []
        for function in (compiled, loss):
            torch.manual_seed(3)
            ours = [x.clone().requires_grad_() for x in leaves]
            grads.append(torch.autograd.grad(function(*ours), ours))
        for got, expected in zip(*grads, strict=True):
            assert torch.equal(got, expected)


def test_vmap():
    q, k, mask = rand(4, 2, 3, 6, 8), rand(2, 4, 3, 6, 8), bool_mask(6, 6, 4)
    whole = torch.vmap(sdpa, (0, 1, None, -1))(q, k, rand(3, 6, 8), mask)
    assert whole.shape == (4, 2, 3, 6, 8)
    torch.manual_seed(5)
    q, k, mask, v = rand(4, 2, 3, 6, 8), rand(2, 4, 3, 6, 8), bool_mask(6, 6, 4), rand(3, 6, 8)
    each = [sdpa(q[i], k[:, i], v, mask[..., i]) for i in range(4)]
    assert torch.equal(whole, torch.stack(each))
    # The mask alone is mapped; a mapped query with fewer axes than the others; vmap in vmap.
    assert torch.equal(torch.vmap(sdpa, (None, None, None, -1))(v, v, v, mask)[1], sdpa(v, v, v, mask[..., 1]))
    assert torch.equal(torch.vmap(sdpa, (0, None, None))(q[:, 0, 0], v, v)[1], sdpa(q[1, 0, 0], v, v))
    assert torch.equal(torch.vmap(torch.vmap(sdpa))(q, q, q), sdpa(q, q, q))


def test_vmap_of_attention():
    q, k, slopes, distances = rand(3, 2, 4, 5, 8), rand(2, 2, 7, 8), rand(4, 3), rand(4, 5, 3)

    def call(q, slopes, lengths, distances):
        options = {"alibi_slopes": slopes, "key_lengths": lengths, "distance_bias": distances}
        return attend.torch.attention(q, k, k, **options, offset=0)

    lengths = torch.tensor([[7, 3], [1, 0], [4, 4]])
    got = torch.vmap(call, (0, 1, 0, 2))(q, slopes, lengths, distances)
    each = [call(q[i], slopes[:, i], lengths[i], distances[..., i]) for i in range(3)]
    assert torch.equal(got, torch.stack(each))


def test_vmap_over_nothing_has_the_shapes_of_something():
    q, v = torch.empty(0, 2, 5, 8), torch.empty(0, 2, 5, 3)
    assert torch.vmap(attend.torch.attention)(q, q, v).shape == (0, 2, 5, 3)
    assert torch.vmap(sdpa)(q, q, v).shape == (0, 2, 5, 3)
    gradient = torch.vmap(torch.func.grad(lambda x, y: attend.torch.attention(x, x, y).sum()))(q, v)
    assert gradient.shape == q.shape


def only_warning(call, message):
    """The result of the second of two calls, of which the first alone warns."""
    with pytest.warns(UserWarning, match=f"attend.torch: PyTorch computes .*{message}") as caught:
        call()
    ours = [each for each in caught if "attend.torch" in str(each.message)]
    assert len(ours) == 1 and ours[0].filename == __file__
    return call()  # a warning here fails the test


def test_what_pytorch_computes():
    x = rand(2, 3, 6, 8)
    mask = bool_mask(6, 6)
    jagged = torch.nested.nested_tensor([rand(4, 2, 8), rand(5, 2, 8)], layout=torch.jagged).transpose(1, 2)
    negative = torch.randn(2, 3, 6, 8, dtype=torch.complex64).conj().imag
    assert negative.is_neg()
    assert only_warning(lambda: sdpa(jagged, jagged, jagged), "another class").shape == jagged.shape
    got = only_warning(lambda: sdpa(x, x, x, mask, is_causal=True), "attn_mask and is_causal are both given")
    assert torch.equal(got, own(x, x, x, mask, is_causal=True))
    assert only_warning(lambda: sdpa(*[x.to("meta")] * 3), "not on the CPU").shape == x.shape
    got = only_warning(lambda: sdpa(negative, x, x), r"attend refuses .*query is a view with PyTorch's negative bit")
    assert torch.equal(got, own(negative, x, x))
    assert sdpa(x.double(), x.double(), x.double()).dtype == torch.float64  # no warning


@pytest.mark.parametrize("arguments", [
    (rand(4, 8), rand(4, 8), rand(4, 8), torch.ones(4, 4, dtype=torch.int32)),
    (rand(4, 8).int(),) * 3,
    (rand(4, 8).numpy(),) * 3,
])
def test_errors_are_pytorchs(arguments):
    with pytest.raises((RuntimeError, TypeError)) as expected:
        own(*arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(type(expected.value)) as got:
            sdpa(*arguments)
    assert str(got.value) == str(expected.value)


# The shapes of query, key, value and attn_mask, and what else is given.
MISFITS = {
    "a short key": ([(1, 2, 9, 8), (1, 2, 3, 8), (1, 2, 9, 8)], {}, "key has 3 positions, value has 9"),
    "a short value": ([(1, 2, 9, 8), (1, 2, 9, 8), (1, 2, 3, 8)], {}, "key has 9 positions, value has 3"),
    "causal": ([(1, 2, 9, 8), (1, 2, 3, 8), (1, 2, 9, 8)], {"is_causal": True}, "key has 3 positions"),
    "dropout": ([(1, 2, 9, 8), (1, 2, 3, 8), (1, 2, 9, 8)], {"dropout_p": 0.5}, "key has 3 positions"),
    "groups": ([(1, 4, 9, 8), (1, 2, 3, 8), (1, 2, 9, 8)], {"enable_gqa": True}, "key has 3 positions"),
    "a mask of the key": ([(1, 2, 9, 8), (1, 2, 3, 8), (1, 2, 9, 8), (9, 3)], {}, "key has 3 positions"),
    "a mask of the value": ([(1, 2, 9, 8), (1, 2, 3, 8), (1, 2, 9, 8), (9, 9)], {}, "key has 3 positions"),
    "three axes": ([(2, 9, 8), (2, 3, 8), (2, 9, 8)], {}, "key has 3 positions"),
    "head size": ([(2, 4, 8), (2, 4, 7), (2, 4, 8)], {}, "key has head size 7, query has 8"),
    "batches": ([(2, 2, 4, 8), (3, 2, 4, 8), (3, 2, 4, 8)], {}, "the axes before the last two do not broadcast"),
    "heads": ([(1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)], {"enable_gqa": True}, "query has 3 heads, expected a multiple of key's 2"),
    "mask": ([(1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8), (4, 3)], {}, "attn_mask has shape [4, 3], expected one that broadcasts to"),
    "one axis": ([(3,), (3,), (3,)], {}, "expected at least 2 axes"),
}


@pytest.mark.parametrize("dtype", [*TOLERANCE, torch.float64])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_never_reaches_pytorch(monkeypatch, name, gradients, dtype):
    shapes, options, says = MISFITS[name]
    monkeypatch.setattr(attend.torch, "_torch_sdpa", lambda *_, **__: pytest.fail("PyTorch was asked"))
    arguments = [rand(*shape, dtype=dtype).requires_grad_(gradients) for shape in shapes]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match=re.escape(says)):
            sdpa(*arguments, **options)
        if dtype != torch.float64 and "dropout_p" not in options:
            with pytest.raises((RuntimeError, ValueError)):
                torch.vmap(lambda *x: sdpa(*x, **options))(*(x[None] for x in arguments))
    with attend.torch.replace_sdpa(), pytest.raises(RuntimeError, match=re.escape(says)):
        torch.nn.functional.scaled_dot_product_attention(*arguments, **options)


def test_a_causal_bias_that_does_not_fit_never_reaches_pytorch():
    x = rand(1, 2, 9, 8)
    with pytest.raises(RuntimeError, match="key has 3 positions, value has 9"):
        sdpa(x, x[..., :3, :], x, causal_lower_right(9, 9))


def test_what_does_not_fit_is_refused_for_what_pytorch_computes():
    x = torch.ones(1, 2, 9, 8)
    short = x[..., :3, :]
    for q, k, v in ([x.to("meta"), short.to("meta"), x.to("meta")], [torch.nn.Buffer(x), short, x]):
        with pytest.raises(RuntimeError, match="key has 3 positions, value has 9"):
            sdpa(q, k, v)
    with pytest.raises(RuntimeError, match="key has 3 positions, value has 9"):
        torch.func.jvp(lambda v: sdpa(x, short, v), (x,), (x,))
    for double in (False, True):
        with pytest.raises(ValueError, match="v has keys 9, k has 3"):
            attend.torch.attention(*(each.double() if double else each for each in (x, short, x)))


# --- Gradients ---------------------------------------------------------------------------------------------------


def gradients(function, arguments, options, dtype=None):
    """Of a sum with weights, for all floating-point arguments."""
    leaves = [x.detach().to(dtype or x.dtype).requires_grad_() if x.is_floating_point() else x for x in arguments]
    out = function(*leaves, **options)
    assert out.dim() == max(x.dim() for x in arguments[:3])
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    # In the arguments' own precision, so that all get the same.
    total = (out * weights.to(arguments[0].dtype).to(out.dtype)).sum()
    leaves = [x for x in leaves if x.requires_grad]
    return torch.autograd.grad(total, leaves, materialize_grads=True)


@pytest.mark.parametrize("dtype", TOLERANCE)
@calls
def test_gradients_are_as_near_the_truth_as_pytorchs(call, dtype):
    arguments, options = call()
    arguments = [x.to(dtype) if x.is_floating_point() else x for x in arguments]
    if arguments[1].numel() == 0:
        options["scale"] = 0.5  # PyTorch divides by the number of keys
    truth = gradients(own, arguments, options, torch.float64)
    for function in (sdpa, by_operator):
        for got, usual, exact in zip(gradients(function, arguments, options), gradients(own, arguments, options), truth,
                                     strict=True):
            assert got.dtype == dtype and got.shape == exact.shape and not got.isnan().any()
            # The project's rule for gradients, and a few roundings of the largest number; lse, below 32 here, is in
            # float32 off by two of 32 * 2^-24, and so by that factor are all weights of a row.
            floor = (4 * torch.finfo(dtype).eps + 2**-18) * max([1.0, *exact.abs().flatten().tolist()])
            error, usual_error = ((x.double() - exact).abs().flatten().tolist() for x in (got, usual))
            assert max([0.0, *error]) <= 3 * max([0.0, *usual_error]) + floor


def by_operator(query, key, value, attn_mask=None, is_causal=False, **options):
    return torch.ops.attend.scaled_dot_product_attention(query, key, value, attn_mask, is_causal, **options)


torch.manual_seed(5)  # what is drawn here is the same beside any other files: with some masks a row sees nothing, and lse has no slope
CHECKED = {
    "none": {},
    "causal": {"causal": True, "offset": "bottom_right", "window": (2, None)},
    "mask and bias": {"mask": bool_mask(2, 1, 5, 7), "bias": rand(2, 1, 1, 7)},
    "distances": {"distance_bias": rand(4, 7), "offset": 1},
    "all": OPTIONS["all"] | {"dropout": (0.3, 5)},
    "bthd": OPTIONS["bthd"] | {"sinks": rand(4), "dropout": (0.3, 5)},
}


@pytest.mark.parametrize("way", ["direct", "operator"])
@pytest.mark.parametrize("options", CHECKED.values(), ids=CHECKED)
def test_gradients_are_differences(options, way):
    options = {name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
               for name, x in options.items()}
    names = [name for name in ("bias", "distance_bias", "alibi_slopes", "sinks") if name in options]

    def function(q, k, v, *tensors):
        return attend.torch.attention(q, k, v, return_lse=True, **options | dict(zip(names, tensors)))

    leaves = [x.double().contiguous() for x in qkv(options)] + [options[name] for name in names]
    leaves = [x.clone().requires_grad_() for x in leaves]
    with SeenByFunction() if way == "operator" else contextlib.nullcontext():
        assert torch.autograd.gradcheck(function, leaves, fast_mode=True)


@pytest.mark.parametrize("way", ["direct", "compiled"])
def test_a_bias_by_distance_learns_as_the_bias_that_it_stands_for(way):
    q, k, table = rand(2, 4, 50, 8), rand(2, 2, 70, 8), rand(4, 17)
    entries = (torch.arange(70) - torch.arange(50)[:, None] - 20).clamp(-8, 8) + 8

    def by_distance(q, k, table):
        return attend.torch.attention(q, k, k, distance_bias=table, causal=True, offset="bottom_right")

    def by_bias(q, k, table):
        return attend.torch.attention(q, k, k, bias=table[:, entries], causal=True, offset="bottom_right")

    if way == "compiled":
        by_distance = torch.compile(by_distance, backend="aot_eager", fullgraph=True)
    weight, results = rand(2, 4, 50, 8), []
    for function in by_distance, by_bias:
        leaves = [x.clone().requires_grad_() for x in (q, k, table)]
        out = function(*leaves)
        results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
    got, expected = results
    for name, a, b in zip(("out", "dq", "dk"), got, expected):
        assert torch.equal(a, b), name
    # Sums of up to 4,900 numbers, most of them below 0.1, in float32 there.
    torch.testing.assert_close(got[3], expected[3], rtol=0, atol=5e-5)


def test_only_what_is_needed_gets_a_gradient():
    q, k, bias = rand(2, 5, 8), rand(2, 7, 8), rand(5, 7)
    for leaf in (q, k, bias):
        leaf.requires_grad_()
        out, lse = attend.torch.attention(q, k, k, bias=bias, return_lse=True)
        assert out.requires_grad and lse.requires_grad
        (lse if leaf is q else out).sum().backward()
        assert leaf.grad.shape == leaf.shape and (leaf.grad != 0).any()
        assert [x.grad is None for x in (q, k, bias)] == [x is not leaf for x in (q, k, bias)]
        leaf.requires_grad_(False)
        leaf.grad = None
    with torch.no_grad():
        assert not attend.torch.attention(q.requires_grad_(), k, k).requires_grad


def test_gradients_under_transforms():
    x, mask = rand(4, 2, 6, 8), rand(6, 6)
    transforms = {
        "grad": lambda f: torch.func.grad(lambda x: f(x, x, x, mask).square().sum())(x),
        "of the mask": lambda f: torch.func.grad(lambda m: f(x, x, x, m).square().sum())(mask),
        "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda x: f(x, x, x, mask).square().sum()))(x),
        "grad of vmap": lambda f: torch.func.grad(lambda x: torch.vmap(f)(x, x, x).square().sum())(x),
        "jacrev": lambda f: torch.func.jacrev(lambda x: f(x, x, x, mask))(x[0]),
    }

    def operator(q, k, v, bias=None):
        return torch.ops.attend.attention(q, k, v, None, bias)[0]

    for transform in transforms.values():
        expected = transform(own)
        for function in (sdpa, operator):
            # Sums of 100 numbers near 1, in another order.
            torch.testing.assert_close(transform(function), expected, rtol=0, atol=2e-5)


def test_no_derivative_is_silently_lost():
    x = rand(2, 6, 8).requires_grad_()
    y = x.detach()
    for function in (sdpa, attend.torch.attention, by_operator, lambda *x: torch.ops.attend.attention(*x)[0]):
        first, = torch.autograd.grad(function(x, x, x).sum(), x, create_graph=True)
        with pytest.raises(NotImplementedError, match="attend.torch: attention has no second derivative"):
            first.sum().backward()
        with pytest.raises(NotImplementedError, match="attend.torch: attention has no second derivative"):
            torch.func.grad(lambda x: torch.func.grad(lambda y: function(y, y, y).sum())(x).sum())(y)
        if function is sdpa:
            continue
        with pytest.raises(NotImplementedError, match="attend.torch: attention has no forward-mode derivative"):
            torch.func.jvp(lambda x: function(x, x, x), (y,), (y,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(y, y)
            with pytest.raises(NotImplementedError, match="attend.torch: attention has no forward-mode derivative"):
                function(y, y, dual)
    with pytest.warns(UserWarning, match="forward-mode"):
        (_, got), (_, expected) = (torch.func.jvp(lambda x: f(x, x, x), (y,), (y + 1,)) for f in (sdpa, own))
    assert torch.equal(got, expected)


@pytest.mark.parametrize("name", ["q", "mask", "bias", "sinks", "lse"])
def test_what_changed_since_the_forward_is_refused(name):
    q = rand(2, 4, 5, 8).requires_grad_()
    given = {"q": q * 1, "mask": bool_mask(5, 5), "bias": rand(5, 5), "sinks": rand(4)}
    options = {key: given[key] for key in ("mask", "bias", "sinks") if key == name}
    out, given["lse"] = attend.torch.attention(given["q"], q, q, **options, return_lse=True)
    given[name].detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_what_changed_since_sdpa_is_refused(n):
    tensors = [rand(2, 4, 5, 8).requires_grad_() * 1 for _ in range(3)]
    out = sdpa(*tensors)
    tensors[n].detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_tensors_of_a_transform_that_ended():
    kept = []

    def loss(x):
        kept.append(x * 1)
        return x.sum()

    q = rand(2, 3, 8)
    torch.func.grad(loss)(q)
    x = q.clone().requires_grad_()
    out = sdpa(x, kept[0], kept[0])
    assert torch.equal(out, sdpa(q, q, q))
    assert torch.equal(*(torch.autograd.grad(sdpa(x, y, y).sum(), x)[0] for y in (kept[0], q)))


def test_gradients_follow_autocast():
    x, mask = rand(2, 3, 6, 8).requires_grad_(), rand(6, 6).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        got, expected = (torch.autograd.grad(f(x, x, x, mask).float().sum(), (x, mask)) for f in (sdpa, own))
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == torch.float32
        # bf16 keeps 8 bits of each of the three parts of x's gradient, which are below 8.
        torch.testing.assert_close(a, b, rtol=0, atol=3 * 8 * 2**-8)


def test_gradients_of_unusual_memory():
    x = rand(2, 3, 6, 8)
    leaves = [x.clone().requires_grad_(), x.mT.contiguous().requires_grad_()]
    negative = torch.randn(2, 3, 6, 8, dtype=torch.complex64).conj().imag  # minus what is in memory
    sdpa(leaves[0], leaves[0], leaves[0]).backward(negative.resolve_neg())
    sdpa(*[leaves[1].mT] * 3).backward(negative)
    torch.testing.assert_close(leaves[1].grad.mT, leaves[0].grad, rtol=0, atol=1e-6)
    checkpointed = x.clone().requires_grad_()
    torch.manual_seed(1)
    torch.utils.checkpoint.checkpoint(sdpa, *[checkpointed] * 3, None, 0.3, use_reentrant=False).sum().backward()
    direct = x.clone().requires_grad_()
    torch.manual_seed(1)
    sdpa(direct, direct, direct, None, 0.3).sum().backward()
    assert torch.equal(checkpointed.grad, direct.grad)


# --- Dropout -----------------------------------------------------------------------------------------------------


def test_out_counts_as_a_change_of_its_tensor():
    q, out, x = torch.randn(1, 2, 5, 8), torch.ones(1, 2, 5, 8), torch.ones(1, 2, 5, 8, requires_grad=True)
    loss = (x * out).sum()  # which saves out, for x's gradient
    attend.attention(q, q, q, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        out = torch.ones(1, 2, 5, 8)
        assert torch.equal(attend.attention(q, q, q, out=out), attend.attention(q, q, q))


@pytest.mark.parametrize("call", [
    lambda x: sdpa(x, x, x, dropout_p=0.25),
    lambda x: attend.torch.attention(x, x, x, dropout=0.25),
    torch.compile(lambda x: sdpa(x, x, x, dropout_p=0.25), backend="aot_eager", fullgraph=True),
], ids=["sdpa", "attention", "compiled"])
def test_dropout_draws_from_pytorchs_generator(call):
    x = rand(2, 3, 64, 8)

    def twice(x):
        torch.manual_seed(4)
        return call(x), call(x)

    first, second = twice(x)
    assert not torch.equal(first, second)
    for again in (x, x.clone().requires_grad_()):  # recorded or not
        assert all(torch.equal(*pair) for pair in zip((first, second), twice(again)))
    # A row's mean over 200 draws; the variance of one is p / (1 - p) * sum of squares of weights * values.
    with torch.no_grad():
        mean = torch.stack([call(x) for _ in range(200)]).double().mean(0)
    weights = attend.attention_steps(x, x, x).weights.double()
    deviation = (weights.square() @ x.double().square() * 0.25 / 0.75 / 200).sqrt()
    # 3072 means: 6 standard deviations are exceeded once in 2e5 runs.
    assert ((mean - weights @ x.double()).abs() < 6 * deviation + 1e-6).all()


def test_a_seed_of_64_bits_is_the_same_recorded_or_not():
    x = rand(1, 2, 16, 8)
    recorded = x.clone().requires_grad_()
    for seed in (0, 2**63 - 1, 2**63, 2**64 - 1):
        assert torch.equal(attend.torch.attention(x, x, x, dropout=(0.5, seed)),
                           attend.torch.attention(recorded, x, x, dropout=(0.5, seed)))
    for seed in (-1, 2**64, 1.5, "1"):
        for q in (x, recorded):
            with pytest.raises(TypeError, match="attention: dropout: expected .* whole number of 0 or more, got "):
                attend.torch.attention(q, x, x, dropout=(0.5, seed))


def test_dropout_drops_the_same_forward_and_backward():
    value = torch.eye(64).requires_grad_()
    x = rand(64, 8)
    weights = sdpa(x, x, value, dropout_p=0.5)  # out is the weights
    dvalue, = torch.autograd.grad(weights, value, torch.eye(64))
    torch.testing.assert_close(dvalue, weights.detach().mT, rtol=0, atol=1e-6)
    assert 0.4 < (weights == 0).double().mean() < 0.6
    seeded = attend.torch.attention(x, x, value, dropout=(0.5, 7))
    assert torch.equal(seeded, attend.attention(x, x, torch.eye(64), dropout=(0.5, 7)))
    state = torch.get_rng_state()
    attend.torch.attention(x, x, x, dropout=(0.5, 7))
    sdpa(x, x, x)
    assert torch.equal(state, torch.get_rng_state())
    with pytest.raises(ValueError, match="attention: dropout_p is given without dropout_seed"):
        torch.ops.attend.attention(x, x, x, dropout_p=0.5)
    out = only_warning(lambda: sdpa(x, x, x, dropout_p=1.0), "attend refuses .*dropout p is 1, expected 0 <= p < 1")
    assert (out == 0).all()
    with pytest.raises(ValueError, match="attention: dropout p is 1.5, expected 0 <= p < 1"):
        attend.torch.attention(x, x, x, dropout=1.5)


@pytest.mark.parametrize("function", [attend.scaled_dot_product_attention, attend.attention])
def test_what_does_not_record_refuses_a_recorded_tensor(function):
    x, parameter = rand(2, 6, 8), torch.nn.Parameter(rand(2, 6, 8))
    message = "requires a gradient, which this .* does not record: call it under torch.no_grad"
    for arguments in ((parameter, x, x), (x, parameter, x), (x, x, parameter), (x, x, x, torch.nn.Parameter(x @ x.mT))):
        if len(arguments) == 4 and function is attend.attention:
            continue  # the mask is a keyword
        with pytest.raises(ValueError, match=message):
            function(*arguments)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not function(parameter, parameter, parameter)[0].requires_grad
    for name in ("bias", "distance_bias", "alibi_slopes", "sinks"):
        option = torch.nn.Parameter(rand(*{"bias": (6, 6), "distance_bias": (2, 3)}.get(name, (2,))))
        with pytest.raises(ValueError, match=f"attention: {name} requires a gradient"):
            attend.attention(x, x, x, **{name: option})


def test_parameters_and_inference_mode():
    parameter = torch.nn.Parameter(rand(2, 6, 8))
    with torch.no_grad():
        close(sdpa(parameter, parameter, parameter), truth(parameter, parameter, parameter))
    with torch.inference_mode():
        out = sdpa(parameter, parameter, parameter)
        assert out.is_inference()
        assert torch.equal(sdpa(out, out, out), torch.ops.attend.scaled_dot_product_attention(out, out, out))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    x, mask = rand(2, 3, 6, 8), rand(6, 6)
    with torch.autocast("cpu", dtype):
        got, expected = sdpa(x, x, x, mask), own(x, x, x, mask)
        compiled = torch.compile(sdpa, backend="aot_eager", fullgraph=True)(x, x, x, mask)
    assert got.dtype == expected.dtype == dtype
    close(got, expected)
    assert torch.equal(got, compiled)


class SeenByDispatch(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **kwargs or {})


class SeenByFunction(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if isinstance(function, torch._ops.OpOverload):
            self.seen.append(str(function))
        return function(*args, **kwargs or {})


def test_modes_and_tracers_see_the_operator():
    x = rand(2, 6, 8)
    for mode in ("real", "fake", "symbolic"):
        assert "attend.scaled_dot_product_attention" in make_fx(lambda x: sdpa(x, x, x), tracing_mode=mode)(x).code
    for kind in (SeenByDispatch, SeenByFunction):
        with kind() as mode:
            sdpa(x, x, x)
            attend.torch.attention(x, x, x)
        assert mode.seen == ["attend.scaled_dot_product_attention.default", "attend.attention.default"]
    traced = torch.jit.trace(lambda x: sdpa(x, x, x), (x,))
    assert torch.equal(traced(x + 1), sdpa(x + 1, x + 1, x + 1))
    with torch._subclasses.FakeTensorMode():
        fake = rand(2, 6, 8)
        assert sdpa(fake, fake, fake).shape == (2, 6, 8)
    assert sdpa(fake, fake, fake).shape == (2, 6, 8)
    with torch.device("cpu"):
        assert torch.equal(sdpa(x, x, x), attend.scaled_dot_product_attention(x, x, x))
    with pytest.warns(UserWarning, match="another class"):
        graph = torch.fx.symbolic_trace(lambda x: sdpa(x, x, x))
    assert torch.equal(graph(x), own(x, x, x))


@pytest.fixture
def calls(monkeypatch):
    """A list that grows with each call of attend's kernels."""
    made = []

    def counted(function):
        return lambda *arguments, **options: made.append(function.__name__) or function(*arguments, **options)

    for name in ("attention", "attention_varlen", "scaled_dot_product_attention"):
        monkeypatch.setattr(attend._core, name, counted(getattr(attend, name)))
    return made


BATCH, TOKENS, SIZE, HEADS = 3, 7, 32, 4
PADDING = torch.arange(TOKENS) >= torch.tensor([[7], [3], [5]])
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS)
MULTI_HEAD = {
    "plain": {}, "padding": {"key_padding_mask": PADDING}, "mask": {"attn_mask": CAUSAL},
    "both": {"attn_mask": CAUSAL, "key_padding_mask": CAUSAL.new_zeros(BATCH, TOKENS).masked_fill(PADDING, -torch.inf)},
    "mask of heads": {"attn_mask": bool_mask(BATCH * HEADS, TOKENS, TOKENS) & ~torch.eye(TOKENS, dtype=torch.bool)},
}
ENCODERS = {
    "layer": lambda: torch.nn.TransformerEncoderLayer(SIZE, HEADS, 64, batch_first=True),
    "layer, gelu, norm first": lambda: torch.nn.TransformerEncoderLayer(
        SIZE, HEADS, 64, activation="gelu", norm_first=True, batch_first=True),
    "encoder": lambda: torch.nn.TransformerEncoder(ENCODERS["layer"](), 2),
    "no nested tensors": lambda: torch.nn.TransformerEncoder(ENCODERS["layer"](), 2, enable_nested_tensor=False),
}
inference = pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])


def both(run, count, calls):
    """What run() gives without and with attend, whose kernels are called so many times."""
    expected = run()
    assert not calls
    with attend.torch.replace_sdpa():
        got = run()
    assert len(calls) == count
    calls.clear()
    assert got.dtype == expected.dtype and got.shape == expected.shape
    return got, expected


@inference
@pytest.mark.parametrize("options", MULTI_HEAD.values(), ids=MULTI_HEAD)
def test_multi_head_attention_in_inference_is_attends(options, mode, calls):
    module, x = torch.nn.MultiheadAttention(SIZE, HEADS, batch_first=True).eval(), rand(BATCH, TOKENS, SIZE)
    with mode():
        got, expected = both(lambda: module(x, x, x, need_weights=False, **options)[0], 1, calls)
        close(got, expected)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            close(both(lambda: module(x, x, x, need_weights=False, **options)[0], 1, calls)[0], expected)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


@inference
@pytest.mark.parametrize("padding", [None, PADDING], ids=["", "padding"])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_in_inference_are_attends(name, padding, mode, calls):
    encoder, x = ENCODERS[name]().eval(), rand(BATCH, TOKENS, SIZE)
    with mode(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")
        got, expected = both(lambda: encoder(x, src_key_padding_mask=padding), 2 if "layer" not in name else 1, calls)
        # Padded positions too: where PyTorch makes a NestedTensor they are 0. Normed twice, numbers are below 4.
        torch.testing.assert_close(got, expected, rtol=0, atol=8e-6)
        if padding is not None and name == "encoder":
            assert (got[PADDING] == 0).all()


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_in_inference_are_attends(calls):
    x = torch.nested.nested_tensor([rand(length, SIZE) for length in (4, 7, 1)])
    module, layer = torch.nn.MultiheadAttention(SIZE, HEADS, batch_first=True).eval(), ENCODERS["layer"]().eval()
    for run in (lambda: module(x, x, x, need_weights=False)[0], lambda: layer(x)):
        expected = run()
        with attend.torch.replace_sdpa():
            got = run()
        assert calls == ["attention_varlen"] and got.is_nested
        calls.clear()
        for ours, theirs in zip(got.unbind(), expected.unbind(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=8e-6)


@torch.no_grad()
def test_an_encoder_is_compiled_with_attend():
    layer, x = ENCODERS["layer"]().eval(), rand(BATCH, TOKENS, SIZE)
    with attend.torch.replace_sdpa():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=8e-6)


@torch.no_grad()
def test_layers_that_stay_pytorchs(calls):
    x = rand(BATCH, TOKENS, SIZE)
    for fast in (True, False):
        module = torch.nn.MultiheadAttention(SIZE, HEADS, batch_first=True).train(not fast)
        attend.torch._warned.clear()
        expected = module(x, x, x)
        with attend.torch.replace_sdpa():
            got = only_warning(lambda: module(x, x, x), "need_weights=True asks for the weights")
        for ours, theirs in zip(got, expected, strict=True):
            assert torch.equal(ours, theirs)
    layer = ENCODERS["layer"]().eval().double()
    with attend.torch.replace_sdpa():
        assert layer(x.double()).dtype == torch.float64  # no warning
        with pytest.warns(UserWarning, match="attend.torch: PyTorch computes .*not on the CPU"):
            ENCODERS["layer"]().eval().to("meta")(x.to("meta"))
    assert not calls


def test_replace_sdpa_reaches_multihead_attention_in_training(calls):
    x = rand(BATCH, TOKENS, SIZE)
    module = torch.nn.MultiheadAttention(SIZE, HEADS, batch_first=True)
    layer = torch.nn.TransformerEncoderLayer(SIZE, HEADS, 64, dropout=0, batch_first=True)
    for run in (lambda: module(x, x, x, need_weights=False)[0],
                lambda: module(x, x, x, need_weights=False, key_padding_mask=PADDING)[0], lambda: layer(x)):
        torch.testing.assert_close(*both(run, 1, calls), rtol=0, atol=4e-6)  # two sums of 64 products after it


class Encoder(torch.nn.Module):
    """nn.MultiheadAttention with the padding mask alone, and a layer that is causal."""

    def __init__(self, dropout):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(32, 4, dropout, batch_first=True)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout, batch_first=True)
        self.out = torch.nn.Linear(32, 1)

    def forward(self, x, padding):
        x = x + self.attention(x, x, x, padding, need_weights=False)[0]
        causal = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.out(self.layer(x, causal, is_causal=True))


def train(model, steps, compiled=False):
    """The losses of so many steps."""
    call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    dtype = model.out.weight.dtype
    x = torch.randn(8, 6, 32, generator=generator).to(dtype)
    padding = torch.arange(6) >= torch.randint(1, 7, (8, 1), generator=generator)
    losses = []
    for _ in range(steps):
        loss = (call(x, padding)[..., 0] - x.roll(1, 1)[..., 0])[~padding].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def test_pytorchs_layers_train_with_replace_sdpa():
    model = Encoder(dropout=0.0)
    truth, usual = train(copy.deepcopy(model).double(), 20), train(copy.deepcopy(model), 20)
    with attend.torch.replace_sdpa():
        got, compiled = train(copy.deepcopy(model), 20), train(copy.deepcopy(model), 20, compiled=True)
    assert truth[-1] < truth[0] / 2
    for losses in (got, compiled):
        # The project's rule for gradients, and two units of the last place of losses between 1 and 2.
        assert (losses - truth).abs().max() <= 3 * (usual - truth).abs().max() + 2 * 2**-23
    dropping = Encoder(dropout=0.1)
    with attend.torch.replace_sdpa():
        losses = train(dropping, 40)
    assert losses[-5:].mean() < losses[:5].mean() / 1.5


def places():
    return [getattr(module, name) for module, name, _ in attend.torch._PLACES]


OURS, TORCHS = [ours for _, _, ours in attend.torch._PLACES], places()


def test_replace_sdpa_restores():
    assert TORCHS[0] is own and sdpa in OURS and not set(OURS) & set(TORCHS)
    with pytest.raises(KeyError), attend.torch.replace_sdpa():
        with attend.torch.replace_sdpa():
            assert places() == OURS
        assert places() == OURS
        raise KeyError
    assert places() == TORCHS
    stays = attend.torch.replace_sdpa()
    with attend.torch.replace_sdpa():
        pass
    assert places() == OURS
    with attend.torch.replace_sdpa():
        attend.torch.restore_sdpa()
        assert places() == TORCHS
    with stays:
        assert places() == OURS
    assert places() == TORCHS


@pytest.mark.parametrize("fast", [True, False])
def test_replace_sdpa_leaves_the_switch_of_the_fast_path_alone(fast):
    switch = torch.backends.mha
    switch.set_fastpath_enabled(fast)
    try:
        with pytest.raises(KeyError), attend.torch.replace_sdpa():
            assert switch.get_fastpath_enabled() is fast
            raise KeyError
        assert switch.get_fastpath_enabled() is fast
    finally:
        switch.set_fastpath_enabled(True)


def test_replace_sdpa_in_threads_lasts_as_long_as_the_last():
    entered, leave = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]

    def work(n):
        with attend.torch.replace_sdpa():
            entered[n].set()
            leave[n].wait()

    threads = [threading.Thread(target=work, args=(n,)) for n in (0, 1)]
    for n, thread in enumerate(threads):
        thread.start()
        entered[n].wait()
    for n, thread in enumerate(threads):  # the first that came goes first
        assert places() == OURS
        leave[n].set()
        thread.join()
    assert places() == TORCHS


def test_causal_bias_of_pytorch():
    q, k = rand(2, 3, 4, 8), rand(2, 3, 6, 8)
    bias = causal_lower_right(4, 6)
    expected = truth(q, k, k, bias._materialize())
    close(sdpa(q, k, k, bias), expected)
    with attend.torch.replace_sdpa():
        close(torch.nn.functional.scaled_dot_product_attention(q, k, k, bias), expected)


def test_threads():
    x = rand(2, 3, 64, 16)
    expected, wrong = sdpa(x, x, x), []

    def work():
        for _ in range(50):
            if not torch.equal(sdpa(x, x, x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_is_kept():
    x = rand(2, 3, 6, 8)
    out = sdpa(x, x, x)
    through = torch.ops.attend.attention(x, x, x)
    kept = [weakref.ref(x.untyped_storage()), weakref.ref(x), weakref.ref(out), weakref.ref(through[1])]
    parameter = torch.nn.Parameter(rand(2, 6, 8))
    kept.append(weakref.ref(parameter))
    with pytest.raises(ValueError):
        attend.attention(parameter, parameter, parameter)
    recorded = [sdpa(parameter, parameter, parameter), torch.ops.attend.attention(parameter, parameter, parameter)[0]]
    recorded[0].sum().backward()
    kept += [weakref.ref(x) for x in (recorded[0], recorded[1].untyped_storage(), parameter.grad)]
    del x, out, through, parameter, recorded
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)


@pytest.mark.parametrize("wrong", [[[1.0]], (-1, 3), memoryview(b"1234"), None])
def test_what_is_no_tensor_is_refused_before_any_operator(wrong):
    x = torch.ones(1, 2, 3, 4)
    for at, name in enumerate("qkv"):
        arguments = [x, x, x]
        arguments[at] = wrong
        with pytest.raises(TypeError, match=f"attention: {name}: expected a PyTorch tensor, got {type(wrong).__name__}"):
            attend.torch.attention(*arguments)
    with pytest.raises(TypeError, match="attention: dropout: expected a number, or"):
        attend.torch.attention(x, x, x, dropout=torch.ones(2))
