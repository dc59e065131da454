"""Folders as they were published with code of their own, which attend does not run: its names and keys, beside Transformers' class of
the same model, and beside the formulas of that code where Transformers has none.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import CASES, TOLERANCE, edit, far, gte, hidden_of, made, nomic_bert, written

import attend

# As nomic-ai/nomic-embed-text-v1.5 has it, of other sizes.
NOMIC = {"activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0,
         "auto_map": {"AutoModel": "m.NomicBertModel"}, "causal": False, "dense_seq_output": True, "fused_bias_fc": True,
         "layer_norm_epsilon": 1e-12, "max_trained_positions": 64,
         "mlp_fc1_bias": False, "mlp_fc2_bias": False, "model_type": "nomic_bert", "n_embd": 32, "n_head": 4, "n_inner": 48, "n_layer": 3,
         "n_positions": 128, "pad_vocab_size_multiple": 1, "parallel_block": False, "prenorm": False, "qkv_proj_bias": False,
         "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
         "rotary_scaling_factor": None, "scale_attn_weights": True, "type_vocab_size": 2, "use_rms_norm": False, "vocab_size": 99}
# As Alibaba-NLP/gte-base-en-v1.5 has it.
GTE = {"architectures": ["NewModel"], "auto_map": {"AutoModel": "m.NewModel"}, "hidden_act": "gelu", "hidden_size": 32,
       "intermediate_size": 48, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm", "logn_attention_clip1": False,
       "logn_attention_scale": False, "max_position_embeddings": 128, "model_type": "new", "num_attention_heads": 4, "num_hidden_layers": 3,
       "pack_qkv": True, "pad_token_id": 0, "position_embedding_type": "rope", "rope_scaling": None, "rope_theta": 5e3,
       "type_vocab_size": 1, "unpad_inputs": False, "use_memory_efficient_attention": False, "vocab_size": 99}
IDS, TYPES = np.random.default_rng(1).integers(6, 99, 40), np.random.default_rng(2).integers(2, size=40)


def put(folder, config, **changes):
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def renamed(folder, rename):
    """The file's tensors under other names."""
    path = folder / "model.safetensors"
    save_file({rename(name): each for name, each in load_file(path).items()}, path, {"format": "pt"})


def refusal(folder):
    with pytest.raises(OSError) as caught:
        attend.Model.load(folder)
    return str(caught.value)


@pytest.mark.parametrize("name, activation", [("swiglu", "silu"), ("geglu", "gelu"), ("glu", "sigmoid")])
def test_nomics_own_keys(name, activation, tmp_path):
    case = nomic_bert(hidden_act=activation)
    expected = hidden_of(made(case), IDS, TYPES)
    folder = put(written(tmp_path, case), NOMIC, activation_function=name)
    assert "encoder.layers.2.mlp.fc11.weight" in load_file(folder / "model.safetensors")  # Transformers writes those names
    model = attend.Model.load(folder)
    assert (model.info.type, model.info.longest, model.info.decoder) == ("nomic_bert", 128, False)
    assert far(model.forward(IDS, types=TYPES), expected) <= TOLERANCE
    renamed(folder, lambda name: "bert." + name)  # a model of masks has them so
    assert far(attend.Model.load(folder).forward(IDS, types=TYPES), expected) <= TOLERANCE


def test_texts_that_nomic_would_stretch_are_refused(tmp_path):
    folder = put(written(tmp_path, nomic_bert()), NOMIC, rotary_scaling_factor=2)
    model = attend.Model.load(folder)
    assert model.info.longest == 64
    assert far(model.forward(IDS, types=TYPES), hidden_of(made(nomic_bert()), IDS, TYPES)) <= TOLERANCE


@pytest.mark.parametrize("name", ["nomic_bert for masks", "gte for classes", "gte for masks"])
def test_the_names_of_transformers_modules(name, tmp_path):
    case = CASES[name]
    folder = written(tmp_path, case, save_original_format=False)
    assert any(".self_attn.q_proj." in key for key in load_file(folder / "model.safetensors"))
    types = TYPES if case.has_types else None
    assert far(attend.Model.load(folder).forward(IDS, types=types), hidden_of(made(case), IDS, types)) <= TOLERANCE


@pytest.mark.parametrize("type", ["new", "gte"])
def test_gtes_own_keys(type, tmp_path):
    case = gte(rope_parameters={"rope_type": "default", "rope_theta": 5e3}, type_vocab_size=1)
    expected = hidden_of(made(case), IDS)
    folder = put(written(tmp_path, case), GTE, model_type=type)
    model = attend.Model.load(folder)
    assert model.info.type == "gte" and far(model.forward(IDS), expected) <= TOLERANCE
    renamed(folder, lambda name: "new." + name)  # NewForMaskedLM and its like have them so
    assert far(attend.Model.load(folder).forward(IDS), expected) <= TOLERANCE


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
def test_gtes_ntk_scaling(factor, tmp_path):
    """The frequencies of its NTKScalingRotaryEmbedding, as it computes them, in Transformers' model."""
    case = gte(type_vocab_size=1)
    theirs, D = made(case), 8
    inv_freq = 1.0 / ((5e3 * factor) ** (torch.arange(0, D, 2).float() / D)) / factor ** (2 / D)
    theirs.rotary_emb.inv_freq.copy_(inv_freq)
    folder = put(written(tmp_path, case), GTE, rope_scaling={"type": "ntk", "factor": factor})
    assert far(attend.Model.load(folder).forward(IDS), hidden_of(theirs, IDS)) <= TOLERANCE


