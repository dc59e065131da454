"""How SmolLM2 repeats what it has read: head 16.0 writes which token came before into the keys of heads 17.3 and 18.6.

    attend model --get smollm2
    python examples/induction.py
"""

import numpy as np

import attend

LENGTH, TIMES = 25, 3


def after_the_same_token(recording, layer, head):
    """How much of its weight a row gives to the tokens that came after its own token before."""
    weights = recording[f"{layer}.self"].weights(head)
    rows = range(LENGTH, TIMES * LENGTH)
    return np.mean([sum(weights[row, back] for back in range(row - LENGTH + 1, 0, -LENGTH)) for row in rows])


def why_they_look_there(model, ids):
    """Of the heads' scores at the token behind the same one before: of how many 16.0 is the largest part, and which token it read."""
    parts, scores, before = [], [], []
    for head in ("17.3", "18.6", "18.7", "18.8"):
        for query in (30, 37, 44):
            key = query - LENGTH + 1
            found = model.explain_score(ids, head, query=query, key=key)
            scores.append(found.score)
            parts.append(found.top("key", 1)[0])
            by_token = dict(model.explain_score(ids, head, query=query, key=key, by_token=["16.0"]).top("key", 10000))
            before.append(by_token[f"16.0 reading {key - 1}"] / parts[-1][1])
    gave = [value for name, value in parts if name == "16.0"]
    print(f"of {len(parts)} scores, {min(scores):.1f} to {max(scores):.1f} above the mean, 16.0 is the largest part of the key in "
          f"{len(gave)}: {min(gave):.1f} to {max(gave):.1f}; by reading the token before {min(before):.0%} to {max(before):.0%} of that")


def main():
    model = attend.Model.load("smollm2")
    largest = [f"{reader} reads {wrote} ({value:.2f})" for reader, wrote, value in model.composition().top("k", 6)]
    print("by the weights alone, the largest of keys:", ", ".join(largest))
    for seed in range(3):
        ids = np.tile(np.random.default_rng(seed).integers(1000, 40000, LENGTH), TIMES)
        rows = range(LENGTH, TIMES * LENGTH - 1)
        for heads in (["16.0"], ["18.6"], ["17.3", "18.6", "18.7", "18.8", "20.6"]):
            lost = -model.ablate(ids, rows=rows, heads=heads).log_probability
            print(f"without {', '.join(heads)}: {lost:.1f} nats more for each token")
        why_they_look_there(model, ids)
        places = [(at, layer) for at in ("q", "k", "v") for layer in (17, 18)]
        _, without = model.forward(ids, edits=[attend.Edit("16.0")], keep=places)
        for layer, head in ((17, 3), (18, 6)):
            found = {"nothing": [], "16.0": [attend.Edit("16.0")]}
            found |= {f"16.0 out of its {at}": [attend.Edit(layer, at=at, set=without[at, layer])] for at in ("k", "q", "v")}
            for what, edits in found.items():
                recording = model.record(ids, edits=edits, keep="qk")
                share = after_the_same_token(recording, layer, head)
                print(f"  {layer}.{head} looks behind the same token, with {what} taken out: {share:.2f}")


if __name__ == "__main__":
    main()
