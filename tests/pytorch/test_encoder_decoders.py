"""attend.Model of encoder-decoders beside Transformers' eager attention, and why they answer so beside PyTorch's gradients.

Each case is a tiny model with random weights. A decoder's text begins with the start token, 0.
"""

import json

import numpy as np
import pytest
import torch
import transformers
from tiny_models import BOTH, TOLERANCE, Both, far

import attend

ANSWERING = [name for name in BOTH if "bare" not in name]
IDS = np.random.default_rng(0).integers(6, 80, 17)
OTHER = np.random.default_rng(2).integers(6, 80, 17)
DECODER_IDS = np.concatenate([[0], np.random.default_rng(1).integers(6, 80, 9)])


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    opened = {}

    def get(name, dtype=torch.float32):
        if (name, dtype) not in opened:
            opened[name, dtype] = Both(tmp_path_factory.mktemp("model"), BOTH[name], dtype)
        return opened[name, dtype]

    return get


def computed(model, ids=IDS, decoder_ids=DECODER_IDS, grad=False, **options):
    with torch.set_grad_enabled(grad):
        return model(input_ids=torch.from_numpy(ids)[None], decoder_input_ids=torch.from_numpy(decoder_ids)[None], **options)


def hidden_of(out):
    return (out.last_hidden_state if hasattr(out, "last_hidden_state") else out.decoder_hidden_states[-1])[0]


# ---- The same numbers ----

@pytest.mark.parametrize("name", BOTH)
def test_states_and_logits(both, name):
    pair = both(name)
    for length, of_decoder in ((17, 10), (1, 1), (40, 40)):
        ids = np.random.default_rng(length).integers(6, 80, length)
        decoder_ids = np.concatenate([[0], ids[::-1]])[:of_decoder]
        out = computed(pair.theirs, ids, decoder_ids, output_hidden_states=True)
        assert far(pair.ours.encoder_states(ids), out.encoder_last_hidden_state[0]) <= TOLERANCE
        hidden = pair.ours.forward(ids, decoder_ids=decoder_ids)
        assert far(hidden, hidden_of(out)) <= TOLERANCE
        if hasattr(out, "logits"):
            assert far(pair.ours.logits(hidden), out.logits[0]) <= TOLERANCE


@pytest.mark.parametrize("name", ["bart", "marian", "t5 gated"])
def test_bf16_is_as_near_as_theirs(both, name):
    pair = both(name, torch.bfloat16)
    exact = pair.opened(torch.bfloat16).double()
    ours, theirs = [], []
    for seed in range(3):
        ids = np.random.default_rng(seed).integers(6, 80, 20)
        expected = hidden_of(computed(exact, ids, output_hidden_states=True))
        ours.append(far(pair.ours.forward(ids, decoder_ids=DECODER_IDS), expected))
        theirs.append(far(hidden_of(computed(pair.theirs, ids, output_hidden_states=True)).float(), expected))
    assert max(ours) <= 3 * max(theirs)


@pytest.mark.parametrize("name", ANSWERING)
def test_the_same_tokens_follow(both, name):
    """Each is the likeliest after those before it, and what ends the text comes where generate() ended."""
    pair = both(name)
    got = pair.ours.generate(IDS, 24)
    likeliest = computed(pair.theirs, IDS, np.concatenate([[0], got])).logits[0].argmax(-1).tolist()
    assert got.tolist() == likeliest[:-1]
    assert len(got) == 24 or likeliest[-1] in pair.ours.info.end


@pytest.mark.parametrize("name", ["bart", "marian two vocabularies", "t5"])
def test_info(both, name):
    pair = both(name)
    info, config = pair.ours.info, pair.theirs.config
    decoder = computed(pair.theirs, output_attentions=True)
    assert info.encoder_decoder and info.decoder and info.type == config.model_type and info.start == 0
    assert (info.encoder_layers, info.encoder_heads) == (len(decoder.encoder_attentions), decoder.encoder_attentions[0].shape[1])
    assert (info.layers, info.heads) == (len(decoder.decoder_attentions), decoder.decoder_attentions[0].shape[1])
    assert (info.vocabulary, info.encoder_vocabulary) == (pair.theirs.lm_head.weight.shape[0], config.vocab_size)
    # What the file has: a bias of the logits too, and no sines, which Marian computes.
    in_file = (each for key, each in pair.theirs.state_dict().items() if info.type != "marian" or "embed_positions" not in key)
    counted = {each.data_ptr(): each.numel() for each in in_file}
    assert info.parameters == sum(counted.values())


