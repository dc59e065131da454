"""Tiny models with random weights for tests/pytorch: CASES, configurations of each type that attend.Model knows; written() makes
the folder of one, and Both opens it by attend and by Transformers, whose eager attention is what is expected.
"""

import dataclasses
import json
import os

import numpy as np
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import transformers

import attend

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

# Of the largest magnitude. Each is as far from the exact numbers as sums of some 50 products in f32 are, layer by layer.
TOLERANCE = 2e-5
LENGTHS = (1, 7, 40)
NEW = 64
SHAPE = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
         "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
GROUPED = SHAPE | {"num_key_value_heads": 2}
DISTIL = {"vocab_size": 99, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 128}
GPT2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "bos_token_id": 1, "eos_token_id": None}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str  # the class of the model
    config: dict  # its configuration's arguments
    old: dict = dataclasses.field(default_factory=dict)  # what config.json says instead, as older versions wrote it; None: nothing

    @property
    def decodes(self):
        encodes = any(each in self.name.lower() for each in ("bert", "mpnet", "electra", "gte", "t5encoder"))
        return not encodes and not self.config.get("use_bidirectional_attention")

    @property
    def has_types(self):
        return self.name.startswith(("Bert", "Albert", "Electra", "NomicBert")) or self.config.get("type_vocab_size", 0) > 1


def bert(head="Model", **config):
    return Case(f"Bert{head}", SHAPE | config)


def roberta(head="Model", **config):
    return Case(f"Roberta{head}", SHAPE | {"pad_token_id": 1, "max_position_embeddings": 130} | config)


def distilbert(head="Model", **config):
    return Case(f"DistilBert{head}", DISTIL | config)


def mpnet(head="Model", **config):
    return Case(f"MPNet{head}", SHAPE | {"pad_token_id": 1, "max_position_embeddings": 130} | config)


def albert(head="Model", **config):
    return Case(f"Albert{head}", SHAPE | {"embedding_size": 24} | config)


def electra(head="Model", **config):
    return Case(f"Electra{head}", SHAPE | {"embedding_size": 24} | config)


def nomic_bert(head="Model", **config):
    return Case(f"NomicBert{head}", SHAPE | config)


def gte(head="Model", old=None, **config):
    return Case(f"Gte{head}", SHAPE | config, old or {})


def modernbert(head="Model", old=None, **config):
    return Case(f"ModernBert{head}", SHAPE | {"local_attention": 10} | config, old or {})


def gpt2(head="LMHeadModel", **config):
    return Case(f"GPT2{head}", GPT2 | config)


def llama(head="ForCausalLM", old=None, **config):
    return Case(f"Llama{head}", GROUPED | config, old or {})


def rope(rope_type, rope_theta=10000.0, old=None, head_dim=8, **parameters):
    return llama(rope_parameters={"rope_type": rope_type, "rope_theta": rope_theta, **parameters}, old=old, head_dim=head_dim)


def mistral(**config):
    return Case("MistralForCausalLM", GROUPED | {"sliding_window": None} | config)


def qwen2(old=None, **config):
    return Case("Qwen2ForCausalLM", GROUPED | config, old or {})


def qwen3(**config):
    return Case("Qwen3ForCausalLM", GROUPED | {"head_dim": 16} | config)


def smollm3(**config):
    return Case("SmolLM3ForCausalLM", GROUPED | config)


def phi3(old=None, **config):
    return Case("Phi3ForCausalLM", GROUPED | config, old or {})


def olmo2(head="ForCausalLM", **config):
    return Case(f"Olmo2{head}", GROUPED | config)


def gemma2(**config):
    return Case("Gemma2ForCausalLM", GROUPED | {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 5} | config)


