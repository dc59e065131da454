"""The ONNX operator Attention (opsets 23 to 25), for NumPy arrays and PyTorch tensors."""

import sys
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import numpy

from . import _core

__all__ = ["attention"]

ArrayT = TypeVar("ArrayT")

SOFTMAX_PRECISIONS = (None, 1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16


def attention(Q: ArrayT, K: ArrayT, V: ArrayT, attn_mask: Any = None, past_key: ArrayT | None = None,
              past_value: ArrayT | None = None, nonpad_kv_seqlen: Any = None, *, is_causal: int = 0,
              kv_num_heads: int | None = None, left_window_size: int = -1, q_num_heads: int | None = None,
              qk_matmul_output_mode: int = 0, right_window_size: int = -1, scale: float | None = None,
              softcap: float = 0.0, softmax_precision: int | None = None, return_qk_matmul_output: bool = False,
              ) -> tuple[ArrayT, ArrayT, ArrayT, ArrayT | None]:
    """ONNX's Attention: (Y, present_key, present_value, qk_matmul_output).

    Inputs, attributes and outputs are those of opset 25. Q [B,H,Tq,D], K [B,Hkv,T,D], V [B,Hkv,T,Dv] give
    Y [B,H,Tq,Dv]; or Q [B,Tq,H*D], K [B,T,Hkv*D], V [B,T,Hkv*Dv], with q_num_heads H and kv_num_heads Hkv, give
    Y [B,Tq,H*Dv]. All floating-point inputs have one dtype: float32, bfloat16, float16 or float64.

    attn_mask         broadcasts to [B,H,Tq,Tk], where Tk counts past keys too: bool, True = may attend, or floating
                      point, added to the scaled scores. A shorter last axis hides the other keys.
    past_key          [B,Hkv,P,D] and past_value [B,Hkv,P,Dv] come before K and V; query 0 then stands at key P
    nonpad_kv_seqlen  whole numbers [B]: how many keys exist; the last query stands at the last of them
    softmax_precision has no effect: the softmax is never less precise than float32

    present_key [B,Hkv,Tk,D] and present_value [B,Hkv,Tk,Dv] are views of K and V if there is no past.
    qk_matmul_output [B,H,Tq,Tk] is None unless return_qk_matmul_output is True; without it, memory grows with Tq + Tk only.
    Its mode is 0: q.k * scale, 1: after softcap, 2: after attn_mask too (-inf where hidden), 3: weights.

    Raises TypeError for what is neither a NumPy array nor a PyTorch tensor, and for dtypes that do not fit. Raises
    ValueError for shapes and values.

    >>> import numpy, attend
    >>> q, k, v = numpy.random.default_rng(0).standard_normal((3, 1, 4, 24), numpy.float32)
    >>> y, key, value, _ = attend.onnx.attention(q, k, v, is_causal=1, q_num_heads=3, kv_num_heads=3)
    >>> y.shape, key.shape
    ((1, 4, 24), (1, 3, 4, 8))
    >>> step = attend.onnx.attention(q[:, :1], k[:, :1], v[:, :1], None, key, value, q_num_heads=3, kv_num_heads=3)
    >>> step[1].shape
    (1, 3, 5, 8)
    """
    library = _library_of({"Q": Q, "K": K, "V": V},
                          {"attn_mask": attn_mask, "past_key": past_key, "past_value": past_value})
    _check_values(past_key, past_value, nonpad_kv_seqlen, {
        "is_causal": (is_causal, (0, 1)), "qk_matmul_output_mode": (qk_matmul_output_mode, (0, 1, 2, 3)),
        "softmax_precision": (softmax_precision, SOFTMAX_PRECISIONS),
        "return_qk_matmul_output": (return_qk_matmul_output, (False, True))})
    q = _with_heads("Q", Q, "q_num_heads", q_num_heads)
    k = _present(library, "K", _with_heads("K", K, "kv_num_heads", kv_num_heads), "past_key", past_key)
    v = _present(library, "V", _with_heads("V", V, "kv_num_heads", kv_num_heads), "past_value", past_value)
    scores: dict[str, Any] = {"scale": scale, "softcap": softcap}
    options = scores | {"causal": bool(is_causal), "window": (left_window_size, right_window_size),
                        "offset": _offset(past_key, nonpad_kv_seqlen), "key_lengths": nonpad_kv_seqlen,
                        **_mask(library, attn_mask, (*q.shape[:3], k.shape[2]))}
    Y: Any
    if q is Q:  # four axes
        Y = _core.attention(q, k, v, **options)
    else:
        queries, keys, values = (x.swapaxes(1, 2) for x in (q, k, v))
        Y = _core.attention(queries, keys, values, layout="bthd", **options)
        Y = Y.reshape((*Y.shape[:2], Y.shape[2] * Y.shape[3]))
    if not return_qk_matmul_output:
        return Y, k, v, None
    # Modes 0 and 1 come before anything is hidden.
    steps = _core.attention_steps(q, k, v, **(options if qk_matmul_output_mode > 1 else scores))
    wanted = (steps.scaled_scores, steps.logits, steps.logits, steps.weights)[qk_matmul_output_mode]
    return Y, k, v, library.asarray(wanted, dtype=q.dtype)


def _library_of(required: dict[str, Any], optional: dict[str, Any]) -> ModuleType:
    """numpy or torch: both have asarray, concatenate and full, and arrays with reshape and swapaxes."""
    arrays = required | {name: x for name, x in optional.items() if x is not None}
    torch = sys.modules.get("torch")  # without it, there are no tensors
    for library, kind in [(numpy, "ndarray")] + ([(torch, "Tensor")] if torch else []):
        if all(isinstance(x, getattr(library, kind)) for x in arrays.values()):
            return library
    kinds = ", ".join(type(x).__name__ for x in arrays.values())
    raise TypeError(f"attention: {', '.join(arrays)}: expected NumPy arrays or PyTorch tensors, got {kinds}")


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"attention: {what}")


