"""Every model type in the registry of transformers, made tiny: tiny() is its configuration, model_class() its model, and
candidates() are inputs for it.

The names of a configuration's fields tell what makes the model large; EXTRA has what else a type needs.
"""

import dataclasses
import importlib
import inspect
import math
import re

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

TYPES = tuple(CONFIG_MAPPING_NAMES)
BATCH, TOKENS, WRITTEN, IMAGE, PATCH, VOCABULARY, HEAD = 2, 12, 7, 32, 8, 99, 16

# What a larger number becomes, by its field's name: the first pattern that matches.
LARGEST = {re.compile(pattern): size for pattern, size in {
    r".*num_codebooks|.*channels": math.inf,
    r".*codebook_size": 64,
    r".*vocab_size.*|num_codes|n_vocab": VOCABULARY,
    r".*layers|n_layers?|.*depth|.*num_blocks|n_group|num_expert_groups": 2,
    r"topk_group": 1,
    r".*heads?(_per_layer)?|.*num_head_channels": 4,
    r".*head_dim|d_kv|.*head_size|.*lora_rank": HEAD,
    r".*intermediate.*|.*ffn.*|d_ff|d_inner|n_inner|dim_feedforward|mlp_dim|.*feedforward.*": 128,
    r".*hidden_size.*|.*d_model|n_embd|.*embed_dim|.*hidden_dim|.*embedding_size|.*projection_dim|emb_dim|.*width": 64,
    r".*image_size": IMAGE,
    r".*patch_size": PATCH,
    r".*experts": 4,
    r".*experts_per_tok|.*top_?k.*": 2,
    r"(sliding|attention)_window.*|local_attention": 6,
}.items()}
# Numbers that no model can do without, where a configuration has none.
NEEDED = {"head_dim": HEAD, "vocab_size": VOCABULARY, "prediction_length": 4, "num_experts_per_tok": 2}

ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}}
HALF_ROPE = {"rope_parameters": {**ROPE["rope_parameters"], "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}}
BOTH_WINDOWS = {"layer_types": ["sliding_attention", "full_attention"]}
SWIN = {"image_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4]}
# What else to say of a type, by field; a dict for a part of it.
EXTRA = {
    **dict.fromkeys(["glm4v_text", "glm_image_text", "glm_ocr_text", "paddleocr_vl_text", "qwen2_5_omni_talker",
                     "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text"], ROPE),
    **dict.fromkeys(["glm46v", "glm4v", "glm_image", "glm_ocr", "glmga", "paddleocr_vl", "qwen2_5_vl", "qwen2_vl"],
                    {"text_config": ROPE}),
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass": {"text_config": {**BOTH_WINDOWS, **HALF_ROPE}},
    "colqwen2": {"vlm_config": {"text_config": ROPE}},
    "decision_transformer": {"state_dim": 3, "act_dim": 2},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1},
    "esm": {"pad_token_id": 1, "mask_token_id": 2},
    "gemma3n_text": {"num_hidden_layers": 5, "num_kv_shared_layers": 0},
    "glm4v_moe": {"text_config": HALF_ROPE},
    "glm4v_moe_text": HALF_ROPE,
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 6},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"num_key_value_heads": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [4, 3]},
    "step3p5": {"sliding_window": 6},
    "swin": SWIN,
    "xclip_vision_model": {"num_frames": 2},
    "xmod": {"default_language": "en_XX"},
}


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def smaller(name, value):
    for pattern, size in LARGEST.items():
        if pattern.fullmatch(name):
            return min(value, size)
    return value


