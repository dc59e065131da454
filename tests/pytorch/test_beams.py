"""Beam search: each token as Transformers writes it, its scores, and what the beams' caches take."""

import os
import random

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

from tiny_models import BOTH, CASES, Both, t5

NEW = 14
FORMS = {"llama": CASES["llama"], "gpt2": CASES["gpt2"], "gemma2": CASES["gemma2"], "bart": BOTH["bart untied"], "marian": BOTH["marian"],
         "t5": t5(num_layers=3, num_decoder_layers=3)}


@pytest.fixture(scope="module", params=FORMS)
def pair(request, tmp_path_factory):
    found = Both(tmp_path_factory.mktemp("model"), FORMS[request.param])
    for name in ("eos_token_id", "forced_eos_token_id", "forced_bos_token_id", "bad_words_ids", "num_beams", "suppress_tokens"):
        setattr(found.theirs.generation_config, name, None)
    return found


def transformers_finds(pair, ids, end, new, **settings):
    """(tokens without the end, score) of each sequence that it returns."""
    ids = torch.tensor(ids)[None]
    out = pair.theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, eos_token_id=end,
                               pad_token_id=98, return_dict_in_generate=True, output_scores=True, **settings)
    begin = 1 if pair.theirs.config.is_encoder_decoder else ids.shape[1]
    found = []
    for row, score in zip(out.sequences[:, begin:].tolist(), out.sequences_scores.tolist()):
        stop = next((n for n, token in enumerate(row) if token in end), None)
        found.append((row[:len(row) if stop is None else stop], score))
    return found


def test_each_token_and_score_is_transformers(pair):
    dice, ended, different = random.Random(7), 0, 0
    for _ in range(40):
        ids = [dice.randrange(6, 90) for _ in range(dice.choice([1, 4, 9]))]
        beams = dice.choice([2, 3, 4, 6])
        plain = pair.ours.generate(ids, NEW, end=[], temperature=0, num_beams=1).tolist()
        end = sorted({dice.choice(plain), *(dice.randrange(3, 97) for _ in range(dice.choice([0, 1, 4, 20])))})
        settings = {"num_beams": beams, "length_penalty": dice.choice([1.0, 0.0, 2.0, -0.7, 0.6]),
                    "early_stopping": dice.choice([True, False, "never"]), "num_return_sequences": dice.randint(1, beams)}
        settings |= dice.choice([{}, {}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.4}, {"min_new_tokens": 4},
                                 {"forced_eos_token_id": end[0]}, {"forced_bos_token_id": 40}, {"bad_words_ids": [plain[:2]]}])
        expected = transformers_finds(pair, ids, end, NEW, **settings)
        got = pair.ours.generate(ids, NEW, end=end, **settings)
        got = got if isinstance(got, list) else [got]
        assert [each.tolist() for each in got] == [tokens for tokens, _ in expected], (ids, end, settings)
        ended += any(len(tokens) < NEW for tokens, _ in expected)
        different += expected[0][0] != plain
    assert ended > 10 and different > 20


def test_several_prompts_and_who_listens(pair):
    prompts = [[6, 7, 8], [9]]
    alone = [pair.ours.generate(each, 6, end=[], num_beams=3).tolist() for each in prompts]
    told = []
    assert [each.tolist() for each in pair.ours.generate(prompts, 6, end=[], num_beams=3, on_token=lambda *of: told.append(of))] == alone
    assert told == [(n, token) for n in (0, 1) for token in alone[n]]
    told.clear()
    pair.ours.generate(prompts[0], 6, end=[], num_beams=3, on_token=lambda token: told.append(token) or len(told) < 4)
    assert told == [*alone[0][:3], alone[0][3]]


def test_draws_of_one_prompt(pair):
    several = pair.ours.generate([6, 7], 5, end=[], temperature=1.0, seed=4, num_return_sequences=3)
    alone = [pair.ours.generate([6, 7], 5, end=[], temperature=1.0, seed=4 + n).tolist() for n in range(3)]
    assert [each.tolist() for each in several] == alone


@pytest.mark.parametrize("settings, message", [
    ({"num_beams": 0}, "num_beams is 0, expected at least 1"),
    ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences is 3, expected at most num_beams, 2"),
    ({"num_beams": 2, "temperature": 0.5}, "temperature is 0.5 and num_beams is 2: beams are not drawn, expected one of the two"),
    ({"num_beams": 2, "length_penalty": float("nan")}, "length_penalty is nan, expected a number"),
    ({"num_beams": 2, "observe": print}, "an observer takes one text, and there are 2 beams"),
])
def test_what_does_not_go_with_beams(pair, settings, message):
    with pytest.raises(ValueError) as error:
        pair.ours.generate([5, 6], 4, **settings)
    assert str(error.value).endswith(f": {message}")


def test_where_no_token_may_come_it_is_said(pair):
    """At once, or after a token that nothing may follow; what has ended by then is an answer."""
    with pytest.raises(ValueError, match="no token may come: every logit is -inf"):
        pair.ours.generate([5, 6], 4, end=[], num_beams=2, suppress_tokens=list(range(99)))
    only = {"num_beams": 2, "suppress_tokens": [n for n in range(99) if n not in (40, 41)], "no_repeat_ngram_size": 1}
    with pytest.raises(ValueError, match="no token may come: every logit is -inf"):
        pair.ours.generate([5, 6], 4, end=[], **only)
    assert pair.ours.generate([5, 6], 4, end=[41], **only).tolist() in ([], [40])


def test_all_that_is_found_is_told_and_checked_as_one(pair):
    told = []
    found = pair.ours.generate([5, 6], 5, end=[], num_beams=3, num_return_sequences=3, on_token=told.append)
    assert told == found[0].tolist() and len(found) == 3
    if not pair.ours.info.encoder_decoder:
        with pytest.raises(ValueError, match="a cache takes one text, and there are 3 beams"):
            pair.ours.generate([5, 6], 5, num_beams=3, num_return_sequences=3, cache=pair.ours.cache())
    with pytest.raises(ValueError, match="num_return_sequences takes one prompt, and there are several"):
        pair.ours.generate([[5, 6], [7]], 5, num_beams=3, num_return_sequences=2)


def test_a_bad_early_stopping_is_named(pair):
    with pytest.raises(TypeError, match="Model.generate: early_stopping: expected True, False or 'never', got 'soon'"):
        pair.ours.generate([5], 2, num_beams=2, early_stopping="soon")
