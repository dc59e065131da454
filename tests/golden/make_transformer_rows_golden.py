"""What layers do between their products, by PyTorch and Transformers: transformer_rows.safetensors.

    pip install torch==2.13.0 transformers==5.23.0 safetensors
    python tests/golden/make_transformer_rows_golden.py

x [6,37] with large and small rows, weight and bias [37]; layer_norm, layer_norm_no_bias (eps 1e-5) and rms_norm (eps
1e-6) of it, in f64. line: numbers from -12 to 12, and each activation of Transformers without weights of them, in f64.
rotary.NAME.cos and .sin [T,8] of heads of 16 numbers at `positions` [T], by the rotary embedding of Transformers' Llama
with the options of NAME in tests/layers/rows_test.cpp, and its rotation of heads [T,3,16] with the plain ones.
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

torch.manual_seed(5)
x = torch.randn(6, 37) * torch.tensor([1, 1e-3, 30, 1, 5, 1e4])[:, None] + torch.tensor([0, 0, 100, -3, 0, 0])[:, None]
weight, bias, line = torch.randn(37), torch.randn(37), torch.linspace(-12, 12, 401)
X, W, B, L = (each.double() for each in (x, weight, bias, line))
out = {
    "x": x, "weight": weight, "bias": bias, "line": line,
    "layer_norm": functional.layer_norm(X, (37,), W, B, 1e-5),
    "layer_norm_no_bias": functional.layer_norm(X, (37,), W, None, 1e-5),
    "rms_norm": functional.rms_norm(X, (37,), W, 1e-6),
    **{name: ACT2FN[name](L).clone() for name in ACT2FN if name not in ("prelu", "xielu")},
    "positions": torch.tensor([0, 1, 2, 7, 100, 511, 4000]),
}
scalings = {
    "plain": {"rope_type": "default", "rope_theta": 10000.0},
    "theta": {"rope_type": "default", "rope_theta": 500000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "yarn": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn_exact": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
                   "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.5, "truncate": False},
}
out["heads"] = torch.randn(7, 3, 16)
for name, scaling in scalings.items():
    config = LlamaConfig(hidden_size=48, num_attention_heads=3, head_dim=16, max_position_embeddings=256, rope_parameters=scaling)
    cos, sin = LlamaRotaryEmbedding(config)(out["heads"], out["positions"][None])
    out[f"rotary.{name}.cos"], out[f"rotary.{name}.sin"] = cos[0, :, :8].contiguous(), sin[0, :, :8].contiguous()
    if name == "plain":
        turned = apply_rotary_pos_emb(out["heads"].transpose(0, 1)[None].double(), out["heads"].transpose(0, 1)[None].double(),
                                      cos.double(), sin.double())[0]
        out["rotated"] = turned[0].transpose(0, 1).contiguous()
save_file(out, pathlib.Path(__file__).parent / "transformer_rows.safetensors")
