"""What each feature of a sparse autoencoder wrote into an answer, beside hooks on Transformers' eager modules."""

import json
import pickle

import numpy as np
import pytest
import torch
from test_features import KINDS, PLACES, SIZE, autoencoder, formula, random_weights, save, seen_at
from test_places import LENGTH, Modules
from tiny_models import TOLERANCE, far, opener

import attend


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def read_along(pair, modules, ids, token):
    """How the logit of the last row reads its stream after all layers, while the last norm divides as it does."""
    stream = seen_at(pair, modules, "residual", pair.ours.info.layers)[-1].requires_grad_()
    norm = modules.places.norm
    if isinstance(norm, torch.nn.LayerNorm):
        apart = stream - stream.mean()
        held = apart / (apart.pow(2).mean() + norm.eps).sqrt().detach() * norm.weight.double()
    else:
        held = stream / (stream.pow(2).mean() + norm.variance_epsilon).sqrt().detach() * norm.weight.double()
    (held @ pair.theirs.get_output_embeddings().weight[token].double()).backward()
    return stream.grad


def before(places, at, layer, u):
    """How it reads a place that a projection stands behind."""
    if at not in ("z", "mlp_hidden"):
        return u
    module = (places.projections if at == "z" else places.narrow)[layer]
    weight = module.weight.double()
    return u @ (weight.T if type(module).__name__ == "Conv1D" else weight)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox"])
def test_what_each_feature_wrote(both, tmp_path, name):
    pair = both(name)
    info, modules = pair.ours.info, Modules(pair.theirs, pair.ours.info)
    ids, _ = pair.ids(LENGTH)
    u = read_along(pair, modules, ids, 7)
    cache = pair.ours.cache()
    pair.ours.forward(ids[:-2], caches=[cache])
    for at, layer in PLACES:
        if at == "residual_mid" and info.parallel:
            continue
        kind = "layer norm" if at == "mlp" else "standard"
        config, weights, sae = autoencoder(tmp_path, pair, at, layer, kind)
        layers = info.layers + (at == "residual")
        x = seen_at(pair, modules, at, layer % layers)
        features, decoded = formula(config, weights, x)
        along = before(modules.places, at, layer % layers, u)
        scale = (x[-1] - x[-1].mean()).std() if kind == "layer norm" else 1.0
        expected = features[-1] * scale * (weights["W_dec"].double() @ along)
        why = pair.ours.attribute(ids, token=7, features=sae)
        assert far(why.features, expected.detach()) <= 10 * TOLERANCE, (at, layer)
        size = float((x[-1] * along).abs().sum().detach())
        assert abs(why.feature_error - float(((x - decoded)[-1] @ along).detach())) <= 10 * TOLERANCE * size
        whole = why.features.astype(np.float64).sum() + why.feature_bias + why.feature_error
        assert abs(whole - float((x[-1] @ along).detach())) <= 10 * TOLERANCE * size, (at, layer)
        if at == "mlp":
            assert abs(whole - why.mlps[layer]) <= 10 * TOLERANCE * size
        # They stand beside the other parts, and change none.
        plain = pair.ours.attribute(ids, token=7)
        assert np.array_equal(plain.heads, why.heads) and plain.features is None and (plain.feature_bias, plain.feature_error) == (0, 0)
        strongest = [part for part in why.top(10_000) if part.kind == "feature"]
        assert len(strongest) == (why.features != 0).sum() and strongest[0].unit == np.abs(why.features).argmax()
        assert strongest[0].name == f"feature {strongest[0].unit}" and strongest[0].value == why.features[strongest[0].unit]
        assert f"feature,,,feature {strongest[0].unit},,," in why.to_csv()
        told = json.loads(why.to_json())
        assert far(told["features"], torch.from_numpy(why.features)) <= TOLERANCE and told["feature_error"] == why.feature_error
        later = pair.ours.attribute(ids, token=7, features=sae, cache=cache)
        assert far(later.features, torch.from_numpy(why.features)) <= 10 * TOLERANCE
        several = pair.ours.attribute([list(ids), [1, 2]], token=[7, 8], features=sae)
        assert np.array_equal(several[0].features, why.features) and several[1].features.shape == (SIZE,)
        average = several.average().mean
        both_sums = [each.features.astype(np.float64) for each in several]
        assert far(average.features, torch.from_numpy(sum(both_sums) / 2)) <= TOLERANCE
        assert average.feature_error == pytest.approx((several[0].feature_error + several[1].feature_error) / 2)
        again = pickle.loads(pickle.dumps(why))
        assert np.array_equal(again.features, why.features) and again.feature_bias == why.feature_bias


@pytest.mark.parametrize("name", ["olmo2", "gemma2", "opt", "llama"])
def test_a_transcoders_parts_are_the_mlp(both, tmp_path, name):
    """Features, the decoder's bias, what is passed by and the error: of norms behind the MLP too."""
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    config, E = KINDS["jumprelu_skip_transcoder"], pair.ours.info.embedding_size
    weights = random_weights(config, E, E)
    sae = attend.SparseAutoencoder.load(save(tmp_path, config, weights, "blocks.1.mlp.hook_in", "blocks.1.hook_mlp_out"))
    why = pair.ours.attribute(ids, token=5, against=9, features=sae)
    whole = why.features.astype(np.float64).sum() + why.feature_bias + why.feature_error
    size = np.abs(why.features).sum() + abs(why.feature_bias) + abs(why.feature_error)
    assert abs(whole - why.mlps[1]) <= 1e-5 * size and (why.features != 0).sum() > 3
    found = pair.ours.features(ids, sae)
    kept = found.activations[-1] > 0
    one = np.flatnonzero(kept)[0]
    ratio = why.features[kept] / (found.activations[-1][kept] * np.array([sae.direction(f) for f in np.flatnonzero(kept)])[:, 0])
    assert np.isfinite(ratio).all() and why.features[one] != 0 and (why.features[~kept] == 0).all()


def test_places_whose_numbers_no_answer_reads(both, tmp_path):
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    E = pair.ours.info.embedding_size
    save(tmp_path, KINDS["standard"], random_weights(KINDS["standard"], E, E))
    with pytest.raises(ValueError, match="the autoencoder writes mlp_input, expected a place that writes into the stream"):
        pair.ours.attribute(ids, features=attend.SparseAutoencoder.load(tmp_path, reads=("mlp_input", 1)))
    with pytest.raises(TypeError, match="Model.attribute: features: expected a SparseAutoencoder or None, got 3"):
        pair.ours.attribute(ids, features=3)
