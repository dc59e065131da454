"""A PyTorch model, unchanged, with attend in the place of scaled_dot_product_attention."""
import time

import torch

import attend.torch


class Attention(torch.nn.Module):
    """Causal self-attention: 8 heads, two for keys and values."""

    def __init__(self, size=512, heads=8, key_heads=2):
        super().__init__()
        self.parts = [heads, key_heads, key_heads]
        self.project = torch.nn.Linear(size, size // heads * sum(self.parts))
        self.out = torch.nn.Linear(size, size)

    def forward(self, x):  # [B,T,E]
        heads = self.project(x).unflatten(-1, (sum(self.parts), -1)).transpose(1, 2)
        q, k, v = heads.split(self.parts, dim=1)
        context = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(context.transpose(1, 2).flatten(2))


@torch.inference_mode()
def run(model, x):
    """What the model gives, and the seconds that it takes at best."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        out = model(x)
        seconds.append(time.perf_counter() - start)
    return out, min(seconds)


torch.manual_seed(42)
model, x = Attention().eval(), torch.randn(1, 2048, 512)
theirs, their_seconds = run(model, x)
with attend.torch.replace_sdpa():
    ours, our_seconds = run(model, x)
print(f"largest difference: {(ours - theirs).abs().max():.1e}")
print(f"attend {1000 * our_seconds:.0f} ms, PyTorch {1000 * their_seconds:.0f} ms")
