"""attn_implementation="attend" for Hugging Face models on the CPU, register(), and what their heads look at, record()."""

import contextlib
import functools
import inspect
import math
import re
import sys
import warnings

try:
    import torch
    from torch.utils._pytree import tree_map_only
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    from transformers import masking_utils as masks
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.utils.import_utils import is_tracing

    if "q_offset" not in inspect.signature(masks.sdpa_mask).parameters:
        raise ImportError("this transformers tells a mask function nothing about q_offset")
except ImportError as error:
    raise ImportError("attend.transformers needs PyTorch and Hugging Face transformers 5.4 or newer: "
                      "pip install 'attend-cpu[transformers]'") from error

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # a version that passes output_attentions on everywhere
    _active_collector = None

from . import _transformers_record as recording
from ._core import attention_weights
from ._torch_operators import draw_seed
from ._transformers_cache import CachedRows, QuantizedCache
from .torch import attention  # an operator while PyTorch makes a graph, a direct call otherwise

__all__ = ["QuantizedCache", "record", "register"]


def register() -> None:
    """Let Hugging Face models take attn_implementation="attend"; a second call changes nothing.

    from_pretrained() and configurations take it; for a model that is there: model.set_attn_implementation("attend").
    Grouped-query attention, causal masks, sliding windows, padding, caches, soft caps, attention sinks and the position
    biases of T5 and MT5 are done in the kernel: nothing of the size Tq * Tk is made, unless the model itself makes it or
    its mask is none of these (packed sequences, chunked attention, masks of one's own).
    Models train with it, with dropout too, whose seeds come from PyTorch's default generator.
    For what attend does not do (tensors that are not on the CPU, continuous batching) the model runs as with "sdpa", or
    as with "eager" where it has soft caps or sinks, and a warning says so once.
    With output_attentions=True a layer's weights are returned where they take at most 256 MiB in float32, before dropout
    and without a gradient, and a warning says so once; attend.attention_summary() looks into longer inputs.
    A row that may attend to nothing, as a position of left padding, gives 0: "eager" gives the mean of all values.
    A model that does not use transformers' attention interface (BLOOM, MPT, DeBERTa and others compute attention in
    their own code), or has layers that do not (LongT5, CLAP), raises ValueError when it is made, or when "attend" is set.
    Where such layers take no mask (SigLIP's pooling head), they stay what they are, and a warning names them.

    >>> import attend.transformers
    >>> attend.transformers.register()
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    ...                      num_key_value_heads=2, vocab_size=99, attn_implementation="attend")
    >>> model = LlamaForCausalLM(config).eval()
    """
    if "attend" not in AttentionInterface().valid_keys():  # else whoever stands in front of it would be put away
        AttentionInterface.register("attend", _attention)
        AttentionMaskInterface.register("attend", _mask)
    for name, change in {"_check_and_adjust_attn_implementation": _refusing, "set_attn_implementation": _asking,
                         "post_init": _looking}.items():
        method = getattr(PreTrainedModel, name)
        if not hasattr(method, "knows_attend"):
            setattr(PreTrainedModel, name, change(method))
            getattr(PreTrainedModel, name).knows_attend = True


