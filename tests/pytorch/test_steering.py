"""Steering vectors beside NumPy, gguf-py's files and hooks."""

import numpy as np
import pytest
import torch
from test_places import Modules
from tiny_models import opener

import attend

PAIRS = [("the cat sat", "the mat sat on it"), ("a cat", "a mat"), ("cat cat cat", "on the mat"), ("it was the cat", "it was it")]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return opener(tmp_path_factory)("llama")


@pytest.fixture(scope="module")
def model(pair, tmp_path_factory):
    """The same with a tokenizer: each word its id."""
    import shutil

    from tokenizers import Tokenizer, models, pre_tokenizers
    words = sorted({word for texts in PAIRS for text in texts for word in text.split()})
    folder = tmp_path_factory.mktemp("steered")
    shutil.copytree(pair.folder, folder, dirs_exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({word: n + 6 for n, word in enumerate(words)} | {"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return attend.Model.load(folder)


def differences(model):
    """[pairs,L,E]: of the streams after each layer, at the last tokens."""
    def last(text):
        return model.forward(model.tokenizer.encode(text).ids, keep=["residual"])[1]["residual"][1:, -1].astype(np.float64)
    return np.stack([last(a) - last(b) for a, b in PAIRS])


def test_the_directions_are_those_of_the_differences(model):
    of = differences(model)
    mean, principal = model.steering(PAIRS), model.steering(PAIRS, method="principal")
    assert sorted(mean.directions) == sorted(principal.directions) == list(range(1, model.info.layers)) and mean.model == "llama"
    for layer, direction in mean.directions.items():
        np.testing.assert_allclose(direction, of[:, layer].mean(0), rtol=0, atol=1e-5 * np.abs(of).max())
        component = np.linalg.svd(of[:, layer])[2][0]
        expected = component * (of[:, layer].mean(0) @ component)
        np.testing.assert_allclose(principal.directions[layer], expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert list(model.steering(PAIRS, layers=(2, 2)).directions) == [2]


def test_it_is_added_to_the_layers_outputs(pair, model):
    steering = model.steering(PAIRS)
    ids, modules = np.array([7, 9, 8, 6]), Modules(pair.theirs, pair.ours.info)
    def added(direction):
        return lambda module, args, output: output + 0.7 * torch.from_numpy(direction)

    handles = [modules.places.layers[n].register_forward_hook(added(each)) for n, each in steering.directions.items()]
    with torch.inference_mode():
        expected = pair.theirs.model(input_ids=torch.from_numpy(ids)[None]).last_hidden_state[0].numpy()
    for handle in handles:
        handle.remove()
    got = model.forward(ids, edits=steering.edits(0.7))
    assert np.abs(got - expected).max() <= 2e-5 * np.abs(expected).max()
    assert not np.array_equal(got, model.forward(ids))


def test_the_file_is_a_control_vector(model, tmp_path):
    gguf = pytest.importorskip("gguf")
    steering = model.steering(PAIRS)
    steering.save(tmp_path / "ours.gguf")
    read = gguf.GGUFReader(tmp_path / "ours.gguf")
    assert bytes(read.fields["general.architecture"].parts[-1]) == b"controlvector"
    assert {tensor.name: tensor.tensor_type.name for tensor in read.tensors} == {"direction.1": "F32", "direction.2": "F32"}
    for tensor in read.tensors:
        assert np.array_equal(tensor.data, steering.directions[int(tensor.name.split(".")[1])])
    again = attend.Steering.load(tmp_path / "ours.gguf")
    assert again.model == "llama" and all(np.array_equal(again.directions[n], each) for n, each in steering.directions.items())

    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "controlvector")  # as llama.cpp's convert scripts write it
    writer.add_string("controlvector.model_hint", "llama")
    writer.add_uint32("controlvector.layer_count", 1)
    writer.add_tensor("direction.2", np.arange(32, dtype=np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    theirs = attend.Steering.load(tmp_path / "theirs.gguf")
    assert list(theirs.directions) == [2] and np.array_equal(theirs.directions[2], np.arange(32))


def test_what_is_no_control_vector(model, tmp_path):
    gguf = pytest.importorskip("gguf")
    row = np.zeros(32, np.float32)
    for architecture, name, numbers, words in (("llama", "direction.1", row, "is 'llama', expected 'controlvector'"),
                                               ("controlvector", "direction.0", row, "is not a direction: expected direction.1"),
                                               ("controlvector", "directions", row, "is not a direction"),
                                               ("controlvector", "direction.1", np.zeros((2, 32), np.float32), "is not a direction"),
                                               ("controlvector", "direction.1", row.astype(np.float16), "is not a direction")):
        writer = gguf.GGUFWriter(tmp_path / "x.gguf", architecture)
        writer.add_tensor(name, numbers)
        writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
        with pytest.raises(OSError, match=words):
            attend.Steering.load(tmp_path / "x.gguf")


def test_what_is_refused(model, tmp_path):
    with pytest.raises(OSError, match="none.gguf"):
        attend.Steering.load(tmp_path / "none.gguf")
    steering = model.steering(PAIRS)
    steering.save(tmp_path / "ours.gguf")
    again = attend.Steering.load(tmp_path / "ours.gguf")
    assert all(np.array_equal(again.directions[n], each) for n, each in steering.directions.items())
    for pairs, options, words in (([], {}, "there are no pairs of texts"),
                                  (PAIRS, {"layers": (0, 1)}, "first layer 0, expected 1 or more"),
                                  (PAIRS, {"layers": (2, 1)}, "layers from 2 to 1"),
                                  (PAIRS, {"layers": (1, 9)}, "last layer 9, expected 0 to 2"),
                                  (PAIRS, {"method": "median"}, "method is 'median', expected 'mean' or 'principal'")):
        with pytest.raises(ValueError, match=words):
            model.steering(pairs, **options)
    with pytest.raises(TypeError, match=r"pairs\[1\]: expected two texts"):
        model.steering([PAIRS[0], "a cat"])
    with pytest.raises(ValueError, match="scale is nan, expected a finite number"):
        model.steering(PAIRS).edits(float("nan"))
