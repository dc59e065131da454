"""Tiny encoder-decoders by Transformers, as folders in models/, and what they compute, in encoder_decoders.safetensors.

    pip install torch==2.13.0 transformers==5.23.0 safetensors
    python tests/golden/make_encoder_decoders_golden.py

ids [11] of the encoder, decoder_ids [5]; NAME.encoder [11,16] and NAME.hidden [5,16], the stacks' last hidden states; NAME.logits
[5,23]; NAME.tokens [12], the likeliest that follow the start token. By eager attention, in f64, of the f32 weights.
"""

import pathlib
import shutil

import torch
import transformers as tf
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
common = {"vocab_size": 23, "d_model": 16, "pad_token_id": 0, "eos_token_id": None, "decoder_start_token_id": 1,
          "attn_implementation": "eager"}
stacks = {"encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 20,
          "decoder_ffn_dim": 24, "max_position_embeddings": 40, "bos_token_id": None, "forced_eos_token_id": None, "init_std": 0.3}
MODELS = {
    "bart": lambda: tf.BartForConditionalGeneration(tf.BartConfig(**common, **stacks)),
    "marian": lambda: tf.MarianMTModel(tf.MarianConfig(**common, **stacks, scale_embedding=True, activation_function="swish")),
    "t5": lambda: tf.T5ForConditionalGeneration(tf.T5Config(
        **common, d_kv=6, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=4, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, initializer_factor=1.0, relative_attention_num_buckets=8, relative_attention_max_distance=12)),
}

torch.manual_seed(3)
out = {"ids": torch.randint(2, 23, (11,)), "decoder_ids": torch.tensor([1, 7, 20, 4, 9])}
for name, make in MODELS.items():
    model = make().eval()
    folder = HERE / "models" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = model.double()
    with torch.no_grad():
        result = model(input_ids=out["ids"][None], decoder_input_ids=out["decoder_ids"][None], output_hidden_states=True)
        out[f"{name}.encoder"] = result.encoder_last_hidden_state[0].clone()
        out[f"{name}.hidden"] = result.decoder_hidden_states[-1][0].clone()
        out[f"{name}.logits"] = result.logits[0].clone()
        tokens = torch.tensor([1])
        for _ in range(12):
            logits = model(input_ids=out["ids"][None], decoder_input_ids=tokens[None]).logits[0, -1]
            tokens = torch.cat([tokens, logits.argmax()[None]])
        out[f"{name}.tokens"] = tokens[1:].clone()
save_file(out, HERE / "encoder_decoders.safetensors")
