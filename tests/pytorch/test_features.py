"""Sparse autoencoders and transcoders: SAELens' formulas in PyTorch on random weights, and hooks on Transformers' eager modules."""

import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_places import LENGTH, Modules, theirs
from tiny_models import TOLERANCE, far, hidden_of, opener

import attend

SIZE = 40
TRANSCODERS = ["transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder"]
KINDS = {
    "standard": {"architecture": "standard", "apply_b_dec_to_input": True},
    "standard, b_dec not taken off": {"architecture": "standard", "apply_b_dec_to_input": False},
    "gated": {"architecture": "gated"},
    "jumprelu": {"architecture": "jumprelu", "apply_b_dec_to_input": False},
    "topk": {"architecture": "topk", "k": 7, "apply_b_dec_to_input": False},
    "topk by length": {"architecture": "topk", "k": 7, "rescale_acts_by_decoder_norm": True},
    "layer norm": {"architecture": "standard", "normalize_activations": "layer_norm"},
    "of one length": {"architecture": "jumprelu", "normalize_activations": "constant_norm_rescale"},
    **{name: {"architecture": name, "apply_b_dec_to_input": False} for name in TRANSCODERS},
    "transcoder, layer norm": {"architecture": "skip_transcoder", "apply_b_dec_to_input": False, "normalize_activations": "layer_norm"},
}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def random_weights(config, d_in, d_out, seed=0):
    random = torch.Generator().manual_seed(seed)
    name = config.get("architecture", "standard")

    def draw(*shape, scale=1.0):
        return torch.randn(*shape, generator=random) * scale

    weights = {"W_enc": draw(d_in, SIZE, scale=d_in**-0.5), "W_dec": draw(SIZE, d_out, scale=0.3), "b_dec": draw(d_out, scale=0.2)}
    if name == "gated":
        weights |= {"b_gate": draw(SIZE, scale=0.3), "r_mag": draw(SIZE, scale=0.3), "b_mag": draw(SIZE, scale=0.3)}
    else:
        weights["b_enc"] = draw(SIZE, scale=0.3)
    if "jumprelu" in name:
        weights["threshold"] = draw(SIZE).abs()
    if "skip" in name:
        weights["W_skip"] = draw(d_out, d_in, scale=d_in**-0.5)
    return weights


def save(folder, config, weights, hook_name=None, hook_name_out=None, dtype=torch.float32):
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"d_in": weights["W_enc"].shape[0], "d_sae": weights["W_enc"].shape[1]}
    if "transcoder" in config["architecture"]:
        sizes["d_out"] = weights["W_dec"].shape[1]
    metadata = {"hook_name": hook_name, "hook_name_out": hook_name_out, "sae_lens_version": "6.54.12", "hook_head_index": None}
    whole = {"dtype": "float32", "device": "cpu", "normalize_activations": "none", **sizes, **config, "metadata": metadata}
    (folder / "cfg.json").write_text(json.dumps(whole))
    save_file({name: each.to(dtype).contiguous() for name, each in weights.items()}, folder / "sae_weights.safetensors")
    return folder


def formula(config, weights, x):
    """SAELens' encode() and decode() in float64: (features, decoded)."""
    w, given = {name: each.double() for name, each in weights.items()}, x.double()
    name, out = config["architecture"], lambda y: y
    x = given
    if config.get("normalize_activations") == "layer_norm":
        mean = x.mean(-1, keepdim=True)
        deviation = (x - mean).std(-1, keepdim=True)
        x = (x - mean) / (deviation + 1e-5)
        out = lambda y: y * deviation + mean
    if config.get("normalize_activations") == "constant_norm_rescale":
        factor = x.shape[-1]**0.5 / x.norm(dim=-1, keepdim=True)
        x = x * factor
        out = lambda y: y / factor
    transcoder, norms = "transcoder" in name, w["W_dec"].norm(dim=-1)
    if not transcoder and config.get("apply_b_dec_to_input", True):
        x = x - w["b_dec"]
    before = x @ w["W_enc"] + w.get("b_enc", 0)
    if name == "gated":
        features = ((before + w["b_gate"]) > 0) * torch.relu(x @ (w["W_enc"] * w["r_mag"].exp()) + w["b_mag"])
    elif name == "topk":
        before = before * norms if config.get("rescale_acts_by_decoder_norm") else before
        values, places = torch.topk(before, config["k"], dim=-1)
        features = torch.zeros_like(before).scatter_(-1, places, torch.relu(values))
    else:
        features = torch.relu(before) * (before > w["threshold"] if "threshold" in w else 1)
    decoded = (features / norms if config.get("rescale_acts_by_decoder_norm") else features) @ w["W_dec"] + w["b_dec"]
    decoded = decoded if transcoder else out(decoded)
    return features, decoded + (given @ w["W_skip"].T if "W_skip" in w else 0)


