"""Every key of Transformers' GenerationConfig, set to what would change a text: attend writes the tokens that generate() writes, or
names the key in info.not_followed.

The keys are those that the class has: one that a newer transformers brings fails until it stands in SETTINGS.
"""

import json
import os
import random
import re

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

from drawn import chi_squared, critical
from tiny_models import BOTH, CASES, Both, edit
from transformers import GenerationConfig

import attend

NEW = 7
# Of which each model makes tokens that differ, and one of which is in the text.
IDS, OF_LLAMA = (np.random.default_rng(seed).integers(6, 80, 11) for seed in (28, 29))


def settings(plain):
    """Of each key what is put in its place, with what it needs beside it; `plain` are the tokens that follow without it."""
    first, second, third = plain[:3]
    ends, draws = {"eos_token_id": third}, {"do_sample": True}
    static, beams = {"cache_implementation": "static"}, {"num_beams": 2}
    single = {
        "early_stopping": [True], "length_penalty": [9.0], "diversity_penalty": [9.0], "low_memory": [True], "num_assistant_tokens": [3],
        "num_assistant_tokens_schedule": ["heuristic"], "assistant_confidence_threshold": [0.9], "assistant_lookbehind": [1],
        "target_lookbehind": [1], "assistant_ensemble_weight": [0.5], "speculation_type": ["dflash"], "max_matching_ngram_size": [1],
        "max_length": [14], "max_new_tokens": [2], "use_cache": [False, True], "cache_config": [{"nbits": 4}], "prefill_chunk_size": [4],
        "disable_compile": [True], "continuous_batching_config": [{}], "remove_invalid_values": [True], "renormalize_logits": [True],
        "pad_token_id": [5, -1], "return_dict_in_generate": [True], "output_attentions": [True], "output_hidden_states": [True],
        "output_logits": [True], "output_scores": [True], "transformers_version": ["4.0.0"], "_from_model_config": [True, False],
        "cache_implementation": ["dynamic", "static", "hybrid", "sliding_window", "quantized", "paged"],
        "do_sample": [True, False], "num_beams": [5, 1], "num_beam_groups": [2, 1], "num_return_sequences": [2, 1],
        "max_time": [1e-9], "stop_strings": [5], "no_repeat_ngram_size": [1, 0], "encoder_no_repeat_ngram_size": [1, 0],
        "repetition_penalty": [9.0, 1.0], "encoder_repetition_penalty": [9.0, 1.0], "begin_suppress_tokens": [[first], []],
        "sequence_bias": [[[[first], -99.0]]], "force_words_ids": [[[5]]], "constraints": [[]], "guidance_scale": [9.0, 1.0],
        "watermarking_config": [{"bias": 99.0}], "token_healing": [True, False], "penalty_alpha": [0.6, 0.0], "dola_layers": ["high"],
        "use_mtp": [True, False], "is_assistant": [True, False], "prompt_lookup_num_tokens": [2], "assistant_early_exit": [1],
        "compile_config": [{}], "forced_bos_token_id": [50], "forced_eos_token_id": [51, [51], [51, 52], [], -1],
        "bos_token_id": [9], "eos_token_id": [third, [third, second], -1, [third, -1], []], "decoder_start_token_id": [7, [7], [7, 8]],
        "suppress_tokens": [[first], [first, second], [-1], [first, -1], [], first],
        "bad_words_ids": [[[first]], [[second], [first]], [[first, second]], [[first], [second, third]], [], [[]], [[-1]]],
    }
    drawn = {"temperature": 0.01, "top_k": 3, "top_p": 0.5, "min_p": 0.9, "top_h": 0.5, "typical_p": 0.5, "epsilon_cutoff": 0.9,
             "eta_cutoff": 0.9}
    found = {key: [{key: value} for value in values] for key, values in single.items()}
    found |= {key: [{key: value}, {key: value} | draws] for key, value in drawn.items()}
    found["bad_words_ids"] += [{"bad_words_ids": [[third]]} | ends, {"bad_words_ids": [[third], [first]]} | ends]
    found |= {key: [{key: value} | ends] for key, value in {"min_length": 40, "min_new_tokens": 5}.items()}
    found["exponential_decay_length_penalty"] = [{"exponential_decay_length_penalty": [0, 99.0], "eos_token_id": int(plain[-1]) ^ 1}]
    found["max_cache_len"] = [{"max_cache_len": 64} | static]
    found["num_beam_groups"][0] |= beams
    return found


# What says how tokens are drawn.
DRAWING = {"do_sample", "temperature", "top_k", "top_p", "min_p"}
# What never changes a token of one text that the caller gives a length: but for these each key has a value that does.
WITHOUT_EFFECT = set("""
    max_length max_new_tokens early_stopping length_penalty diversity_penalty low_memory num_assistant_tokens num_assistant_tokens_schedule
    assistant_confidence_threshold assistant_lookbehind target_lookbehind assistant_ensemble_weight speculation_type
    max_matching_ngram_size use_cache cache_config max_cache_len prefill_chunk_size disable_compile continuous_batching_config
    remove_invalid_values renormalize_logits return_dict_in_generate output_attentions output_hidden_states output_logits output_scores
    transformers_version _from_model_config pad_token_id prompt_lookup_num_tokens assistant_early_exit
""".split())
# Of a decoder's text of several tokens, none of which follows; of an encoder-decoder's.
ALSO = {"llama": {"bos_token_id", "decoder_start_token_id", "forced_bos_token_id"},
        "bart untied": {"bos_token_id"}}


