"""How few edges of SmolLM2 keep an answer, over the pairs of texts of a file, and what they are.

    attend model --get smollm2
    python examples/circuit.py tests/tasks/names.tsv

The file has a line for each pair: clean, corrupt, token and against, between tabs. The two texts of a pair have as many tokens.
"""

import csv
import sys
import time

import attend


def main(path):
    with open(path, newline="") as file:
        pairs = list(csv.DictReader(file, delimiter="\t"))
    texts = [[pair[name] for pair in pairs] for name in ("clean", "corrupt", "token", "against")]
    model = attend.Model.load("smollm2")
    for method in ("eap", "eap-ig"):
        start = time.perf_counter()
        edges = model.edges(*texts, method=method)
        seconds = time.perf_counter() - start
        print(f"{method}: {len(pairs)} pairs in {seconds:.1f} s; {edges.clean:+.2f} clean, {edges.corrupt:+.2f} corrupt")
        for keep in (50, 100, 200, 500, 1000, 2000):
            circuit = model.circuit(edges, keep=keep)
            print(f"    {len(circuit.edges)} edges keep {100 * circuit.faithfulness:.0f} %")
        for source, receiver, score in model.circuit(edges, keep=200).edges[:6]:
            print(f"    {source} to {receiver}: {score:+.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
