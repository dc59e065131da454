#!/usr/bin/env python3
"""Writes page/src/opening.json: the numbers of MiniLM's head 3.1 for the first sentence of the lesson's opening.

Needs the package attend and MiniLM (attend model --get minilm). Usage: opening_head.py
"""

import json
import pathlib

import attend

TEXT = "the animal did not cross the street because it was too tired"
LAYER, HEAD = 3, 1
OUTPUT = pathlib.Path(__file__).parents[1] / "page/src/opening.json"
NAMES = ["queries", "keys", "scores", "scaled_scores", "weights", "entropy", "context"]


def spelt(numbers):
    """As JSON, each number by the fewest digits that give the same f32 again."""
    return f"[{','.join(spelt(each) if each.ndim else str(each) for each in numbers)}]"


model = attend.Model.load("minilm")
layer = model.record(TEXT, keep="qk")[LAYER]
_, kept = model.forward(TEXT, keep=[("v", LAYER)])
size = layer.steps(HEAD).keys.shape[1]
values = kept["v", LAYER][:, HEAD * size : (HEAD + 1) * size].copy()
steps = layer.steps(HEAD, values=values)
tensors = {"values": values} | {name: getattr(steps, name) for name in NAMES}
texts = {"text": json.dumps(TEXT), "tokens": json.dumps(["[CLS]", *TEXT.split(), "[SEP]"])}
fields = texts | {name: spelt(tensor) for name, tensor in tensors.items()}
OUTPUT.write_text("{\n" + ",\n".join(f'"{name}": {value}' for name, value in fields.items()) + "\n}\n")