@contextlib.contextmanager
def record(model, *, top=8, map=(256, 256), keep=None, layers=None, heads=None, budget="2 GiB"):
    """Record what every head of a model attends to, in memory that grows with the text's length and not with its square.

    with record(model) as recording: model(**inputs), or model.generate(**inputs); then `recording` (attend.Recording) has
    for each layer and head what attention_summary() and head_scores() say: each token's top keys, entropy and distance,
    what each key received, a map. The model may have been loaded with any attn_implementation: it computes with "attend"
    in the block, with the outputs of attn_implementation="attend" to the bit, and with its own afterwards.
    A generation's steps are further rows of the same layers.

    top           how many of each row's largest weights
    map           (R, C): the map's blocks, at most
    keep          "qk": queries and keys too, from which recording[layer].weights() makes any part of the weights exactly
    layers        which, by name ("3.self", of an encoder-decoder "decoder.3.cross") or number; None: all
    heads         the numbers of the query heads; None: all
    budget        what all of it may take, in bytes or such as "2 GiB"; the call that would pass it raises before it computes

    One call is one recording: a second one in the block raises RuntimeError. Raises TypeError for what is no model of
    transformers, ValueError for one that can't run with "attend" (register() tells which), for beam search and assisted
    generation, and for a budget that is too small.

    >>> import torch, attend.transformers
    >>> from transformers import BertConfig, BertModel
    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64))
    >>> with attend.transformers.record(model.eval(), keep="qk") as recording:
    ...     output = model(torch.tensor([[7, 8, 9, 7, 8]]))
    >>> recording.layers
    ['0.self', '1.self']
    >>> recording["1.self"].weights(head=3, queries=(0, 2)).shape
    (2, 5)
    >>> recording.tokens = ["the", "cat", "saw", "the", "cat"]
    >>> recording[1].top(head=0, query=4)[0].token in ("the", "cat", "saw")
    True
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"record: expected a model of transformers (PreTrainedModel), got {type(model).__name__}")
    if keep not in (None, "qk"):
        raise ValueError(f'record: keep: expected None or "qk", got {keep!r}')
    if not (isinstance(map, (tuple, list)) and len(map) == 2 and all(isinstance(size, int) for size in map)):
        raise TypeError(f"record: map: expected (rows, columns), got {map!r}")
    options = {"top": top, "map": tuple(map), "keep_qk": keep == "qk", "budget": recording.bytes_of(budget)}
    register()
    with _switched(model), recording.recording_of(model, lambda kind: _kind(kind) == "interface", options, layers,
                                                  heads) as made:
        yield made


@contextlib.contextmanager
def _switched(model):
    """In it the model computes with attend; then as before."""
    before = {id(config): (config, config._attn_implementation_internal) for config in _configs(model)}
    try:
        model.set_attn_implementation("attend")
        if model.config._attn_implementation != "attend":
            raise ValueError(_refusal(type(model).__name__))
        yield
    finally:
        for config, implementation in before.values():
            config._attn_implementation_internal = implementation


def _configs(model):
    """Those of a model, of its parts, and what lies in them."""
    waiting = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    while waiting:
        config = waiting.pop()
        yield config
        waiting += [inner for name in config.sub_configs if (inner := getattr(config, name, None)) is not None]


# --- Models that compute attention themselves ---------------------------------------------------------------------------
# Some would look "attend" up in a table of their own and raise KeyError, some compute eagerly without a word, some take
# attend's mask for a float one that they add: the results would be wrong without an error.


def _refusing(check):
    """The method that checks the name of an implementation before a model is made: not "attend" for those that would fail."""
    @functools.wraps(check)
    def changed(self, attn_implementation, *rest, **keywords):
        if attn_implementation == "attend" and not _may_use_interface(type(self)):
            raise ValueError(_refusal(type(self).__name__))
        return check(self, attn_implementation, *rest, **keywords)

    return changed


def _asking(set_attn_implementation):
    """The method that changes the implementation of a model that is there, or of its parts by name."""
    @functools.wraps(set_attn_implementation)
    def changed(self, attn_implementation, *rest, **keywords):
        if attn_implementation == "attend":
            _look(self)
        if attn_implementation in ("attend", "eager") and _teach(sys.modules[type(self).__module__]):
            self.config._attn_implementation = attn_implementation  # which transformers would not do
            return
        set_attn_implementation(self, attn_implementation, *rest, **keywords)
        if isinstance(attn_implementation, dict):
            for each in self.modules():
                if isinstance(each, PreTrainedModel) and each.config._attn_implementation == "attend":
                    _look(each)

    return changed


def _looking(post_init):
    """The method with which the constructors of models end."""
    @functools.wraps(post_init)
    def changed(self):
        post_init(self)
        if self.config._attn_implementation == "attend":
            _look(self)

    return changed


def _refusal(name):
    return (f'attend.transformers: {name} computes attention in its own code, not through transformers\' interface; '
            'expected attn_implementation="eager" for it')


@functools.cache
def _may_use_interface(model_class):
    """Whether the module of a model's class has transformers' interface, and no table of its own instead."""
    if _teach(sys.modules[model_class.__module__]):
        return True
    if not model_class._can_set_attn_implementation():
        return False
    source = inspect.getsource(sys.modules[model_class.__module__])
    return not re.search(r"[A-Z]_CLASSES\[(self\.)?config\._attn_implementation\]", source)


def _look(model):
    """ValueError for a model with attention of its own that gets attend's masks; a warning of other attention of its own."""
    if not _may_use_interface(type(model)):
        raise ValueError(_refusal(type(model).__name__))
    for module in model.modules():
        kind, name = _kind(type(module)), type(module).__name__
        if kind == "masked":
            raise ValueError(_refusal(f"{type(model).__name__} ({name})"))
        if kind == "unmasked":
            _warn_once(f"attend.transformers: {name} computes attention in its own code; attend does the other layers")