# ---- What they compute ----

@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_features_are_the_formulas(tmp_path, kind, dtype):
    config = KINDS[kind]
    d_in, d_out = (24, 18) if "transcoder" in config["architecture"] else (24, 24)
    weights = {name: each.to(dtype).float() for name, each in random_weights(config, d_in, d_out).items()}
    sae = attend.SparseAutoencoder.load(save(tmp_path / "sae", config, weights, dtype=dtype))
    assert (sae.architecture, sae.in_size, sae.size, sae.out_size) == (config["architecture"], d_in, SIZE, d_out)
    x = torch.randn(50, d_in, generator=torch.Generator().manual_seed(1)) + 0.3
    features, decoded = formula(config, weights, x)
    ours = sae.encode(x.numpy())
    assert far(ours, features) <= TOLERANCE and 0.05 < (ours > 0).mean() < 0.95
    assert np.array_equal(ours > 0, (features > 0).numpy())
    assert far(sae.decode(ours, x.numpy()), decoded) <= TOLERANCE
    needs_x = "W_skip" in weights or ("normalize_activations" in config and "transcoder" not in config["architecture"])
    if needs_x:
        with pytest.raises(ValueError, match="needs x too"):
            sae.decode(ours)
    else:
        assert np.array_equal(sae.decode(ours), sae.decode(ours, x.numpy()))
    # Each row alone, on one thread: the same bits.
    threads = attend.num_threads()
    attend.set_num_threads(1)
    alone = [sae.encode(x[n:n + 1].numpy()) for n in range(len(x))]
    assert np.array_equal(np.concatenate(alone), ours)
    assert np.array_equal(sae.decode(ours, x.numpy())[:3], sae.decode(ours[:3], x[:3].numpy()))
    attend.set_num_threads(threads)
    lengths = weights["W_dec"].norm(dim=-1) if config.get("rescale_acts_by_decoder_norm") else torch.ones(SIZE)
    assert far(sae.direction(-1), weights["W_dec"][-1] / lengths[-1]) <= TOLERANCE
    other = pickle.loads(pickle.dumps(sae))
    assert np.array_equal(other.encode(x.numpy()), ours) and repr(other) == repr(sae)


def test_of_equal_numbers_topk_keeps_the_first(tmp_path):
    weights = {"W_enc": torch.ones(3, SIZE), "W_dec": torch.ones(SIZE, 3), "b_enc": torch.zeros(SIZE), "b_dec": torch.zeros(3)}
    sae = attend.SparseAutoencoder.load(save(tmp_path, KINDS["topk"], weights))
    assert np.flatnonzero(sae.encode(np.ones((1, 3), np.float32))[0]).tolist() == list(range(7))


# ---- Files ----