def gemma3(head="ForCausalLM", old=None, **config):
    return Case(f"Gemma3{head}", GROUPED | {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 5, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention"]} | config, old or {})


def neox(head="ForCausalLM", old=None, **config):
    return Case(f"GPTNeoX{head}", SHAPE | {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}} | config, old or {})


def opt(head="ForCausalLM", **config):
    config = SHAPE | {"ffn_dim": SHAPE["intermediate_size"]} | config
    return Case(f"OPT{head}", {name: each for name, each in config.items() if name != "intermediate_size"})


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"factor": 2.0, "original_max_position_embeddings": 64}
LONG = {"short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.25, 2.0, 3.5, 6.0], "original_max_position_embeddings": 32}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
OLD = {"rope_parameters": None, "rope_theta": 10000.0}  # then rope_scaling
ENCODERS = {
    "bert": bert(),
    "bert for masks": bert("ForMaskedLM"),
    "bert for classes": bert("ForSequenceClassification"),
    "bert gelu_new": bert(hidden_act="gelu_new"),
    "bert gelu_pytorch_tanh": bert(hidden_act="gelu_pytorch_tanh"),
    "bert relu": bert(hidden_act="relu"),
    "bert silu": bert(hidden_act="silu"),
    "bert eps, types": bert(layer_norm_eps=1e-2, type_vocab_size=3),
    "bert one type": bert(type_vocab_size=1),
    "roberta": roberta(),
    "roberta for masks": roberta("ForMaskedLM", type_vocab_size=1),
    "roberta padding 5": roberta(pad_token_id=5, max_position_embeddings=140),
    "xlm-roberta": Case("XLMRobertaModel", roberta().config),
    "camembert": Case("CamembertForMaskedLM", roberta().config),
    "distilbert": distilbert(),
    "distilbert for masks": distilbert("ForMaskedLM"),
    "distilbert for classes": distilbert("ForSequenceClassification"),
    "mpnet": mpnet(),
    "mpnet for masks": mpnet("ForMaskedLM", relative_attention_num_buckets=40, layer_norm_eps=1e-2),
    "mpnet for classes": mpnet("ForSequenceClassification", pad_token_id=0, hidden_act="relu"),
    "albert": albert(),
    "albert for pretraining": albert("ForPreTraining", num_hidden_groups=2, type_vocab_size=3),
    "albert groups": albert("ForMaskedLM", num_hidden_layers=5, num_hidden_groups=3, inner_group_num=2, hidden_act="gelu"),
    "albert more groups": albert(num_hidden_groups=4),
    "electra": electra(),
    "electra for pretraining": electra("ForPreTraining", embedding_size=32, type_vocab_size=3, hidden_act="relu", layer_norm_eps=1e-2),
    "electra for masks": electra("ForMaskedLM"),
    "electra for classes": electra("ForSequenceClassification"),
    "nomic_bert": nomic_bert(),
    "nomic_bert for masks": nomic_bert("ForMaskedLM", head_dim=12, hidden_act="gelu", layer_norm_eps=1e-2),
    "nomic_bert for classes": nomic_bert("ForSequenceClassification", type_vocab_size=3, rope_parameters={
        "rope_type": "yarn", "rope_theta": 5e3, **YARN, "beta_fast": 4, "beta_slow": 2}),
    "gte": gte(),
    "gte for masks": gte("ForMaskedLM", type_vocab_size=0, hidden_act="relu", layer_norm_eps=1e-2),
    "gte for classes": gte("ForSequenceClassification", type_vocab_size=2, rope_parameters={
        "rope_type": "linear", "rope_theta": 5e3, "factor": 1.5}),
    "modernbert": modernbert(),
    "modernbert for masks": modernbert("ForMaskedLM", hidden_activation="silu", num_hidden_layers=5),
    "modernbert for classes": modernbert("ForSequenceClassification", local_attention=1, norm_eps=1e-2),
    "modernbert biases": modernbert(attention_bias=True, mlp_bias=True, norm_bias=True, layer_types=[
        "sliding_attention", "sliding_attention", "full_attention"]),
    "modernbert scalings": modernbert(rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 5e3, **YARN},
                                                       "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e3}}),
    "modernbert, old": modernbert(num_hidden_layers=4, layer_types=["full_attention", "sliding_attention"] * 2, rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 3e3}, "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}},
        old={"layer_types": None, "rope_parameters": None, "global_attn_every_n_layers": 2, "global_rope_theta": 3e3,
             "local_rope_theta": 20.0}),
    "distilbert sines, relu": distilbert(sinusoidal_pos_embds=True, activation="relu"),
}
DECODERS = {
    "gpt2": gpt2(),
    "gpt2 bare": gpt2("Model"),
    "gpt2 bare, untied": gpt2("Model", tie_word_embeddings=False),
    "gpt2 n_inner, relu": gpt2(n_inner=40, activation_function="relu"),
    "gpt2 gelu": gpt2(activation_function="gelu"),
    "gpt2 unscaled": gpt2(scale_attn_weights=False),
    "gpt2 by layer": gpt2(scale_attn_by_inverse_layer_idx=True, layer_norm_epsilon=1e-2),
    "gpt2 reordered": gpt2(reorder_and_upcast_attn=True),
    "gpt2 by layer, reordered": gpt2(scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True),
    "gpt2 untied": gpt2(tie_word_embeddings=False),
    "gpt_neox": neox(),
    "gpt_neox bare": neox("Model"),
    "gpt_neox in turn, no biases": neox(use_parallel_residual=False, attention_bias=False, layer_norm_eps=1e-2, tie_word_embeddings=True),
    "gpt_neox gelu_new, whole heads": neox(hidden_act="gelu_new", rope_parameters={"partial_rotary_factor": 1.0, "rope_theta": 5e3}),
    "gpt_neox old": neox(rope_parameters={"partial_rotary_factor": 0.25, "rope_theta": 5e3}, old={
        "rope_parameters": None, "rotary_pct": 0.25, "rotary_emb_base": 5000}),
    "opt": opt(),
    "opt bare": opt("Model"),
    "opt as 350m": opt(do_layer_norm_before=False, word_embed_proj_dim=20),
    "opt projected, gelu": opt(word_embed_proj_dim=40, activation_function="gelu", tie_word_embeddings=False),
    "opt without biases and last norm": opt(enable_bias=False, layer_norm_elementwise_affine=False, _remove_final_layer_norm=True),
    "llama": llama(),
    "llama bare": llama("Model", tie_word_embeddings=True),
    "llama bare, untied": llama("Model"),
    "llama tied": llama(tie_word_embeddings=True, rms_norm_eps=1e-2),
    "llama biases": llama(attention_bias=True, mlp_bias=True),
    "llama head_dim": llama(head_dim=12),
    "llama ungrouped": llama(num_key_value_heads=4),
    "llama one kv head, gelu": llama(num_key_value_heads=1, hidden_act="gelu"),
    "llama gelu_pytorch_tanh": llama(hidden_act="gelu_pytorch_tanh"),
    "theta": rope("default", 500000.0),
    "linear": rope("linear", factor=4.0),
    "llama3": rope("llama3", **LLAMA3),
    "yarn": rope("yarn", **YARN, head_dim=32),
    "yarn betas": rope("yarn", **YARN, beta_fast=4, beta_slow=2, head_dim=32),
    "yarn attention_factor": rope("yarn", **YARN, attention_factor=1.25, truncate=False, head_dim=32),
    "yarn mscale": rope("yarn", **YARN, mscale=0.7, mscale_all_dim=1.8, head_dim=32),
    "yarn mscale alone": rope("yarn", **YARN, mscale=0.7, head_dim=32),
    "dynamic": rope("dynamic", factor=1.7),
    "longrope": rope("longrope", **LONG),
    "longrope factor": rope("longrope", **LONG, factor=8.0),
    "longrope attention_factor": rope("longrope", **LONG, attention_factor=1.25),
    "longrope of its own length": rope("longrope", **LONG | {"original_max_position_embeddings": 128}),
    "longrope as Phi has it": rope("longrope", **LONG, old={"original_max_position_embeddings": 8}),
    "old theta": rope("default", 500000.0, old=OLD | {"rope_theta": 500000.0, "rope_scaling": "null"}),
    "old linear": rope("linear", factor=4.0, old=OLD | {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "old llama3": rope("llama3", **LLAMA3, old=OLD | {"rope_scaling": {"rope_type": "llama3", **LLAMA3}}),
    "old, as small as it can be": llama(num_key_value_heads=4, old=dict.fromkeys(
        ["rope_parameters", "head_dim", "num_key_value_heads", "attention_bias", "mlp_bias", "pretraining_tp"])),
    "mistral": mistral(),
    "mistral window": mistral(sliding_window=5, head_dim=12),
    "mistral layer_types": mistral(sliding_window=5, layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "qwen2": qwen2(tie_word_embeddings=True),
    "qwen2 windows": qwen2(**WINDOWS),
    "qwen2 windows, old": qwen2(**WINDOWS, old={"layer_types": None}),
    "qwen2 no windows": qwen2(sliding_window=5, max_window_layers=0),
    "qwen2 layer_types": qwen2(use_sliding_window=True, sliding_window=6, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"]),
    "qwen3": qwen3(),
    "qwen3 bias, tied": qwen3(attention_bias=True, tie_word_embeddings=True),
    "qwen3 windows": qwen3(**WINDOWS),
    "smollm3": smollm3(no_rope_layer_interval=2),
    "smollm3 windows": smollm3(no_rope_layers=[1, 0, 1], use_sliding_window=True, sliding_window=5, attention_bias=True, mlp_bias=True),
    "smollm3 layer_types": smollm3(layer_types=["sliding_attention", "full_attention", "full_attention"], sliding_window=6,
                                   tie_word_embeddings=False),
    "phi3": phi3(),
    "phi3 partial, window": phi3(partial_rotary_factor=0.75, sliding_window=5, num_key_value_heads=None),
    "phi3 longrope": phi3(partial_rotary_factor=0.75, original_max_position_embeddings=32, rope_parameters={
        "rope_type": "longrope", "short_factor": LONG["short_factor"][:3], "long_factor": LONG["long_factor"][:3]}),
    "phi3 old": phi3(original_max_position_embeddings=128, rope_parameters=LONG | {"rope_type": "longrope"}, old={
        "rope_parameters": None, "rope_scaling": {"type": "yarn", **LONG}}),
    "gemma2": gemma2(),
    "gemma2 bias, caps": gemma2(attention_bias=True, attn_logit_softcapping=2.0, final_logit_softcapping=1.5, tie_word_embeddings=False),
    "gemma2 no caps": gemma2(attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window=4096),
    "gemma3": gemma3(),
    "gemma3 bare": gemma3("TextModel"),
    "gemma3 scaled": gemma3(final_logit_softcapping=3.0, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 5e3}}),
    "gemma3 old": gemma3(layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 5e3}}, old={
            "rope_parameters": None, "rope_theta": 5e5, "rope_local_base_freq": 5e3, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "layer_types": None, "_sliding_window_pattern": None, "sliding_window_pattern": 2}),
    "olmo2": olmo2(),
    "olmo2 bare": olmo2("Model"),
    "olmo2 bias, tied": olmo2(attention_bias=True, tie_word_embeddings=True, num_key_value_heads=None, rms_norm_eps=1e-2),
}
SEQ2SEQ = {"vocab_size": 99, "d_model": 32, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
BART = SEQ2SEQ | {"encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2, "decoder_attention_heads": 4,
                  "encoder_ffn_dim": 40, "decoder_ffn_dim": 48, "max_position_embeddings": 64, "bos_token_id": None,
                  "forced_eos_token_id": None}
T5 = SEQ2SEQ | {"d_kv": 6, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}


def bart(head="ForConditionalGeneration", **config):
    return Case(f"Bart{head}", BART | config)


def marian(head="MTModel", **config):
    return Case(f"Marian{head}", BART | {"scale_embedding": True, "activation_function": "swish"} | config)


def t5(head="ForConditionalGeneration", old=None, **config):
    return Case(f"T5{head}", T5 | config, old or {})


# Encoder-decoders: their calls take decoder_ids too.
BOTH = {
    "bart": bart(),
    "bart bare, scaled": bart("Model", scale_embedding=True, activation_function="relu"),
    "bart untied": bart(tie_word_embeddings=False),
    "marian": marian(),
    "marian bare": marian("Model"),
    "marian two vocabularies": marian(share_encoder_decoder_embeddings=False, decoder_vocab_size=80, tie_word_embeddings=False),
    "t5": t5(),
    "t5 bare": t5("Model"),
    "t5 gated": t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "t5 gated-silu, buckets": t5(feed_forward_proj="gated-silu", relative_attention_num_buckets=8, relative_attention_max_distance=20),
    "t5 old": t5(num_layers=3, feed_forward_proj="gated-gelu", tie_word_embeddings=False, old=dict.fromkeys(
        ["dense_act_fn", "is_gated_act", "scale_decoder_outputs", "num_decoder_layers"]) | {"tie_word_embeddings": False}),
}
ENCODERS |= {"gemma3 both sides": gemma3("TextModel", use_bidirectional_attention=True, sliding_window=9),
             "gemma3 both sides, with a head": gemma3(use_bidirectional_attention=True, sliding_window=8, tie_word_embeddings=False)}
ENCODERS |= {"t5 encoder": t5("EncoderModel"), "t5 encoder gated": t5("EncoderModel", feed_forward_proj="gated-gelu", num_layers=3)}
CASES = ENCODERS | DECODERS


def made(case):
    """The model with random weights, larger than an initialisation's, with which scores are near 0 and no rule matters."""
    torch.manual_seed(3)
    model_class = getattr(transformers, case.name)
    model = model_class(model_class.config_class(**case.config)).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 0.0 if parameter.dim() > 1 or name.endswith("bias") else 1.0, 0.15)
    return model