@functools.cache
def _kind(module_class):
    """How a class of modules computes attention: by transformers' "interface" or itself, "masked" or "unmasked"; or None.

    It is seen from the names that its code uses. Some that are called attention are none that attend could compute: they
    sample a few places, weigh features, draw maps.
    """
    if hasattr(module_class, "knows_attend"):
        return "interface"
    name = module_class.__name__
    if not re.search("Attention|Attn", name) or re.search("DeformableAttention|MixerGatedAttention|AttentionMap", name):
        return None
    names = {name for each in module_class.__mro__ if each.__module__.partition(".")[0] != "torch"
             for function in vars(each).values() if inspect.isfunction(function)
             for name in inspect.unwrap(function).__code__.co_names}
    if "get_interface" in names or ("ALL_ATTENTION_FUNCTIONS" in names and "eager_attention_forward" not in names):
        return "interface"
    if not names & {"softmax", "Softmax", "scaled_dot_product_attention", "eager_attention_forward", "MultiheadAttention"}:
        return None
    parameters = inspect.signature(module_class.forward).parameters
    return "masked" if any("mask" in name for name in parameters) and "MultiheadAttention" not in names else "unmasked"


# --- GPT-J, GPT-Neo and Falcon, whose own attention is taught to attend -----------------------------------------------------


def _gptj(self, query, key, value, attention_mask=None):
    """GPTJAttention._attn()."""
    out, _ = _attention(self, query, key, value, attention_mask, dropout=self.attn_dropout.p if self.training else 0.0,
                        scaling=1 / float(self.scale_attn))
    return out.transpose(1, 2), None


def _gpt_neo(self, query, key, value, attention_mask=None):
    """GPTNeoSelfAttention._attn(), which does not scale, and whose local layers have a window."""
    if self.attention_type == "local":
        attention_mask = _local(attention_mask, self.config.window_size, self.bias)
    out, _ = _attention(self, query, key, value, attention_mask, dropout=self.attn_dropout.p if self.training else 0.0,
                        scaling=1.0)
    return out.transpose(1, 2), None


def _local(mask, size, visible):
    """The causal mask with a window of so many keys; visible [1,1,positions,positions] says the same."""
    def full(mask):
        queries, keys = mask.shape[2:]
        hidden = ~visible[:, :, keys - queries:keys, :keys]
        return mask.masked_fill(hidden, False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min)
    if isinstance(mask, StructuredMask) and mask.made is None:
        return StructuredMask(mask.shape, mask.dtype, mask.options | {"window": (size - 1, 0)},
                              lambda **keywords: full(mask.full()))
    return full(mask)


