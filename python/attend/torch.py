"""attend in PyTorch's place: the same call, registered operators, and a switch for whole models.

scaled_dot_product_attention() is the function of torch.nn.functional, computed by attend where it can and by PyTorch
otherwise. replace_sdpa() puts it into torch.nn.functional. attention() is attend.attention() for torch.compile,
torch.export and vmap too. Both use two operators, torch.ops.attend.scaled_dot_product_attention and
torch.ops.attend.attention. These exist once this module is imported, so import it before loading an exported program
that has them.

All of them record gradients, but no second derivative. Nothing of the size Tq * Tk is kept or made for gradients.
"""

import functools
import threading
import warnings
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import is_autocast_enabled
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import functional
from torch.nn.attention.bias import CausalBias
from typing_extensions import Unpack

from . import _core
from . import _torch_operators as operators
from ._torch_operators import dispatches, draw_seed, record, records, sdpa_by, seed_tensor
from ._torch_ring import ring_attention, ring_shard, ring_sum, ring_unshard, show_keywords_of

__all__ = ["attention", "replace_sdpa", "restore_sdpa", "ring_attention", "ring_shard", "ring_sum", "ring_unshard",
           "scaled_dot_product_attention"]

_torch_sdpa = functional.scaled_dot_product_attention
_CLASSES = operators.PLAIN | {FakeTensor, FunctionalTensor}  # a tracer's
_warned: set[str] = set()


def _warn(reason: str, detail: str = "", level: int = 3) -> None:
    """Once for each reason."""
    if reason not in _warned:
        _warned.add(reason)
        text = f"attend.torch: PyTorch computes scaled_dot_product_attention, not attend: {reason}{detail}"
        warnings.warn(text, stacklevel=level)


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
    if dtype in operators.DTYPES:
        return None
    # Nothing is lost in float64: attend's own path would be exact and slow.
    return "" if dtype == torch.float64 else f"attend has no kernels for {dtype}"


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int] | None:
    """The shape that all broadcast to; None: there is none."""
    whole = [1] * max(map(len, shapes))
    for shape in shapes:
        for axis in range(-len(shape), 0):
            if whole[axis] == 1:
                whole[axis] = shape[axis]
            elif shape[axis] != 1 and shape[axis] != whole[axis]:
                return None
    return whole


def _misfit(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, gqa: bool) -> str | None:
    """Why the shapes are of no attention; None: they fit."""
    least = 3 if gqa else 2
    if min(x.dim() for x in (query, key, value)) < least:
        return f"expected at least {least} axes{' with enable_gqa' if gqa else ''}"
    if query.shape[-1] != key.shape[-1]:
        return f"key has head size {key.shape[-1]}, query has {query.shape[-1]}"
    if key.shape[-2] != value.shape[-2]:
        return f"key has {key.shape[-2]} positions, value has {value.shape[-2]}"
    lead = _broadcast([x.shape[:-least] for x in (query, key, value)])
    if lead is None:
        return "the axes before the last two do not broadcast"
    heads = query.shape[-3:-2] if gqa else ()
    for name, x in (("key", key), ("value", value)):
        if gqa and (heads[0] % x.shape[-3] if x.shape[-3] else heads[0]):
            return f"query has {heads[0]} heads, expected a multiple of {name}'s {x.shape[-3]}"
    scores = [*lead, *heads, query.shape[-2], key.shape[-2]]
    if mask is not None and _broadcast([mask.shape, scores]) != scores:
        return f"attn_mask has shape {list(mask.shape)}, expected one that broadcasts to {scores}"
    return None


