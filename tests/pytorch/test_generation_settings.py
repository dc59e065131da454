"""The settings of generate(): each token as Transformers writes it, and where tokens are drawn, from the same distribution."""

import os
import random

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

from drawn import chi_squared, critical
from tiny_models import BOTH, CASES, SHAPE, Both, llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LogitsProcessorList, PreTrainedTokenizerFast
from transformers.generation.logits_process import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

import attend

NEW = 12
VOCABULARY = 99


def transformers_writes(pair, ids, **settings):
    ids = torch.tensor(ids)[None]
    out = pair.theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, **settings)
    begin = 1 if pair.theirs.config.is_encoder_decoder else ids.shape[1]
    return out[0, begin:].tolist()


@pytest.fixture(scope="module", params=["llama", "gemma2", "bart untied"])
def pair(request, tmp_path_factory):
    found = Both(tmp_path_factory.mktemp("model"), (CASES | BOTH)[request.param])
    found.theirs.generation_config.eos_token_id = None
    found.theirs.generation_config.forced_eos_token_id = None
    return found


def drawn_settings(dice, plain):
    """Settings that change `plain`, some of them at once."""
    token = lambda: dice.choice([*plain, *range(3, VOCABULARY, 7)])
    several = lambda most: [token() for _ in range(dice.randint(1, most))]
    begin = dice.randrange(len(plain) - 2)
    each = {
        "repetition_penalty": lambda: dice.choice([0.6, 1.2, 3.0]),
        "no_repeat_ngram_size": lambda: dice.randint(1, 3),
        "min_new_tokens": lambda: dice.randint(1, NEW),
        "min_length": lambda: dice.randint(1, 20),
        "begin_suppress_tokens": lambda: several(4),
        "suppress_tokens": lambda: several(4),
        "bad_words_ids": lambda: [several(2), plain[begin:begin + 2], plain[begin:begin + 3]],
        "sequence_bias": lambda: {tuple(plain[begin:begin + 2]): -9.0, tuple(plain[:1]): -2.5, (token(),): 1.5,
                                  (token(), token(), token()): 4.0},
        "forced_bos_token_id": token,
        "forced_eos_token_id": token,
    }
    return {key: each[key]() for key in dice.sample(sorted(each), dice.choice([1, 1, 2, 3, 4]))}


def test_each_token_is_transformers(pair):
    dice, changed = random.Random(54), 0
    for _ in range(60):
        length = dice.choice([1, 2, 5, 12])
        ids = [dice.randrange(6, 30) for _ in range(length)]
        plain = transformers_writes(pair, ids)
        end = plain[dice.randrange(3, NEW)]
        settings = drawn_settings(dice, plain)
        forbidden = set(settings.get("suppress_tokens", []) + settings.get("begin_suppress_tokens", []))
        forbidden |= {each[0] for each in settings.get("bad_words_ids", []) if len(each) == 1}
        if forbidden & {settings.get("forced_bos_token_id"), settings.get("forced_eos_token_id")}:
            continue  # Transformers refuses it, or gives token 0; attend the one that is forced
        expected = transformers_writes(pair, ids, eos_token_id=end, pad_token_id=0, **settings)
        expected = expected[:-1] if expected[-1] == end else expected
        got = pair.ours.generate(ids, NEW, end=[end], **settings).tolist()
        assert got == expected, (ids, settings, end)
        changed += got != plain[:len(got)]
    assert changed > 25


def test_a_token_that_is_forced_comes_whatever_suppresses_it(pair):
    got = pair.ours.generate([6, 7], 3, end=[], forced_eos_token_id=20, suppress_tokens=[20])
    assert got[-1] == 20


def test_several_prompts_are_as_each_alone(pair):
    prompts = [[6, 7, 6, 7], [8], list(range(9, 20))]
    settings = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "temperature": 0.9, "top_k": 20, "min_p": 0.01, "end": []}
    together = pair.ours.generate(prompts, NEW, seed=3, **settings)
    for n, prompt in enumerate(prompts):
        assert together[n].tolist() == pair.ours.generate(prompt, NEW, seed=3 + n, **settings).tolist()


WARPED = [{}, {"top_k": 7}, {"top_p": 0.7}, {"min_p": 0.1}, {"top_k": 12, "top_p": 0.8}, {"top_k": 30, "min_p": 0.1},
          {"top_p": 0.9, "min_p": 0.15}, {"top_k": 20, "top_p": 0.95, "min_p": 0.05}]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.7])
