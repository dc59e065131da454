"""Makes translate.safetensors: fifty steps of torch.nn.Transformer and torch.optim.Adam. Needs torch and safetensors.

The task is to write short sequences of ids backwards. Sequences are padded, and the padding is masked and ignored, as
one does it with torch. In the file: parameters.NAME, the initial ones, by torch's names; sources and targets, i64
[steps,pairs,longest], the sequences that each step learns from, -1 after their ends; losses, f32, of each step;
losses_f64, of the same training in f64. Ids are the tokenizer's: 0 ends, 1 begins, the others mean nothing here.
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

VOCABULARY, EMBEDDING, HEADS, LAYERS, HIDDEN = 32, 16, 4, 2, 32
STEPS, PAIRS, LONGEST = 50, 8, 7
END, BEGIN, PAD = 0, 1, -1
LEARNING_RATE = 3e-3


class Model(nn.Module):
    """One embedding for source, target and output; layer norm before each sublayer; sines for positions."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING**-0.5)
        layers = nn.Transformer(EMBEDDING, HEADS, LAYERS, LAYERS, HIDDEN, dropout=0, batch_first=True, norm_first=True)
        self.encoder, self.decoder = layers.encoder, layers.decoder
        for parameter in self.parameters():  # biases of 0 and gains of 1 would hide a wrong use of them
            if parameter.dim() == 1:
                nn.init.normal_(parameter, mean=parameter[0].item(), std=0.2)

    def embed(self, ids):
        time = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angles = time / 10000 ** (torch.arange(0, EMBEDDING, 2, dtype=torch.float64) / EMBEDDING)
        positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        embedded = self.embedding(ids.clamp(min=0)) * EMBEDDING**0.5
        return embedded + positions.to(embedded.dtype)

    def forward(self, source, target):
        padding = source == PAD
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        memory = self.encoder(self.embed(source), src_key_padding_mask=padding)
        rows = self.decoder(self.embed(target), memory, tgt_mask=causal, memory_key_padding_mask=padding)
        return rows @ self.embedding.weight.T


def batch_of(source, target):
    """Sources that end, targets that begin, and what comes next."""
    lengths = (source != PAD).sum(1)
    column = torch.full((len(source), 1), PAD)
    ended = torch.cat([source, column], 1)
    following = torch.cat([target, column], 1)
    for row, length in enumerate(lengths):
        ended[row, length] = following[row, length] = END
    return ended, torch.cat([torch.full_like(column, BEGIN), target], 1), following


def train(model, sources, targets):
    adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for source, target in zip(sources, targets):
        ended, begun, following = batch_of(source, target)
        logits = model(ended, begun)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten(), ignore_index=PAD)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def main():
    torch.manual_seed(3)
    model = Model()
    out = {f"parameters.{name}": value.clone() for name, value in model.state_dict().items()}
    sources = torch.full((STEPS, PAIRS, LONGEST), PAD)
    targets = sources.clone()
    for step in range(STEPS):
        for pair in range(PAIRS):
            length = int(torch.randint(1, LONGEST + 1, ()))
            ids = torch.randint(2, VOCABULARY, (length,))
            sources[step, pair, :length], targets[step, pair, :length] = ids, ids.flip(0)
    double = Model().double()
    double.load_state_dict(model.state_dict())
    out.update(sources=sources, targets=targets)
    out["losses"], out["losses_f64"] = train(model, sources, targets), train(double, sources, targets)
    save_file(out, pathlib.Path(__file__).parent / "translate.safetensors")
    difference = (out["losses"] / out["losses_f64"] - 1).abs().max().item()
    print(f"losses {out['losses'][0]:.4f} to {out['losses'][-1]:.4f}; f32 is within {difference:.1e} of f64")


if __name__ == "__main__":
    main()