@pytest.mark.parametrize("hook, place", [
    ("blocks.5.hook_resid_pre", ("residual", 5)), ("blocks.5.hook_resid_post", ("residual", 6)),
    ("blocks.0.hook_resid_mid", ("residual_mid", 0)),
    ("blocks.11.hook_attn_out", ("attention", 11)), ("blocks.3.hook_mlp_out", ("mlp", 3)), ("blocks.3.attn.hook_z", ("z", 3)),
    ("blocks.3.attn.hook_q", ("q", 3)), ("blocks.3.ln2.hook_normalized", ("mlp_input", 3)), ("blocks.3.mlp.hook_in", ("mlp_input", 3)),
    ("blocks.3.hook_mlp_in", ("mlp_input", 3)), ("blocks.3.mlp.hook_post", ("mlp_hidden", 3)),
])
def test_names_of_transformerlens_are_places(tmp_path, hook, place):
    config = KINDS["jumprelu_transcoder"]
    weights = random_weights(config, 6, 6)
    sae = attend.SparseAutoencoder.load(save(tmp_path, config, weights, hook, "blocks.3.hook_mlp_out"))
    assert sae.reads == place and sae.writes == ("mlp", 3)
    by_hand = attend.SparseAutoencoder.load(tmp_path, reads=("z", -1), writes=("attention", 0))
    assert by_hand.reads == ("z", -1) and by_hand.writes == ("attention", 0)
    sae = attend.SparseAutoencoder.load(save(tmp_path, KINDS["standard"], random_weights(KINDS["standard"], 6, 6), hook))
    named = f"{place[0]} of layer {place[1]}"
    assert sae.reads == sae.writes == place and repr(sae) == f"SparseAutoencoder(standard, 40 features, reads {named}, writes {named})"


@pytest.mark.parametrize("old, same", [
    ({"hook_point": "blocks.2.hook_resid_pre", "activation_fn_str": "relu", "normalize_activations": None, "hook_point_head_index": None},
     {"architecture": "standard"}),
    ({"hook_name": "blocks.2.hook_resid_pre", "architecture": "standard", "activation_fn_str": "topk", "activation_fn_kwargs": {"k": 5},
      "normalize_activations": False, "apply_b_dec_to_input": False, "finetuning_scaling_factor": False},
     {"architecture": "topk", "k": 5, "apply_b_dec_to_input": False}),
    ({"hook_name": "blocks.2.hook_resid_pre", "architecture": "jumprelu", "activation_fn_str": "relu", "apply_b_dec_to_input": False},
     {"architecture": "jumprelu", "apply_b_dec_to_input": False}),
])
def test_files_before_saelens_6(tmp_path, old, same):
    weights = random_weights(same, 12, 12)
    expected = attend.SparseAutoencoder.load(save(tmp_path / "new", same, weights))
    folder = save(tmp_path / "old", same, weights | {"scaling_factor": torch.ones(12)})
    (folder / "cfg.json").write_text(json.dumps({"d_in": 12, "d_sae": SIZE, "dtype": "torch.float32", "model_name": "gpt2-small"} | old))
    ours = attend.SparseAutoencoder.load(folder)
    x = np.random.default_rng(0).normal(size=(9, 12)).astype(np.float32)
    assert np.array_equal(ours.encode(x), expected.encode(x))
    assert ours.reads == ("residual", 2) and ours.architecture == same["architecture"]


