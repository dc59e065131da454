"""Every family with activations of 8 bits, whose dense weights become Q8_0: near to its own exact numbers, from f32 and bf16 alike."""

import json

import numpy as np
import pytest
import torch
from tiny import TOKENIZER
from tiny_models import BOTH, CASES, bert, written

import attend


def cosine(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*CASES, *BOTH])
def test_near_to_the_exact_numbers(name, dtype, tmp_path):
    case = (CASES | BOTH)[name]
    written(tmp_path, case, dtype)
    exact, rounded = attend.Model.load(tmp_path, "float32"), attend.Model.load(tmp_path, activations="int8")
    assert rounded.info.dtype == "float32" and rounded.info.parameters == exact.info.parameters
    ids = np.random.default_rng(1).integers(6, 80, 12)
    given = {"decoder_ids": ids[:5]} if name in BOTH else {}
    states = exact.forward(ids, **given), rounded.forward(ids, **given)
    assert cosine(*states) > 0.99 and not np.array_equal(*states)
    if exact.info.decoder and "Model" not in case.name.removesuffix("MTModel"):
        assert cosine(*(model.logits(each) for model, each in zip((exact, rounded), states))) > 0.99
        np.testing.assert_array_equal(rounded.forward(ids, caches=[rounded.cache()], **given).shape, states[1].shape)


@pytest.mark.parametrize("head", ["SequenceClassification", "MaskedLM"])
def test_heads_of_tasks(head, tmp_path):
    """An output layer of words that is tied to the embeddings among them."""
    written(tmp_path, bert(f"For{head}"))
    words = ["[PAD]", "?", "the", "cat", "sat", "[MASK]", *(f"word{n}" for n in range(6, 99))]
    mask = {"id": 5, "content": "[MASK]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    vocabulary = {"vocab": {word: n for n, word in enumerate(words)}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER | {"added_tokens": [mask], "model": TOKENIZER["model"] | vocabulary}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "[MASK]"}))
    exact, rounded = attend.Model.load(tmp_path), attend.Model.load(tmp_path, activations="int8")
    if head == "SequenceClassification":
        numbers = [model.classify(["the cat sat"]).logits for model in (exact, rounded)]
    else:
        numbers = [np.array([each.probability for each in sorted(model.fill("the [MASK] sat", 99)[0], key=lambda each: each.id)])
                   for model in (exact, rounded)]
    assert cosine(*numbers) > 0.99 and not np.array_equal(*numbers)