class Written:
    """A tiny model's folder, of which one file says how texts are written, opened by both."""

    def __init__(self, folder, case, file):
        pair = Both(folder, case)
        (folder / "generation_config.json").unlink(missing_ok=True)
        self.folder, self.theirs, self.file = folder, pair.theirs, file
        self.ids = IDS if pair.ours.info.encoder_decoder else OF_LLAMA
        self.base = {"decoder_start_token_id": 0, "eos_token_id": 1} if pair.ours.info.encoder_decoder else {}
        edit(folder, **dict.fromkeys(["decoder_start_token_id", "eos_token_id", "bos_token_id", "pad_token_id"]))
        self.config = json.loads((folder / "config.json").read_text())

    def say(self, said):
        of_config = self.file == "config.json"
        (self.folder / self.file).write_text(json.dumps((self.config if of_config else {}) | self.base | said))

    def opens(self):
        """Whether the configuration's class takes what config.json says."""
        try:
            type(self.theirs.config).from_pretrained(self.folder)
        except Exception:  # of any kind
            return False
        return True

    def expected(self, ids=None, new=NEW):
        """What Transformers writes; None where it raises."""
        ids = self.ids if ids is None else ids
        torch.manual_seed(1)
        try:
            how = {"_from_model_config": True} if self.file == "config.json" else {}
            self.theirs.generation_config = GenerationConfig.from_pretrained(self.folder, self.file, **how)
            inputs = torch.from_numpy(ids)[None]
            out = self.theirs.generate(inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=new)
        except Exception:  # of any kind, as those of a value that is another type
            return None
        out = out.sequences if hasattr(out, "sequences") else out
        if out.shape[0] != 1:
            return None
        tokens = out[0, 1 if self.theirs.config.is_encoder_decoder else len(ids):].tolist()
        ends = self.theirs.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return tokens[:-1] if tokens and tokens[-1] in ends else tokens

    def got(self, ids=None, new=NEW):
        """(tokens, what is not followed), or what is raised."""
        try:
            model = attend.Model.load(self.folder)
            return model.generate(self.ids if ids is None else ids, new).tolist(), model.info.not_followed
        except (OSError, ValueError) as error:
            return str(error), []


def written(request, folder):
    name, file = request.param
    made = Written(folder, (CASES | BOTH)[name], file)
    made.without_effect = WITHOUT_EFFECT | ALSO[name]
    return made


@pytest.fixture(params=[("llama", "generation_config.json"), ("bart untied", "generation_config.json"), ("bart untied", "config.json")],
                ids=lambda each: " ".join(each))
