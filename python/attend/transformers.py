"""attn_implementation="attend" for Hugging Face models on the CPU (register()), and what their heads look at (record())."""

import contextlib
import inspect

try:
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    from transformers.masking_utils import sdpa_mask

    if "q_offset" not in inspect.signature(sdpa_mask).parameters:
        raise ImportError("this version of transformers does not give mask functions a q_offset")
    from . import _transformers_models as models
except ImportError as error:
    raise ImportError("attend.transformers needs PyTorch and Hugging Face transformers 5.4 or newer: "
                      "pip install 'attend-cpu[transformers]'") from error

from . import _transformers_record as recording
from ._transformers_attention import attention_forward
from ._transformers_cache import QuantizedCache

__all__ = ["QuantizedCache", "record", "register"]


def register() -> None:
    """Let Hugging Face models take attn_implementation="attend"; a second call changes nothing.

    from_pretrained() and configurations take it. For a loaded model, use model.set_attn_implementation("attend").

    The kernel does grouped-query attention, causal masks, sliding windows, padding, caches, soft caps, attention sinks and
    the position biases of T5 and MT5. Nothing of the size Tq * Tk is made, unless the model itself makes it or its mask is
    none of these (packed sequences, chunked attention, your own masks). Models train with it, with dropout too, whose seeds
    come from PyTorch's default generator.

    For what attend does not do (tensors that are not on the CPU, continuous batching) the model runs as with "sdpa", or as
    with "eager" if it has soft caps or sinks, and one warning says so. With output_attentions=True a layer's weights are
    returned if they take at most 256 MiB in float32, before dropout and without a gradient, and one warning says so;
    attend.attention_summary() looks into longer inputs. A row that may attend to nothing, such as a position of left
    padding, gives 0, where "eager" gives the mean of all values.

    ValueError is raised when a model is made, or when "attend" is set, if the model does not use transformers' attention
    interface (BLOOM, MPT, DeBERTa and others compute attention in their own code) or has layers that do not (LongT5, CLAP).
    If such layers take no mask (SigLIP's pooling head), they stay as they are, and a warning names them.

    >>> import attend.transformers
    >>> attend.transformers.register()
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    ...                      num_key_value_heads=2, vocab_size=99, attn_implementation="attend")
    >>> model = LlamaForCausalLM(config).eval()
    """
    if "attend" not in AttentionInterface().valid_keys():  # else whoever stands in front of it would be put away
        AttentionInterface.register("attend", attention_forward)
        AttentionMaskInterface.register("attend", models.mask)
    for name, change in {"_check_and_adjust_attn_implementation": models.refusing, "set_attn_implementation": models.asking,
                         "post_init": models.looking}.items():
        method = getattr(PreTrainedModel, name)
        if not hasattr(method, "knows_attend"):
            setattr(PreTrainedModel, name, change(method))
            getattr(PreTrainedModel, name).knows_attend = True


@contextlib.contextmanager
def record(model, *, top=8, map=(256, 256), keep=None, key_sizes=False, layers=None, heads=None, budget="2 GiB"):
    """Record what every head of a model attends to, in memory that grows with the text's length and not with its square.

    Call model(**inputs) or model.generate(**inputs) in the block `with record(model) as recording:`. Afterwards `recording`
    (attend.Recording) has for each layer and head what attention_summary() and head_scores() say: each token's top keys,
    entropy and distance, what each key received, a map. The model may have any attn_implementation. In the block it
    computes with "attend", with the same bits as attn_implementation="attend"; afterwards with its own again.
    A generation's steps are further rows of the same layers.

    top           how many of each row's largest weights
    map           (R, C): the map's blocks, at most
    keep          "qk": keep queries and keys too, from which recording[layer].weights() makes any part of the weights exactly
    key_sizes     True: keep what each key carries too, abs(W_O v), so that all is known by norm: recording.heads(by="norm").
                  A warning says in which layers the output projection was not found
    layers        which layers, by name ("3.self", in an encoder-decoder "decoder.3.cross") or number; None: all
    heads         the numbers of the query heads; None: all
    budget        what all of it may take, in bytes or as "2 GiB"; a call that would take more raises before it computes

    One call is one recording: a second call in the block raises RuntimeError. Raises TypeError for anything but a model of
    transformers. Raises ValueError for a model that can't run with "attend" (register() says which), for beam search and
    assisted generation, and for a budget that is too small.

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
    if not isinstance(top, int):
        raise TypeError(f"record: top: expected a whole number, got {top!r}")
    if not (isinstance(map, (tuple, list)) and len(map) == 2 and all(isinstance(size, int) for size in map)):
        raise TypeError(f"record: map: expected (rows, columns), got {map!r}")
    options = {"top": top, "map": tuple(map), "keep_qk": keep == "qk", "key_sizes": bool(key_sizes), "budget": recording.bytes_of(budget)}
    register()
    with _switched(model), recording.recording_of(model, lambda kind: models.kind(kind) == "interface", options, layers,
                                                  heads) as made:
        yield made


@contextlib.contextmanager
def _switched(model):
    """In it the model computes with attend; then as before."""
    before = {id(config): (config, config._attn_implementation_internal) for config in _configs(model)}
    try:
        model.set_attn_implementation("attend")
        if model.config._attn_implementation != "attend":
            raise ValueError(models.refusal(type(model).__name__))
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
