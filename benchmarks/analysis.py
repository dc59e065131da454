#!/usr/bin/env python3
"""Times what attend.Model's analyses take beside the passes that they save, in one process, in turns: docs/why.md.

Usage: benchmarks/analysis.py MODEL [--tokens 8192] [--rounds 7] [--dtype f32]; MODEL: a decoder's folder or .gguf file. It prints a
Markdown table: medians, the lowest and the highest of the rounds, and what each grows the process by beside a pass over the cache.
"""
import argparse
import subprocess
import sys
import time

import numpy as np

import attend

ABLATED = 128  # tokens of which each head is taken out


def milliseconds(call):
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def row(name, times, beside=None):
    ratio = "" if beside is None else f"{np.median(np.divide(times, beside)):.3f}"
    print(f"| {name} | {np.median(times):.1f} | {min(times):.1f} to {max(times):.1f} | {ratio} |", flush=True)


def one_row(model, ids, rounds):
    """Why and what of the last token, after a pass over all before it with a cache."""
    cache = model.cache()
    model.forward(ids[:-1], caches=[cache])
    times = {"decode": [], "attribute": []}
    for _ in range(rounds):
        times["attribute"].append(milliseconds(lambda: model.attribute(ids, cache=cache)))
        # The same last token in a cache of its own length, which a forward would make longer.
        cache.truncate(len(ids) - 1)
        times["decode"].append(milliseconds(lambda: model.logits(model.forward(ids[-1:], caches=[cache]))))
        cache.truncate(len(ids) - 1)
    row(f"one token after {len(ids) - 1}, with its logits", times["decode"])
    row("`attribute()` of it", times["attribute"], times["decode"])


def passes(model, ids, rounds):
    times = {name: [] for name in ("forward", "lens", "record", "sizes")}
    for _ in range(rounds):
        times["forward"].append(milliseconds(lambda: model.forward(ids)))
        times["lens"].append(milliseconds(lambda: model.lens(ids, [len(ids) - 1])))
        times["record"].append(milliseconds(lambda: model.record(ids)))
        times["sizes"].append(milliseconds(lambda: model.record(ids, key_sizes=True)))
    row(f"`forward()` of {len(ids)} tokens", times["forward"])
    row("`lens()` of the last", times["lens"], times["forward"])
    row("`record()`", times["record"], times["forward"])
    row("`record(key_sizes=True)`, beside `record()`", times["sizes"], times["record"])


def ablation(model, ids, rounds):
    """Of each head, beside as many passes that give the last row's logits."""
    count = model.info.layers * model.info.heads
    times = {"pass": [], "ablate": []}
    for _ in range(rounds):
        times["pass"].append(count * min(milliseconds(lambda: model.logits(model.forward(ids)[-1:])) for _ in range(5)))
        times["ablate"].append(milliseconds(lambda: model.ablate(ids)))
    row(f"{count} passes over {len(ids)} tokens, with logits", times["pass"])
    row(f"`ablate()` of {count} heads", times["ablate"], times["pass"])


GROWTH = """
import sys, numpy as np, attend
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
model = attend.Model.load(sys.argv[1], dtype=sys.argv[4] or None)
ids = np.random.default_rng(0).integers(100, model.info.vocabulary, int(sys.argv[3]))
cache = model.cache()
model.forward(ids[:-1], caches=[cache])
before = peak()
if sys.argv[2] == "attribute":
    model.attribute(ids, cache=cache)
elif sys.argv[2] == "lens":
    del cache
    cache = model.cache()
    before = peak()
    model.lens(ids, [len(ids) - 1])
print((peak() - before) / 1024)
"""


def growth(path, what, tokens, dtype):
    told = subprocess.run([sys.executable, "-c", GROWTH, path, what, str(tokens), dtype or ""], check=True, capture_output=True, text=True)
    print(f"| peak of `{what}()` beyond a pass with a cache | {float(told.stdout):.1f} MiB | | |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", choices=("f32", "bf16"))
    parser.add_argument("--ablated", type=int, default=ABLATED, help="tokens of the text whose heads are taken out; 0: none are")
    options = parser.parse_args()
    dtype = {"f32": "float32", "bf16": "bfloat16", None: None}[options.dtype]
    model = attend.Model.load(options.model, dtype=dtype)
    ids = np.random.default_rng(0).integers(100, model.info.vocabulary, options.tokens)
    print("| | ms | lowest, highest | times the one above |\n|---|---|---|---|")
    one_row(model, ids, options.rounds)
    passes(model, ids[:1024], options.rounds)
    if options.ablated:
        ablation(model, ids[:options.ablated], max(1, options.rounds // 3))
    for what in ("attribute", "lens"):
        growth(options.model, what, options.tokens, dtype)


if __name__ == "__main__":
    main()
