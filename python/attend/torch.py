"""attend in PyTorch's place: the same call, registered operators, and a switch for whole models.

scaled_dot_product_attention() is torch.nn.functional's, computed by attend where it can and by PyTorch otherwise;
replace_sdpa() puts it into torch.nn.functional. attention() is attend.attention() for torch.compile, torch.export and
vmap too. They stand on two operators, torch.ops.attend.scaled_dot_product_attention and torch.ops.attend.attention,
which exist once this module is imported: import it before loading an exported program that has them.

All of them record gradients, once: there is no second derivative. Nothing of the size Tq * Tk is kept or made for them.
"""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import is_autocast_enabled, is_grad_enabled
from torch._C import _get_tracing_state, _is_torch_function_mode_enabled, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch._functorch.utils import enable_single_level_autograd_function
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn.attention.bias import CausalBias

from ._core import attention as _attention
from ._core import attention_backward as _attention_backward
from ._core import scaled_dot_product_attention as _scaled_dot_product_attention

__all__ = ["attention", "replace_sdpa", "restore_sdpa", "scaled_dot_product_attention"]

_torch_sdpa = torch.nn.functional.scaled_dot_product_attention
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_CLASSES = _PLAIN | {FakeTensor, FunctionalTensor}  # a tracer's
_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})


# --- The operators -----------------------------------------------------------------------------------------------

