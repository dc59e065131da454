"""Model.passages() beside torch.autograd by a passage's weights, and beside Transformers' passes that hide it."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from attending import attended, attends
from tiny_models import BOTH, Both, opener

import attend

LENGTH = 13
SPANS = [(0, 3), (2, 7), (7, 8), (9, 12)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


ADDED = {}  # {(Tq, Tk): what is added to scores}: the logarithm of what weights are times, before they are normalised


def opened(pair):
    """Their model, with weights that fade."""
    def faded(module, query, key, value, mask, scaling):
        return attended(query, key, value, mask, scaling, ADDED.get((query.shape[2], key.shape[2])))

    return attends(pair.theirs, "faded", faded)


def pairs_of(span, rows, causal):
    """1 where a row after the span, or of encoders outside of it, looks at the span."""
    begin, end = span
    pairs = torch.zeros(rows, rows)
    pairs[end:, begin:end] = 1
    if not causal:
        pairs[:begin, begin:end] = 1
    return pairs


def expected_of(number, shapes, spans):
    """What each span gave: by the derivative at full sight, and where it is not seen at all. shapes: {(Tq, Tk): pairs by span}."""
    with torch.no_grad():
        value = number().item()
    logs = torch.zeros(len(spans), requires_grad=True)
    try:
        ADDED.update({shape: torch.einsum("s,sij->ij", logs, pairs) for shape, pairs in shapes.items()})
        (estimated,) = torch.autograd.grad(number(), logs)
        measured = []
        with torch.no_grad():
            for n in range(len(spans)):
                ADDED.update({shape: torch.where(pairs[n] > 0, torch.finfo(torch.float32).min, 0.0) for shape, pairs in shapes.items()})
                measured.append(value - number().item())
    finally:
        ADDED.clear()
    return value, estimated.double().numpy(), np.array(measured)


def compare(found, value, estimated, measured):
    assert abs(found.value - value) < 1e-5 * max(1, abs(value))
    np.testing.assert_allclose(found.estimated, estimated, rtol=0, atol=1e-4 * abs(estimated).max())
    np.testing.assert_allclose(found.measured, measured[found.hidden], rtol=0, atol=2e-5 + 1e-4 * abs(measured).max())
    order = abs(found.estimated)[found.hidden]
    assert np.all(np.diff(order) <= 0) and abs(found.estimated).max() == order[0]


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "qwen3", "olmo2", "mistral window"])
def test_of_a_logit(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    theirs = opened(pair)
    shapes = {(LENGTH, LENGTH): torch.stack([pairs_of(span, LENGTH, True) for span in SPANS])}

    def number():
        logits = theirs(torch.from_numpy(ids)[None]).logits[0, -1]
        return logits[7] - logits[9]

    found = pair.ours.passages(ids, SPANS, token=7, against=9, hide=3)
    assert found.hidden.shape == found.measured.shape == (3,) and found.spans == SPANS
    compare(found, *expected_of(number, shapes, SPANS))


def test_of_an_answer(both):
    """The log-probability of tokens that come after the text."""
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    text, answer = ids[:-3], ids[-3:]
    theirs = opened(pair)
    spans = SPANS[:3]
    shapes = {(LENGTH, LENGTH): torch.stack([pairs_of(span, LENGTH, True) for span in spans])}

    def number():
        logits = torch.log_softmax(theirs(torch.from_numpy(ids)[None]).logits[0], -1)
        return sum(logits[LENGTH - 4 + n, token] for n, token in enumerate(answer))

    found = pair.ours.passages(text, {"a": spans[0], "b": spans[1], "c": spans[2]}, answer=answer, hide=9)
    compare(found, *expected_of(number, shapes, spans))
    assert found.value == pair.ours.gradient(ids, token=list(answer), of="log_probability", position=LENGTH - 4).value
    for memory in (0, 10**9):
        assert np.array_equal(pair.ours.passages(text, spans, answer=answer, memory=memory).estimated, found.estimated)


def test_of_the_cosine_of_an_encoder(both):
    pair = both("bert")
    ids, types = pair.ids(LENGTH)
    theirs = opened(pair)
    vector = np.random.default_rng(7).normal(size=32).astype(np.float32)
    shapes = {(LENGTH, LENGTH): torch.stack([pairs_of(span, LENGTH, False) for span in SPANS])}

    def number():
        hidden = theirs(torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None]).last_hidden_state
        return torch.cosine_similarity(hidden.mean(1), torch.from_numpy(vector)[None])[0]

    compare(pair.ours.passages(ids, SPANS, of=vector, types=types, hide=4), *expected_of(number, shapes, SPANS))


def test_of_an_encoder_decoder(tmp_path_factory):
    pair = Both(tmp_path_factory.mktemp("model"), BOTH["bart"])
    random = np.random.default_rng(3)
    ids, decoder = random.integers(6, 80, LENGTH), np.concatenate([[2], random.integers(6, 80, 4)])
    theirs = opened(pair)
    shapes = {(LENGTH, LENGTH): torch.stack([pairs_of(span, LENGTH, False) for span in SPANS]),
              (5, LENGTH): torch.stack([torch.zeros(5, LENGTH).index_fill_(1, torch.arange(*span), 1.0) for span in SPANS])}

    def number():
        return theirs(input_ids=torch.from_numpy(ids)[None], decoder_input_ids=torch.from_numpy(decoder)[None]).logits[0, -1, 7]

    compare(pair.ours.passages(ids, SPANS, token=7, decoder_ids=decoder, hide=4), *expected_of(number, shapes, SPANS))


def test_bits_for_any_number_of_threads(both):
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    before, found = attend.num_threads(), pair.ours.passages(ids, SPANS, token=7)
    try:
        attend.set_num_threads(1)
        alone = pair.ours.passages(ids, SPANS, token=7)
    finally:
        attend.set_num_threads(before)
    assert np.array_equal(alone.estimated, found.estimated) and np.array_equal(alone.measured, found.measured)


def test_as_csv_and_json(both):
    pair = both("gpt2")
    found = pair.ours.passages(list(range(6, 16)), {"first": (0, 2), "last": (5, 8)}, token=7, hide=1)
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["text"] for row in rows] == ["first", "last"] and [row["begin"] for row in rows] == ["0", "5"]
    assert [row["measured"] != "" for row in rows] == [n in found.hidden for n in (0, 1)]
    written = json.loads(found.to_json())
    assert written["spans"] == [[0, 2], [5, 8]] and written["hidden"] == found.hidden.tolist() and written["token"] == 7
    np.testing.assert_array_equal(np.float32(written["estimated"]), found.estimated)


@pytest.mark.parametrize("asked, words", [
    ({"spans": [(2, 2)]}, "has tokens 2 to 2"), ({"spans": [(0, 9)]}, "has tokens 0 to 9, expected a part of 0 to 6"),
    ({"spans": []}, "there are no spans, expected at least one"), ({"spans": "paragraph"}, "which is of a text, and ids are given"),
    ({"spans": "word"}, "spans is 'word', expected 'paragraph', 'line', a dict or a list"),
    ({"hide": -1}, "hide is -1, expected 0 or more"), ({"of": np.zeros((6, 32), np.float32)}, "expected a logit"),
    ({"answer": [3], "token": 7}, "answer says what the number is"), ({"answer": []}, "log_probability needs at least one token"),
    ({"answer": [3], "spans": [(4, 7)]}, "has tokens 4 to 7, expected a part of 0 to 6"),
])
def test_what_is_refused(both, asked, words):
    with pytest.raises(ValueError, match=words.replace("(", "\\(")):
        both("llama").ours.passages(**{"ids": [6, 7, 8, 9, 10, 11], "spans": [(0, 2)], "token": None, **asked})


def test_several_texts(both):
    """Each as alone; progress is told of all."""
    model, texts, told = both("llama").ours, [[6, 7, 8, 9, 10], [11, 12, 13, 14]], []
    found = model.passages(texts, [(0, 2), (2, 4)], answer=[[5], [6, 7]], progress=told.append)
    assert type(found) is attend.Results and told[-1] == 1 and told == sorted(told)
    for got, ids, answer in zip(found, texts, [[5], [6, 7]]):
        alone = model.passages(ids, [(0, 2), (2, 4)], answer=answer)
        assert np.array_equal(got.estimated, alone.estimated) and got.value == alone.value
    many = model.saliency(texts, token=[7, 8], against=9, method="input")
    for got, ids, token in zip(many, texts, [7, 8]):
        assert np.array_equal(got.tokens, model.saliency(ids, token=token, against=9, method="input").tokens)
