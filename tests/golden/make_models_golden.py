"""Tiny models of every family by Transformers, as folders in models/, and what they compute, in models.safetensors.

    pip install torch==2.13.0 transformers==5.23.0 safetensors
    python tests/golden/make_models_golden.py

ids [11], types [11] (BERT's); NAME.hidden [11,16] (OPT's 12), the last hidden states, NAME.logits [11,23] of decoders, and
NAME.tokens [12], the likeliest tokens that follow. By eager attention, in f64, of the f32 weights.
"""

import pathlib
import shutil

import torch
import transformers as tf
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
encoder = {"vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
               "max_position_embeddings": 40, "initializer_range": 0.3, "attn_implementation": "eager"}
decoder = {"vocab_size": 23, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
               "intermediate_size": 24, "max_position_embeddings": 40, "initializer_range": 0.3, "attn_implementation": "eager",
               "bos_token_id": None, "eos_token_id": None}
llama3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 16}
MODELS = {
    "bert": lambda: tf.BertModel(tf.BertConfig(**encoder)),
    "roberta": lambda: tf.RobertaForMaskedLM(tf.RobertaConfig(**encoder, pad_token_id=1, type_vocab_size=1)),
    "distilbert": lambda: tf.DistilBertModel(tf.DistilBertConfig(
        vocab_size=23, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=40, initializer_range=0.3,
        attn_implementation="eager")),
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=23, n_embd=16, n_layer=2, n_head=2, n_positions=40, initializer_range=0.3, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None)),
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**decoder, rope_parameters=llama3, tie_word_embeddings=True)),
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**decoder, sliding_window=4)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**decoder)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**decoder, head_dim=6)),
    "mpnet": lambda: tf.MPNetModel(tf.MPNetConfig(**encoder)),
    "albert": lambda: tf.AlbertForMaskedLM(tf.AlbertConfig(**encoder | {"num_hidden_layers": 3}, embedding_size=8, num_hidden_groups=2)),
    "modernbert": lambda: tf.ModernBertForMaskedLM(tf.ModernBertConfig(
        **encoder | {"num_hidden_layers": 3}, local_attention=6, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2)),
    "gpt_neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(
        **{key: each for key, each in decoder.items() if key != "num_key_value_heads"}, rope_parameters={"partial_rotary_factor": 0.5})),
    "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(  # as 350m
        vocab_size=23, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, ffn_dim=24, max_position_embeddings=40, init_std=0.3,
        word_embed_proj_dim=12, do_layer_norm_before=False, attn_implementation="eager", bos_token_id=None, eos_token_id=None)),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**decoder, pad_token_id=0, rope_parameters={"partial_rotary_factor": 0.5})),
    "olmo2": lambda: tf.Olmo2ForCausalLM(tf.Olmo2Config(**decoder)),
    "gemma3": lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(
        **decoder, head_dim=6, sliding_window=4, layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=5.0)),
}

torch.manual_seed(3)
out = {"ids": torch.randint(2, 23, (11,)), "types": torch.tensor([0] * 6 + [1] * 5)}
for name, make in MODELS.items():
    model = make().eval()
    folder = HERE / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model, types = model.double(), {"token_type_ids": out["types"][None]} if name == "bert" else {}
    with torch.no_grad():
        result = model(out["ids"][None], **types)
        out[f"{name}.hidden"] = model.base_model(out["ids"][None], **types).last_hidden_state[0].clone()
        if model.can_generate():
            out[f"{name}.logits"] = result.logits[0].clone()
            tokens = model.generate(out["ids"][None], max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0)
            out[f"{name}.tokens"] = tokens[0, 11:].clone()
save_file(out, HERE / "models.safetensors")
