"""Which heads of SmolLM2 carry an answer, over the pairs of texts of a file: estimated, and patched, with the time of both.

    attend model --get smollm2
    python examples/estimated_heads.py tests/tasks/names.tsv

The file has a line for each pair: clean, corrupt, token and against, between tabs. The two texts of a pair have as many tokens.
"""

import csv
import sys
import time

import numpy as np

import attend


def ranks(values):
    return np.argsort(np.argsort(values, axis=None))


def main(path):
    with open(path, newline="") as file:
        pairs = list(csv.DictReader(file, delimiter="\t"))
    clean, corrupt, token, against = ([pair[name] for pair in pairs] for name in ("clean", "corrupt", "token", "against"))
    model = attend.Model.load("smollm2")
    means = []
    for estimate in (True, False):
        start = time.perf_counter()
        mean, error, texts = model.patch(clean, corrupt, token, against, estimate=estimate).average()
        means.append(mean.recovered)
        print(f"{'estimated' if estimate else 'patched'}: {texts} pairs in {time.perf_counter() - start:.1f} s")
        for place in np.argsort(-mean.recovered, axis=None)[:4]:
            layer, head = divmod(int(place), mean.recovered.shape[1])
            print(f"    {layer}.{head} brings back {mean.recovered[layer, head]:.2f} ± {error.recovered[layer, head]:.2f}")
    print(f"rank correlation of all {means[0].size} heads: {np.corrcoef(*map(ranks, means))[0, 1]:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
