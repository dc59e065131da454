#!/usr/bin/env python3
"""Times attend.Model's analyses of many short texts: a list in one call, a call for each, and TransformerLens, in turns in one process.

Usage: benchmarks/several_texts.py MODEL.gguf [--texts 40] [--tokens 14] [--rounds 1]; with TransformerLens where it is installed
(tests/requirements-lens.txt), which opens the same file by Transformers, and of which one head of each layer is timed for all of the
layer's. It prints a Markdown table: medians in seconds with the lowest
and the highest of the rounds, the rate at which rows go through layers beside forward()'s over all texts, and by how much a process
of its own grows for each.
"""
import argparse
import functools
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

import attend

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported
TOKEN, AGAINST = 400, 500
LIST, EACH, THEIRS = "attend, a list", "attend, a call each", "TransformerLens, a batch"


def draw(vocabulary, texts, tokens):
    ids = np.random.default_rng(0).integers(100, vocabulary - 100, (texts, tokens))
    return ids, np.where(np.arange(tokens) == tokens // 3, ids + 77, ids)


def ours(path, texts, tokens):
    model = attend.Model.load(path, dtype="float32")
    ids, corrupt = draw(model.info.vocabulary, texts, tokens)
    calls = {"forward": lambda: model.forward(list(ids)),
             "attribute": lambda: model.attribute(list(ids), TOKEN, AGAINST),
             "ablate": lambda: model.ablate(list(ids), TOKEN, AGAINST),
             "patch": lambda: model.patch(list(ids), list(corrupt), TOKEN, AGAINST)}
    alone = {"forward": lambda: [model.forward(each) for each in ids],
             "attribute": lambda: [model.attribute(each, TOKEN, AGAINST) for each in ids],
             "ablate": lambda: [model.ablate(each, TOKEN, AGAINST) for each in ids],
             "patch": lambda: [model.patch(*pair, TOKEN, AGAINST) for pair in zip(ids, corrupt)]}
    return {(name, who): call for who, named in ((LIST, calls), (EACH, alone)) for name, call in named.items()}


def theirs(path, texts, tokens, once=False):
    """What TransformerLens 4.3 has: for each head a batch through all layers; of attribute() only the pass that it needs, cached.

    One head of each layer is taken, or one of all with `once`: others take as long, and as much memory.
    """
    import tokenizers
    import torch
    import transformers
    from transformer_lens.model_bridge import TransformerBridge
    torch.set_grad_enabled(False)
    path = pathlib.Path(path)
    words = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel({"0": 0, "1": 1}, "0")),
                                                 pad_token="0", eos_token="1")
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32,
                                                              attn_implementation="eager")
    bridge = TransformerBridge.boot_transformers(str(path.parent), hf_model=model, device="cpu", tokenizer=words)
    ids, corrupt = (torch.from_numpy(each) for each in draw(model.config.vocab_size, texts, tokens))
    layers = [3] if once else range(bridge.cfg.n_layers)

    def answers(ids, layer, change):
        logits = bridge.run_with_hooks(ids, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", change)])
        return (logits[:, -1, TOKEN] - logits[:, -1, AGAINST]).mean()

    def set_head(to):
        def change(z, hook):
            z[:, :, 2] = to
            return z
        return change

    def patch():
        cache = bridge.run_with_cache(ids)[1]
        return [answers(corrupt, layer, set_head(cache[f"blocks.{layer}.attn.hook_z"][:, :, 2])) for layer in layers]

    calls = {"forward": lambda: bridge(ids), "attribute": lambda: bridge.run_with_cache(ids),
             "ablate": lambda: [answers(ids, layer, set_head(0)) for layer in layers], "patch": patch}
    return {(name, THEIRS): call for name, call in calls.items()}


def memory(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field)) / 1024


def grow(options):
    """In a process of its own: by how many MiB the peak grows."""
    name, who = options.grow.split("; ")
    maker = functools.partial(theirs, once=True) if who == THEIRS else ours
    call = maker(options.model, options.texts, options.tokens)[name, who]
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
    before = memory("VmRSS")
    call()
    print(memory("VmHWM") - before)


def all_heads(name, who):
    """Whether a head of each layer was timed for all of them."""
    return who == THEIRS and name in ("ablate", "patch")


def rows_through_layers(info, name, options):
    """How many rows' passes through all layers the work is: a head of layer l is a copy of the text from there on."""
    if name == "forward":
        return options.texts * options.tokens
    return options.texts * options.tokens * info.heads * (info.layers + 1) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--grow", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow:
        return grow(options)
    calls = ours(options.model, options.texts, options.tokens)
    info = attend.Model.load(options.model).info
    try:
        calls |= theirs(options.model, options.texts, options.tokens)
    except ImportError as error:
        print(f"without TransformerLens: {error}", file=sys.stderr)
    times = {key: [] for key in calls}
    for _ in range(options.rounds):
        for name in ("forward", "attribute", "ablate", "patch"):
            for key in (key for key in calls if key[0] == name):
                for _ in range(5 if name in ("forward", "attribute") else 1):
                    begin = time.perf_counter()
                    calls[key]()
                    times[key].append((time.perf_counter() - begin) * (info.heads if all_heads(*key) else 1))
    print("| | | s | lowest, highest | rate of rows beside `forward` | grows by, MiB |\n|---|---|---|---|---|---|")
    rate = options.texts * options.tokens / np.median(times["forward", LIST])
    for (name, who), taken in sorted(times.items()):
        line = [sys.executable, __file__, options.model, f"--texts={options.texts}", f"--tokens={options.tokens}", f"--grow={name}; {who}"]
        grown = "" if who == EACH else subprocess.run(line, capture_output=True, text=True).stdout
        share = "" if name == "attribute" else f"{rows_through_layers(info, name, options) / np.median(taken) / rate:.2f}"
        cells = [name, who, f"{np.median(taken):.2f}", f"{min(taken):.2f}, {max(taken):.2f}", share, f"{float(grown):.0f}" if grown else ""]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