@pytest.mark.parametrize("change, said", [
    ({"prenorm": True}, "prenorm: 'true' is not known here; false is"), ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction"),
    ({"qkv_proj_bias": True}, "qkv_proj_bias"), ({"mlp_fc1_bias": True}, "mlp_fc1_bias"), ({"use_rms_norm": True}, "use_rms_norm"),
    ({"rotary_emb_scale_base": 512}, "rotary_emb_scale_base"), ({"moe_every_n_layers": 2, "num_experts": 8}, "moe_every_n_layers"),
    ({"causal": True}, "causal"), ({"parallel_block": True}, "parallel_block"), ({"rotary_emb_interleaved": True}, "interleaved"),
    ({"activation_function": "gelu"}, "activation_function: 'gelu' is not known here; swiglu, geglu and glu are"),
    ({"hidden_size": 16}, "n_embd: is another name for hidden_size"), ({"n_embd": 16}, "has shape"),
])
def test_nomics_keys_are_computed_or_refused(change, said, tmp_path):
    assert said in refusal(put(written(tmp_path, nomic_bert()), NOMIC, **change))


@pytest.mark.parametrize("key", ["n_layer", "rotary_emb_base", "mlp_fc2_bias", "activation_function"])
def test_what_nomics_code_would_fill_in_is_asked_for(key, tmp_path):
    folder = put(written(tmp_path, nomic_bert()), NOMIC)
    edit(folder, **{key: None})
    assert key in refusal(folder)


