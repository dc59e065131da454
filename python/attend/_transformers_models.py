"""Which models attend through transformers' interface, which are taught to, and which are refused by name."""

import functools
import inspect
import re
import sys

import torch
from transformers import PreTrainedModel
from transformers import masking_utils as masks
from transformers.utils.import_utils import is_tracing

from ._transformers_attention import attention_forward, warn_once
from ._transformers_masks import StructuredMask, classes_of, keep_distances, knows_sdpa, structured_mask

# --- Models that compute attention themselves ---------------------------------------------------------------------------
# Some would look "attend" up in a table of their own and raise KeyError, some compute eagerly without a word, some take
# attend's mask for a float one that they add: the results would be wrong without an error.


def refusing(check):
    """The method that checks the name of an implementation before a model is made: not "attend" for those that would fail."""
    @functools.wraps(check)
    def changed(self, attn_implementation, *rest, **keywords):
        if attn_implementation == "attend" and not _may_use_interface(type(self)):
            raise ValueError(refusal(type(self).__name__))
        return check(self, attn_implementation, *rest, **keywords)

    return changed


def asking(set_attn_implementation):
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


def looking(post_init):
    """The method with which the constructors of models end."""
    @functools.wraps(post_init)
    def changed(self):
        post_init(self)
        if self.config._attn_implementation == "attend":
            _look(self)

    return changed


def refusal(name):
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
        raise ValueError(refusal(type(model).__name__))
    for module in model.modules():
        own, name = kind(type(module)), type(module).__name__
        if own == "masked":
            raise ValueError(refusal(f"{type(model).__name__} ({name})"))
        if own == "unmasked":
            warn_once(f"attend.transformers: {name} computes attention in its own code; attend does the other layers")


@functools.cache
def kind(module_class):
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
    dropout = self.attn_dropout.p if self.training else 0.0
    out, _ = attention_forward(self, query, key, value, attention_mask, dropout=dropout, scaling=1 / float(self.scale_attn))
    return out.transpose(1, 2), None


def _gpt_neo(self, query, key, value, attention_mask=None):
    """GPTNeoSelfAttention._attn(), which does not scale, and whose local layers have a window."""
    if self.attention_type == "local":
        attention_mask = _local(attention_mask, self.config.window_size, self.bias)
    dropout = self.attn_dropout.p if self.training else 0.0
    out, _ = attention_forward(self, query, key, value, attention_mask, dropout=dropout, scaling=1.0)
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
    out, _ = attention_forward(self, query, key, value, attention_mask, dropout=dropout, scaling=self.inv_norm_factor)
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


# --- What a model's masks are made by -----------------------------------------------------------------------------------


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masks.causal_mask_function,
         attention_mask=None, config=None, device="cpu", **keywords):
    """transformers' mask function: a StructuredMask where the structure is known, otherwise as for "sdpa".

    Never None where it is known: None would leave it to module.is_causal what is visible.
    """
    added = config is not None and not knows_sdpa(type(config))
    make = functools.partial(
        masks.eager_mask if added else masks.sdpa_mask, batch_size=batch_size, q_length=q_length, kv_length=kv_length,
        q_offset=q_offset, kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask, device=device, **keywords)
    # A traced graph holds tensors alone, and must not depend on their values.
    if is_tracing(attention_mask) or is_tracing(q_offset):
        return make()
    if config is not None and not _uses_interface(type(config)):
        raise ValueError(refusal(f"the model of {type(config).__name__}"))
    if config is not None:
        keep_distances(type(config))
    return structured_mask(make, keywords.get("dtype", torch.float32) if added else torch.bool)


@functools.cache
def _uses_interface(config_class):
    """Whether the models of a configuration get their attention from transformers' interface.

    More than 40 models of transformers 5.23 (BLOOM, MPT, ...) compute it in their own code instead and take the
    mask for a float one that they add, or for an inverted one: the results would be wrong without an error.
    """
    for each in classes_of(config_class):
        if issubclass(each, PreTrainedModel):
            return _may_use_interface(each)
    return True
