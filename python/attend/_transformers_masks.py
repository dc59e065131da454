"""What a Hugging Face model hides and adds, without matrices: masks known by their structure, and T5's position biases."""

import functools
import inspect
import math
import sys

import torch
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel
from transformers import masking_utils as masks
from transformers.utils.import_utils import is_tracing


class StructuredMask(torch.Tensor):
    """A mask [B,1,Tq,Tk] (bool, True = may attend, or added numbers) that takes no memory: its structure says what is visible.

    options holds attention()'s keywords for it. An operator of PyTorch gets transformers' own mask in its place, made
    then and kept, so that a model may slice, join or change it as if it had been there from the beginning.
    """

    # Why not a small padding mask [B,1,1,Tk] and causality by module.is_causal, as flash attention does it? That guess
    # fails for Tq == 1 (its shape says nothing), for cross-attention in a causal decoder, where several tokens continue
    # a cache (chunked prefill, assisted decoding), with caches whose first keys are cut off (sliding) or whose last are
    # not written yet (static), and wherever a model slices or joins its mask. Here nothing is guessed: the mask comes
    # from the function, the lengths and the offsets that transformers' own mask is made from.

    @staticmethod
    def __new__(cls, shape, dtype, options, make):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype)

    def __init__(self, shape, dtype, options, make):
        self.options = options
        self.make = make
        self.made = None

    def full(self):
        """The mask as a plain tensor: always the same one, as an operator may have changed it."""
        if self.made is None:
            self.made = self.make(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        return self.made

    def for_sdpa(self):
        """The mask that "sdpa" gets: None where its own is_causal is enough."""
        return None if self.made is None and self.needless else self.full()

    @functools.cached_property
    def needless(self):
        return self.make() is None

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
        arguments, keywords = tree_map_only(StructuredMask, StructuredMask.full, (arguments, keywords or {}))
        return function(*arguments, **keywords)


def structured_mask(make, dtype):
    """A StructuredMask where the structure is known of what make makes, a partial() of one of transformers' mask functions."""
    given = make.keywords
    window, padding, kv_length = _window(given["mask_function"]), given["attention_mask"], given["kv_length"]
    padded_otherwise = padding is not None and padding.ndim != 2
    if window is None or padded_otherwise or torch.device(given["device"]).type != "cpu":
        return make()
    # A static cache counts in a tensor that it changes in place.
    q_offset, kv_offset = int(given["q_offset"]), int(given["kv_offset"])
    options = _visible_keys(padding, kv_length, kv_offset)
    if window != (math.inf, math.inf):
        left, right = (None if side == math.inf else side for side in window)
        options |= {"window": (left, right), "offset": q_offset - kv_offset}
    make = functools.partial(make, q_offset=q_offset, kv_offset=kv_offset)
    return StructuredMask((given["batch_size"], 1, given["q_length"], kv_length), dtype, options, make)


_JOINED = masks.and_masks().__code__
_SLIDING = masks.sliding_window_overlay(1).__code__
_SLIDING_BOTH_WAYS = masks.sliding_window_bidirectional_overlay(1).__code__


def _window(mask_function):
    """(left, right) of a mask function: query i sees key j if i - left <= j <= i + right; None: it is none of these.

    transformers makes its mask functions anew for every call: they are known by their code and what it closes over.
    """
    if mask_function is masks.causal_mask_function:
        return math.inf, 0
    if mask_function is masks.bidirectional_mask_function:
        return math.inf, math.inf
    code = getattr(mask_function, "__code__", None)
    if code not in (_JOINED, _SLIDING, _SLIDING_BOTH_WAYS):
        return None
    held = dict(zip(code.co_freevars, (cell.cell_contents for cell in mask_function.__closure__)))
    if code is _JOINED:
        windows = [_window(each) for each in held["mask_functions"]]
        return None if None in windows else tuple(min(sides) for sides in zip(*windows))
    size = held["sliding_window"]
    if not isinstance(size, int) or size < 1:
        return None
    return (size - 1, math.inf) if code is _SLIDING else (size, size)


def _visible_keys(attention_mask, kv_length, kv_offset):
    """attention()'s keywords for a padding mask [B, keys] (True: no padding) of which kv_length keys are there."""
    if attention_mask is None:
        return {}
    padding = masks.prepare_padding_mask(attention_mask, kv_length, kv_offset)[:, kv_offset:kv_offset + kv_length]
    if padding.all():
        return {}
    lengths = padding.sum(-1)
    if torch.equal(padding, torch.arange(kv_length) < lengths[:, None]):
        return {"key_lengths": lengths}  # padding on the right: the kernel leaves these keys out altogether
    return {"mask": padding[:, None, None]}


def mask_options(mask, position_bias, query, key, is_causal):
    """attention()'s keywords for a mask of any kind."""
    if isinstance(mask, StructuredMask):
        if mask.made is None and mask.shape[2:] == (query.shape[2], key.shape[2]):
            return mask.options | {"bias": position_bias}
        mask = mask.full()
    if mask is None:
        # As "sdpa" does: a model that makes no mask means that, and a static cache's keys beyond Tq are not there yet.
        causal = is_causal and query.shape[2] > 1
        return {"causal": causal, "offset": "top_left" if causal else None, "bias": position_bias}
    if mask.dtype == torch.bool:
        return {"mask": mask, "bias": position_bias}
    return {"bias": mask if position_bias is None else mask + position_bias}


def classes_of(config_class):
    """What the module of the models of a configuration has of classes."""
    modeling = sys.modules.get(config_class.__module__.replace("configuration_", "modeling_"))
    return [each for each in vars(modeling).values() if isinstance(each, type) and each.__module__ == modeling.__name__
            ] if modeling else []


_knowing_sdpa: dict[type, bool] = {}  # not functools.cache, of which PyTorch's compiler warns


def knows_sdpa(config_class):
    """Whether a model of a configuration takes bool masks; those without "sdpa" (DeepSeek V4) may join theirs with numbers."""
    if config_class not in _knowing_sdpa:
        models = [each for each in classes_of(config_class) if issubclass(each, PreTrainedModel)]
        _knowing_sdpa[config_class] = not models or any(each._supports_sdpa for each in models)
    return _knowing_sdpa[config_class]


# T5's attention adds a learned number for each distance between a query and a key. Its first layer makes a matrix
# [1,H,Tq,Tk] of them, which goes from layer to layer, and its cross-attention one of zeros. Here the numbers themselves
# go that way, [H,2R+1] for the distances -R to R, or a tensor without elements for the zeros; attention() looks them up.


@functools.cache
def keep_distances(config_class):
    """Changes the attention class of T5, MT5 and those models that have copies of it."""
    for each in classes_of(config_class):
        if hasattr(each, "_relative_position_bucket") and list(inspect.signature(each.forward).parameters) == [
                "self", "hidden_states", "mask", "key_value_states", "position_bias", "past_key_values", "kwargs"]:
            each.forward = _with_distances(each.forward)


def _with_distances(forward):
    @functools.wraps(forward)
    def changed(self, hidden_states, mask=None, key_value_states=None, position_bias=None, past_key_values=None,
                **keywords):
        ours = self.config._attn_implementation == "attend" and hidden_states.device.type == "cpu"
        if ours and not is_tracing(hidden_states):
            if position_bias is None:
                position_bias = distances(self) if self.has_relative_attention_bias else hidden_states.new_empty(0)
            past = 0 if past_key_values is None else past_key_values.get_seq_length(self.layer_idx)
            keywords["past_keys"] = int(past)
        return forward(self, hidden_states, mask, key_value_states, position_bias, past_key_values, **keywords)

    return changed


def distances(module):
    """T5's bias [H,2R+1] for key j and query i by j - i, from -R to R: farther ones are in the buckets of these."""
    reach = module.relative_attention_max_distance
    return module.compute_bias(1, 2 * reach + 1, past_seen_tokens=reach)[0, :, 0]


def as_matrix(distances, queries, keys, past_keys):
    """[1,H,Tq,Tk], as T5 makes it."""
    reach = distances.shape[1] // 2
    apart = torch.arange(keys) - torch.arange(queries)[:, None] - past_keys
    return distances[None, :, apart.clamp(-reach, reach) + reach]
