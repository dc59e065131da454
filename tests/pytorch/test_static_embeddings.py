"""Model.embed() of static embeddings, beside model2vec and sentence-transformers, of folders that these wrote.

Where one of the two is not installed (.ci/long installs both), its tests don't run; those beside NumPy and tokenizers do.
"""

import json
import os

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import tokenizers
from safetensors.numpy import save_file
from tokenizers import models, pre_tokenizers

import attend

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "äöü", "##s", "##ed", ".", ",", "antidisestablishmentarianism"]
SENTENCES = ["the cat sat on a mat.", "", "dogs ran, cats", "nothing known", "the cat " * 400, "xyz the " * 600, "cat" * 3000,
             "antidisestablishmentarianism " * 90, "äöü the äöü", "the"]


def made(kind):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: n for n, word in enumerate([*special, *WORDS])}
    plain = [(word, -1.0 - n / 8) for word, n in vocabulary.items()] + [("c", -9.0), ("t", -9.0)]
    own = tokenizers.Tokenizer({"wordpiece": lambda: models.WordPiece(vocabulary, unk_token="[UNK]"),
                                "wordlevel": lambda: models.WordLevel(vocabulary, unk_token="[UNK]"),
                                "unigram": lambda: models.Unigram(plain, unk_id=1)}[kind]())
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    if kind != "unigram":
        own.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")])
    return own


KINDS = ["wordpiece", "wordlevel", "unigram"]


def table_of(tokenizer, size=16):
    return np.random.default_rng(4).standard_normal((tokenizer.get_vocab_size(), size)).astype(np.float32)


# Both peers sum a sentence's rows in f32, one after the other: of 1,200 rows the error may be 1200 * 2^-24 of the sum's size.
THEIRS = 1e-4


def same(folder, expected, atol=THEIRS, sentences=SENTENCES, **options):
    model = attend.Model.load(folder)
    assert (model.info.family, model.info.layers) == ("static_table", 0)
    got = model.embed(sentences, **options)
    np.testing.assert_allclose(got, expected, atol=atol, rtol=0)
    for n in (0, 4, 8):
        np.testing.assert_array_equal(model.embed(sentences[n:n + 1], **options)[0], got[n])
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_beside_numpy(tmp_path, kind):
    tokenizer = made(kind)
    table = table_of(tokenizer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    save_file({"embedding.weight": table}, tmp_path / "model.safetensors")
    (tmp_path / "modules.json").write_text(json.dumps(
        [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]))
    ids = [each.ids for each in tokenizer.encode_batch(SENTENCES, add_special_tokens=False)]
    exact = np.array([np.float64(table)[each].mean(0) if each else np.zeros(16) for each in ids])
    model = same(tmp_path, exact, atol=1e-6)
    assert (model.info.type, model.info.vocabulary, model.info.embedding_size) == ("StaticEmbedding", len(table), 16)
    np.testing.assert_array_equal(model.weights()["embeddings"], table)
    np.testing.assert_array_equal(model.forward([3, 1, 3]), table[[3, 1, 3]])


def mapped(table):
    return {"vectors": table[:6], "token_mapping": (np.arange(len(table)) % 6).astype(np.int32),
            "weights": np.linspace(0.25, 2, len(table)).astype(np.float32)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["float32", "float16", "int8", "mapped", "normalized", "no configuration"])
def test_beside_model2vec(tmp_path, kind, form):
    model2vec = pytest.importorskip("model2vec")
    tokenizer = made(kind)
    table = table_of(tokenizer)
    given = mapped(table) if form == "mapped" else {
        "vectors": np.round(table * 8).astype(np.int8) if form == "int8" else table.astype(form if "float" in form else "float32")}
    config = None if form == "no configuration" else {"model_type": "model2vec", "architectures": ["StaticModel"]}
    model2vec.StaticModel(tokenizer=tokenizer, config=config, normalize=form == "normalized", **given).save_pretrained(tmp_path)
    theirs = model2vec.StaticModel.from_pretrained(tmp_path)
    if form == "float16":  # whose means are rounded there
        theirs.embedding = theirs.embedding.astype(np.float32)
    expected = theirs.encode(SENTENCES)
    model = same(tmp_path, expected)
    assert model.info.type == "model2vec" and model.info.max_seq_length == 512
    ids = theirs.tokenize(SENTENCES[:1])[0]
    np.testing.assert_allclose(model.forward(ids), theirs.encode_as_sequence(SENTENCES[0]), atol=1e-6)
    np.testing.assert_array_equal(model.weights()["embeddings"].shape, table.shape)
    with pytest.raises(ValueError, match=r"sentences\[\d\] has \d+ tokens, the model takes 512"):
        model.embed(SENTENCES, truncate=False)


@pytest.mark.parametrize("kind", KINDS)
def test_beside_sentence_transformers(tmp_path, kind):
    torch = pytest.importorskip("torch")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    tokenizer = made(kind)
    first = modules.StaticEmbedding(tokenizer, embedding_weights=table_of(tokenizer))
    torch.manual_seed(1)
    for name, after, options in [("alone", [], {}), ("normalized", [modules.Normalize()], {}),
                                 ("cut", [modules.Dense(16, 8), modules.LayerNorm(8)], {"truncate_dim": 5}),
                                 ("prompt", [], {"prompts": {"query": "the dog "}, "default_prompt_name": "query"})]:
        sentence_transformers.SentenceTransformer(modules=[first, *after], **options).save(
            str(tmp_path / name), create_model_card=False)
        theirs = sentence_transformers.SentenceTransformer(str(tmp_path / name))
        same(tmp_path / name, theirs.encode(SENTENCES))
        same(tmp_path / name, theirs.encode(SENTENCES, normalize_embeddings=True), normalize=True)


def test_a_folder_of_model2vec_without_its_configuration_is_sentence_transformers(tmp_path):
    """Which folds mapping and weights into the table, and leaves nothing out."""
    model2vec = pytest.importorskip("model2vec")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    tokenizer = made("wordpiece")
    model2vec.StaticModel(tokenizer=tokenizer, normalize=True, **mapped(table_of(tokenizer))).save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    same(tmp_path, sentence_transformers.SentenceTransformer(str(tmp_path)).encode(SENTENCES))