WRONG = [
    ("architecture", "matryoshka", "architecture: 'matryoshka' is not known here, expected one of standard, gated, jumprelu, topk, "),
    ("architecture", 3, "architecture: expected text"),
    ("d_in", None, "d_in: expected a whole number"),
    ("d_in", 0, "d_in: expected a whole number from 1"),
    ("d_in", 23, r"W_enc has shape \[24,40\], expected \[23,40\]; W_dec"),
    ("d_sae", -1, "d_sae: expected a whole number"),
    ("d_sae", "40", "d_sae: expected a whole number"),
    ("d_sae", 41, r"W_enc has shape \[24,40\], expected \[24,41\]"),
    ("k", 0, "k: expected a whole number from 1 to 40"),
    ("k", 41, "k: expected a whole number from 1 to 40"),
    ("apply_b_dec_to_input", "yes", "apply_b_dec_to_input: expected true or false"),
    ("normalize_activations", "expected_average_only_in", "'expected_average_only_in' has to be folded into the weights"),
    ("normalize_activations", True, "has to be folded into the weights"),
    ("normalize_activations", "whitened", "'whitened' is not known here, expected none, constant_norm_rescale or layer_norm"),
    ("normalize_activations", 4, "normalize_activations: expected text"),
    ("activation_fn", "tanh-relu", "'tanh-relu' is not known here, expected 'relu' or 'topk'"),
    ("rescale_acts_by_decoder_norm", 1, "rescale_acts_by_decoder_norm: expected true or false"),
    ("metadata", {"hook_name": "blocks.x.hook_resid_pre"}, r"hook_name: 'blocks.x.hook_resid_pre' is not known here, expected blocks\.N"),
    ("metadata", {"hook_name": "hook_embed"}, "'hook_embed' is not known here"),
    ("metadata", {"hook_name": "blocks.3."}, "'blocks.3.' is not known here"),
    ("metadata", {"hook_name": "blocks.99999999999999999999.hook_resid_pre"}, "is not known here"),
    ("metadata", {"hook_name": 3}, "hook_name: expected text"),
    ("metadata", {"hook_name": "blocks.1.attn.hook_z", "hook_head_index": 3},
     "hook_head_index: an autoencoder for a single head is not known here"),
    ("metadata", {"hook_name": "blocks.1.attn.hook_z", "model_from_pretrained_kwargs": {"fold_value_biases": True}},
     "fold_value_biases takes the values' biases"),
    ("metadata", {"hook_name": "blocks.1.mlp.hook_in", "model_from_pretrained_kwargs": {"fold_ln": True}},
     "fold_ln takes the norm's weight"),
]


@pytest.mark.parametrize("key, value, words", WRONG)
def test_a_wrong_configuration_is_one_clear_error(tmp_path, key, value, words):
    config = KINDS["topk"]
    save(tmp_path, config, random_weights(config, 24, 24))
    whole = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps(whole | {key: value}))
    with pytest.raises(OSError, match=words) as error:
        attend.SparseAutoencoder.load(tmp_path)
    assert str(error.value).startswith("SparseAutoencoder.load: ")


def test_what_is_missing_is_named(tmp_path):
    config = KINDS["jumprelu_skip_transcoder"]
    weights = random_weights(config, 24, 18)
    save(tmp_path, config, weights)
    whole = json.loads((tmp_path / "cfg.json").read_text())
    for key in ("d_in", "d_sae", "d_out"):
        (tmp_path / "cfg.json").write_text(json.dumps({name: each for name, each in whole.items() if name != key}))
        with pytest.raises(OSError, match=f"{key} is missing"):
            attend.SparseAutoencoder.load(tmp_path)
    (tmp_path / "cfg.json").write_text(json.dumps(whole | {"apply_b_dec_to_input": True}))
    with pytest.raises(OSError, match="true is for autoencoders only, and this is a jumprelu_skip_transcoder"):
        attend.SparseAutoencoder.load(tmp_path)
    save(tmp_path, config, weights)
    for name in weights:
        save_file({each: x.contiguous() for each, x in weights.items() if each != name}, tmp_path / "sae_weights.safetensors")
        with pytest.raises(OSError, match=rf"^SparseAutoencoder.load: .*sae_weights.safetensors.*: {name} \[[0-9,]+\] is missing$"):
            attend.SparseAutoencoder.load(tmp_path)
    some = {"W_enc": weights["W_enc"], "extra": torch.ones(2), "b_dec": torch.ones(18, dtype=torch.int64)}
    save_file(some, tmp_path / "sae_weights.safetensors")
    all_of_it = r"W_dec .* is missing; b_dec is i64, expected floating point; b_enc .* is missing; .*'extra' \[2\] is not known here"
    with pytest.raises(OSError, match=all_of_it):
        attend.SparseAutoencoder.load(tmp_path)
    save(tmp_path, config, weights | {"threshold": torch.ones(3), "b_enc": torch.full((SIZE,), float("nan"))})
    with pytest.raises(OSError, match=r"threshold has shape \[3\], expected \[40\]"):
        attend.SparseAutoencoder.load(tmp_path)
    save(tmp_path, config, weights | {"b_enc": torch.full((SIZE,), float("nan"))})
    with pytest.raises(OSError, match="b_enc has nan, expected finite numbers"):
        attend.SparseAutoencoder.load(tmp_path)
    for text in ("", "[]", "{", "3", "nonsense", "[" * 1000):
        (tmp_path / "cfg.json").write_text(text)
        with pytest.raises(OSError, match=r"cfg\.json"):
            attend.SparseAutoencoder.load(tmp_path)
    with pytest.raises(OSError, match=r"cfg\.json"):
        attend.SparseAutoencoder.load(tmp_path / "none")