def _check_values(past_key: Any, past_value: Any, nonpad_kv_seqlen: Any,
                  numbers: dict[str, tuple[Any, tuple[int | None, ...]]]) -> None:
    if (past_key is None) != (past_value is None):
        _refuse("past_key and past_value: expected both or neither")
    if past_key is not None and nonpad_kv_seqlen is not None:
        _refuse("nonpad_kv_seqlen can't be given with past_key and past_value")
    for name, (value, allowed) in numbers.items():
        # A tensor compares with numbers too, into another tensor or with an error of PyTorch's.
        if not isinstance(value, int | numpy.integer | numpy.bool_ | None) or value not in allowed:
            _refuse(f"{name}: expected one of {', '.join(map(str, allowed))}, got {value!r}")


def _with_heads(name: str, x: Any, heads_name: str, heads: int | None) -> Any:
    """[B,T,heads*D] as [B,heads,T,D]; four axes stay as they are."""
    shape = tuple(x.shape)
    if not isinstance(heads, int | numpy.integer | None):
        raise TypeError(f"attention: {heads_name}: expected a whole number, got {type(heads).__name__}")
    if len(shape) == 4:
        if heads not in (None, shape[1]):
            _refuse(f"{heads_name} is {heads}, but {name} has shape {shape}")
        return x
    if len(shape) != 3:
        _refuse(f"{name}: expected 3 or 4 axes, got shape {shape}")
    if not heads or heads < 0 or shape[2] % heads:
        _refuse(f"{heads_name}: expected a number that divides the last axis of {name} {shape}, got {heads}")
    return x.reshape((*shape[:2], heads, shape[2] // heads)).swapaxes(1, 2)


def _present(library: ModuleType, name: str, x: Any, past_name: str, past: Any) -> Any:
    """The past keys (or values) and then the new ones."""
    if past is None:
        return x
    there, here = tuple(past.shape), tuple(x.shape)
    if (there[:2], there[3:]) != (here[:2], here[3:]):
        _refuse(f"{past_name} has shape {there}, expected {here} but for axis 2 ({name}, by heads)")
    return library.concatenate((past, x), 2)


def _offset(past_key: Any, nonpad_kv_seqlen: Any) -> int | str:
    """Query 0 comes after the past keys, or so that the last query is level with the last key, or first."""
    if past_key is not None:
        return int(past_key.shape[2])
    return "top_left" if nonpad_kv_seqlen is None else "bottom_right"


def _mask(library: ModuleType, attn_mask: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """The mask as an option of attention(); one for fewer keys than there are hides the rest."""
    if attn_mask is None:
        return {}
    is_bool = str(attn_mask.dtype).endswith("bool")
    given = tuple(attn_mask.shape)
    if not given or len(given) > 4 or given[-1] > shape[-1] or any(
            size not in (1, full) for size, full in zip(given[:-1], shape[-len(given):])):
        _refuse(f"attn_mask has shape {given}, expected one that broadcasts to {shape}")
    if given[-1] < shape[-1]:
        hidden = library.full((*given[:-1], shape[-1] - given[-1]), False if is_bool else -numpy.inf,
                              dtype=attn_mask.dtype)
        attn_mask = library.concatenate((attn_mask, hidden), -1)
    return {"mask" if is_bool else "bias": attn_mask}
