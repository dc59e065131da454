"""Makes attention.npz: inputs, and what PyTorch computes from them in float64.

Run with PyTorch 2.13 and NumPy:  python make_attention_golden.py
PyTorch's own operator (scaled_dot_product_attention) gives the cases that it has; the others are its matmul, softmax and
logsumexp put together. `lse` is always torch.logsumexp.
"""
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

torch.manual_seed(0)
B, H, HKV, TQ, TK, D, DV = 2, 4, 2, 5, 7, 6, 3
q = torch.randn(B, H, TQ, D, dtype=torch.float64)
k = torch.randn(B, HKV, TK, D, dtype=torch.float64)
v = torch.randn(B, HKV, TK, DV, dtype=torch.float64)
mask = torch.rand(B, 1, TQ, TK) > 0.4
mask[0, 0, 2] = False  # a query with nothing to attend to
bias = torch.randn(H, TQ, TK, dtype=torch.float64)
slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=torch.float64)
sinks = torch.randn(H, dtype=torch.float64)
lengths = torch.tensor([4, 7])

i = torch.arange(TQ)[:, None]
j = torch.arange(TK)[None, :]
scores = q @ k.repeat_interleave(H // HKV, dim=1).transpose(-1, -2)
vh = v.repeat_interleave(H // HKV, dim=1)
everything = torch.ones(TQ, TK, dtype=torch.bool)
cases = {}


def compose(name, visible=everything, add=0.0, scale=D**-0.5, softcap=0.0, sink=None):
    logits = scores * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    logits = (logits + add).masked_fill(~visible, -torch.inf)
    if sink is not None:
        logits = torch.cat([logits, sink[None, :, None, None].expand(B, H, TQ, 1)], dim=-1)
    weights = torch.softmax(logits, dim=-1).nan_to_num(0.0)[..., :TK]
    cases[f"{name}.weights"] = weights
    cases[f"{name}.out"] = weights @ vh
    cases[f"{name}.lse"] = torch.logsumexp(logits, dim=-1)


def operator(name, **options):
    out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
    torch.testing.assert_close(out, cases[f"{name}.out"], rtol=0, atol=1e-12)
    cases[f"{name}.out"] = out


compose("plain")
operator("plain")
compose("scale", scale=0.3)
operator("scale", scale=0.3)
compose("causal_top_left", visible=j <= i)
operator("causal_top_left", is_causal=True)
compose("causal_bottom_right", visible=j <= i + TK - TQ)
operator("causal_bottom_right", attn_mask=j <= i + TK - TQ)
compose("causal_minus_2", visible=j <= i - 2)
compose("mask", visible=mask)
operator("mask", attn_mask=mask)
compose("bias", add=bias)
operator("bias", attn_mask=bias)
compose("window_1_2", visible=(j >= i - 1) & (j <= i + 2))
compose("alibi", add=-slopes[:, None, None] * (i + 2 - j).abs())
compose("sinks", sink=sinks)
compose("softcap", softcap=0.8)
compose("lengths", visible=j < lengths[:, None, None, None])
compose("lengths_bottom_right", visible=(j < lengths[:, None, None, None]) & (j <= i + lengths[:, None, None, None] - TQ))
compose(
    "all",
    visible=mask & (j <= i + 2) & (j >= i + 2 - 3) & (j < lengths[:, None, None, None]),
    add=bias - slopes[:, None, None] * (i + 2 - j).abs(),
    scale=0.7,
    softcap=1.5,
    sink=sinks,
)
inputs = {"q": q, "k": k, "v": v, "mask": mask, "bias": bias, "slopes": slopes, "sinks": sinks, "lengths": lengths, "scores": scores}
out = Path(__file__).with_name("attention.npz")
np.savez_compressed(out, **{name: t.numpy() for name, t in (inputs | cases).items()})
print(out.name, len(cases), "tensors")