def test_wrong_arguments(tmp_path):
    sae = attend.SparseAutoencoder.load(save(tmp_path, KINDS["standard"], random_weights(KINDS["standard"], 24, 24)))
    with pytest.raises(ValueError, match=r"x has shape \[2,23\], expected \[N,24\]"):
        sae.encode(np.ones((2, 23), np.float32))
    with pytest.raises(TypeError, match="x is int64, expected floating point"):
        sae.encode(np.ones((2, 24), np.int64))
    with pytest.raises(ValueError, match="x has nan, expected finite numbers"):
        sae.encode(np.full((2, 24), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"values has shape \[2,24\], expected \[N,40\]"):
        sae.decode(np.ones((2, 24), np.float32))
    with pytest.raises(ValueError, match="feature is 40, expected 0 to 39"):
        sae.direction(40)
    with pytest.raises(ValueError, match="no hook_name says where it writes"):
        sae.add(3, 1.0)
    with pytest.raises(ValueError, match="an autoencoder writes where it reads"):
        attend.SparseAutoencoder.load(tmp_path, writes=("mlp", 1))
    with pytest.raises(ValueError, match="at is 'nowhere', expected one of 'embeddings'"):
        attend.SparseAutoencoder.load(tmp_path, reads=("nowhere", 1))


# ---- Of a pass ----

def seen_at(pair, modules, at, layer):
    seen = []
    theirs(pair, modules, layer, at, lambda values: seen.append(values.double().clone()))
    return seen[0].new_tensor(seen[0].numpy())  # not of inference mode


def width(info, at):
    return info.heads * info.head_size if at == "z" else info.mlp_size if at == "mlp_hidden" else info.embedding_size


PLACES = [("residual", 1), ("residual", -1), ("residual_mid", 1), ("attention", 0), ("mlp", -1), ("z", 1), ("mlp_hidden", 0)]


def autoencoder(folder, pair, at, layer, kind="standard", seed=0):
    config = KINDS[kind]
    weights = random_weights(config, width(pair.ours.info, at), width(pair.ours.info, at), seed)
    save(folder, config, weights)
    return config, weights, attend.SparseAutoencoder.load(folder, reads=(at, layer))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox", "olmo2", "bert"])
def test_features_of_a_pass(both, tmp_path, name):
    pair = both(name)
    info, modules = pair.ours.info, Modules(pair.theirs, pair.ours.info)
    ids, types = pair.ids(LENGTH)
    for at, layer in PLACES:
        if (at == "residual_mid" and info.parallel) or (at == "residual" and layer == -1 and name == "bert"):
            continue
        config, weights, sae = autoencoder(tmp_path, pair, at, layer)
        layers = info.layers + (at == "residual")
        x = seen_at(pair, modules, at, layer % layers)
        features, decoded = formula(config, weights, x)
        found = pair.ours.features(ids, sae, types=types)
        assert far(found.activations, features) <= TOLERANCE, (at, layer)
        assert far(found.error, x - decoded) <= TOLERANCE and far(found.reconstruction, decoded) <= TOLERANCE
        # Within the rounding of one subtraction and one addition.
        _, kept = pair.ours.forward(ids, types=types, keep=[(at, layer)])
        whole, size = found.reconstruction + found.error, np.abs(found.reconstruction) + np.abs(found.error)
        assert (np.abs(whole - kept[at, layer]) <= 2**-23 * size).all(), (at, layer)
        assert np.array_equal(found.scales, np.ones(LENGTH, np.float32))
        row = found.activations[2]
        expected = [(int(f), float(row[f])) for f in np.argsort(-row, kind="stable")[:4] if row[f] > 0]
        assert found.top(2, 4) == expected and len(found.top(-1, 1000)) == (found.activations[-1] > 0).sum()


def test_rows_that_get_their_size_back(both, tmp_path):
    pair = both("llama")
    modules, (ids, _) = Modules(pair.theirs, pair.ours.info), pair.ids(LENGTH)
    for kind in ("layer norm", "of one length"):
        config, weights, sae = autoencoder(tmp_path, pair, "residual", 2, kind)
        x = seen_at(pair, modules, "residual", 2)
        features, decoded = formula(config, weights, x)
        found = pair.ours.features(ids, sae)
        assert far(found.activations, features) <= TOLERANCE and far(found.reconstruction, decoded) <= TOLERANCE
        scales = (x - x.mean(-1, keepdim=True)).std(-1) if kind == "layer norm" else x.norm(dim=-1) / x.shape[1]**0.5
        assert far(found.scales, scales) <= TOLERANCE


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "gpt_neox"])
def test_a_transcoder_reads_what_the_mlp_reads(both, tmp_path, name):
    pair = both(name)
    info, modules = pair.ours.info, Modules(pair.theirs, pair.ours.info)
    ids, _ = pair.ids(LENGTH)
    config, E = KINDS["skip_transcoder"], info.embedding_size
    weights = random_weights(config, E, E)
    sae = attend.SparseAutoencoder.load(save(tmp_path, config, weights, "blocks.1.mlp.hook_in", "blocks.1.hook_mlp_out"))
    x, y = seen_at(pair, modules, "mlp_input", 1), seen_at(pair, modules, "mlp", 1)
    features, decoded = formula(config, weights, x)
    found = pair.ours.features(ids, sae)
    assert far(found.activations, features) <= TOLERANCE and far(found.error, y - decoded) <= TOLERANCE
    # ln2.hook_normalized stands before an RMSNorm's weight, and behind a LayerNorm's.
    sae = attend.SparseAutoencoder.load(save(tmp_path, config, weights, "blocks.1.ln2.hook_normalized", "blocks.1.hook_mlp_out"))
    norm = pair.ours.weights(1)["mlp_norm"]
    if name in ("llama", "gemma2"):
        x = x / torch.tensor(norm).double()
        assert abs(norm - 1).max() > 0.01
    features, decoded = formula(config, weights, x)
    for other in (sae, pickle.loads(pickle.dumps(sae))):
        found = pair.ours.features(ids, other)
        assert far(found.activations, features) <= TOLERANCE and far(found.error, y - decoded) <= TOLERANCE