def _falcon(self, hidden_states, alibi, attention_mask, position_ids=None, layer_past=None, use_cache=False,
            output_attentions=False, position_embeddings=None, **keywords):
    """FalconAttention.forward(); the model has added alibi to the mask."""
    heads = self._split_heads(self.query_key_value(hidden_states))
    query, key, value = (x.transpose(1, 2) for x in heads)
    if alibi is None:
        rotate = sys.modules[type(self).__module__].apply_rotary_pos_emb
        query, key = rotate(query, key, *position_embeddings)
    if layer_past is not None:
        key, value = layer_past.update(key, value, self.layer_idx)
    dropout = self.attention_dropout.p if self.training and alibi is not None else 0.0  # as there
    out, _ = _attention(self, query, key, value, attention_mask, dropout=dropout, scaling=self.inv_norm_factor)
    return self.dense(out.flatten(2)), None


# By the module: its class, the method that attends, and the table that it looks the class up in.
_TAUGHT = {
    "modeling_gptj": ("GPTJAttention", "_attn", _gptj, "GPTJ_ATTENTION_CLASSES"),
    "modeling_gpt_neo": ("GPTNeoSelfAttention", "_attn", _gpt_neo, "GPT_NEO_ATTENTION_CLASSES"),
    "modeling_falcon": ("FalconAttention", "forward", _falcon, "FALCON_ATTENTION_CLASSES"),
}


def _teach(module):
    """Whether the models of a module are of those; they are taught then, once."""
    found = _TAUGHT.get(module.__name__.rpartition(".")[2])
    if found is None:
        return False
    class_name, method, ours, table = found
    attention_class = getattr(module, class_name)
    if not hasattr(attention_class, "knows_attend"):
        theirs = getattr(attention_class, method)

        @functools.wraps(theirs)
        def changed(self, *arguments, **keywords):
            return (ours if self.config._attn_implementation == "attend" else theirs)(self, *arguments, **keywords)

        setattr(attention_class, method, changed)
        attention_class.knows_attend = True
        getattr(module, table)["attend"] = attention_class
    return True


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


def _mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masks.causal_mask_function,
          attention_mask=None, config=None, device="cpu", **keywords):
    """transformers' mask function: a StructuredMask where the structure is known, otherwise as for "sdpa".

    Never None where it is known: None would leave it to module.is_causal what is visible.
    """
    added = config is not None and not _knows_sdpa(type(config))
    make = functools.partial(
        masks.eager_mask if added else masks.sdpa_mask, batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
        kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, device=device, **keywords)
    # A traced graph holds tensors alone, and must not depend on their values.
    if is_tracing(attention_mask) or is_tracing(q_offset):
        return make()
    if config is not None and not _uses_interface(type(config)):
        raise ValueError(_refusal(f"the model of {type(config).__name__}"))
    if config is not None:
        _keep_distances(type(config))
    window = _window(mask_function)
    padded_otherwise = attention_mask is not None and attention_mask.ndim != 2
    if window is None or padded_otherwise or torch.device(device).type != "cpu":
        return make()
    # A static cache counts in a tensor that it changes in place.
    q_offset, kv_offset = int(q_offset), int(kv_offset)
    options = _visible_keys(attention_mask, kv_length, kv_offset)
    if window != (math.inf, math.inf):
        left, right = (None if side == math.inf else side for side in window)
        options |= {"window": (left, right), "offset": q_offset - kv_offset}
    make = functools.partial(make, q_offset=q_offset, kv_offset=kv_offset)
    dtype = keywords.get("dtype", torch.float32) if added else torch.bool
    return StructuredMask((batch_size, 1, q_length, kv_length), dtype, options, make)


def _classes_of(config_class):
    """What the module of the models of a configuration has of classes."""
    modeling = sys.modules.get(config_class.__module__.replace("configuration_", "modeling_"))
    return [each for each in vars(modeling).values() if isinstance(each, type) and each.__module__ == modeling.__name__
            ] if modeling else []


_knowing_sdpa: dict[type, bool] = {}  # not functools.cache, of which PyTorch's compiler warns


def _knows_sdpa(config_class):
    """Whether a model of a configuration takes bool masks; those without "sdpa" (DeepSeek V4) may join theirs with numbers."""
    if config_class not in _knowing_sdpa:
        models = [each for each in _classes_of(config_class) if issubclass(each, PreTrainedModel)]
        _knowing_sdpa[config_class] = not models or any(each._supports_sdpa for each in models)
    return _knowing_sdpa[config_class]