_library = torch.library.Library("attend", "FRAGMENT")
_library.define(
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
    "bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
# All tensors are positional: PyTorch registers vmap for no others. lse is always there, as in its own attention
# operators: the backward reads it. dropout_seed is a tensor, so that a compiled program may draw it anew in each run.
_TENSORS = ("mask", "bias", "alibi_slopes", "sinks", "key_lengths", "dropout_seed")
_ARGUMENTS = "Tensor q, Tensor k, Tensor v, " + ", ".join(f"Tensor? {name}=None" for name in _TENSORS)
_OPTIONS = (
    "bool causal=False, SymInt window_left=-1, SymInt window_right=-1, SymInt? offset=None, bool bottom_right=False, "
    "float softcap=0., float? scale=None, float dropout_p=0., str layout='bhtd'"
)
_library.define(
    f"attention({_ARGUMENTS}, *, {_OPTIONS}) -> (Tensor out, Tensor lse)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
# Gradients of options that are not wanted have no elements.
_library.define(
    f"attention_backward(Tensor dout, Tensor? dlse, Tensor out, Tensor lse, {_ARGUMENTS}, *, bool want_dbias=False, "
    f"bool want_dalibi_slopes=False, bool want_dsinks=False, {_OPTIONS}) "
    "-> (Tensor dq, Tensor dk, Tensor dv, Tensor dbias, Tensor dalibi_slopes, Tensor dsinks)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_sdpa_op = torch.ops.attend.scaled_dot_product_attention.default
_attention_op = torch.ops.attend.attention.default
_backward_op = torch.ops.attend.attention_backward.default


def _sdpa_cpu(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    return _scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _sdpa_fake(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    leads = [x.shape[: -3 if enable_gqa else -2] for x in (query, key, value)]
    heads = query.shape[-3:-2] if enable_gqa else ()
    return query.new_empty((*torch.broadcast_shapes(*leads), *heads, query.shape[-2], value.shape[-1]))


def _keywords(
    tensors, *, window_left=-1, window_right=-1, offset=None, bottom_right=False, dropout_p=0.0, **options
):
    """attend.attention()'s keywords, of the operator's optional tensors and options: those that are given, since each
    takes time."""
    options |= {name: x for name, x in zip(_TENSORS, tensors) if x is not None}
    seed = options.pop("dropout_seed", None)
    if window_left != -1 or window_right != -1:
        options["window"] = (window_left, window_right)
    if bottom_right or offset is not None:
        options["offset"] = "bottom_right" if bottom_right else offset
    if dropout_p != 0:
        if seed is None:
            raise ValueError("attention: dropout_p is given without dropout_seed")
        options["dropout"] = (dropout_p, int(seed))
    return options


def _attention_cpu(q, k, v, *tensors, **options):
    return _attention(q, k, v, return_lse=True, **_keywords(tensors, **options))


def _attention_fake(q, k, v, *tensors, layout="bhtd", **options):
    rows = q.shape[:-1]
    if layout == "bthd" and len(rows) >= 2:
        rows = (*rows[:-2], rows[-1], rows[-2])
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(rows, dtype=lse_dtype)


def _backward_cpu(
    dout, dlse, out, lse, q, k, v, *tensors, want_dbias=False, want_dalibi_slopes=False, want_dsinks=False, **options
):
    gradients = _attention_backward(
        dout.resolve_neg(), q, k, v, out, lse, dlse=dlse if dlse is None else dlse.resolve_neg(), dbias=want_dbias,
        dalibi_slopes=want_dalibi_slopes, dsinks=want_dsinks, **_keywords(tensors, **options)
    )
    of_options = (gradients.dbias, gradients.dalibi_slopes, gradients.dsinks)
    return gradients.dq, gradients.dk, gradients.dv, *(q.new_empty(0) if x is None else x for x in of_options)


def _backward_fake(
    dout, dlse, out, lse, q, k, v, mask=None, bias=None, alibi_slopes=None, sinks=None, *tensors, want_dbias=False,
    want_dalibi_slopes=False, want_dsinks=False, **options
):
    of_options = ((want_dbias, bias), (want_dalibi_slopes, alibi_slopes), (want_dsinks, sinks))
    return tuple(x.new_empty(x.shape) for x in (q, k, v)) + tuple(
        x.new_empty(x.shape) if wanted else q.new_empty(0) for wanted, x in of_options
    )


def _below(op, *tensors, **options):
    """The operator without this level's autograd. Nothing is recorded inside of Function.forward, where an outer level of
    torch.func may have to."""
    with torch.set_grad_enabled(peek_interpreter_stack() is not None), torch._C._AutoDispatchBelowAutograd():
        return op(*tensors, **options)


class _Attention(torch.autograd.Function):
    """attention() while PyTorch records: by the operator, or directly, which saves what the dispatcher costs."""

    @staticmethod
    def forward(ctx, direct, options, *tensors):
        out, lse = _attention_cpu(*tensors, **options) if direct else _below(_attention_op, *tensors, **options)
        ctx.save_for_backward(out, lse, *tensors)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        if dout is None and dlse is None:
            return (None,) * len(ctx.needs_input_grad)
        out, *others = ctx.saved_tensors
        wanted = [*ctx.needs_input_grad[2:], *[False] * len(_TENSORS)]  # q, k, v, then _TENSORS
        options = ctx.options | dict(zip(("want_dbias", "want_dalibi_slopes", "want_dsinks"), wanted[4:7]))
        tensors = (torch.zeros_like(out) if dout is None else dout, dlse, out, *others)
        if _dispatches(out):
            gradients = _backward_op(*tensors, **options)
        elif is_grad_enabled():  # create_graph=True
            gradients = _Backward.apply(True, options, *tensors)
        else:
            gradients = _backward_cpu(*tensors, **options)
        dq, dk, dv, *of_options = gradients
        of_options = [x if want else None for x, want in zip(of_options, wanted[4:7])]
        return (None, None, dq, dk, dv, None, *of_options, None, None)[:len(ctx.needs_input_grad)]


class _Backward(torch.autograd.Function):
    """attention_backward() while PyTorch records: an error is better than a second derivative that is silently 0."""

    @staticmethod
    def forward(ctx, direct, options, *tensors):
        return _backward_cpu(*tensors, **options) if direct else _below(_backward_op, *tensors, **options)

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError("attend.torch: attention has no second derivative")


def _records(tensors):
    """Whether a backward may come. Nothing else says that a tangent would be lost."""
    if forward_ad._current_level >= 0 and any(
            isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError("attend.torch: attention has no forward-mode derivative")
    return is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in tensors)


def _autograd(op, function):
    """The operator's kernel while PyTorch may record."""

    def kernel(*args, **keywords):
        if _records(args):
            # As PyTorch's own operators do: under torch.func.grad the dispatcher takes care of the other levels, which
            # Function.apply would do once more.
            with enable_single_level_autograd_function():
                return super(torch.autograd.Function, function).apply(False, keywords, *args)
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args, **keywords)

    return kernel


def _sdpa_autograd(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    if _records((query, key, value, attn_mask)):
        return _sdpa_by_attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    with torch._C._AutoDispatchBelowAutograd():
        return _sdpa_op(query, key, value, attn_mask, is_causal, scale=scale, enable_gqa=enable_gqa)


def _sdpa_vmap(info, in_dims, query, key, value, attn_mask=None, *options, **keywords):
    """One call: the mapped axis becomes the first of those that broadcast."""
    dims = [*in_dims, None][:4]
    if dims[0] is None:  # the result has the axes of query, key and value: a mask alone would not bring one
        query, dims[0] = query.expand(info.batch_size, *query.shape), 0
    tensors = [query, key, value, attn_mask]
    rank = max(x.dim() - (dim is not None) for x, dim in zip(tensors[:3], dims))
    for n, (x, dim) in enumerate(zip(tensors, dims)):
        if dim is not None:
            x = x.movedim(dim, 0)
            tensors[n] = x.reshape(x.shape[0], *[1] * (rank + 1 - x.dim()), *x.shape[1:])
    return _sdpa_op(*tensors, *options, **keywords), 0


def _vmap_each(op):
    """One call for each index: slopes, sinks and lengths that differ do not fit into one."""

    def rule(info, in_dims, *tensors, **options):
        def at(index):
            return [x if dim is None else x.select(dim, index) for x, dim in zip(tensors, in_dims)]

        each = zip(*(op(*at(index), **options) for index in range(info.batch_size)))
        stacked = tuple(torch.stack(results) for results in each)
        return stacked, (0,) * len(stacked)

    return rule


_library.impl("scaled_dot_product_attention", _sdpa_cpu, "CPU")
_library.impl("attention", _attention_cpu, "CPU")
_library.impl("attention_backward", _backward_cpu, "CPU")
_library.impl("scaled_dot_product_attention", _sdpa_autograd, "Autograd")
_library.impl("attention", _autograd(_attention_op, _Attention), "Autograd")
_library.impl("attention_backward", _autograd(_backward_op, _Backward), "Autograd")
torch.library.register_fake("attend::scaled_dot_product_attention", _sdpa_fake, lib=_library)
torch.library.register_fake("attend::attention", _attention_fake, lib=_library)
torch.library.register_fake("attend::attention_backward", _backward_fake, lib=_library)
torch.library.register_vmap("attend::scaled_dot_product_attention", _sdpa_vmap, lib=_library)
torch.library.register_vmap("attend::attention", _vmap_each(_attention_op), lib=_library)
torch.library.register_vmap("attend::attention_backward", _vmap_each(_backward_op), lib=_library)


# --- The functions -----------------------------------------------------------------------------------------------


def _dispatches(q: torch.Tensor) -> bool:
    """Whether something looks at what PyTorch's dispatcher is asked to do: a compiler, a transform or a mode. They see
    the operators; otherwise a direct call saves what the dispatcher costs."""
    return (
        is_compiling()
        or type(q) not in _PLAIN
        or _len_torch_dispatch_stack() > 0
        or peek_interpreter_stack() is not None
        or _is_torch_function_mode_enabled()
        or _get_tracing_state() is not None
    )


_warned: set[str] = set()


def _warn(reason: str, detail: str = "") -> None:
    """Once for each reason."""
    if reason not in _warned:
        _warned.add(reason)
        text = f"attend.torch: PyTorch computes scaled_dot_product_attention, not attend: {reason}{detail}"
        warnings.warn(text, stacklevel=3)


# Compiled code warns where it is compiled. torch.compiler.assume_constant_result does no more than this, but imports
# the compiler (1 s).
_warn._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _why_torch(tensors: Sequence[torch.Tensor], is_causal: bool) -> str | None:
    """Why the call is PyTorch's ("": for a reason not worth a warning); None where it is attend's."""
    if is_causal and len(tensors) == 4:
        return "attn_mask and is_causal are both given"
    for x in tensors:
        if type(x) not in _CLASSES and not is_compiling():
            return "a tensor is of another class than torch.Tensor"
        if not x.is_cpu:
            return "a tensor is not on the CPU"
    if forward_ad._current_level >= 0:
        return "attend has no forward-mode derivative"
    dtype = tensors[0].dtype
    if dtype in _DTYPES:
        return None
    # Nothing is lost in float64: attend's own path would be exact and slow.
    return "" if dtype == torch.float64 else f"attend has no kernels for {dtype}"


def _autocast(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What PyTorch's autocast does before its own scaled_dot_product_attention."""
    dtype = torch.get_autocast_dtype("cpu")
    return [x.to(dtype) if x.is_floating_point() and x.dtype != torch.float64 else x for x in tensors]


def _batch_and_heads(query, key, value, attn_mask, enable_gqa):
    """The four with the axes that attention() takes, those before the last two alike and at most one of batches; and
    all of those that the result has, where they are more."""
    end = -3 if enable_gqa else -2
    lead = query.shape[:end]
    if not lead == key.shape[:end] == value.shape[:end]:
        lead = torch.broadcast_shapes(lead, key.shape[:end], value.shape[:end])
        query, key, value = (x.expand(*lead, *x.shape[end:]) for x in (query, key, value))
    if attn_mask is not None and attn_mask.dim() > query.dim():
        raise ValueError(f"attn_mask has {attn_mask.dim()} axes, expected at most {query.dim()}")
    if query.dim() <= 4:
        return query, key, value, attn_mask, None
    batches = query.shape[:-3]
    if attn_mask is not None and attn_mask.dim() > 3:
        attn_mask = attn_mask.expand(*batches, *attn_mask.shape[-3:]).flatten(0, -4)
    return *(x.flatten(0, -4) for x in (query, key, value)), attn_mask, batches


def _draw_seed() -> torch.Tensor:
    """Of PyTorch's default generator, as its own dropout."""
    return torch.randint(2**63 - 1, (), device="cpu")


def _sdpa_by_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """scaled_dot_product_attention() by attention(), which keeps what a backward needs, and drops."""
    q, k, v, mask, batches = _batch_and_heads(query, key, value, attn_mask, enable_gqa)
    mask, bias = (mask, None) if mask is None or mask.dtype == torch.bool else (None, mask)
    seed = _draw_seed() if dropout_p != 0 else None
    options = {"causal": is_causal, "offset": 0, "scale": scale, "dropout_p": dropout_p}
    out, _ = _call(q, k, v, mask, bias, None, None, None, seed, **options)
    return out if batches is None else out.unflatten(0, batches)


def _call(*tensors, **options):
    """attention() of the operator's arguments."""
    if _dispatches(tensors[0]):
        return _attention_op(*tensors, **options)
    if _records(tensors):
        return _Attention.apply(True, options, *tensors)
    return _attention_cpu(*tensors, **options)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention, computed by attend where it can.

    query [...,H,Tq,D], key [...,Hkv,Tk,D], value [...,Hkv,Tk,Dv] give [...,H,Tq,Dv] in query's dtype; attn_mask, bool
    (True = may attend) or floating point (added), broadcasts to [...,H,Tq,Tk]. Unlike PyTorch's, NaN in a masked key or
    value never reaches the output. Gradients of all four are recorded, but no second ones.

    With dropout_p > 0 each weight is dropped with that probability. Which ones is decided by a number of PyTorch's
    default generator, so that torch.manual_seed() makes it happen again; they are not those that PyTorch would drop.

    PyTorch computes, with one warning for each reason, where a tensor is not on the CPU or is of a subclass, and for
    other arguments that attend refuses; without a warning for float64, in which attend's own path is exact and slow.
    The errors are then PyTorch's. Autocast is followed; what torch.nn.attention.sdpa_kernel() allows is not.

    >>> import torch, attend.torch
    >>> q = torch.ones(1, 2, 3, 8, requires_grad=True)
    >>> out = attend.torch.scaled_dot_product_attention(q, q, q, is_causal=True)
    >>> out.sum().backward()
    >>> out.shape, q.grad.shape
    (torch.Size([1, 2, 3, 8]), torch.Size([1, 2, 3, 8]))
    """
    tensors = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    if isinstance(attn_mask, CausalBias):
        return _with_causal_bias(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    reason, detail = _why_torch(tensors, is_causal), ""
    if reason is None:
        if is_autocast_enabled("cpu"):
            query, key, value, *masks = tensors = _autocast(tensors)
            attn_mask = masks[0] if masks else None
        if _dispatches(query) and dropout_p == 0:
            return _sdpa_op(query, key, value, attn_mask, is_causal, scale=scale, enable_gqa=enable_gqa)
        try:
            if dropout_p != 0 or _records(tensors):
                return _sdpa_by_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
            return _scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        except (RuntimeError, TypeError, ValueError) as error:
            reason, detail = "attend refuses the arguments", f" ({error})"
    out = _torch_sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if reason:
        _warn(reason, detail)
    return out


def _with_causal_bias(query, key, value, bias, dropout_p, is_causal, scale, enable_gqa):
    """PyTorch's causal masks without memory compare with what torch.nn.functional has now, and call that with a mask
    that has memory, or with is_causal."""
    options = {"scale": scale, "enable_gqa": enable_gqa}
    arguments = (query, key, value, bias, dropout_p, is_causal)
    function = torch.nn.functional.scaled_dot_product_attention
    return bias.__torch_function__(function, (type(bias),), arguments, options)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    offset: int | Literal["top_left", "bottom_right"] | None = None,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    softcap: float = 0.0,
    scale: float | None = None,
    key_lengths: torch.Tensor | Sequence[int] | None = None,
    dropout: float | tuple[float, int] = 0.0,
    layout: Literal["bhtd", "bthd"] = "bhtd",
    return_lse: bool = False,
) -> Any:
    """attend.attention() of tensors with gradients, also under torch.compile, torch.export, vmap and modes.

    q [B,H,Tq,D], k [B,Hkv,Tk,D], v [B,Hkv,Tk,Dv] give out [B,H,Tq,Dv] in q's dtype, and with return_lse also
    lse [B,H,Tq]. The options and errors are attend.attention()'s; none falls back to PyTorch. Gradients of q, k, v,
    bias, alibi_slopes and sinks are recorded, through out and lse; a second derivative raises NotImplementedError.
    dropout is p, with a seed from PyTorch's default generator, or (p, seed).

    >>> import torch, attend.torch
    >>> q, k = torch.ones(1, 4, 3, 8, requires_grad=True), torch.ones(1, 2, 5, 8)
    >>> out = attend.torch.attention(q, k, k, causal=True, offset="bottom_right", window=(2, 0), dropout=0.1)
    >>> out.sum().backward()
    >>> out.shape, q.grad.shape
    (torch.Size([1, 4, 3, 8]), torch.Size([1, 4, 3, 8]))
    """
    options: dict[str, Any] = {"causal": causal, "softcap": softcap, "scale": scale, "layout": layout}
    tensors = (q, k, v, mask, bias, alibi_slopes, sinks)
    p, seed = dropout if isinstance(dropout, tuple) else (dropout, None)
    if not _dispatches(q) and not _records(tensors):
        return _attention(  # type: ignore[call-overload, misc]  # return_lse is known when called
            q, k, v, mask=mask, bias=bias, alibi_slopes=alibi_slopes, sinks=sinks, key_lengths=key_lengths,
            window=window, offset=offset, return_lse=return_lse,
            dropout=(p, int(_draw_seed()) if seed is None else seed) if p != 0 else None, **options
        )
    left, right = (-1 if side is None else side for side in window or (None, None))
    if isinstance(offset, str):
        if offset not in ("top_left", "bottom_right"):
            expected = "'top_left', 'bottom_right', a whole number or None"
            raise ValueError(f"attention: offset: expected {expected}, got {offset!r}")
        options["bottom_right"] = offset == "bottom_right"
        offset = None if options["bottom_right"] else 0
    if key_lengths is not None and not isinstance(key_lengths, torch.Tensor):
        key_lengths = torch.tensor(key_lengths)
    if p == 0:
        seeds = None
    else:
        seeds = _draw_seed() if seed is None else torch.full((), seed, dtype=torch.int64)
    out, lse = _call(
        *tensors, key_lengths, seeds, window_left=left, window_right=right, offset=offset, dropout_p=p, **options
    )
    return (out, lse) if return_lse else out


class replace_sdpa:
    """Puts scaled_dot_product_attention() into torch.nn.functional: to stay, or for the time of a with statement.

    nn.MultiheadAttention, the layers made of it and Hugging Face models with attn_implementation="sdpa" then call it.
    It does not reach a function that was bound before (from torch.nn.functional import scaled_dot_product_attention,
    a compiled or exported program), PyTorch's C++ code, nor the fast path of nn.MultiheadAttention and
    nn.TransformerEncoderLayer for inference, which torch.backends.mha.set_fastpath_enabled(False) turns off.
    It holds for all threads. restore_sdpa() puts PyTorch's own back.

    >>> import torch, attend.torch
    >>> q = torch.ones(1, 2, 3, 8)
    >>> with attend.torch.replace_sdpa():
    ...     torch.nn.functional.scaled_dot_product_attention is attend.torch.scaled_dot_product_attention
    True
    >>> torch.nn.functional.scaled_dot_product_attention is attend.torch.scaled_dot_product_attention
    False
    """

    def __init__(self) -> None:
        self._before = torch.nn.functional.scaled_dot_product_attention
        torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention

    def __enter__(self) -> "replace_sdpa":
        return self

    def __exit__(self, *error: object) -> None:
        torch.nn.functional.scaled_dot_product_attention = self._before


def restore_sdpa() -> None:
    """Puts what torch.nn.functional had when attend.torch was imported back, however often it was replaced.

    >>> import torch, attend.torch
    >>> _ = attend.torch.replace_sdpa()
    >>> attend.torch.restore_sdpa()
    >>> torch.nn.functional.scaled_dot_product_attention is attend.torch.scaled_dot_product_attention
    False
    """
    torch.nn.functional.scaled_dot_product_attention = _torch_sdpa