def test_a_centred_stream(both, tmp_path):
    """As TransformerLens has it where it has taken the mean out of all that writes into the stream."""
    pair = both("gpt2")
    modules, (ids, _) = Modules(pair.theirs, pair.ours.info), pair.ids(LENGTH)
    config = KINDS["standard"]
    weights = random_weights(config, pair.ours.info.embedding_size, pair.ours.info.embedding_size)
    save(tmp_path, config, weights, "blocks.1.hook_resid_pre")
    whole = json.loads((tmp_path / "cfg.json").read_text())
    plain, by_hand = attend.SparseAutoencoder.load(tmp_path), attend.SparseAutoencoder.load(tmp_path, centred=True)
    whole["metadata"]["model_from_pretrained_kwargs"] = {"center_writing_weights": True}
    (tmp_path / "cfg.json").write_text(json.dumps(whole))
    x = seen_at(pair, modules, "residual", 1)
    x = x - x.mean(-1, keepdim=True)
    features, decoded = formula(config, weights, x)
    for sae in (by_hand, attend.SparseAutoencoder.load(tmp_path), pickle.loads(pickle.dumps(by_hand))):
        found = pair.ours.features(ids, sae)
        assert far(found.activations, features) <= TOLERANCE and far(found.error, x - decoded) <= TOLERANCE
    assert far(pair.ours.features(ids, plain).activations, features) > 100 * TOLERANCE


