"""attend.torch: the operators under PyTorch's compilers and transforms, and its function beside PyTorch's own."""

import gc
import io
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
            "alibi_slopes": rand(4), "sinks": rand(4), "softcap": 3.0, "scale": 0.4, "key_lengths": [7, 3]},
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
    torch.library.opcheck(op, (q, k, v, bool_mask(5, 7), rand(5, 7), rand(4), rand(4), lengths),
                          {"causal": True, "window_left": 2, "offset": 1, "softcap": 2.0, "scale": 0.3})
    torch.library.opcheck(op, (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)),
                          {"causal": True, "bottom_right": True, "layout": "bthd"})


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


def test_compiled_training_is_pytorchs():
    compiled = torch.compile(lambda x: sdpa(x, x, x).square().sum(), backend="aot_eager", fullgraph=True)
    x = rand(2, 5, 8).requires_grad_()
    with pytest.warns(UserWarning, match="attend has no backward"):
        compiled(x).backward()
    y = x.detach().requires_grad_()
    own(y, y, y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


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
    q, k, slopes = rand(3, 2, 4, 5, 8), rand(2, 2, 7, 8), rand(4, 3)

    def call(q, slopes, lengths):
        return attend.torch.attention(q, k, k, alibi_slopes=slopes, key_lengths=lengths, offset=0)

    lengths = torch.tensor([[7, 3], [1, 0], [4, 4]])
    got = torch.vmap(call, (0, 1, 0))(q, slopes, lengths)
    assert torch.equal(got, torch.stack([call(q[i], slopes[:, i], lengths[i]) for i in range(3)]))


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
    only_warning(lambda: sdpa(x, x, x, dropout_p=0.5), "no dropout")
    assert only_warning(lambda: sdpa(jagged, jagged, jagged), "another class").shape == jagged.shape
    got = only_warning(lambda: sdpa(x, x, x, mask, is_causal=True), "attn_mask and is_causal are both given")
    assert torch.equal(got, own(x, x, x, mask, is_causal=True))
    assert only_warning(lambda: sdpa(*[x.to("meta")] * 3), "not on the CPU").shape == x.shape
    got = only_warning(lambda: sdpa(negative, x, x), r"attend refuses .*query is a view with PyTorch's negative bit")
    assert torch.equal(got, own(negative, x, x))
    assert sdpa(x.double(), x.double(), x.double()).dtype == torch.float64  # no warning


@pytest.mark.parametrize("arguments", [
    (rand(3), rand(3), rand(3)),
    (rand(2, 4, 8), rand(2, 4, 7), rand(2, 4, 8)),
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


def test_gradients_are_pytorchs():
    def gradients(function, **options):
        torch.manual_seed(1)
        leaves = [rand(2, 3, 6, 8).requires_grad_() for _ in range(3)] + [rand(6, 6).requires_grad_()]
        return torch.autograd.grad(function(*leaves).square().sum(), leaves)

    with pytest.warns(UserWarning, match="no backward"):
        got = gradients(sdpa)
    for mine, theirs in zip(got, gradients(own), strict=True):
        assert torch.equal(mine, theirs)
    x = rand(2, 6, 8)
    got, expected = (torch.func.grad(lambda x: f(x, x, x).sum())(x) for f in (sdpa, own))
    assert torch.equal(got, expected)
    with pytest.warns(UserWarning, match="forward-mode"):
        (_, got), (_, expected) = (torch.func.jvp(lambda x: f(x, x, x), (x,), (x + 1,)) for f in (sdpa, own))
    assert torch.equal(got, expected)


@pytest.mark.parametrize("function", [
    attend.scaled_dot_product_attention, attend.attention, attend.torch.attention,
    torch.ops.attend.scaled_dot_product_attention, torch.ops.attend.attention,
])
def test_a_recorded_tensor_is_refused(function):
    x, parameter = rand(2, 6, 8), torch.nn.Parameter(rand(2, 6, 8))
    message = "requires a gradient, which this .* does not record: call it under torch.no_grad"
    for arguments in ((parameter, x, x), (x, parameter, x), (x, x, parameter), (x, x, x, torch.nn.Parameter(x @ x.mT))):
        if len(arguments) == 4 and function in (attend.attention, attend.torch.attention):
            continue  # the mask is a keyword
        with pytest.raises(ValueError, match=message):
            function(*arguments)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not function(parameter, parameter, parameter)[0].requires_grad


@pytest.mark.parametrize("op", [torch.ops.attend.scaled_dot_product_attention, torch.ops.attend.attention])
def test_a_recorded_tensor_is_refused_while_compiling(op):
    x = rand(2, 6, 8)
    with pytest.raises(Exception, match="requires a gradient, which this operator does not record"):
        torch.compile(lambda *x: op(*x)[0], backend="aot_eager", fullgraph=True)(x, x, x.clone().requires_grad_())


def test_a_recorded_option_is_refused():
    x = rand(2, 6, 8)
    for name in ("bias", "alibi_slopes", "sinks"):
        option = torch.nn.Parameter(rand(*{"bias": (6, 6)}.get(name, (2,))))
        for function in (attend.attention, attend.torch.attention):
            with pytest.raises(ValueError, match=f"attention: {name} requires a gradient"):
                function(x, x, x, **{name: option})


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


def calls_of(monkeypatch):
    """A list that grows with the calls of attend's function."""
    calls = []

    def counted(*arguments, **options):
        calls.append(1)
        return attend.scaled_dot_product_attention(*arguments, **options)

    monkeypatch.setattr(attend.torch, "_scaled_dot_product_attention", counted)
    return calls


@torch.no_grad()
def test_replace_sdpa_reaches_multihead_attention(monkeypatch):
    calls = calls_of(monkeypatch)
    x = rand(2, 6, 32)
    attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0, batch_first=True)
    runs = {
        "attention": lambda: attention(x, x, x, need_weights=False)[0],
        "attention, padding": lambda: attention(x, x, x, need_weights=False, key_padding_mask=~bool_mask(2, 6))[0],
        "layer": lambda: layer(x),
    }
    for run in runs.values():
        torch.manual_seed(2)
        expected = run()
        before = len(calls)
        with attend.torch.replace_sdpa():
            torch.manual_seed(2)
            got = run()
        assert len(calls) == before + 1
        torch.testing.assert_close(got, expected, rtol=0, atol=4e-6)  # two sums of 64 products after it
    # For inference PyTorch has a path of its own, unless that is turned off.
    layer.eval()
    before = len(calls)
    with attend.torch.replace_sdpa():
        layer(x)
        assert len(calls) == before
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            layer(x)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert len(calls) == before + 1


def test_replace_sdpa_restores():
    functional = torch.nn.functional
    assert functional.scaled_dot_product_attention is own
    with pytest.raises(KeyError), attend.torch.replace_sdpa():
        with attend.torch.replace_sdpa():
            assert functional.scaled_dot_product_attention is sdpa
        assert functional.scaled_dot_product_attention is sdpa
        raise KeyError
    assert functional.scaled_dot_product_attention is own
    attend.torch.replace_sdpa()
    with attend.torch.replace_sdpa():
        pass
    assert functional.scaled_dot_product_attention is sdpa
    attend.torch.restore_sdpa()
    assert functional.scaled_dot_product_attention is own


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
    with pytest.warns(UserWarning):
        sdpa(parameter, parameter, parameter)
    del x, out, through, parameter
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept)
