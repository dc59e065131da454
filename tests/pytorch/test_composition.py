"""Model.composition() beside matrices of E x E, in float64, of Transformers' weights."""

import numpy as np
import pytest
from tiny_models import BOTH, Both, opener


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def array(x):
    return x.detach().double().numpy()


def folded(weight, norm, centres):
    """W of what a norm gives: its weight folded in, and the mean taken out where the norm does so."""
    if norm is not None:
        weight = weight * norm
    return weight - weight.mean(-1, keepdims=True) if centres else weight


class Layer:
    """W_Q and W_K [heads,D,E], W_V [heads,D,E], W_O [heads,E,D] with groups' keys repeated."""

    def __init__(self, q, k, v, o, heads, norm=None, centres=False, output_norm=None, of_q=None, of_k=None):
        def apart(x):
            return x.reshape(-1, q.shape[0] // heads, x.shape[1])

        q, k, v = (folded(apart(x), norm, centres) for x in (q, k, v))
        if of_q is not None:
            q, k = q * of_q.reshape(-1, q.shape[1])[..., None], k * of_k.reshape(-1, k.shape[1])[..., None]
        self.q, self.k, self.v = (np.repeat(x, heads // len(x), 0) for x in (q, k, v))
        o = o if output_norm is None else o * output_norm[:, None]
        self.o = o.reshape(len(o), heads, -1).transpose(1, 0, 2)


def llama_like(model, heads):
    def norm(module):  # Gemma's is 1 + its weight
        weight = array(module.weight)
        return 1 + weight if "Gemma" in type(module).__name__ else weight

    for layer in model.model.layers:
        a = layer.self_attn
        reads = getattr(layer, "input_layernorm", None)
        after = layer.post_attention_layernorm if reads is None or hasattr(layer, "pre_feedforward_layernorm") else None
        heads_norm = {"of_q": norm(a.q_norm), "of_k": norm(a.k_norm)} if hasattr(a, "q_norm") else {}
        yield Layer(*(array(getattr(a, f"{x}_proj").weight) for x in "qkvo"), heads, None if reads is None else norm(reads),
                    output_norm=None if after is None else norm(after), **heads_norm)


def gpt2(model, heads):
    for layer in model.transformer.h:
        q, k, v = np.split(array(layer.attn.c_attn.weight).T, 3)
        yield Layer(q, k, v, array(layer.attn.c_proj.weight).T, heads, array(layer.ln_1.weight), True)


def gpt_neox(model, heads):
    for layer in model.gpt_neox.layers:
        weight = array(layer.attention.query_key_value.weight)
        q, k, v = (x.reshape(-1, weight.shape[1]) for x in weight.reshape(heads, 3, -1, weight.shape[1]).transpose(1, 0, 2, 3))
        yield Layer(q, k, v, array(layer.attention.dense.weight), heads, array(layer.input_layernorm.weight), True)


def bert(model, heads):
    for layer in model.base_model.encoder.layer:
        a = layer.attention.self
        yield Layer(*(array(x.weight) for x in (a.query, a.key, a.value, layer.attention.output.dense)), heads)


def t5(model, heads):
    for block in model.encoder.block:
        a = block.layer[0].SelfAttention
        yield Layer(*(array(getattr(a, x).weight) for x in "qkvo"), heads, array(block.layer[0].layer_norm.weight))


def expected_of(layers):
    L, H = len(layers), len(layers[0].q)
    found = {name: np.zeros((L, H, L, H)) for name in "qkv"}
    size = np.linalg.norm
    for n, later in enumerate(layers):
        for m, earlier in enumerate(layers[:n]):
            for h in range(H):
                for g in range(H):
                    qk, ov, before = later.q[h].T @ later.k[h], later.o[h] @ later.v[h], earlier.o[g] @ earlier.v[g]
                    for name, reads in (("q", qk.T), ("k", qk), ("v", ov)):
                        found[name][n, h, m, g] = size(reads @ before) / (size(reads) * size(before))
    return found


def compare(got, layers):
    for name, values in expected_of(list(layers)).items():
        np.testing.assert_allclose(getattr(got, name), values, rtol=0, atol=1e-5, err_msg=name)
        assert values.max() > 0.05


OF = {"llama": llama_like, "qwen3": llama_like, "olmo2": llama_like, "gemma2 bias, caps": llama_like, "gemma3": llama_like, "gpt2": gpt2,
      "gpt_neox": gpt_neox, "bert": bert}


@pytest.mark.parametrize("name", OF)
def test_by_whole_matrices(both, name):
    pair = both(name)
    compare(pair.ours.composition(), OF[name](pair.theirs, pair.ours.info.heads))


def test_of_an_encoder(tmp_path_factory, both):
    pair = Both(tmp_path_factory.mktemp("model"), BOTH["t5"])
    compare(pair.ours.composition(encoder=True), t5(pair.theirs, pair.ours.info.encoder_heads))
    with pytest.raises(ValueError, match="encoder needs an encoder-decoder, the model is of type llama"):
        both("llama").ours.composition(encoder=True)


def test_the_largest(both):
    found = both("llama").ours.composition()
    for by in "qkv":
        values = getattr(found, by)
        reader, read, value = found.top(by, 1)[0]
        place = tuple(int(x) for name in (reader, read) for x in name.split("."))
        assert values[place] == value == values.max() and len(found.top(by, 3)) == 3
    with pytest.raises(ValueError, match="by is 'z'"):
        found.top("z")
