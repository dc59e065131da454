"""Does any head know what "it" stands for? Counted over 40 sentences in which place and meaning part (tests/tasks/referents.tsv).

    attend model --get minilm
    attend model --get smollm2
    python examples/referents.py

"The animal did not cross the street because it was too tired": with "wide" in place of "tired", "it" is the street, and in "The street was
not crossed by the animal because ..." the two nouns change places. So who looks at the noun that comes first is right in 20 of 40.
"""

import csv
import pathlib

import numpy as np

import attend

FILE = pathlib.Path(__file__).parent.parent / "tests" / "tasks" / "referents.tsv"


def count(name, query):
    """Whether each head gives the right noun more than the other, [40,L,H], and what is said of the first of the two nouns."""
    with open(FILE, encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    columns = {column: [row[column] for row in rows] for column in ("text", "target", "other")}
    model = attend.Model.load(name)
    found = model.vary(columns["text"], [query(row) for row in rows], target=columns["target"], other=columns["other"])
    right = np.array([weights[:, :, target[0]:target[1]].sum(-1) > weights[:, :, other[0]:other[1]].sum(-1)
                      for weights, target, other in zip(found.weights, found.target, found.other)])
    assert (right.sum(0) == found.held).all()
    target_first = np.array([target < other for target, other in zip(found.target, found.other)])
    return right, right == target_first[:, None, None], found.baselines()


def name_of(counts):
    layer, head = np.unravel_index(counts.argmax(), counts.shape)
    return f"{layer}.{head}", (layer, head)


def main():
    for name, query, where in (("minilm", lambda row: row["query"], '"it"'),
                               ("smollm2", lambda row: row["text"].split()[-1], "the last word, as no word before it says which is meant")):
        right, first, baselines = count(name, query)
        best, _ = name_of(right.sum(0))
        print(f"{name}, at {where}: {right[0].size} heads, {len(right)} sentences")
        print(f"  right most often: {best}, {right.sum(0).max()}; the first noun would be in {baselines['first']}, "
              f"the best of as many that guess in some {baselines['chance']}")
        halves = np.arange(len(right)) // 4 % 2  # of the ten pairs of nouns
        for half in (0, 1):
            chosen, head = name_of(right[halves == half].sum(0))
            print(f"  chosen on 20: {chosen}, right in {right[halves == half].sum(0)[head]} of these, and in "
                  f"{right[halves != half].sum(0)[head]} of the other 20")
        head, place = name_of(first.sum(0))
        print(f"  follows the first noun most often: {head}, in {first.sum(0)[place]} of {len(first)}; "
              f"{(first.sum(0) >= 36).sum()} heads do in 36 or more")
        if name == "minilm":
            print(f"  3.1: right in {right.sum(0)[3, 1]}, follows the first noun in {first.sum(0)[3, 1]}")


if __name__ == "__main__":
    main()