@pytest.mark.parametrize("change, said", [
    ({"logn_attention_scale": True}, "logn_attention_scale: 'true' is not known here; false is"), ({"pack_qkv": False}, "pack_qkv"),
    ({"layer_norm_type": "rms_norm"}, "layer_norm_type"), ({"position_embedding_type": "absolute"}, "position_embedding_type"),
    ({"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "mixed_b"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not known here; ntk is"),
    ({"rope_scaling": {"type": "ntk", "factor": 0.5}}, "factor: expected a number from 1 on"),
])
def test_gtes_keys_are_computed_or_refused(change, said, tmp_path):
    assert said in refusal(put(written(tmp_path, gte(type_vocab_size=1)), GTE, **change))


# ---- Jina's BERT ----

# As jinaai/jina-embeddings-v2-base-en has it.
JINA = {"architectures": ["JinaBertForMaskedLM"], "attn_implementation": "torch", "auto_map": {"AutoModel": "m.JinaBertModel"},
        "emb_pooler": "mean", "feed_forward_type": "geglu", "hidden_act": "gelu", "hidden_size": 36, "intermediate_size": 20,
        "layer_norm_eps": 1e-12, "max_position_embeddings": 200, "model_max_length": 200, "model_type": "bert", "num_attention_heads": 6,
        "num_hidden_layers": 3, "pad_token_id": 0, "position_embedding_type": "alibi", "type_vocab_size": 2, "vocab_size": 99}


def jina_weights():
    torch.manual_seed(3)
    E, F = JINA["hidden_size"], JINA["intermediate_size"]
    sizes = {"embeddings.word_embeddings": (99, E), "embeddings.token_type_embeddings": (2, E), "pooler.dense": (E, E)}
    norms = ["embeddings.LayerNorm"]
    for n in range(3):
        at = f"encoder.layer.{n}."
        sizes |= {f"{at}attention.{each}": (E, E) for each in ("self.query", "self.key", "self.value", "output.dense")}
        sizes |= {f"{at}mlp.gated_layers": (2 * F, E), f"{at}mlp.wo": (E, F)}
        norms += [f"{at}attention.output.LayerNorm", f"{at}mlp.layernorm"]
    weights = {f"{name}.weight": torch.randn(size) * 0.3 for name, size in sizes.items()}
    biased = [name for name in sizes if "_embeddings" not in name and "gated" not in name]
    weights |= {f"{name}.bias": torch.randn(sizes[name][0]) * 0.3 for name in biased}
    for name in norms:
        weights |= {f"{name}.weight": 1 + torch.randn(E) * 0.2, f"{name}.bias": torch.randn(E) * 0.2}
    return weights


def slopes(heads):
    """Press et al. 2022, appendix B of its code: of a power of two a geometric row, of others those between them besides."""
    if heads & (heads - 1) == 0:
        first = 2 ** (-8 / heads)
        return [first ** (n + 1) for n in range(heads)]
    closest = 2 ** (heads.bit_length() - 1)
    return slopes(closest) + slopes(2 * closest)[::2][:heads - closest]


def jina(weights, ids, types, heads, activation, added=None):
    """The hidden states by the formulas of the paper (Guenther et al. 2023); added: to the embeddings before their norm."""
    E, T = JINA["hidden_size"], len(ids)

    def linear(x, name):
        return torch.nn.functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (E,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)

    words = weights["embeddings.word_embeddings.weight"][torch.from_numpy(ids)]
    words = words if added is None else words + added
    x = norm(words + weights["embeddings.token_type_embeddings.weight"][torch.from_numpy(types)], "embeddings.LayerNorm")
    distance = (torch.arange(T)[:, None] - torch.arange(T)).abs()
    bias = -torch.tensor(slopes(heads), dtype=x.dtype)[:, None, None] * distance
    for n in range(3):
        at = f"encoder.layer.{n}."
        q, k, v = (linear(x, f"{at}attention.self.{each}").view(T, heads, -1).transpose(0, 1) for each in ("query", "key", "value"))
        probabilities = (q @ k.transpose(1, 2) / (E // heads) ** 0.5 + bias).softmax(-1)
        z = (probabilities @ v).transpose(0, 1).reshape(T, E)
        x = norm(x + linear(z, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        gate, up = linear(x, f"{at}mlp.gated_layers").chunk(2, -1)
        x = norm(x + linear(activation(gate) * up, f"{at}mlp.wo"), f"{at}mlp.layernorm")
    return x


def jina_folder(folder, weights, **changes):
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return put(folder, JINA, **changes)


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 12])
@pytest.mark.parametrize("name, activation", [("geglu", torch.nn.functional.gelu), ("reglu", torch.nn.functional.relu)])
def test_jinas_bert(heads, name, activation, tmp_path):
    weights = jina_weights()
    model = attend.Model.load(jina_folder(tmp_path, weights, num_attention_heads=heads, feed_forward_type=name))
    assert (model.info.type, model.info.family, model.info.longest, model.info.decoder) == ("jina_bert", "bert", 200, False)
    for length in (1, 7, 200):
        ids, types = np.random.default_rng(length).integers(6, 99, length), np.random.default_rng(length + 1).integers(2, size=length)
        assert far(model.forward(ids, types=types), jina(weights, ids, types, heads, activation)) <= TOLERANCE


def test_jinas_gradients_weights_and_recordings(tmp_path):
    weights = jina_weights()
    model = attend.Model.load(jina_folder(tmp_path, weights))
    cotangent = np.random.default_rng(3).normal(size=(len(IDS), 36)).astype(np.float32)
    added = torch.zeros(len(IDS), 36, requires_grad=True)
    (jina(weights, IDS, TYPES, 6, torch.nn.functional.gelu, added) * torch.from_numpy(cotangent)).sum().backward()
    got = model.gradient(IDS, types=TYPES, of=cotangent, at=[("embeddings", 0)])
    assert far(got["embeddings", 0], added.grad) <= 1e-4
    layer = model.weights(1)
    assert np.array_equal(layer["W_gate"], weights["encoder.layer.1.mlp.gated_layers.weight"][:20].numpy())
    assert np.array_equal(layer["W_in"], weights["encoder.layer.1.mlp.gated_layers.weight"][20:].numpy())
    split = model.explain_score(IDS, "0.5", query=3, key=30, against=None)
    assert split.bias == pytest.approx(-slopes(6)[5] * 27)


def test_jinas_head_and_sizes(tmp_path):
    """Its file of masked words names the model's tensors so; a table of ALiBi is no larger than the file allows."""
    weights = jina_weights()
    expected = attend.Model.load(jina_folder(tmp_path, weights)).forward(IDS, types=TYPES)
    with_head = {f"bert.{name}": each for name, each in weights.items()} | {"cls.predictions.bias": torch.zeros(99)}
    model = attend.Model.load(jina_folder(tmp_path, with_head))
    assert model.info.head == "MaskedLM" and np.array_equal(model.forward(IDS, types=TYPES), expected)
    assert "makes a table of" in refusal(jina_folder(tmp_path, weights, max_position_embeddings=10**9))


@pytest.mark.parametrize("change, said", [
    ({"feed_forward_type": "original"}, "feed_forward_type: 'original' is not known here; geglu and reglu are"),
    ({"is_decoder": True}, "is_decoder"), ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
])
def test_jinas_keys_are_computed_or_refused(change, said, tmp_path):
    assert said in refusal(jina_folder(tmp_path, jina_weights(), **change))


def test_jinas_norms_of_queries_are_refused(tmp_path):
    """jina-bert-v2-qk-post-norm, which has the same configuration, computes with them."""
    weights = jina_weights() | {"encoder.layer.0.attention.self.layer_norm_q.weight": torch.ones(36)}
    assert "'encoder.layer.0.attention.self.layer_norm_q.weight' is not known" in refusal(jina_folder(tmp_path, weights))


def test_a_folder_of_jinas_is_no_berts_gguf(tmp_path):
    with pytest.raises(OSError, match="model_type"):
        attend.quantize(jina_folder(tmp_path, jina_weights()), tmp_path / "x.gguf", "q8_0")
