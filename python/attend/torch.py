"""attend in PyTorch's place: the same call, registered operators, and a switch for whole models.

scaled_dot_product_attention() is torch.nn.functional's, computed by attend where it can and by PyTorch otherwise;
replace_sdpa() puts it into torch.nn.functional. attention() is attend.attention() for torch.compile, torch.export and
vmap too. They stand on two operators, torch.ops.attend.scaled_dot_product_attention and torch.ops.attend.attention,
which exist once this module is imported: import it before loading an exported program that has them.

There is no backward: where PyTorch records gradients, scaled_dot_product_attention() leaves the call to PyTorch and
attention() refuses it.
"""

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import is_autocast_enabled, is_grad_enabled
from torch._C import _get_tracing_state, _is_torch_function_mode_enabled, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn.attention.bias import CausalBias

from ._core import attention as _attention
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
# All tensors are positional: PyTorch registers vmap and a backward for no others. lse is always there, as in its own
# attention operators: a backward reads it.
_library.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask=None, Tensor? bias=None, Tensor? alibi_slopes=None, "
    "Tensor? sinks=None, Tensor? key_lengths=None, *, bool causal=False, SymInt window_left=-1, "
    "SymInt window_right=-1, SymInt? offset=None, bool bottom_right=False, float softcap=0., float? scale=None, "
    "str layout='bhtd') -> (Tensor out, Tensor lse)",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_sdpa_op = torch.ops.attend.scaled_dot_product_attention.default
_attention_op = torch.ops.attend.attention.default


def _sdpa_cpu(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    return _scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _sdpa_fake(query, key, value, attn_mask=None, is_causal=False, *, scale=None, enable_gqa=False):
    leads = [x.shape[: -3 if enable_gqa else -2] for x in (query, key, value)]
    heads = query.shape[-3:-2] if enable_gqa else ()
    return query.new_empty((*torch.broadcast_shapes(*leads), *heads, query.shape[-2], value.shape[-1]))


def _attention_cpu(q, k, v, *tensors, window_left=-1, window_right=-1, offset=None, bottom_right=False, **options):
    names = ("mask", "bias", "alibi_slopes", "sinks", "key_lengths")
    return _attention(
        q, k, v, **dict(zip(names, tensors)), window=(window_left, window_right),
        offset="bottom_right" if bottom_right else offset, return_lse=True, **options
    )


def _attention_fake(q, k, v, *tensors, layout="bhtd", **options):
    rows = q.shape[:-1]
    if layout == "bthd" and len(rows) >= 2:
        rows = (*rows[:-2], rows[-1], rows[-2])
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(rows, dtype=lse_dtype)


def _autograd(name, op):
    """The operator's kernel while PyTorch may record: without a backward, an error is better than a result that is
    silently detached. A backward belongs here."""

    def kernel(*args, **keywords):
        if is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            raise ValueError(
                f"{name}: a tensor requires a gradient, which this operator does not record: call it under "
                "torch.no_grad()"
            )
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args, **keywords)

    return kernel


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


def _attention_vmap(info, in_dims, *tensors, **options):
    """One call for each index: slopes, sinks and lengths that differ do not fit into one."""

    def at(index):
        return [x if dim is None else x.select(dim, index) for x, dim in zip(tensors, in_dims)]

    outs, lses = zip(*(_attention_op(*at(index), **options) for index in range(info.batch_size)))
    return (torch.stack(outs), torch.stack(lses)), (0, 0)


_library.impl("scaled_dot_product_attention", _sdpa_cpu, "CPU")
_library.impl("attention", _attention_cpu, "CPU")
_library.impl("scaled_dot_product_attention", _autograd("scaled_dot_product_attention", _sdpa_op), "Autograd")
_library.impl("attention", _autograd("attention", _attention_op), "Autograd")
torch.library.register_fake("attend::scaled_dot_product_attention", _sdpa_fake, lib=_library)
torch.library.register_fake("attend::attention", _attention_fake, lib=_library)
torch.library.register_vmap("attend::scaled_dot_product_attention", _sdpa_vmap, lib=_library)
torch.library.register_vmap("attend::attention", _attention_vmap, lib=_library)


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


def _why_torch(tensors: Sequence[torch.Tensor], dropout_p: float, is_causal: bool) -> str | None:
    """Why the call is PyTorch's ("": for a reason not worth a warning); None where it is attend's."""
    if dropout_p > 0:
        return "attend has no dropout"
    if is_causal and len(tensors) == 4:
        return "attn_mask and is_causal are both given"
    grad = is_grad_enabled()
    for x in tensors:
        if type(x) not in _CLASSES and not is_compiling():
            return "a tensor is of another class than torch.Tensor"
        if grad and x.requires_grad:
            return "attend has no backward, and gradients are recorded; under torch.no_grad() it computes"
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
    value never reaches the output.

    PyTorch computes, with one warning for each reason, where gradients are recorded, dropout_p > 0, a tensor is not on
    the CPU or is of a subclass, and for other arguments that attend refuses; without a warning for float64, in which
    attend's own path is exact and slow. The errors are then PyTorch's. Autocast is followed; what
    torch.nn.attention.sdpa_kernel() allows is not.

    >>> import torch, attend.torch
    >>> q = torch.ones(1, 2, 3, 8)
    >>> attend.torch.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    torch.Size([1, 2, 3, 8])
    """
    tensors = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    if isinstance(attn_mask, CausalBias):
        return _with_causal_bias(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    reason, detail = _why_torch(tensors, dropout_p, is_causal), ""
    if reason is None:
        if is_autocast_enabled("cpu"):
            query, key, value, *masks = _autocast(tensors)
            attn_mask = masks[0] if masks else None
        if _dispatches(query):
            return _sdpa_op(query, key, value, attn_mask, is_causal, scale=scale, enable_gqa=enable_gqa)
        try:
            return _scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        except (TypeError, ValueError) as error:
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
    layout: Literal["bhtd", "bthd"] = "bhtd",
    return_lse: bool = False,
) -> Any:
    """attend.attention() of tensors, also under torch.compile, torch.export, vmap and modes.

    q [B,H,Tq,D], k [B,Hkv,Tk,D], v [B,Hkv,Tk,Dv] give out [B,H,Tq,Dv] in q's dtype, and with return_lse also
    lse [B,H,Tq]. The options and errors are attend.attention()'s; none falls back to PyTorch. Raises ValueError where a
    tensor requires a gradient while PyTorch records.

    >>> import torch, attend.torch
    >>> q, k = torch.ones(1, 4, 3, 8), torch.ones(1, 2, 5, 8)
    >>> attend.torch.attention(q, k, k, causal=True, offset="bottom_right", window=(2, 0)).shape
    torch.Size([1, 4, 3, 8])
    """
    options: dict[str, Any] = {"causal": causal, "softcap": softcap, "scale": scale, "layout": layout}
    if not _dispatches(q):
        return _attention(  # type: ignore[call-overload, misc]  # return_lse is known when called
            q, k, v, mask=mask, bias=bias, alibi_slopes=alibi_slopes, sinks=sinks, key_lengths=key_lengths,
            window=window, offset=offset, return_lse=return_lse, **options
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
    out, lse = _attention_op(
        q, k, v, mask, bias, alibi_slopes, sinks, key_lengths, window_left=left, window_right=right, offset=offset,
        **options
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
