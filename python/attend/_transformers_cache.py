"""Keys and values of 8 bits for Hugging Face's generate(): attend.transformers.QuantizedCache."""

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

from ._core import KvCache

# "sliding": every key is kept, and the mask hides those that the window leaves.
_LAYER_TYPES = {"full_attention", "sliding_attention"}


class CachedRows(torch.Tensor):
    """What a layer of QuantizedCache gives a model in place of keys or values: their shape and dtype, and the cache
    for attend's attention function. Nothing else can be done with it: there are no numbers in it."""

    @staticmethod
    def __new__(cls, cache, shape, like):
        rows = like.new_zeros(()).expand(shape).as_subclass(cls)
        rows.cache = cache
        return rows

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("__get__", "dim", "size", "stride"):  # .shape, .dtype, .device, ...
            return super().__torch_function__(function, types, args, kwargs)
        raise TypeError("attend.transformers.QuantizedCache: its keys and values are for attn_implementation=\"attend\" "
                        f"alone; something else called {function.__name__}() on them")


class _QuantizedLayer(CacheLayerMixin):
    is_croppable = True

    def __init__(self):
        super().__init__()
        self.cache = None

    def lazy_initialization(self, key_states, value_states):
        self.dtype, self.device = key_states.dtype, key_states.device
        batch, heads, _, d_k = key_states.shape
        self.cache = KvCache(batch, heads, d_k, value_states.shape[-1], dtype="int8")
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        """Appends; the keys and values so far. Those of a first call are given as they came."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first = len(self.cache) == 0
        self.cache.append(key_states.detach(), value_states.detach())
        if first:
            return key_states, value_states
        shape = (self.cache.batch, self.cache.heads, len(self.cache))
        return (CachedRows(self.cache, (*shape, self.cache.d_k), key_states),
                CachedRows(self.cache, (*shape, self.cache.d_v), value_states))

    def get_seq_length(self):
        return len(self.cache) if self.is_initialized else 0

    def get_mask_sizes(self, query_length):
        return self.get_seq_length() + query_length, 0

    def get_max_length(self):
        return -1

    def reset(self):
        self.cache, self.is_initialized = None, False

    def crop(self, tokens_to_remove):
        if tokens_to_remove > 0:
            raise ValueError(f"QuantizedCache.crop: {tokens_to_remove}, expected the negative number of tokens to remove")
        if self.is_initialized:
            self.cache.truncate(len(self.cache) + tokens_to_remove)

    def _rebuild(self, choose):
        """With other batch items: what stands for 8 bits comes to the same 8 bits again."""
        if self.get_seq_length() > 0:
            keys, values = choose(self.cache.keys()), choose(self.cache.values())
            self.cache = KvCache(keys.shape[0], keys.shape[1], keys.shape[3], values.shape[3], dtype="int8")
            self.cache.append(keys, values)

    def reorder_cache(self, beam_idx):
        self._rebuild(lambda x: x.index_select(0, beam_idx))

    def batch_repeat_interleave(self, repeats):
        self._rebuild(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices):
        self._rebuild(lambda x: x[indices, ...])


class QuantizedCache(Cache):
    """past_key_values for a model with attn_implementation="attend" that keeps keys and values in 8 bits.

    It takes half the memory of a bfloat16 cache and a quarter of a float32 one. With a long cache, each token takes less time
    in the same proportion. Each row of a head is kept to within half of a 127th of its largest magnitude (attend.KvCache
    with dtype="int8"). The first call attends to the numbers as they are.
    It is for layers with full or sliding attention; ValueError names others. Nothing is recorded for gradients.

    >>> import attend.transformers, torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> attend.transformers.register()
    >>> config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    ...                      vocab_size=99, eos_token_id=None, attn_implementation="attend")
    >>> model = LlamaForCausalLM(config).eval()
    >>> cache = attend.transformers.QuantizedCache(config)
    >>> tokens = model.generate(torch.tensor([[1, 2, 3]]), past_key_values=cache, max_new_tokens=5, do_sample=False)
    >>> cache.get_seq_length()
    7
    """

    def __init__(self, config):
        if not isinstance(config, PreTrainedConfig):
            raise TypeError("attend.transformers.QuantizedCache: expected a model's config (a transformers.PreTrainedConfig), "
                            f"got {type(config).__name__}")
        config = config.get_text_config(decoder=True)
        others = set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES
        if others:
            raise ValueError(f"attend.transformers.QuantizedCache: layers of {', '.join(sorted(others))}; expected "
                             "full_attention or sliding_attention")
        super().__init__(layers=[_QuantizedLayer() for _ in range(config.num_hidden_layers)])