def check_shapes(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, enable_gqa: bool
) -> None:
    """RuntimeError, as PyTorch's own, for shapes that do not fit: before a call is handed to PyTorch, whose kernels do not
    look at all of them. Its fused one for CPUs (2.13) reads beyond a key that is shorter than its value."""
    tensors = [query, key, value] if mask is None else [query, key, value, mask]
    if any(not isinstance(x, torch.Tensor) or x.is_nested for x in tensors):
        return  # what is no tensor PyTorch refuses; a nested one has other shapes, which it looks at
    misfit = _misfit(query, key, value, mask, enable_gqa)
    if misfit:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in zip(("query", "key", "value"), tensors))
        raise RuntimeError(f"scaled_dot_product_attention: {misfit} ({shapes})")


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

    query [...,H,Tq,D], key [...,Hkv,Tk,D], value [...,Hkv,Tk,Dv] give [...,H,Tq,Dv] in query's dtype. attn_mask broadcasts
    to [...,H,Tq,Tk]: bool, True = may attend, or floating point, added to the scores. Unlike with PyTorch, NaN in a masked
    key or value never reaches the output. Gradients of all four are recorded, but no second ones.

    With dropout_p > 0 each weight is dropped with that probability. A number from PyTorch's default generator decides which
    ones, so torch.manual_seed() repeats them. They are not the ones that PyTorch would drop.

    PyTorch computes, with one warning for each reason, where a tensor is not on the CPU or is of a subclass, and for other
    arguments that attend refuses. It also computes float64, without a warning, as attend's float64 is exact and slow. The
    errors are then PyTorch's, except that shapes that do not fit raise RuntimeError here. Autocast is followed;
    torch.nn.attention.sdpa_kernel() is not.

    >>> import torch, attend.torch
    >>> q = torch.ones(1, 2, 3, 8, requires_grad=True)
    >>> out = attend.torch.scaled_dot_product_attention(q, q, q, is_causal=True)
    >>> out.sum().backward()
    >>> out.shape, q.grad.shape
    (torch.Size([1, 2, 3, 8]), torch.Size([1, 2, 3, 8]))
    """
    if attn_mask is None and not is_compiling():
        out = operators.sdpa_plain(query, key, value, dropout_p, is_causal, scale, enable_gqa)
        if out is not None:
            return out
    tensors = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    if isinstance(attn_mask, CausalBias):
        check_shapes(query, key, value, None, enable_gqa)  # its own shape is another
        return _with_causal_bias(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    reason, detail = _why_torch(tensors, is_causal), ""
    if reason is None:
        if is_autocast_enabled("cpu"):
            query, key, value, *masks = tensors = _autocast(tensors)
            attn_mask = masks[0] if masks else None
        if dispatches(query) and dropout_p == 0:
            return operators.sdpa_operator(query, key, value, attn_mask, is_causal, scale=scale, enable_gqa=enable_gqa)
        try:
            if dropout_p != 0:
                return sdpa_by(operators.attention, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
            if records(tensors):
                return sdpa_by(record, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
            return _core.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        except (RuntimeError, TypeError, ValueError) as error:
            reason, detail = "attend refuses the arguments", f" ({error})"
    check_shapes(query, key, value, attn_mask, enable_gqa)
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


class _Options(operators.Options, total=False):
    layout: Literal["bhtd", "bthd"]


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: bool = False, return_lse_low: Literal[True],
              **options: Unpack[_Options]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]: ...
@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: Literal[True], return_lse_low: Literal[False] = False,
              **options: Unpack[_Options]) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, return_lse: Literal[False] = False,
              return_lse_low: Literal[False] = False, **options: Unpack[_Options]) -> torch.Tensor: ...
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
    distance_bias: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    softcap: float = 0.0,
    scale: float | None = None,
    key_lengths: torch.Tensor | Sequence[int] | None = None,
    dropout: float | tuple[float, int] = 0.0,
    layout: Literal["bhtd", "bthd"] = "bhtd",
    return_lse: bool = False,
    return_lse_low: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """attend.attention() of tensors with gradients, also under torch.compile, torch.export, vmap and modes.

    q [B,H,Tq,D], k [B,Hkv,Tk,D], v [B,Hkv,Tk,Dv] give out [B,H,Tq,Dv] in q's dtype. With return_lse they also give
    lse [B,H,Tq], and with return_lse_low lse and lse_low. Options and errors are those of attend.attention(); none falls
    back to PyTorch. Gradients of q, k, v, bias, distance_bias, alibi_slopes and sinks are recorded, through out and lse. A
    second derivative raises NotImplementedError. dropout is p, with a seed from PyTorch's default generator, or (p, seed).

    >>> import torch, attend.torch
    >>> q, k = torch.ones(1, 4, 3, 8, requires_grad=True), torch.ones(1, 2, 5, 8)
    >>> out = attend.torch.attention(q, k, k, causal=True, offset="bottom_right", window=(2, 0), dropout=0.1)
    >>> out.sum().backward()
    >>> out.shape, q.grad.shape
    (torch.Size([1, 4, 3, 8]), torch.Size([1, 4, 3, 8]))
    """
    for name, x in ("q", q), ("k", k), ("v", v):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"attention: {name}: expected a PyTorch tensor, got {type(x).__name__}")
    options: dict[str, Any] = {"causal": causal, "softcap": softcap, "scale": scale, "layout": layout}
    given: dict[str, Any] = {
        "mask": mask, "bias": bias, "distance_bias": distance_bias, "alibi_slopes": alibi_slopes, "sinks": sinks,
        "key_lengths": key_lengths
    }
    p, seed = dropout if isinstance(dropout, tuple) else (dropout, None)
    if isinstance(p, torch.Tensor):
        raise TypeError(f"attention: dropout: expected a number, or (p, seed), got {dropout!r}")
    if not dispatches(q) and not records((q, k, v, *given.values())):
        return _core.attention(  # type: ignore[call-overload, misc]  # return_lse is known when called
            q, k, v, window=window, offset=offset, return_lse=return_lse, return_lse_low=return_lse_low,
            dropout=(p, int(draw_seed()) if seed is None else seed) if p != 0 else None, **given, **options
        )
    left, right = (-1 if side is None else side for side in window or (None, None))
    if isinstance(offset, str):
        if offset not in ("top_left", "bottom_right"):
            expected = "'top_left', 'bottom_right', a whole number or None"
            raise ValueError(f"attention: offset: expected {expected}, got {offset!r}")
        options["bottom_right"] = offset == "bottom_right"
        offset = None if options["bottom_right"] else 0
    if key_lengths is not None and not isinstance(key_lengths, torch.Tensor):
        given["key_lengths"] = torch.tensor(key_lengths)
    if p != 0:
        given["dropout_seed"] = draw_seed() if seed is None else seed_tensor(seed)
    options |= {"window_left": left, "window_right": right, "offset": offset, "dropout_p": p}
    results = operators.attention(q, k, v, given, options, return_lse or return_lse_low)
    return results[:2] if return_lse and not return_lse_low else results


show_keywords_of(attention)


# --- In PyTorch's place ------------------------------------------------------------------------------------------


class replace_sdpa:
    """Put attend in PyTorch's place in torch.nn.functional and in torch.nn's layers: for good, or for a with statement.

    torch.nn.functional.scaled_dot_product_attention is then the function of this module. nn.MultiheadAttention and the
    layers made of it use it, in training and in inference (where PyTorch has a fast path of its own), and so do Hugging
    Face models with attn_implementation="sdpa". It does not reach functions that were bound before (from
    torch.nn.functional import scaled_dot_product_attention, a compiled or exported program), PyTorch's C++ code, and
    nn.MultiheadAttention where it returns weights (need_weights=True), for which one warning is given. It holds for all
    threads, until every replacement has ended; restore_sdpa() ends it at once.

    >>> import torch, attend.torch
    >>> q = torch.ones(1, 2, 3, 8)
    >>> with attend.torch.replace_sdpa():
    ...     torch.nn.functional.scaled_dot_product_attention is attend.torch.scaled_dot_product_attention
    True
    >>> torch.nn.functional.scaled_dot_product_attention is attend.torch.scaled_dot_product_attention
    False
    """

    def __init__(self) -> None:
        self.__enter__()

    def __enter__(self) -> "replace_sdpa":
        with _lock:
            if not _active:
                for module, name, ours in _PLACES:
                    _before.append((module, name, getattr(module, name)))
                    setattr(module, name, ours)
            _active.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        _end({self})


def restore_sdpa() -> None:
    """Put back what PyTorch had before replace_sdpa(), however often that was called.

    >>> import torch, attend.torch
    >>> _ = attend.torch.replace_sdpa()
    >>> attend.torch.restore_sdpa()
    >>> torch.nn.functional.scaled_dot_product_attention is attend.torch.scaled_dot_product_attention
    False
    """
    _end(_active)


def _end(these: set[replace_sdpa]) -> None:
    with _lock:
        _active.difference_update(list(these))
        while not _active and _before:
            setattr(*_before.pop())


_lock = threading.RLock()
_active: set[replace_sdpa] = set()
_before: list[tuple[Any, str, Any]] = []  # what stood in _PLACES

_torch_mha = functional.multi_head_attention_forward
_torch_mha_fast = torch._native_multi_head_attention
_torch_layer_fast = torch._transformer_encoder_layer_fwd


@functools.wraps(_torch_mha)
def _mha(*arguments, **options):
    """torch.nn.functional.multi_head_attention_forward, which asks for scaled_dot_product_attention or says why not."""
    if options.get("need_weights", arguments[15:16] != (False,)):
        _warn_of_weights()
    return _torch_mha(*arguments, **options)


def _mha_fast(query, key, value, size, heads, *others):
    """torch._native_multi_head_attention, the fast path of nn.MultiheadAttention, where query is key and value."""
    *weights, mask, need_weights, _, _ = others
    if need_weights:
        _warn_of_weights()
    elif _takes(query):
        x, starts = _packed(query, size)
        return _like(query, _self_attention(x, starts, heads, *weights, mask)), None
    return _torch_mha_fast(query, key, value, size, heads, *others)


def _layer_fast(src, size, heads, *others):
    """torch._transformer_encoder_layer_fwd, the fast path of nn.TransformerEncoderLayer."""
    if not _takes(src):
        return _torch_layer_fast(src, size, heads, *others)
    weights, (use_gelu, norm_first, eps), norms, ffn, mask = others[:4], others[4:7], others[7:11], others[11:15], others[15]
    x, starts = _packed(src, size)

    def norm(x, weight, bias):
        return functional.layer_norm(x, (size,), weight, bias, eps)

    def attend(x):
        return _self_attention(x, starts, heads, *weights, mask)

    def feed_forward(x):
        inner = functional.linear(x, *ffn[:2])
        return functional.linear(functional.gelu(inner) if use_gelu else functional.relu(inner), *ffn[2:])

    if norm_first:
        x = x + attend(norm(x, *norms[:2]))
        x = x + feed_forward(norm(x, *norms[2:]))
    else:
        x = norm(x + attend(x), *norms[:2])
        x = norm(x + feed_forward(x), *norms[2:])
    return _like(src, x)


def _takes(x):
    """Whether attend computes a layer of x, with a warning where it can't."""
    reason = _why_torch((x,), False)
    if reason:
        _warn(reason)
    return reason is None