def defaults(config_class):
    """The fields of a configuration that have a value by default."""
    known = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING:
            known[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            known[field.name] = field.default_factory()
    return known


def small_config(config_class, extra=None):
    """A configuration of the class with small sizes, and with what `extra` says."""
    extra, known = dict(extra or {}), defaults(config_class)
    changed, special = {}, iter(range(VOCABULARY - 1, 0, -1))
    for name, value in known.items():
        if value is None and name in NEEDED:
            changed[name] = NEEDED[name]
        elif is_number(value) and value >= VOCABULARY and re.fullmatch(r".*_token(_id|_index)?", name):
            changed[name] = next(special)
        elif is_number(value) and smaller(name, value) != value:
            changed[name] = smaller(name, value)
    if known.get("num_key_value_heads") not in (None, known.get("num_attention_heads")):
        changed["num_key_value_heads"] = 2
    if isinstance(known.get("num_heads"), (list, tuple)):
        changed.pop("embed_dim", None)  # Swin's, which these numbers of heads divide
    changed |= layers_of_each_kind(config_class, known)
    for name, part in config_class.sub_configs.items():
        if part is transformers.AutoConfig:
            model_type = getattr(config_class.sub_configs_defaults[name], "model_type", None)
            part = CONFIG_MAPPING[model_type] if model_type else None
        if part:
            changed[name] = small_config(part, extra.pop(name, None))
    return config_class(**changed | extra)


def layers_of_each_kind(config_class, known):
    """As many layers as it takes to have each kind, and a rotary embedding whose sections fit a small head."""
    try:
        config = config_class()
    except Exception:  # it has no defaults for all: what is needed is in EXTRA
        return {}
    layers, changed = known.get("num_hidden_layers"), {}
    if is_number(layers):
        lists = {name: each for name, each in vars(config).items() if isinstance(each, list) and len(each) == layers}
        firsts = [each.index(kind) for each in lists.values() for kind in each if isinstance(kind, (str, int))]
        count = min(max([1, *firsts]) + 1, 8)
        changed["num_hidden_layers"] = count
        changed |= {name: each[:count] for name, each in lists.items() if isinstance(known.get(name), (list, tuple))}
    rope = getattr(config, "rope_parameters", None)
    if rope and rope.get("mrope_section"):
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        total = sum(rope["mrope_section"]) * HEAD // head
        changed["rope_parameters"] = rope | {"mrope_section": [total - 2 * (total // 3), total // 3, total // 3]}
    return changed


def tiny(model_type):
    """The type's configuration, with all that makes its model large made small."""
    return small_config(CONFIG_MAPPING[model_type], EXTRA.get(model_type))


def model_class(model_type):
    """The type's model: the registry's, or the first that its module has for its configuration; None: it has none."""
    names = MODEL_MAPPING_NAMES.get(model_type)
    if names:
        return getattr(transformers, names if isinstance(names, str) else names[0])
    config_class = CONFIG_MAPPING[model_type]
    module = importlib.import_module(config_class.__module__.replace("configuration_", "modeling_"))
    for each in vars(module).values():
        if (inspect.isclass(each) and issubclass(each, transformers.PreTrainedModel) and each.config_class is config_class
                and each.__module__ == module.__name__ and not each.__name__.endswith("PreTrainedModel")):
            return each
    return None


def size_of(config, *names, default):
    for each in (config, config.get_text_config()):
        for name in names:
            value = getattr(each, name, None)
            value = value[0] if isinstance(value, (list, tuple)) and value else value
            if is_number(value):
                return value
    return default


class Inputs:
    """Numbers and tokens in all the shapes that models want them in, by the names of their arguments."""

    def __init__(self, config, parameters):
        self.generator = torch.Generator().manual_seed(5)
        self.vocabulary = size_of(config, "vocab_size", default=VOCABULARY)
        hidden = size_of(config, "hidden_size", "d_model", default=64)
        padding = torch.ones(BATCH, TOKENS, dtype=torch.long)
        padding[1, -2:] = 0  # fewer than a window has: each row sees something
        states = self.numbers(BATCH, TOKENS, hidden)
        self.single = {
            "input_ids": self.tokens(TOKENS), "attention_mask": padding, "decoder_input_ids": self.tokens(WRITTEN),
            "qformer_input_ids": self.tokens(TOKENS), "inputs_embeds": states, "hidden_states": states,
            "encoder_hidden_states": states, "query_embeds": states,
            **dict.fromkeys(["input_features_mask", "feature_attention_mask", "pixel_attention_mask",
                             "past_observed_mask"], torch.ones(BATCH, 64, dtype=torch.long))}
        self.several = self.sounds(config) | self.images(config)
        if "grid_thw" in parameters:  # patches of two images, one after the other
            self.single.pop("hidden_states")
            self.single["grid_thw"] = torch.tensor([[1, 4, 4], [1, 4, 8]])
            self.several |= dict.fromkeys(["hidden_states", "pixel_values"], self.patches(config))

    def numbers(self, *shape):
        return torch.randn(shape, generator=self.generator)

    def tokens(self, count):
        first, last = min(5, self.vocabulary - 1), min(self.vocabulary, 80)
        return torch.randint(first, last, (BATCH, count), generator=self.generator)

    def images(self, config):
        channels = size_of(config, "num_channels", "in_channels", "in_chans", default=3)
        size = size_of(config, "image_size", "input_size", default=IMAGE)
        frames = size_of(config, "num_frames", default=4)
        flat = self.patches(config)[0].shape[1]
        return {"pixel_values": [self.numbers(BATCH, channels, size, size), self.numbers(BATCH, channels, 128, 128),
                                 self.numbers(BATCH, frames, channels, size, size), self.numbers(BATCH, 16, flat)],
                "pixel_values_videos": [self.numbers(BATCH, 4, channels, size, size)]}

    def patches(self, config):
        channels = size_of(config, "num_channels", "in_channels", "in_chans", default=3)
        patch, frames = (size_of(config, name, default=size)
                         for name, size in (("patch_size", PATCH), ("temporal_patch_size", 1)))
        flat = patch**2 * channels * frames
        return [self.numbers(48, flat), self.numbers(48, channels, patch, patch), self.numbers(48, 2 * flat)]

    def sounds(self, config):
        mels = size_of(config, "num_mel_bins", "num_mel_channels", "feature_size", "input_dim", "n_mels",
                       "input_feat_per_channel", default=80)
        longest = min(3000, 2 * size_of(config, "max_source_positions", default=64))
        history = size_of(config, "context_length", default=32)
        return {
            "input_features": [self.numbers(*shape) for length in (64, longest) for shape in (
                (BATCH, mels, length), (BATCH, length, mels), (BATCH, length, 2 * mels), (BATCH, length, 128),
                (BATCH, length, 160), (BATCH, length, 320), (BATCH, 1, length, mels))],
            "input_values": [self.numbers(BATCH, 4000), self.numbers(BATCH, 1, 4000), self.numbers(BATCH, 1024, 128)],
            "past_values": [self.numbers(BATCH, history, size_of(config, "num_input_channels", default=1))]}


BESIDE = ("pixel_values", "input_features", "input_values", "input_ids", "encoder_hidden_states", "feature_attention_mask",
          "input_features_mask")


def candidates(model):
    """Arguments for a model, of which some fit: what it asks for, and that with one of BESIDE, in each of its shapes."""
    parameters = inspect.signature(model.forward).parameters
    required = [name for name, each in parameters.items()
                if each.default is each.empty and each.kind == each.POSITIONAL_OR_KEYWORD]
    named = {model.main_input_name, "decoder_input_ids", *required} & parameters.keys()
    if named & {"input_ids", "inputs_embeds"}:
        named |= {"attention_mask"} & parameters.keys()
    inputs = Inputs(model.config, parameters)
    for beside in [set(), *({name} for name in BESIDE if name in parameters.keys() - named)]:
        wanted = sorted(named | beside)
        shapes = {name: inputs.several[name] for name in wanted if name in inputs.several}
        single = {name: inputs.single[name] for name in wanted if name in inputs.single}
        for i in range(max([1, *map(len, shapes.values())])):
            yield single | {name: each[min(i, len(each) - 1)] for name, each in shapes.items()}