def folder(request, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield written(request, tmp_path)
    torch.set_num_threads(before)


def test_every_key_is_followed_or_named(folder):
    folder.say({})
    plain, _ = folder.got()
    assert plain == folder.expected() and len(set(plain[:3])) == 3 and len(plain) == NEW
    of = settings(plain)
    assert set(of) == set(vars(GenerationConfig())) - {"_original_object_hash"}
    wrong, changing, without = [], set(), {}
    for key, all in of.items():
        # test_what_a_decoders_text_begins_with has what there is without one
        for said in [*all, {key: None}] if key != "decoder_start_token_id" else all:
            beside = json.dumps({name: each for name, each in said.items() if name != key})
            if beside not in without:
                folder.say(json.loads(beside))
                without[beside] = folder.expected()
            folder.say(said)
            if not folder.opens():
                continue
            expected = folder.expected()
            tokens, not_followed = folder.got()
            changing |= {key} if expected != without[beside] else set()
            if said.get("do_sample") and key in DRAWING:
                assert not_followed == [], said  # test_a_folder_that_draws has what comes
                continue
            if not any(re.fullmatch(rf"{key}( .*)?", each) for each in not_followed) and tokens != expected:
                wrong.append(f"{said}: {tokens}, expected {expected}; not followed: {not_followed}")
    assert not wrong, "\n".join(wrong)
    assert set(of) - changing <= folder.without_effect, sorted(set(of) - changing - folder.without_effect)


def test_many_keys_at_once(folder):
    """Random values of up to all keys: what Transformers writes, or what is not followed is named; never an error that is neither's."""
    folder.say({})
    plain, _ = folder.got()
    of, dice, followed = settings(plain), random.Random(54), 0
    for _ in range(150):
        keys = dice.sample(sorted(of), dice.choice([2, 4, 8, len(of)]))
        said = {}
        for key in keys:
            said |= dice.choice(of[key])
        said |= {"do_sample": False} if "do_sample" in said else {}
        folder.say(said)
        if not folder.opens():
            continue
        tokens, not_followed = folder.got()
        assert not isinstance(tokens, str), (said, tokens)
        forced = {said.get("forced_bos_token_id"), *as_list(said.get("forced_eos_token_id"))}
        if not_followed or forced & set(said.get("suppress_tokens") or []):
            continue  # Transformers refuses to force what it suppresses
        expected = folder.expected()
        if expected is not None:
            followed += 1
            assert tokens == expected, said
    assert followed > 15


def as_list(ids):
    return ids if isinstance(ids, list) else [ids]


@pytest.mark.parametrize("length", [1, 2, 11])
@pytest.mark.parametrize("said", [{"forced_bos_token_id": 50}, {"forced_bos_token_id": 50, "forced_eos_token_id": 51}])
def test_what_a_decoder_is_forced_to(tmp_path, length, said):
    """The first id after a prompt of one token alone, the last of max_new_tokens after any."""
    folder = Written(tmp_path, CASES["llama"], "generation_config.json")
    folder.say(said)
    for new in (1, 4):
        tokens, not_followed = folder.got(IDS[:length], new)
        assert tokens == folder.expected(IDS[:length], new) and (tokens[0] == 50) == (length == 1 and tokens[0] != 51)
        assert not_followed == []
    model = attend.Model.load(tmp_path)
    prompts = [IDS[:1].tolist(), IDS[:3].tolist()]
    assert [each.tolist() for each in model.generate(prompts, 4)] == [folder.got(np.array(each), 4)[0] for each in prompts]


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("said", [{}, {"bos_token_id": 9}, {"decoder_start_token_id": 7}, {"decoder_start_token_id": 7, "bos_token_id": 9}])
def test_what_a_decoders_text_begins_with(tmp_path, file, said):
    """As generate() has it; where it has nothing, config.json's own, or its class's."""
    folder = Written(tmp_path, BOTH["bart"], file)
    folder.base = {}
    folder.say(said)
    assert attend.Model.load(tmp_path).info.start == said.get("decoder_start_token_id", said.get("bos_token_id", 2))
    assert (folder.expected() is None) == (not said) and (not said or folder.got()[0] == folder.expected())


def test_what_bart_called_it_before(tmp_path):
    folder = Written(tmp_path, BOTH["bart"], "config.json")
    folder.say({"force_bos_token_to_be_generated": True, "bos_token_id": 9})
    assert folder.got() == (folder.expected(), []) and folder.got()[0][0] == 9


def test_a_key_that_no_one_knows_is_named(tmp_path):
    folder = Written(tmp_path, CASES["llama"], "generation_config.json")
    plain = folder.got()[0]
    folder.say({"new_key": 1, "newer_key": {"a": 1}, "nothing": None, "eos_token_id": "x", "do_sample": "yes", "top_p": 5, "top_k": 0})
    assert folder.got() == (plain, ["eos_token_id", "top_p 5", "do_sample", "'new_key' 1", "'newer_key'"])


def test_each_key_of_a_draw_is_named_by_itself(tmp_path):
    folder = Written(tmp_path, CASES["llama"], "generation_config.json")
    plain = folder.got()[0]
    folder.say({"do_sample": "yes", "temperature": 0.6})
    assert folder.got() == (plain, ["do_sample"])
    folder.say({"do_sample": True, "temperature": 0})
    assert folder.got()[1] == ["temperature 0"]


DRAWS = [{}, {"temperature": 0.6}, {"top_k": 4}, {"top_k": 0}, {"top_k": None}, {"temperature": 0.8, "top_p": 0.6}, {"min_p": 0.2},
         {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "min_p": 0.3, "repetition_penalty": 1.4, "bad_words_ids": [[9], [15, 20]]}]


@pytest.mark.parametrize("said", DRAWS, ids=lambda said: " ".join(said) or "nothing else")
def test_a_folder_that_draws(tmp_path, said):
    """From the distribution that Transformers draws from: the logits that its processors leave."""
    folder = Written(tmp_path, CASES["llama"], "generation_config.json")
    folder.say({"do_sample": True} | said)
    folder.theirs.generation_config = GenerationConfig.from_pretrained(tmp_path, "generation_config.json")
    ids = torch.from_numpy(OF_LLAMA)[None]
    scores = folder.theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, return_dict_in_generate=True,
                                    output_scores=True).scores[0]
    model = attend.Model.load(tmp_path)
    assert model.info.not_followed == []
    made = model.generate([OF_LLAMA.tolist()] * 3000, 1, seed=2)
    counts = np.bincount([each[0] for each in made], minlength=scores.shape[1])
    found, free = chi_squared(counts, torch.softmax(scores.double(), -1)[0].numpy())
    assert free > 2 and found < critical(free)
    # And the caller says otherwise.
    greedy = model.generate(OF_LLAMA, 5, temperature=0, repetition_penalty=1, bad_words_ids=[], end=[])
    folder.say({})
    assert greedy.tolist() == folder.got(OF_LLAMA, 5)[0]