def test_what_a_folder_says_of_generation(tmp_path):
    """As a summarizer's: beams, no repeats, a first and a last token, ids that never come; and what is not followed."""
    pair = Both(tmp_path, BOTH["bart"])
    plain = pair.ours.generate(IDS, 6).tolist()
    said = {"forced_bos_token_id": 50, "forced_eos_token_id": 1, "bad_words_ids": [[plain[0]], [4, 5]], "suppress_tokens": [plain[1]],
            "num_beams": 4, "no_repeat_ngram_size": 3, "length_penalty": 2.0, "min_length": 5, "early_stopping": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(
        said | {"decoder_start_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "encoder_repetition_penalty": 1.5}))
    model = attend.Model.load(tmp_path)
    assert model.info.start == 2 and model.info.not_followed == ["encoder_repetition_penalty 1.5"]
    assert model.info.generation == said
    pair.theirs.generation_config = transformers.GenerationConfig.from_pretrained(tmp_path)
    pair.theirs.generation_config.encoder_repetition_penalty = None
    for new in (4, 12):
        expected = pair.theirs.generate(torch.tensor(IDS)[None], max_new_tokens=new)[0, 1:].tolist()
        expected = expected[:expected.index(1)] if 1 in expected else expected
        assert model.generate(IDS, new).tolist() == expected and expected[0] == 50


@pytest.mark.parametrize("name", ["bart", "marian"])
def test_what_sentence_transformers_makes_otherwise_is_no_vector(both, name):
    """Of BART it takes the decoder's states."""
    ours = both(name).ours
    assert not ours.info.embeds
    with pytest.raises(OSError, match=f"Model.embed: what sentence-transformers uses as vectors for type {name} is not known here"):
        ours.embed(IDS)


# ---- Caches and several sequences ----

@pytest.mark.parametrize("name", ["bart", "t5 gated"])
def test_a_cache_keeps_what_the_encoder_made(both, name):
    ours = both(name).ours
    expected = ours.forward(IDS, decoder_ids=DECODER_IDS)
    cache = ours.cache()
    parts = [ours.forward(IDS, decoder_ids=DECODER_IDS[:4], caches=[cache])]
    fork = cache.fork()
    parts += [ours.forward([], decoder_ids=DECODER_IDS[n:n + 1], caches=[cache]) for n in range(4, 10)]
    np.testing.assert_allclose(np.concatenate(parts), expected, rtol=0, atol=2e-5 * abs(expected).max())
    np.testing.assert_array_equal(ours.forward([], decoder_ids=DECODER_IDS[4:5], caches=[fork]), parts[1])
    with pytest.raises(ValueError, match="the caches have the encoder's text"):
        ours.forward(IDS, decoder_ids=DECODER_IDS[:1], caches=[cache])
    with pytest.raises(ValueError, match="no decoder_ids"):
        ours.forward([], caches=[cache])


def test_a_call_that_fails_leaves_the_cache_as_it_was(both):
    ours = both("bart").ours
    cache = ours.cache()
    with pytest.raises(ValueError, match="at most 64"):
        ours.forward(IDS, decoder_ids=np.zeros(65, np.int64), caches=[cache])
    with pytest.raises(ValueError, match="edit of head 9"):
        ours.forward(IDS, decoder_ids=DECODER_IDS, caches=[cache], edits=[attend.Edit(0, head=9, at="cross_z")])
    assert len(cache) == 0
    got = ours.forward(IDS, decoder_ids=DECODER_IDS, caches=[cache])
    np.testing.assert_array_equal(got, ours.forward(IDS, decoder_ids=DECODER_IDS))


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_several_sequences_are_each_alone(both, name):
    ours = both(name).ours
    call = {"starts": [0, 17, 22], "decoder_ids": np.concatenate([DECODER_IDS, DECODER_IDS[:3]]), "decoder_starts": [0, 10, 13]}
    ids = np.concatenate([IDS, OTHER[:5]])
    together = ours.forward(ids, **call)
    np.testing.assert_array_equal(together[:10], ours.forward(IDS, decoder_ids=DECODER_IDS))
    np.testing.assert_array_equal(together[10:], ours.forward(OTHER[:5], decoder_ids=DECODER_IDS[:3]))
    caches = [ours.cache(), ours.cache()]
    np.testing.assert_array_equal(ours.forward(ids, **call, caches=caches), together)
    step = ours.forward([], decoder_ids=[7, 8], decoder_starts=[0, 1, 2], caches=caches)
    alone = ours.forward(OTHER[:5], decoder_ids=[*DECODER_IDS[:3], 8])[3]
    np.testing.assert_allclose(step[1], alone, rtol=0, atol=2e-5 * abs(alone).max())
    with pytest.raises(ValueError, match="decoder_ids have 1 sequences, expected 2, as ids have"):
        ours.forward(ids, starts=[0, 17, 22], decoder_ids=DECODER_IDS)


# ---- Places ----

def modules_of(model):
    """(place, layer) -> (module, whether it is the module's input)."""
    base, of = model.base_model, {}
    for stack, prefix in ((base.encoder, "encoder_"), (base.decoder, "")):
        for n, layer in enumerate(getattr(stack, "block", None) or stack.layers):
            if hasattr(stack, "block"):
                mlp = layer.layer[-1]
                own, cross = layer.layer[0].SelfAttention, getattr(layer.layer[1], "EncDecAttention", None)
                q, k, v, o = "q", "k", "v", "o"
                read = {"residual": layer.layer[0].layer_norm, "residual_mid": mlp.layer_norm, "mlp_input": mlp.DenseReluDense}
                narrow, cross_read = mlp.DenseReluDense.wo, layer.layer[1].layer_norm if cross else None
            else:
                own, cross = layer.self_attn, getattr(layer, "encoder_attn", None)
                q, k, v, o = "q_proj", "k_proj", "v_proj", "out_proj"
                read = {"residual": own.q_proj, "residual_mid": layer.fc1, "mlp_input": layer.fc1}
                narrow, cross_read = layer.fc2, cross.q_proj if cross else None
            of |= {(prefix + at, n): (module, True) for at, module in read.items()}
            of |= {(prefix + "mlp_hidden", n): (narrow, True), (prefix + "mlp", n): (narrow, False)}
            for name, attention in ((prefix, own), ("cross_", cross)):
                if attention is not None:
                    named = (("q", q), ("k", k), ("v", v), ("attention", o))
                    of |= {(name + at, n): (getattr(attention, each), False) for at, each in named}
                    of[name + "z", n] = getattr(attention, o), True
            if cross is not None:
                of["cross_residual", n] = cross_read, True
    return of


@pytest.mark.parametrize("name", ["bart", "marian", "t5", "t5 gated"])
def test_every_place_is_a_module_and_put_back_gives_the_same_bits(both, name):
    pair = both(name)
    of, seen, handles = modules_of(pair.theirs), {}, []
    for key, (module, before) in of.items():
        def take(module, args, output=None, key=key):
            value = args[0] if output is None else output
            seen[key] = value[0].detach().double()
        handles.append(module.register_forward_pre_hook(take) if before else module.register_forward_hook(take))
    computed(pair.theirs)
    for handle in handles:
        handle.remove()
    keys = [*of, ("encoder_embeddings", 0), ("embeddings", 0)]
    hidden, kept = pair.ours.forward(IDS, decoder_ids=DECODER_IDS, keep=keys)
    for key in of:
        assert far(kept[key], seen[key]) <= TOLERANCE, key
    for key in keys:
        back = pair.ours.forward(IDS, decoder_ids=DECODER_IDS, edits=[attend.Edit(key[1], at=key[0], set=kept[key])])
        assert np.array_equal(back, hidden), key
        other = pair.ours.forward(IDS, decoder_ids=DECODER_IDS, edits=[attend.Edit(key[1], at=key[0], scale=2)])
        assert not np.array_equal(other, hidden), key
    cache = pair.ours.cache()
    pair.ours.forward(IDS, decoder_ids=DECODER_IDS, caches=[cache])
    with pytest.raises(ValueError, match="an edit at cross_k comes too late: the cache has the encoder's text already"):
        pair.ours.forward([], decoder_ids=[7], caches=[cache], edits=[attend.Edit(0, at="cross_k")])
    _, kept = pair.ours.generate(IDS, max_new_tokens=3, edits=[attend.Edit(0, at="cross_v", scale=2)], keep=["cross_k"])
    assert kept["cross_k"].shape[1] == len(IDS)


# ---- Recordings ----

@pytest.mark.parametrize("name", ["bart", "marian", "t5"])
def test_recordings_have_all_three_attentions(both, name):
    pair = both(name)
    recording = pair.ours.record(IDS, decoder_ids=DECODER_IDS, keep="qk")
    out = computed(pair.theirs, output_attentions=True)
    expected = {f"{stack}.{n}.{kind}": weights[0].numpy()
                for stack, kind, field in (("encoder", "self", "encoder_attentions"), ("decoder", "self", "decoder_attentions"),
                                           ("decoder", "cross", "cross_attentions"))
                for n, weights in enumerate(getattr(out, field))}
    assert sorted(layer.name for layer in recording) == sorted(expected)
    assert recording.ids.tolist() == [IDS.tolist()] and recording.decoder_ids.tolist() == [DECODER_IDS.tolist()]
    for layer in recording:
        for head in range(len(expected[layer.name])):
            np.testing.assert_allclose(layer.weights(head), expected[layer.name][head], rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_a_generation_is_recorded(both, name):
    ours = both(name).ours
    made = ours.record(IDS, max_new_tokens=12, keep="qk", key_sizes=True)
    again = ours.record(IDS, decoder_ids=made.decoder_ids[0], keep="qk", key_sizes=True)
    assert made.decoder_ids.tolist()[0][1:] == ours.generate(IDS, 12).tolist()[:made.decoder_ids.shape[1] - 1]
    for one, other in zip(made, again, strict=True):
        assert one.name == other.name and one.queries == other.queries and one.keys == other.keys
        for by in ("weight", "norm"):
            np.testing.assert_allclose(one.weights(1, by=by), other.weights(1, by=by), rtol=1e-4, atol=1e-6)


# ---- Why ----

def attentions_of(model):
    """{(place, layer): (the attention, its output projection)} of the three kinds."""
    base, found = model.base_model if hasattr(model.base_model, "encoder") else model, {}
    if hasattr(base.encoder, "block"):
        for n, block in enumerate(base.encoder.block):
            found["encoder", n] = block.layer[0].SelfAttention, block.layer[0].SelfAttention.o
        for n, block in enumerate(base.decoder.block):
            found["self", n] = block.layer[0].SelfAttention, block.layer[0].SelfAttention.o
            found["cross", n] = block.layer[1].EncDecAttention, block.layer[1].EncDecAttention.o
        return found, [block.layer[2].DenseReluDense for block in base.decoder.block]
    for n, layer in enumerate(base.encoder.layers):
        found["encoder", n] = layer.self_attn, layer.self_attn.out_proj
    for n, layer in enumerate(base.decoder.layers):
        found["self", n] = layer.self_attn, layer.self_attn.out_proj
        found["cross", n] = layer.encoder_attn, layer.encoder_attn.out_proj
    return found, [layer.fc2 for layer in base.decoder.layers]


def frozen(module, inputs, output):
    """A norm that divides by what it divided by: its gradient is the direction that attribution reads by."""
    x = inputs[0]
    if isinstance(module, torch.nn.LayerNorm):
        centred = x - x.mean(-1, keepdim=True)
        divisor = (centred.pow(2).mean(-1, keepdim=True) + module.eps).sqrt().detach()
        return centred / divisor * module.weight + module.bias
    return x / (x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon).sqrt().detach() * module.weight


def parts_of(pair, token, against=None):
    """By PyTorch: what each sublayer of the decoder wrote, cut from its inputs, times the logit's gradient there."""
    model = pair.opened(torch.float64)
    attentions, mlps = attentions_of(model)
    written, values, hooks = {}, {}, []

    def cut(key):
        def hook(module, inputs, output):
            written[key] = output.detach().requires_grad_()
            return written[key]
        return hook

    for (kind, n), (attention, projection) in attentions.items():
        if kind == "encoder":
            continue
        hooks.append(projection.register_forward_hook(cut((kind, n))))
        value = attention.v if hasattr(attention, "v") else attention.v_proj
        hooks.append(value.register_forward_hook(lambda module, inputs, output, key=(kind, n): values.__setitem__(key, output.detach()[0])))
    hooks += [mlp.register_forward_hook(cut(("mlp", n))) for n, mlp in enumerate(mlps)]
    decoder = next(each for name, each in model.named_modules() if name.endswith("decoder"))
    hooks += [each.register_forward_hook(frozen) for each in decoder.modules() if "LayerNorm" in type(each).__name__]
    out = computed(model, grad=True, output_attentions=True)
    logit = out.logits[0, -1, token] - (0 if against is None else out.logits[0, -1, against])
    keys = list(written)
    gradients = dict(zip(keys, torch.autograd.grad(logit, [written[key] for key in keys]), strict=True))
    weights = {"self": out.decoder_attentions, "cross": out.cross_attentions}
    parts = {"self": [], "cross": [], "mlp": []}
    for kind in ("self", "cross"):
        for n, of_layer in enumerate(weights[kind]):
            projection = attentions[kind, n][1].weight
            heads = of_layer.shape[1]
            direction = (gradients[kind, n][0, -1] @ projection).view(heads, -1)  # [H,D]
            value = values[kind, n].view(-1, heads, direction.shape[1])  # [T,H,D]
            parts[kind].append(of_layer[0, :, -1].detach() * torch.einsum("thd,hd->ht", value, direction))
    parts["mlp"] = [(gradients["mlp", n][0, -1] @ written["mlp", n][0, -1]).item() for n in range(len(mlps))]
    for hook in hooks:
        hook.remove()
    return {kind: np.array([np.asarray(each.detach() if hasattr(each, "detach") else each) for each in of])
            for kind, of in parts.items()}, logit.item()


@pytest.mark.parametrize("name", ANSWERING)
@pytest.mark.parametrize("against", [None, 11])
def test_attribution_is_what_gradients_say(both, name, against):
    pair = both(name)
    found = pair.ours.attribute(IDS, token=23, against=against, decoder_ids=DECODER_IDS)
    expected, logit = parts_of(pair, 23, against)
    size = sum(abs(of).sum() for of in expected.values()) + abs(found.embedding) + abs(found.bias)
    assert abs(found.logit - logit) <= 1e-5 * size
    for got, of in ((found.heads, "self"), (found.cross, "cross"), (found.mlps, "mlp")):
        assert got.shape == expected[of].shape
        assert abs(got - expected[of]).max() <= 2e-5 * max(abs(expected[of]).max(), abs(logit))
    total = sum(of.sum(dtype=np.float64) for of in (found.heads, found.cross, found.mlps)) + found.embedding + found.bias
    assert abs(total - found.logit) <= 1e-5 * size


def test_attribution_over_a_cache_and_at_any_position(both):
    ours = both("t5 gated").ours
    cache = ours.cache()
    ours.forward(IDS, decoder_ids=DECODER_IDS, caches=[cache])
    for position in (0, 4, -1):
        fresh = ours.attribute(IDS, token=5, position=position, decoder_ids=DECODER_IDS)
        cached = ours.attribute(IDS, token=5, position=position, decoder_ids=DECODER_IDS, cache=cache)
        np.testing.assert_allclose(cached.cross, fresh.cross, rtol=0, atol=1e-5 * abs(fresh.cross).max())
        np.testing.assert_allclose(cached.heads, fresh.heads, rtol=0, atol=1e-5 * abs(fresh.heads).max())
    assert len(cache) == 10
    with pytest.raises(ValueError, match="the cache holds another text"):
        ours.attribute(OTHER, token=5, decoder_ids=DECODER_IDS, cache=cache)


def replaced(pair, kind, layer, head, new):
    """The logits where a head's output before the projection is what new() gives for it."""
    projection = attentions_of(pair.theirs)[0][kind, layer][1]
    info = pair.ours.info
    heads = info.encoder_heads if kind == "encoder" else info.heads

    def hook(module, inputs):
        z = inputs[0].clone()
        size = z.shape[-1] // heads
        z[..., head * size:(head + 1) * size] = new(z[..., head * size:(head + 1) * size])
        return (z,)

    handle = projection.register_forward_pre_hook(hook)
    try:
        return computed(pair.theirs)
    finally:
        handle.remove()


@pytest.mark.parametrize("name", ["bart", "marian", "t5 gated"])
@pytest.mark.parametrize("attention", ["self", "cross", "encoder"])
def test_edits_and_ablation_are_hooks(both, name, attention):
    pair = both(name)
    before = computed(pair.theirs).logits[0].log_softmax(-1)
    found = pair.ours.ablate(IDS, token=23, attention=attention, decoder_ids=DECODER_IDS)
    means = pair.ours.ablate(IDS, token=23, set="mean", attention=attention, decoder_ids=DECODER_IDS)
    at = {"self": "z", "cross": "cross_z", "encoder": "encoder_z"}[attention]
    layers, heads = found.logit.shape
    assert (layers, heads) == ((pair.ours.info.encoder_layers, pair.ours.info.encoder_heads) if attention == "encoder"
                               else (pair.ours.info.layers, pair.ours.info.heads))
    for layer in range(layers):
        for head in (0, heads - 1):
            after = replaced(pair, attention, layer, head, torch.zeros_like).logits[0]
            edited = pair.ours.forward(IDS, decoder_ids=DECODER_IDS, edits=[attend.Edit(layer, head=head, at=at)])
            assert far(pair.ours.logits(edited), after) <= TOLERANCE
            changed = after.log_softmax(-1)
            assert abs(found.log_probability[layer, head] - (changed[-1, 23] - before[-1, 23]).item()) < 2e-5
            kl = (before[-1].exp() * (before[-1] - changed[-1])).sum().item()
            assert abs(found.kl[layer, head] - kl) < 2e-5
            after = replaced(pair, attention, layer, head, lambda z: z.mean(1, keepdim=True).expand_as(z)).logits[0].log_softmax(-1)
            assert abs(means.log_probability[layer, head] - (after[-1, 23] - before[-1, 23]).item()) < 2e-5


@pytest.mark.parametrize("name", ["bart", "t5"])
@pytest.mark.parametrize("attention", ["self", "cross", "encoder"])
def test_patching_is_hooks(both, name, attention):
    pair = both(name)
    kept = {}
    (_, projection), heads = attentions_of(pair.theirs)[0][attention, 1], None
    handle = projection.register_forward_pre_hook(lambda module, inputs: kept.__setitem__("z", inputs[0].clone()))
    clean = computed(pair.theirs, OTHER).logits[0, -1]
    handle.remove()
    corrupt = computed(pair.theirs).logits[0, -1]
    found = pair.ours.patch(OTHER, IDS, 23, 11, attention=attention, decoder_ids=DECODER_IDS)
    heads = found.recovered.shape[1]

    def difference(of):
        return (of[23] - of[11]).item()

    for head in range(heads):
        size = kept["z"].shape[-1] // heads
        mine = kept["z"][..., head * size:(head + 1) * size]
        after = replaced(pair, attention, 1, head, lambda z, mine=mine: mine).logits[0, -1]
        expected = (difference(after) - difference(corrupt)) / (difference(clean) - difference(corrupt))
        assert abs(found.recovered[1, head] - expected) < 1e-3
    assert abs(found.clean - difference(clean)) < 1e-4 and abs(found.corrupt - difference(corrupt)) < 1e-4


def test_patched_streams(both):
    """Of the encoder: all of it is back where all tokens are, and each token's share beside a hook on its last layer."""
    pair = both("t5")
    found = pair.ours.patch(OTHER, IDS, 23, 11, what="residual", attention="encoder", decoder_ids=DECODER_IDS)
    assert found.recovered.shape == (pair.ours.info.encoder_layers + 1, 17)
    streams = computed(pair.theirs, OTHER, output_hidden_states=True)
    norm = pair.theirs.encoder.final_layer_norm
    before = {}
    handle = norm.register_forward_pre_hook(lambda module, inputs: before.__setitem__("x", inputs[0].clone()))
    computed(pair.theirs, OTHER)
    handle.remove()
    for token in (0, 8):
        def patched(module, inputs, token=token):
            x = inputs[0].clone()
            x[0, token] = before["x"][0, token]
            return (x,)
        handle = norm.register_forward_pre_hook(patched)
        after = computed(pair.theirs).logits[0, -1]
        handle.remove()
        expected = ((after[23] - after[11]).item() - found.corrupt) / (found.clean - found.corrupt)
        assert abs(found.recovered[-1, token] - expected) < 1e-3
    assert streams is not None
    own = pair.ours.patch(OTHER, IDS, 23, 11, what="residual", decoder_ids=DECODER_IDS)
    assert own.recovered.shape == (pair.ours.info.layers + 1, 10) and abs(own.recovered[0]).max() < 1e-6
    np.testing.assert_allclose(own.recovered[-1], [0] * 9 + [1], atol=1e-6)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_lens_is_their_own_head_on_each_stream(both, name):
    pair = both(name)
    found = pair.ours.lens(IDS, top=3, decoder_ids=DECODER_IDS)
    out = computed(pair.theirs, output_hidden_states=True)
    states = list(out.decoder_hidden_states)
    for layer, x in enumerate(states):
        x = x[0]
        if name == "t5":
            x = (pair.theirs.decoder.final_layer_norm(x) if layer < len(states) - 1 else x)
            x = x * (pair.theirs.config.d_model ** -0.5 if pair.theirs.config.scale_decoder_outputs else 1)
        with torch.no_grad():
            logits = pair.theirs.lm_head(x) + getattr(pair.theirs, "final_logits_bias", 0)
        likely = logits.log_softmax(-1).topk(3)
        assert found.ids[layer].tolist() == likely.indices.tolist()
        np.testing.assert_allclose(found.log_probabilities[layer], likely.values.detach(), atol=1e-4)


# ---- What is refused ----

@pytest.mark.parametrize("call, message", [
    (lambda model: model.forward(IDS, decoder_ids=[0, 99]), r"decoder_ids\[1\] is 99"),
    (lambda model: model.forward(IDS, types=[0] * 17, decoder_ids=DECODER_IDS), "types are for BERT-like encoders"),
    (lambda model: model.encoder_states(IDS, edits=[attend.Edit(0, at="cross_z")]), "does not run the decoder"),
    (lambda model: model.forward(IDS, decoder_ids=[0], caches=[]), "caches is empty"),
    (lambda model: model.logits(model.forward(IDS)), r"there are no decoder_ids: an encoder-decoder's forward\(\) .* encoder_states\(\)"),
    (lambda model: model.attribute(IDS), "there are no decoder_ids"),
    (lambda model: model.patch(IDS, OTHER, 1, 2, what="residual", attention="cross", decoder_ids=[0]), "no stream of its own"),
    (lambda model: model.record(IDS, decoder_ids=[0], max_new_tokens=3), "can't stand together"),
])
def test_what_is_refused(both, call, message):
    with pytest.raises(ValueError, match=message):
        call(both("t5").ours)


def test_other_models_have_no_decoder_ids(tmp_path):
    from tiny_models import CASES, written
    model = attend.Model.load(written(tmp_path, CASES["gpt2"]))
    for call in (lambda: model.forward([1, 2], decoder_ids=[0]), lambda: model.attribute([1, 2], decoder_ids=[0])):
        with pytest.raises(ValueError, match="decoder_ids need an encoder-decoder"):
            call()
    with pytest.raises(ValueError, match=r"encoder_states\(\) needs an encoder-decoder, the model is of type gpt2"):
        model.encoder_states([1, 2])
    with pytest.raises(ValueError, match="encoder-decoder"):
        model.ablate([1, 2], attention="cross")
    with pytest.raises(ValueError, match="only encoder-decoders have cross_z; the model is of type gpt2"):
        model.forward([1, 2], edits=[attend.Edit(0, at="cross_z")])
