"""Models whose layers round what they multiply their weights by: close to exact, said by all that comes of them, refused by analyses."""

import pickle

import numpy
import pytest
import tiny

import attend

TOLD = ": the model's activations are int8, expected exact: sums would not hold"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tiny.write("tiny", config=tiny.WIDE)


def cosine(a, b):
    return float((a * b).sum() / numpy.sqrt((a * a).sum() * (b * b).sum()))


def test_close_and_not_the_same(folder):
    exact, rounded = attend.Model.load(folder), attend.Model.load(folder, activations="int8")
    states = exact.forward("the cat sat"), rounded.forward("the cat sat")
    assert cosine(*states) > 0.99 and not numpy.array_equal(*states)
    assert cosine(exact.logits(states[0]), rounded.logits(states[1])) > 0.99
    assert rounded.generate([1, 2, 3], max_new_tokens=4).shape == (4,)
    assert cosine(exact.embed(["the cat"]), rounded.embed(["the cat"])) > 0.99


def test_what_it_says_of_itself(folder):
    exact, rounded = attend.Model.load(folder), attend.Model.load(folder, activations="int8")
    assert (exact.info.activations, rounded.info.activations) == ("exact", "int8")
    assert "activations" not in repr(exact) + repr(exact.info)
    assert repr(rounded).endswith(", float32, int8 activations)") and repr(rounded.info).endswith(", activations='int8')")
    assert rounded.info.dtype == "float32" and rounded.info.formats == ["f32"]
    embeddings = tiny.WIDE["vocab_size"] * tiny.WIDE["hidden_size"] * 4
    assert rounded.info.weight_bytes == (exact.info.weight_bytes - embeddings) // 4 // 32 * 34 + embeddings


def test_in_bfloat16_it_computes_in_float32(folder):
    rounded = attend.Model.load(folder, "bfloat16", "int8")
    assert rounded.info.dtype == "float32"
    numpy.testing.assert_array_equal(rounded.forward([1, 2]), attend.Model.load(folder, None, "int8").forward([1, 2]))


def test_another_name_is_refused(folder):
    with pytest.raises(ValueError, match="^Model.load: activations is 'int4', expected exact, fast or int8$"):
        attend.Model.load(folder, activations="int4")
    with pytest.raises(TypeError):
        attend.Model.load(folder, activations=8)


def test_recordings(folder, tmp_path):
    exact, rounded = (attend.Model.load(folder, activations=each).record("the cat sat", keep="qk") for each in ("exact", "int8"))
    assert (exact.activations, rounded.activations) == ("exact", "int8")
    assert "activations" not in repr(exact) + exact.to_json() and "'tiny', int8 activations: 2 layers" in repr(rounded)
    assert '"activations": "int8"' in rounded.to_json()
    rounded.save(tmp_path / "x.attend")
    assert attend.Recording.load(tmp_path / "x.attend").activations == "int8"
    assert pickle.loads(pickle.dumps(rounded)).activations == "int8"
    exact.save(tmp_path / "exact.attend")
    assert b"activations" not in (tmp_path / "exact.attend").read_bytes()
    assert "tiny (int8 activations)" in rounded.show().html


def test_a_cache_of_another_setting(folder):
    exact, rounded = attend.Model.load(folder), attend.Model.load(folder, activations="int8")
    with pytest.raises(ValueError, match="was made by a model whose activations are exact, and here they are int8"):
        rounded.forward([1, 2], caches=[exact.cache()])
    assert rounded.forward([1, 2], caches=[rounded.cache()]).shape == (2, tiny.WIDE["hidden_size"])


@pytest.mark.parametrize("name, analysis", [
    ("gradient", lambda model: model.gradient([1, 2, 3], token=1)),
    ("attribute", lambda model: model.attribute([1, 2, 3], 1)),
    ("ablate", lambda model: model.ablate([1, 2, 3])),
    ("patch", lambda model: model.patch([1, 2, 3], [1, 4, 3], 1, 2)),
    ("saliency", lambda model: model.saliency([1, 2, 3])),
    ("explain_score", lambda model: model.explain_score([1, 2, 3], "0.1", query=-1, key=0)),
    ("composition", lambda model: model.composition()),
    ("vary", lambda model: model.vary("the cat sat", query="sat", words="cat=the")),
    ("jacobian_lens", lambda model: model.jacobian_lens([[1] * 20])),
    ("features", lambda model: model.features([1, 2, 3], attend.SparseAutoencoder.load(tiny.write_autoencoder("autoencoder", 64)))),
    ("steering", lambda model: model.steering([("the cat", "the sat")])),
])
def test_analyses_refuse_it(folder, name, analysis):
    with pytest.raises(ValueError) as error:
        analysis(attend.Model.load(folder, activations="int8"))
    assert str(error.value) == f"Model.{name}{TOLD}"
