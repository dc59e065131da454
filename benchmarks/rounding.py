#!/usr/bin/env python3
"""How far rounded activations move what a decoder says next: over this repository's own text, against exact activations.

Usage: benchmarks/rounding.py MODEL... [--tokens 2000] [--threads N]
MODEL is what attend.Model.load() takes. It prints a Markdown table: the mean Kullback-Leibler divergence of the next token's distribution
from the exact one, in nats, its 99th percentile, and how often the likeliest token is the same.
"""
import argparse
import os
import pathlib

import numpy as np

import attend

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
ROWS = 100  # whose logits are there at once


def ids_of(model, count):
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md")))
    return model.tokenizer.encode(text[: 8 * count]).ids[:count]


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def compare(exact, rounded, ids):
    """KL divergences [N], and whether the likeliest is the same [N]."""
    models = (exact, rounded)
    states = [model.forward(ids) for model in models]
    divergence, same = [], []
    for begin in range(0, len(ids), ROWS):
        truth, other = (log_softmax(model.logits(state[begin : begin + ROWS])) for model, state in zip(models, states, strict=True))
        divergence.append((np.exp(truth) * (truth - other)).sum(axis=1))
        same.append(truth.argmax(axis=1) == other.argmax(axis=1))
    return np.concatenate(divergence), np.concatenate(same)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    attend.set_num_threads(asked.threads)
    print("| model | weights | activations | mean KL, nats | 99 % are below | likeliest the same |\n|---|---|---|---|---|---|")
    for path in asked.models:
        exact = attend.Model.load(path)
        ids = ids_of(exact, asked.tokens)
        weights = ", ".join(exact.info.formats)
        quantized = any(name.isupper() or "_" in name for name in exact.info.formats)
        for activations in ("fast", "int8") if quantized else ("int8",):
            divergence, same = compare(exact, attend.Model.load(path, activations=activations), ids)
            numbers = f"{divergence.mean():.2g} | {np.quantile(divergence, 0.99):.2g} | {same.mean():.2%}"
            print(f"| {pathlib.Path(path).stem} | {weights} | {activations} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