def _packed(x, size):
    """[B,T,E] as it is; sequences of different lengths, a NestedTensor, one after another [tokens,E], and where each
    starts."""
    if not x.is_nested:
        return x, None
    return x.contiguous().values().view(-1, size), functional.pad(x._nested_tensor_size()[:, 0].cumsum(0), (1, 0))


def _like(x, result):
    """The result for _packed(x), in x's form."""
    if not x.is_nested:
        return result
    sizes = x._nested_tensor_size()
    places = torch._nested_compute_contiguous_strides_offsets(sizes)
    return torch._nested_view_from_buffer(result.flatten(), sizes, *places)


def _self_attention(x, starts, heads, qkv_weight, qkv_bias, out_weight, out_bias, mask):
    """Multi-head attention of _packed()'s x; mask [B,T] or [B,H,T,T] is added."""
    q, k, v = functional.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, heads, -1)).unbind(-3)
    if starts is not None:
        out = _core.attention_varlen(q, k, v, starts, starts)
    else:
        bias = mask if mask is None or mask.dim() == 4 else mask[:, None, None]
        out = attention(q, k, v, bias=bias, layout="bthd")
    return functional.linear(out.flatten(-2), out_weight, out_bias)


def _warn_of_weights():
    detail = "; nn.MultiheadAttention does so unless it is called with need_weights=False"
    _warn("need_weights=True asks for the weights", detail, level=7)  # the call of the module


_PLACES = (
    (functional, "scaled_dot_product_attention", scaled_dot_product_attention),
    (functional, "multi_head_attention_forward", _mha),
    (torch, "_native_multi_head_attention", _mha_fast),
    (torch, "_transformer_encoder_layer_fwd", _layer_fast),
)
