#!/usr/bin/env python3
"""Times Model.gradient() of one logit, all places gone through, beside a forward pass and beside PyTorch's autograd, in turns.

Usage: benchmarks/gradient.py MODEL.gguf [--tokens 128 1024] [--dtypes float32 bfloat16 blocks] [--rounds 5] [--memory]
[--passages 15]. PyTorch has the same file by Transformers, with sdpa, float32, no gradients of weights, and goes back to the
embeddings. It prints a Markdown table: the median in seconds with the lowest and the highest, and of each the ratio to attend's
forward pass of that dtype.
"""
import argparse
import os
import pathlib
import statistics
import time

import numpy as np

import attend

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
TOKEN = 400


def ours(path, dtype, ids, memory, passages):
    model = attend.Model.load(path, **({} if dtype == "blocks" else {"dtype": dtype}))
    all_of_it, least = model.gradient_bytes(len(ids))
    calls = {"forward": lambda: model.forward(ids), "gradient": lambda: model.gradient(ids, TOKEN)}
    if memory:
        calls[f"gradient, memory={least >> 20} of {all_of_it >> 20} MiB"] = lambda: model.gradient(ids, TOKEN, memory=least)
    if passages:
        size = len(ids) // (passages + 1)
        spans = [(n * size, (n + 1) * size) for n in range(passages)]
        hidden = attend.Knockout(list(range(*spans[passages // 2])), rows=list(range(spans[passages // 2][1], len(ids))))
        calls[f"{passages} passages"] = lambda: model.passages(ids, spans, token=TOKEN, hide=0, memory=least if memory else None)
        calls["forward, a passage hidden"] = lambda: model.forward(ids, edits=[hidden])
    rows = np.random.default_rng(2).normal(size=(8, len(ids), model.info.embedding_size)).astype(np.float32)
    if len(ids) <= 128:
        calls["gradient of 8 numbers"] = lambda: model.gradient(ids, of=rows)
    return {(f"attend, {dtype}", name): call for name, call in calls.items()}


def theirs(path, ids):
    import torch
    import transformers
    path = pathlib.Path(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                              attn_implementation="sdpa").eval().requires_grad_(False)
    given = torch.from_numpy(ids)[None]

    def forward():
        with torch.no_grad():
            model.model(input_ids=given)

    def gradient():
        x = model.get_input_embeddings()(given).requires_grad_()
        hidden = model.model(inputs_embeds=x).last_hidden_state[0, -1]
        torch.autograd.grad(model.lm_head(hidden)[TOKEN], x)

    return {("PyTorch, float32", "forward"): forward, ("PyTorch, float32", "gradient"): gradient}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "blocks"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passages", type=int, default=0, help="so many passages of equal size are estimated, and one is hidden, too")
    parser.add_argument("--memory", action="store_true", help="with as little memory as there can be, too")
    parser.add_argument("--no-torch", action="store_true")
    arguments = parser.parse_args()
    print("| tokens | | | s | lowest, highest | of attend's forward |\n|---|---|---|---|---|---|")
    for tokens in arguments.tokens:
        ids = np.random.default_rng(1).integers(100, 40000, tokens)
        calls = {}
        for dtype in arguments.dtypes:
            calls |= ours(arguments.model, dtype, ids, arguments.memory, arguments.passages)
        if not arguments.no_torch:
            calls |= theirs(arguments.model, ids)
        times = {key: [] for key in calls}
        for turn in range(arguments.rounds + 1):  # the first warms up
            for key, call in calls.items():
                begin = time.perf_counter()
                call()
                if turn:
                    times[key].append(time.perf_counter() - begin)
        for (who, name), of in times.items():
            forward = statistics.median(times[who if "attend" in who else f"attend, {arguments.dtypes[0]}", "forward"])
            median = statistics.median(of)
            print(f"| {tokens} | {who} | {name} | {median:.3f} | {min(of):.3f}, {max(of):.3f} | {median / forward:.2f} |", flush=True)


if __name__ == "__main__":
    main()