@functools.cache
def _uses_interface(config_class):
    """Whether the models of a configuration get their attention from transformers' interface.

    More than 40 models of transformers 5.23 (BLOOM, MPT, ...) compute it in their own code instead and take the
    mask for a float one that they add, or for an inverted one: the results would be wrong without an error.
    """
    for each in _classes_of(config_class):
        if issubclass(each, PreTrainedModel):
            return _may_use_interface(each)
    return True


# T5's attention adds a learned number for each distance between a query and a key. Its first layer makes a matrix
# [1,H,Tq,Tk] of them, which goes from layer to layer, and its cross-attention one of zeros. Here the numbers themselves
# go that way, [H,2R+1] for the distances -R to R, or a tensor without elements for the zeros; attention() looks them up.


@functools.cache
def _keep_distances(config_class):
    """Changes the attention class of T5, MT5 and those models that have copies of it."""
    for each in _classes_of(config_class):
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
                position_bias = _distances(self) if self.has_relative_attention_bias else hidden_states.new_empty(0)
            past = 0 if past_key_values is None else past_key_values.get_seq_length(self.layer_idx)
            keywords["past_keys"] = int(past)
        return forward(self, hidden_states, mask, key_value_states, position_bias, past_key_values, **keywords)

    return changed


def _distances(module):
    """T5's bias [H,2R+1] for key j and query i by j - i, from -R to R: farther ones are in the buckets of these."""
    reach = module.relative_attention_max_distance
    return module.compute_bias(1, 2 * reach + 1, past_seen_tokens=reach)[0, :, 0]


def _as_matrix(distances, queries, keys, past_keys):
    """[1,H,Tq,Tk], as T5 makes it."""
    reach = distances.shape[1] // 2
    apart = torch.arange(keys) - torch.arange(queries)[:, None] - past_keys
    return distances[None, :, apart.clamp(-reach, reach) + reach]


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


# Keys chosen for each query, which models make a mask of for "eager" and "sdpa" alone, and a sink for each query.
_UNKNOWN = ("indices", "block_indices", "sinks")


def _attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
               position_bias=None, softcap=None, s_aux=None, past_keys=0, **keywords):
    """transformers' attention function: query [B,H,Tq,D], key [B,Hkv,Tk,D], value [B,Hkv,Tk,Dv] -> [B,Tq,H,Dv], None.

    keywords that other implementations need (sliding_window, position_ids, ...) are in the mask already, as for "sdpa".
    """
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if hasattr(module, "config") and not _knows_sdpa(type(module.config)):
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
            position_bias = _as_matrix(distances, query.shape[2], key.shape[2], past_keys)
        return _fall_back(reason, module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                          is_causal=is_causal, position_bias=position_bias, softcap=softcap, s_aux=s_aux, **keywords)
    options = _mask_options(attention_mask, position_bias, query, key, is_causal)
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
        _warn_once("attend.transformers: output_attentions=True returns no attention weights where a layer's take more "
                   "than 256 MiB; attend.attention_summary() shows what they say")
        return None
    _warn_once("attend.transformers: output_attentions=True makes the matrix of weights of every layer, before dropout and "
               "without a gradient; attend.attention_summary() needs no matrix")
    plain = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    return attention_weights(query.detach(), key.detach(), **plain).to(query.dtype)


def _mask_options(mask, position_bias, query, key, is_causal):
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
    eager = None
    if softcap is not None or s_aux is not None:
        eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
        if eager is None:
            raise ValueError(f"attend.transformers: {type(module).__name__} has a soft cap or sinks: {reason} needs "
                             'attn_implementation="eager"')
    _warn_once(f"attend.transformers: attend does not do {reason}; such calls run as with "
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


def _warn_once(message):
    # Nothing is said while a graph is made: a warning would break it in two.
    if message not in _warned and not is_tracing():
        _warned.add(message)
        warnings.warn(message, stacklevel=2)
