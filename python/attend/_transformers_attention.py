"""transformers' attention function for attn_implementation="attend", and what it does where attend can't."""

import sys
import warnings

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.utils.import_utils import is_tracing

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # a version that passes output_attentions on everywhere
    _active_collector = None

from . import _transformers_record as recording
from ._core import attention_weights
from ._torch_operators import draw_seed
from ._transformers_cache import CachedRows
from ._transformers_masks import StructuredMask, as_matrix, knows_sdpa, mask_options
from .torch import attention, check_shapes  # attention: an operator while PyTorch makes a graph, a direct call otherwise

# Keys chosen for each query, which models make a mask of for "eager" and "sdpa" alone, and a sink for each query.
_UNKNOWN = ("indices", "block_indices", "sinks")


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
                      position_bias=None, softcap=None, s_aux=None, past_keys=0, **keywords):
    """transformers' attention function: query [B,H,Tq,D], key [B,Hkv,Tk,D], value [B,Hkv,Tk,Dv] -> [B,Tq,H,Dv], None.

    keywords that other implementations need (sliding_window, position_ids, ...) are in the mask already, as for "sdpa".
    """
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if hasattr(module, "config") and not knows_sdpa(type(module.config)):
        is_causal = False  # "eager" is all that such a model has (BridgeTower): no mask hides nothing
    for name in _UNKNOWN:
        if keywords.get(name) is not None:
            raise ValueError(f"attend.transformers: {type(module).__name__} computes with `{name}`, which attend does "
                             'not know; load it with attn_implementation="eager"')
    distances = None
    if position_bias is not None and position_bias.dim() < 4:  # of _with_distances()
        distances, position_bias = position_bias if position_bias.numel() else None, None
    reason = _why_not(query, keywords.get("cache"))
    if recording.recorders and module in recording.recorders:
        _check_recordable(reason, key)
    if reason:
        if distances is not None:
            position_bias = as_matrix(distances, query.shape[2], key.shape[2], past_keys)
        return _fall_back(reason, module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                          is_causal=is_causal, position_bias=position_bias, softcap=softcap, s_aux=s_aux, **keywords)
    options = mask_options(attention_mask, position_bias, query, key, is_causal)
    if distances is not None:
        options |= {"distance_bias": distances, "offset": past_keys}
    if isinstance(key, CachedRows):
        if dropout:
            options |= {"dropout": (dropout, int(draw_seed()))}
        out = key.cache.attention(query, scale=scaling, softcap=softcap or 0.0, sinks=s_aux, **options)
        return out.transpose(1, 2).contiguous(), None
    query, key, value = (x.transpose(1, 2) for x in _alike(query, key, value))
    # Written where transformers wants it, so that nothing is copied.
    options |= {"layout": "bthd", "scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux}
    recorder = recording.recorders.get(module) if recording.recorders else None
    if recorder is None:
        out = attention(query, key, value, dropout=dropout, **options)
    else:
        out = recorder.attend(module, query, key, value, dropout, options)
    # A traced graph returns none: what it holds must not depend on what is asked of the call.
    return out, None if is_tracing(query) or not _weights_are_wanted(keywords) else _weights(query, key, options)


def _check_recordable(reason, key):
    """ValueError for a call whose queries and keys attend does not have at hand."""
    if is_tracing(key):
        reason = "a compiled model"
    elif isinstance(key, CachedRows):
        reason = "a model with a QuantizedCache"
    if reason:
        raise ValueError(f"record: {reason} can't be recorded")


def _weights_are_wanted(keywords):
    """Some models (GPT-2) keep output_attentions from their layers: then what collects outputs knows of it."""
    collected = _active_collector.get() if _active_collector is not None else None
    return keywords.get("output_attentions") or bool(collected and {"attentions", "cross_attentions"} & collected.keys())


_MOST_WEIGHTS = 1 << 28  # bytes of a layer's, in float32


def _weights(query, key, options):
    """[B,H,Tq,Tk] as "eager" returns them, for looking at; None where they take too much."""
    (batch, queries, heads), keys = query.shape[:3], key.shape[1]
    if 4 * batch * heads * queries * keys > _MOST_WEIGHTS:
        warn_once("attend.transformers: output_attentions=True returns no attention weights where a layer's take more "
                  "than 256 MiB; attend.attention_summary() shows what they say")
        return None
    warn_once("attend.transformers: output_attentions=True makes the matrix of weights of every layer, before dropout and "
              "without a gradient; attend.attention_summary() needs no matrix")
    plain = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    return attention_weights(query.detach(), key.detach(), **plain).to(query.dtype)


def _alike(query, key, value):
    """The three in one dtype under autocast, as PyTorch's own attention, and with one batch size (learned queries)."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if query.shape[0] == 1 != key.shape[0]:
        query = query.expand(key.shape[0], -1, -1, -1)
    return query, key, value


def _why_not(query, cache):
    """Why attend can't do it; None: it can."""
    if query.device.type != "cpu":
        return "tensors that are not on the CPU"
    if cache is not None:
        return "continuous batching"
    return None


def _fall_back(reason, module, query, key, value, mask, *, softcap, s_aux, **keywords):
    """ "sdpa", which knows neither soft caps nor sinks: for these the model's own "eager"."""
    check_shapes(query, key, value, None, enable_gqa=True)
    eager = None
    if softcap is not None or s_aux is not None:
        eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
        if eager is None:
            raise ValueError(f"attend.transformers: {type(module).__name__} has a soft cap or sinks: {reason} needs "
                             'attn_implementation="eager"')
    warn_once(f"attend.transformers: attend does not do {reason}; such calls run as with "
              f'attn_implementation="{"eager" if eager else "sdpa"}"')
    if isinstance(mask, StructuredMask):
        mask = mask.full() if eager else mask.for_sdpa()
    if eager is None:
        return sdpa_attention_forward(module, query, key, value, mask, **keywords)
    if mask is None and keywords["is_causal"] and query.shape[2] > 1:
        mask = query.new_ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    return eager(module, query, key, value, mask, softcap=softcap, s_aux=s_aux, **keywords)


_warned: set[str] = set()


def warn_once(message):
    # Nothing is said while a graph is made: a warning would break it in two.
    if message not in _warned and not is_tracing():
        _warned.add(message)
        warnings.warn(message, stacklevel=2)