def edit(folder, **changes):
    """Other values in config.json; None: no such field."""
    path = folder / "config.json"
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: None if value == "null" else value for name, value in fields.items() if value is not None}))


def written(folder, case, dtype=torch.float32, **options):
    made(case).to(dtype).save_pretrained(folder, **options)
    if case.old:
        edit(folder, **case.old)
    return folder


class Both:
    """A case's folder, opened by Transformers and by attend."""

    def __init__(self, folder, case, dtype=torch.float32, **options):
        self.case, self.folder, self.dtype = case, written(folder, case, dtype, **options), dtype
        self.ours = attend.Model.load(folder)
        self.theirs = self.opened(dtype)

    def opened(self, dtype):
        model_class = getattr(transformers, self.case.name)
        return model_class.from_pretrained(self.folder, attn_implementation="eager", dtype=dtype).eval()

    def ids(self, length):
        """Ids, none of which pads, and BERT's types of them; None for who has no types."""
        random = np.random.default_rng(length)
        ids = random.integers(6, 99, length)
        return ids, random.integers(self.theirs.config.type_vocab_size, size=length) if self.case.has_types else None


def opener(tmp_path_factory):
    """get(name): the case, opened once."""
    opened = {}

    def get(name, dtype=torch.float32):
        if (name, dtype) not in opened:
            opened[name, dtype] = Both(tmp_path_factory.mktemp("model"), CASES[name], dtype)
        return opened[name, dtype]

    return get


def hidden_of(model, ids, types=None):
    inputs = {"input_ids": torch.from_numpy(ids)[None]}
    if types is not None:
        inputs["token_type_ids"] = torch.from_numpy(types)[None]
    with torch.inference_mode():
        return model.base_model(**inputs).last_hidden_state[0]


def far(got, expected):
    """The largest difference, of the largest magnitude."""
    expected = expected.double().numpy()
    return np.abs(np.float64(got) - expected).max() / np.abs(expected).max()
