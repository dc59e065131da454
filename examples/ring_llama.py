"""Train a tiny Llama with its sequences split over 4 processes, and see that it learns as one process does.

    python examples/ring_llama.py

Each process has a part of every sequence: of its ids, targets and positions, so of all that a layer computes. Attention
alone looks beyond that, by attend.torch.ring_attention(). Nothing else of the model changes. Three things to do:

1. Split what has the sequence's axis, all in one way: ids, targets and positions, by ring_shard(). "zigzag" gives each
   process a part from the front and one from the back, so that a causal model gives all of them as much to do.
2. Divide the loss by the tokens of all processes, not of one.
3. Sum the gradients of ALL parameters over the processes before the optimizer's step, by all_reduce(). Each process has
   seen its own tokens only, so that its gradients are a part of the whole; and without the sum the copies of the model
   drift apart.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional

import attend.torch

PROCESSES, STEPS = 4, 20
TOKENS, WORDS = 2 * PROCESSES * 192, 64  # a multiple of 192 for each part: then the bits are one process's, too
WIDTH, HEADS, KEY_HEADS, LAYERS = 32, 4, 2, 2


def rotate(x, positions):
    """Rotary positions: pairs of numbers, turned by an angle that grows with the position in the whole sequence."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10000.0 ** (-torch.arange(half) / half)
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        size = WIDTH // HEADS
        self.attention_norm, self.mlp_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v = (nn.Linear(WIDTH, heads * size, bias=False) for heads in (HEADS, KEY_HEADS, KEY_HEADS))
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x, positions, attention):
        y = self.attention_norm(x)
        q, k, v = (of(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for of in (self.q, self.k, self.v))
        x = x + self.o(attention(rotate(q, positions), rotate(k, positions), v).transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(WORDS, WIDTH), nn.RMSNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)

    def forward(self, ids, positions, attention):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, positions, attention)
        return functional.linear(self.norm(x), self.embedding.weight)


def batches():
    """Texts that repeat themselves: there is something to find by looking back."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        text = torch.randint(WORDS, (1, 97), generator=generator).repeat(1, TOKENS // 97 + 2)[:, :TOKENS + 1]
        yield text[:, :-1], text[:, 1:]


def train(split, attention, sum_over_processes):
    """The loss of each step."""
    torch.manual_seed(0)  # the same weights in every process
    model, losses = Llama(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    positions = split(torch.arange(TOKENS), 0)
    for ids, targets in batches():
        logits = model(split(ids, 1), positions, attention)
        own_sum = functional.cross_entropy(logits.flatten(0, 1), split(targets, 1).flatten(), reduction="sum")
        loss = own_sum / TOKENS  # of all processes
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            sum_over_processes(parameter.grad)
        optimizer.step()
        of_all = loss.detach()
        sum_over_processes(of_all)
        losses.append(float(of_all))
    return losses


def one_of_many(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES)

    def split(x, dim):
        return attend.torch.ring_shard(x, dim, sharding="zigzag")

    def attention(q, k, v):
        return attend.torch.ring_attention(q, k, v, causal=True, sharding="zigzag")

    losses = train(split, attention, dist.all_reduce)
    if rank == 0:
        torch.save(losses, os.path.join(folder, "losses"))
    dist.destroy_process_group()


def main():
    def attention(q, k, v):
        k, v = (x.repeat_interleave(HEADS // KEY_HEADS, 1) for x in (k, v))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    alone = train(lambda x, dim: x, attention, lambda x: None)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(one_of_many, (folder,), nprocs=PROCESSES)
        split = torch.load(os.path.join(folder, "losses"))
    for step in range(0, STEPS, STEPS // 4):
        print(f"step {step:2}   one process {alone[step]:.6f}   {PROCESSES} processes {split[step]:.6f}")
    difference = max(abs(one - other) for one, other in zip(alone, split))
    print(f"loss {split[0]:.3f} -> {split[-1]:.3f} over {STEPS} steps, largest difference: {difference:.1e}")


if __name__ == "__main__":
    main()
