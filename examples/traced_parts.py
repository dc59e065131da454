"""Whether what a trace names first really matters: taken out, beside another part of the same layer and row, drawn at random.

    attend model --get smollm2
    python examples/traced_parts.py tests/tasks/names.tsv tests/tasks/pronouns.tsv

The files have a line for each pair: clean, corrupt, token and against, between tabs; the clean text is traced.
"""

import csv
import sys

import numpy as np

import attend


def change(model, ids, pair, part, row, before):
    """How far the difference of the two logits moves where what the part wrote in the row is 0."""
    layer, _, head = part.removeprefix("mlp ").partition(".")
    edit = attend.Edit(int(layer), int(head), rows=[row]) if head else attend.Edit(int(layer), at="mlp", rows=[row])
    logits = model.logits(model.forward(ids, edits=[edit])[-1])
    return abs(float(logits[pair["token"]] - logits[pair["against"]]) - before)


def another(draw, part, heads):
    """A part of the same layer."""
    layer = part.removeprefix("mlp ").partition(".")[0]
    names = [f"{layer}.{head}" for head in range(heads)] + [f"mlp {layer}"]
    return draw.choice([name for name in names if name != part])


def main(*paths):
    model, draw = attend.Model.load("smollm2"), np.random.default_rng(1)
    found = {"the head": [], "of the query's row": [], "of the key's row": [], "of what it read": []}
    for path in paths:
        with open(path, newline="") as file:
            for pair in csv.DictReader(file, delimiter="\t"):
                ids = model.tokenizer.encode(pair["clean"]).ids
                pair |= {name: int(model.tokenizer.encode(pair[name]).ids[-1]) for name in ("token", "against")}
                trace = model.trace(ids, pair["token"], pair["against"], heads=1, parts=4)
                head = trace.heads[0]
                named = [(head.head, trace.position)]
                for parts, row in ((head.query_parts, trace.position), (head.key_parts, head.key), (head.read_parts, head.key)):
                    named.append((next(part.part for part in parts if part.without is not None), row))
                for numbers, (part, row) in zip(found.values(), named):
                    other = another(draw, part, model.info.heads)
                    numbers.append([change(model, ids, pair, own, row, trace.logit) for own in (part, other)])
    print(f"| the first of | moves the answer, median | a random part of its layer | more, of {len(numbers)} |\n|---|---|---|---|")
    for name, numbers in found.items():
        of_named, of_others = np.transpose(numbers)
        print(f"| {name} | {np.median(of_named):.2f} | {np.median(of_others):.2f} | {np.sum(of_named > of_others)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