def test_features_that_the_model_has_no_place_for(both, tmp_path):
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    E = pair.ours.info.embedding_size
    save(tmp_path, KINDS["standard"], random_weights(KINDS["standard"], E, E))
    load = attend.SparseAutoencoder.load
    with pytest.raises(ValueError, match="the autoencoder's file does not say where it reads"):
        pair.ours.features(ids, load(tmp_path))
    with pytest.raises(ValueError, match="residual of layer 9, expected 0 to 3"):
        pair.ours.features(ids, load(tmp_path, reads=("residual", 9)))
    with pytest.raises(ValueError, match=f"the autoencoder reads {E} numbers, but mlp_hidden of this model has {pair.ours.info.mlp_size}"):
        pair.ours.features(ids, load(tmp_path, reads=("mlp_hidden", 1)))
    with pytest.raises(ValueError, match="only encoder-decoders have cross_attention"):
        pair.ours.features(ids, load(tmp_path, reads=("cross_attention", 1)))
    with pytest.raises(TypeError, match="Model.features: autoencoder: expected a SparseAutoencoder, got 3"):
        pair.ours.features(ids, 3)


# ---- Edits ----

@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_an_edit_takes_a_feature_out(both, tmp_path, name):
    pair = both(name)
    modules = Modules(pair.theirs, pair.ours.info)
    ids, types = pair.ids(LENGTH)
    plain = hidden_of(pair.theirs, ids, types)
    for at, layer, kind in [("residual", 1, "standard"), ("attention", 0, "layer norm"), ("mlp", 1, "topk by length"),
                            ("z", 0, "jumprelu")]:
        config, weights, sae = autoencoder(tmp_path, pair, at, layer, kind)
        found = pair.ours.features(ids, sae, types=types)
        f = int(found.activations.sum(0).argmax())
        x = seen_at(pair, modules, at, layer)
        features, _ = formula(config, weights, x)
        scale = (x - x.mean(-1, keepdim=True)).std(-1) if kind == "layer norm" else torch.ones(LENGTH)
        row = weights["W_dec"][f].double()
        row = row / row.norm() if kind == "topk by length" else row
        for edit, change in ((sae.edit(found, f), -features[:, f]), (sae.edit(found, f, scale=3), 2 * features[:, f]),
                             (sae.edit(found, f, set=1.5), 1.5 - features[:, f]), (sae.add(f, 2.0), 2 / scale)):
            added = (change * scale)[:, None] * row
            expected = theirs(pair, modules, layer, at, lambda values, added=added: values.add_(added))
            got = pair.ours.forward(ids, types=types, edits=[edit])
            assert far(got, expected) <= TOLERANCE and far(got, plain) > 100 * TOLERANCE, (at, kind)
        assert far(pair.ours.forward(ids, types=types, edits=[sae.edit(found, f, scale=1)]), plain) <= TOLERANCE
    with pytest.raises(TypeError, match="found: expected the Features that Model.features"):
        sae.edit((1, 2, 3, 4), 3)
    with pytest.raises(ValueError, match=r"the features have shape \[7,3\], expected \[N,40\]"):
        sae.edit(found._replace(activations=found.activations[:, :3]), 3)


def test_a_feature_in_every_new_token(both, tmp_path):
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    _, _, sae = autoencoder(tmp_path, pair, "residual", 2)
    made = pair.ours.generate(ids, max_new_tokens=6, end=[], edits=[sae.add(3, 8.0)])
    steered = attend.Edit(2, at="residual", add=8 * sae.direction(3))
    assert made.tolist() == pair.ours.generate(ids, max_new_tokens=6, end=[], edits=[steered]).tolist()
    found = pair.ours.features(ids, sae)
    pair.ours.generate(ids, max_new_tokens=3, end=[], edits=[sae.edit(found, 3)])  # of the prompt's rows
    cache = pair.ours.cache()
    first = pair.ours.features(ids[:4], sae, caches=[cache])
    rest = pair.ours.features(ids[4:], sae, caches=[cache])
    assert far(np.concatenate([first.activations, rest.activations]), torch.from_numpy(found.activations)) <= TOLERANCE