@pytest.mark.parametrize("settings", WARPED, ids=lambda each: " ".join(each) or "all")
def test_tokens_are_drawn_from_transformers_distribution(tmp_path, settings, temperature):
    pair = Both(tmp_path, CASES["llama"])
    prompt = list(range(6, 16))
    plain = pair.ours.logits(pair.ours.forward(prompt)[-1:])
    logits = 1.5 * plain  # as sure as trained models are, by a bias on each token
    bias = {(n,): float(0.5 * value) for n, value in enumerate(plain[0])}
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    for name, warper in [("top_k", TopKLogitsWarper), ("top_p", TopPLogitsWarper), ("min_p", MinPLogitsWarper)]:
        if name in settings:
            warpers.append(warper(settings[name]))
    probabilities = torch.softmax(warpers(None, torch.from_numpy(logits)).double(), -1)[0].numpy()
    draws = 3000
    made = pair.ours.generate([prompt] * draws, 1, temperature=temperature, sequence_bias=bias, seed=1, end=[], **settings)
    counts = np.bincount([each[0] for each in made], minlength=VOCABULARY)
    found, free = chi_squared(counts, probabilities)
    assert free > 1 and found < critical(free)
    # And it can fail: another temperature is told apart.
    others = torch.softmax(torch.log(torch.from_numpy(probabilities)) * 1.7, -1).numpy()
    found, free = chi_squared(counts, others)
    assert found > critical(free)


# ---- Stop strings ----

