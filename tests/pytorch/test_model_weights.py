"""A model's weights as arrays, beside Transformers' modules, gguf-py's numbers, and the pass that they make."""

import os
import pathlib

import numpy as np
import pytest
from test_places import Modules
from tiny_models import CASES, opener

import attend

LENGTH = 5


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


@pytest.mark.parametrize("name", CASES)
def test_weights_are_what_the_pass_multiplies_by(both, name):
    """Of each layer: z of the values, what is written of z, and the MLP's output of its hidden units, as a pass has them."""
    pair = both(name)
    info = pair.ours.info
    ids, types = pair.ids(LENGTH)
    _, kept = pair.ours.forward(ids, types=types, keep=["q", "k", "v", "z", "attention", "residual", "mlp_hidden", "mlp"])
    for layer in range(info.layers):
        weights = pair.ours.weights(layer)
        H, Hkv, D, E, F = info.heads, info.kv_heads, info.head_size, info.embedding_size, info.mlp_size
        expected = {"W_Q": (H, D, E), "W_K": (Hkv, D, E), "W_V": (Hkv, D, E), "W_O": (H, E, D), "W_in": (F, E), "W_out": (E, F)}
        assert {each: weights[each].shape for each in expected} == expected
        # Their modules have the same numbers.
        modules = Modules(pair.theirs, info)
        for at, each in (("q", "W_Q"), ("k", "W_K"), ("v", "W_V")):
            module, part = modules.projected(modules.places.layers[layer], at)
            weight = module.weight.detach() if type(module).__name__ != "Conv1D" else module.weight.detach().T
            own = part(weight.T.contiguous()).reshape(E, -1).T.numpy()
            assert np.array_equal(weights[each].reshape(-1, E), own), (each, layer)
        if not modules.places.output_norms:
            z = kept["z"][layer].reshape(LENGTH, H, D).astype(np.float64)
            wrote = np.einsum("nhd,hed->ne", z, weights["W_O"].astype(np.float64)) + weights.get("b_O", 0)
            assert np.abs(wrote - kept["attention"][layer]).max() <= 2e-5 * np.abs(wrote).max()
            mlp = kept["mlp_hidden"][layer].astype(np.float64) @ weights["W_out"].astype(np.float64).T + weights.get("b_out", 0)
            assert np.abs(mlp - kept["mlp"][layer]).max() <= 2e-5 * np.abs(mlp).max()
        assert not any(each.flags.writeable for each in weights.values())


def test_by_the_models_own_names(both):
    for name in ("gpt2", "llama", "bert"):
        pair = both(name)
        theirs = pair.theirs.state_dict()
        assert len(pair.ours.weight_names) > 10
        for own in pair.ours.weight_names:
            key = own if own in theirs else next(key for key in theirs if key.endswith("." + own))
            assert np.array_equal(pair.ours.weight(own), theirs[key].numpy()), own
    around = both("llama").ours.weights()
    model = both("llama").theirs
    assert np.array_equal(around["embeddings"], model.model.embed_tokens.weight.detach().numpy())
    assert np.array_equal(around["norm"], model.model.norm.weight.detach().numpy())
    assert np.array_equal(around["W_output"], model.lm_head.weight.detach().numpy())
    with pytest.raises(ValueError, match="the model has no tensor 'wte'"):
        both("gpt2").ours.weight("wte")
    with pytest.raises(ValueError, match="layer 3, expected 0 to 2"):
        both("gpt2").ours.weights(3)
    with pytest.raises(ValueError, match="encoder needs an encoder-decoder; the model is of type gpt2"):
        both("gpt2").ours.weights(0, encoder=True)


def test_quantized_weights_are_their_numbers():
    gguf = pytest.importorskip("gguf")
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"), "attend/models/smollm2")
    path = next(folder.glob("*.gguf"), None)
    if path is None:
        pytest.skip("no SmolLM2: `attend model --get smollm2` fetches it")
    model = attend.Model.load(path)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_v": "self_attn.v_proj", "ffn_down": "mlp.down_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    compared = 0
    for tensor in gguf.GGUFReader(path).tensors:
        *layer, name, _ = tensor.name.split(".")
        if name not in names or (layer and int(layer[1]) not in (0, 17, 29)):
            continue  # Llama's q and k lie in another order there
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
        own = f"model.layers.{layer[1]}.{names[name]}.weight" if layer else f"{names[name]}.weight"
        assert np.array_equal(model.weight(own).reshape(numbers.shape), numbers), tensor.name
        compared += 1
    assert compared == 2 + 3 * 6
    assert model.weights(-1)["W_gate"].shape == (1536, 576)
    assert np.array_equal(model.weights(0)["attention_norm"], model.weight("model.layers.0.input_layernorm.weight"))
