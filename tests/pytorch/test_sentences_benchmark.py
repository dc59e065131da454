"""benchmarks/sentences.py: its int8 models, made of a tiny BERT, are near to those in f32, and how near is counted right."""

import json
import pathlib
import sys

import numpy as np
import pytest
from test_embed import MODES, MODULES
from tiny_models import bert, written
from tiny_tokenizers import WORDS, tokenizer_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "benchmarks"))
import sentences


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, length)) for length in random.integers(3, 30, 48)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = written(tmp_path_factory.mktemp("bert"), bert(max_position_embeddings=512))
    tokenizer_of("bert").save_pretrained(path)
    (path / "1_Pooling").mkdir()
    for name, content in {"modules.json": MODULES, "1_Pooling/config.json": MODES}.items():
        (path / name).write_text(json.dumps(content))
    return str(path)


def vectors_of(name, folder, texts):
    _, kind, dtype = next(each for each in sentences.IMPLEMENTATIONS if each[0] == name)
    return kind(folder, dtype, texts)(texts, 8)


@pytest.mark.parametrize("name, exact", sentences.EXACT.items())
def test_the_int8_models_are_near_to_f32_and_not_the_same(name, exact, folder, texts):
    for package in {"openvino-qint8": ("nncf", "openvino"), "onnx-qint8": ("onnxruntime", "onnxscript")}.get(name, ()):
        pytest.importorskip(package)  # .ci/long has them
    vectors = vectors_of(exact, folder, texts)
    assert np.abs(vectors - vectors_of("attend", folder, texts)).max() < sentences.FAR["float32"]
    rounded = vectors_of(name, folder, texts)
    cosines = np.einsum("nv,nv->n", vectors, rounded)
    assert 0.95 < cosines.min() < 1 - 1e-6
    assert np.abs(vectors - rounded).max() < sentences.FAR["int8"]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_likeness_is_counted_without_a_sentence_itself():
    random = np.random.default_rng(2)
    exact = unit(random.normal(size=(40, 6)))
    rounded = unit(exact + 0.1 * random.normal(size=exact.shape))
    near = lambda vectors, n: {*sorted(set(range(40)) - {n}, key=lambda other: -(vectors[n] @ vectors[other]))[:10]}
    assert [{*each} for each in sentences.nearest(exact, 15)] == [near(exact, n) for n in range(15)]
    both = [len(near(exact, n) & near(rounded, n)) for n in range(15)]
    cosines = [exact[n] @ rounded[n] for n in range(40)]
    assert 60 < sum(both) < 150  # of which some are the same and some are not
    assert sentences.likeness(exact, rounded, queries=15) == pytest.approx((sum(cosines) / 40, min(cosines), sum(both) / 150))
    assert sentences.likeness(exact, exact) == pytest.approx((1, 1, 1))


def test_lines_are_distinct_and_not_short(tmp_path):
    files = [tmp_path / "a.md", tmp_path / "b.h"]
    files[0].write_text("A line that is long enough.\n\nshort\n")
    files[1].write_text("    A line that is long enough.\n/// Another one, of b.h\n")
    assert sentences.lines_of(files) == ["A line that is long enough.", "/// Another one, of b.h"]
    assert sorted(sentences.corpus(5, files)) == sorted(sentences.lines_of(files))