CORPUS = ["The quick brown fox, naïve café, 日本語 and 猫 — the lazy dog's \"words\".", "What stops here. What goes on; and on!"] * 20


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A tiny model with a tokenizer of bytes and pairs of them, opened by both."""
    folder = tmp_path_factory.mktemp("writer")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False))
    pair = Both(folder, llama(**SHAPE | {"vocab_size": tokenizer.get_vocab_size(), "num_key_value_heads": 2}))
    tokenizer.save(str(folder / "tokenizer.json"))
    pair.ours = attend.Model.load(folder)
    pair.words = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    return pair


def test_stop_strings_end_where_transformers_ends(writer):
    dice, stopped, across = random.Random(5), 0, 0
    for _ in range(80):
        ids = [dice.randrange(writer.words.vocab_size) for _ in range(dice.randint(1, 9))]
        plain = writer.ours.generate(ids, NEW, end=[])
        text = writer.words.decode([*ids, *plain])
        begin = dice.randrange(max(1, len(text) - 6))
        stops = [text[begin:begin + dice.randint(1, 6)], "zzzz", "words" * 40][: dice.randint(1, 3)]
        if "\ufffd" in stops[0] or not stops[0]:
            continue
        got = writer.ours.generate(ids, NEW, end=[], stop_strings=stops).tolist()
        expected = transformers_writes(writer, ids, stop_strings=stops, tokenizer=writer.words)
        assert got == expected, (ids, stops)
        stopped += len(got) < NEW
        across += len(got) < NEW and all(stops[0] not in writer.words.decode([token]) for token in got)
    assert stopped > 15 and across > 5


def test_the_text_ends_before_the_stop_string(writer):
    prompt = "The quick brown fox"
    plain = writer.ours.generate(prompt, 60, end=[])
    for begin in range(3, len(plain) - 5, 4):
        stop = plain[begin:begin + 3]
        if "\ufffd" in stop:
            continue
        told = []
        text = writer.ours.generate(prompt, 60, end=[], stop_strings=stop, on_text=told.append)
        assert text == plain[:plain.index(stop)] and "".join(told) == text
        assert text == writer.ours.generate([prompt], 60, end=[], stop_strings=[stop])[0]


def test_on_text_is_told_whole_characters(writer):
    told = []
    text = writer.ours.generate("naïve", 80, end=[], temperature=3.0, seed=2, on_text=told.append)
    assert "".join(told) == text and len(told) > 20
    assert writer.ours.generate("naïve", 80, end=[], temperature=3.0, seed=2, on_text=lambda more: False) == told[0]


@pytest.mark.parametrize("settings, message", [
    ({"stop_strings": ""}, "stop_strings[0] is empty"),
    ({"stop_strings": ["a", ""]}, "stop_strings[1] is empty"),
    ({"temperature": -1}, "temperature is -1, expected a number from 0"),
    ({"temperature": float("nan")}, "temperature is nan, expected a number from 0"),
    ({"top_k": -1}, "top_k is -1, expected at least 0"),
    ({"top_p": 0}, "top_p is 0, expected a number above 0, at most 1"),
    ({"min_p": 1.5}, "min_p is 1.5, expected a number from 0 to 1"),
    ({"repetition_penalty": 0}, "repetition_penalty is 0, expected a number above 0"),
    ({"no_repeat_ngram_size": -2}, "no_repeat_ngram_size is -2, expected at least 0"),
    ({"min_length": -1}, "min_length is -1, expected at least 0"),
    ({"min_new_tokens": -1}, "min_new_tokens is -1, expected at least 0"),
    ({"begin_suppress_tokens": [5, 5000]}, "begin_suppress_tokens[1] is 5000, expected 0 to 329"),
    ({"suppress_tokens": [-1]}, "suppress_tokens[0] is -1, expected 0 to 329"),
    ({"bad_words_ids": [[1], []]}, "bad_words_ids[1] has no ids"),
    ({"sequence_bias": {(): 1.0}}, "sequence_bias[0] has no ids"),
    ({"sequence_bias": {(400,): 1.0}}, "sequence_bias[0][0] is 400, expected 0 to 329"),
    ({"sequence_bias": {(4,): float("inf")}}, "sequence_bias[0] adds inf, expected a number or -inf"),
    ({"forced_bos_token_id": -2}, "forced_bos_token_id is -2, expected 0 to 329"),
    ({"forced_eos_token_id": 330}, "forced_eos_token_id is 330, expected 0 to 329"),
    ({"max_new_tokens": -1}, "max_new_tokens is -1, expected at least 0"),
])
def test_what_is_out_of_range_is_named(writer, settings, message):
    size = writer.words.vocab_size
    with pytest.raises(ValueError) as error:
        writer.ours.generate("the", **settings)
    assert str(error.value) == f"Model.generate: {message}".replace("329", str(size - 1))


@pytest.mark.parametrize("settings, message", [
    ({"stop_strings": [5]}, "stop_strings[0]: expected a text (str, of Unicode), got 5"),
    ({"top_k": 1.5}, "top_k: expected a whole number, got 1.5"),
    ({"top_p": "all"}, "top_p: expected a number, got 'all'"),
    ({"sequence_bias": 4}, "sequence_bias: expected a dict {(id, ...): number}, or a list of ([id, ...], number), got 4"),
    ({"on_text": 4}, "on_text: expected a function, got 4"),
    ({"cache": 4}, "cache: expected a ModelCache, got 4"),
])
def test_what_is_of_another_type_is_named(writer, settings, message):
    with pytest.raises(TypeError) as error:
        writer.ours.generate("the", **settings)
    assert str(error.value) == f"Model.generate: {message}"


def test_a_stop_string_longer_than_the_text_changes_nothing(writer):
    assert writer.ours.generate("the", NEW, end=[], stop_strings="x" * 5000) == writer.ours.generate("the", NEW, end=[])


# ---- Caches ----


def test_a_cache_goes_on_with_the_bits_of_one_call(writer):
    prompt, keep = [5, 6, 7], ["z", ("residual", 2)]
    whole, rows = writer.ours.generate(prompt, 24, end=[], keep=keep)
    cache, ids, parts = writer.ours.cache(), prompt, []
    for _ in range(3):
        made, kept = writer.ours.generate(ids, 8, end=[], cache=cache, keep=keep)
        ids = [*ids, *made.tolist()]
        assert len(cache) == len(ids) - 1
        parts.append(kept)
    assert ids == [*prompt, *whole.tolist()]
    np.testing.assert_array_equal(np.concatenate([each["z"] for each in parts], 1), rows["z"])
    np.testing.assert_array_equal(np.concatenate([each["residual", 2] for each in parts]), rows["residual", 2])


def test_a_conversation_goes_on_with_what_is_new(writer):
    cache, ids, read = writer.ours.cache(), [5, 6, 7], []
    watch = lambda place, layer, rows: read.append(len(rows)) if (place, layer) == ("residual", 0) else None
    for turn in range(4):
        made = writer.ours.generate(ids, 9, end=[], temperature=0.8, seed=turn, cache=cache, observe=watch)
        assert made.tolist() == writer.ours.generate(ids, 9, end=[], temperature=0.8, seed=turn).tolist()
        assert read == [3, *[1] * 8]  # later: the last token that was written, and two new ones
        ids, read[:] = [*ids, *made.tolist(), 11 + turn, 12], []


def test_a_cache_of_another_text_keeps_what_both_begin_with(writer):
    cache = writer.ours.cache()
    read = []
    writer.ours.generate([5, 6, 7, 8, 9], 4, end=[], cache=cache)
    watch = lambda place, layer, rows: read.append(len(rows)) if (place, layer) == ("residual", 0) else None
    got = writer.ours.generate([5, 6, 30, 31], 4, end=[], cache=cache, observe=watch)
    assert got.tolist() == writer.ours.generate([5, 6, 30, 31], 4, end=[]).tolist()
    assert read == [2, 1, 1, 1]


def test_what_fails_leaves_the_cache(writer):
    cache = writer.ours.cache()
    writer.ours.generate([5, 6, 7], 4, end=[], cache=cache)

    def fails(token):
        raise KeyError("stop")

    with pytest.raises(KeyError):
        writer.ours.generate([5, 6, 7, 8], 4, end=[], cache=cache, on_token=fails)
    assert len(cache) == 6


def test_what_does_not_go_with_a_cache(pair, writer):
    if pair.ours.info.encoder_decoder:
        with pytest.raises(ValueError, match="cache needs a decoder-only model, the model is of type bart"):
            pair.ours.generate([5], 2, cache=pair.ours.cache())
    with pytest.raises(ValueError, match="a cache takes one prompt, and there are several"):
        writer.ours.generate([[5], [6]], 2, cache=writer.ours.cache())
    with pytest.raises(ValueError, match="on_text takes one prompt, and there are several"):
        writer.ours.generate([[5], [6]], 2, on_text=print)
