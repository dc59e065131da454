"""Model.gradient() at every place, beside torch.autograd on Transformers' eager modules."""

import contextlib
import copy
from typing import NamedTuple

import gguf_files
import numpy as np
import pytest
import torch
from test_gguf import QUANTIZED, quantized
from test_places import LENGTH, Modules, by_place
from tiny_models import BOTH, CASES, DECODERS, Both, made, opener

import attend

FAR = 1e-4  # of the largest magnitude
ANSWERING = [name for name in DECODERS if "bare" not in name]


class Opened(NamedTuple):
    ours: attend.Model
    theirs: torch.nn.Module


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


@pytest.fixture(scope="module")
def both_stacks(tmp_path_factory):
    return lambda name: Both(tmp_path_factory.mktemp("model"), BOTH[name])


def keys_of(info, modules=None):
    """(place, layer) of all places that hooks reach."""
    last = modules is not None and modules.places.norm is not None
    layers = {at: 1 if at == "embeddings" else info.layers + (at == "residual" and last) for at in by_place(info, info.parallel)}
    return [(at, layer) for at, count in layers.items() for layer in range(count)]


def theirs(pair, modules, ids, types, keys, number):
    """number(what the model gives), and its gradient by what stands at the places: by zeros that are added there."""
    sizes = pair.ours.forward(ids, types=types, keep=keys)[1]
    dtype = next(pair.theirs.parameters()).dtype
    zeros = {key: torch.zeros(sizes[key].shape, requires_grad=True, dtype=dtype) for key in keys}
    inputs = {"input_ids": torch.from_numpy(ids)[None]} | ({} if types is None else {"token_type_ids": torch.from_numpy(types)[None]})
    with contextlib.ExitStack() as hooks:
        for at, layer in keys:
            hooks.enter_context(modules.changed(layer, at, lambda x, zero=zeros[at, layer]: x.add_(zero)))
        value = number(inputs)
    found = torch.autograd.grad(value, list(zeros.values()), allow_unused=True)
    scale = {key: modules.scale if key[0] == "embeddings" else 1.0 for key in keys}
    return value.item(), {key: (torch.zeros_like(zeros[key]) if d is None else d) * scale[key]
                          for key, d in zip(keys, found, strict=True)}


def compare(got, expected, far_from=FAR):
    """Of each place the largest difference, of the largest gradient of that place in any layer."""
    for at in dict.fromkeys(at for at, _ in expected):
        of_place = [key for key in expected if key[0] == at]
        largest = max(float(expected[key].abs().max()) for key in of_place)
        for key in of_place:
            assert np.abs(got[key] - expected[key].float().numpy()).max() <= far_from * largest, key
        assert largest > 0 or at in ("q", "k"), at


@pytest.mark.parametrize("name", CASES)
def test_at_every_place_of_every_model(both, name):
    pair = both(name)
    modules = Modules(pair.theirs, pair.ours.info)
    ids, types = pair.ids(LENGTH)
    keys = keys_of(pair.ours.info, modules)
    cotangent = np.random.default_rng(3).normal(size=pair.ours.forward(ids, types=types).shape).astype(np.float32)

    def number(inputs):
        return (pair.theirs.base_model(**inputs).last_hidden_state[0] * torch.from_numpy(cotangent)).sum()

    value, expected = theirs(pair, modules, ids, types, keys, number)
    got = pair.ours.gradient(ids, of=cotangent, at=keys, types=types)
    assert abs(got.value - value) <= 1e-4 * max(1, abs(value))
    compare(got, expected)
    # Of layers that are computed a second time the same bits.
    least = pair.ours.gradient(ids, of=cotangent, at=keys, types=types, memory=0)
    for key in keys:
        assert np.array_equal(got[key], least[key]), key


@pytest.mark.parametrize("name", ANSWERING)
def test_of_answers(both, name):
    pair = both(name)
    modules = Modules(pair.theirs, pair.ours.info)
    ids, _ = pair.ids(LENGTH)
    keys = keys_of(pair.ours.info)
    last = pair.theirs(input_ids=torch.from_numpy(ids)[None]).logits[0, -1]
    likeliest = int(last.argmax())
    for asked, number in (
        ({}, lambda logits: logits[-1, likeliest]),
        ({"token": 7, "against": 9, "position": 2}, lambda logits: logits[2, 7] - logits[2, 9]),
        ({"of": "log_probability", "token": 7}, lambda logits: logits[-1].log_softmax(-1)[7]),
        ({"of": "log_probability", "token": [8, 7, 7], "position": 1},
         lambda logits: sum(logits[row].log_softmax(-1)[token] for row, token in ((1, 8), (2, 7), (3, 7)))),
    ):
        value, expected = theirs(pair, modules, ids, None, keys, lambda inputs, number=number: number(pair.theirs(**inputs).logits[0]))
        got = pair.ours.gradient(ids, at=keys, **asked)
        assert abs(got.value - value) <= 1e-4 * max(1, abs(value)), asked
        compare(got, expected)
    assert pair.ours.gradient(ids).token == likeliest


def test_several_numbers_at_once_are_each_alone(both):
    for name in ("llama", "bert", "qwen3", "gpt_neox", "mpnet"):
        pair = both(name)
        ids, types = pair.ids(LENGTH)
        keys = ["embeddings", ("z", 1), "residual", "q", ("mlp_hidden", 0)]
        hidden, kept = pair.ours.forward(ids, types=types, keep=[("z", 0)])
        random = np.random.default_rng(4)
        of = {"hidden": random.normal(size=(3, *hidden.shape)), ("z", 0): random.normal(size=(3, *kept["z", 0].shape)).astype(np.float32)}
        together = pair.ours.gradient(ids, of=of, at=keys, types=types)
        for n in range(3):
            alone = pair.ours.gradient(ids, of={at: each[n] for at, each in of.items()}, at=keys, types=types)
            expected = (of["hidden"][n] * hidden).sum() + (of["z", 0][n] * kept["z", 0]).sum()
            assert abs(alone.value - expected) <= 1e-5 * abs(hidden).sum() and alone.value == together.value[n]
            for key in keys:
                assert np.array_equal(together[key][n], alone[key]), (name, key)


def test_at_places_by_what_a_small_step_changes(both):
    """Rotated queries and keys, and of places: (f(x + h d) - f(x - h d)) / 2h along a direction d, in f32."""
    random = np.random.default_rng(5)
    for name in ("qwen3", "phi3 partial, window", "gemma2", "bert"):
        pair = both(name)
        ids, types = pair.ids(LENGTH)
        for at in ("rotated_q", "rotated_k", "z"):
            hidden, kept = pair.ours.forward(ids, types=types, keep=[(at, 1), ("mlp", 2)])
            of = {"hidden": random.normal(size=hidden.shape), ("mlp", 2): random.normal(size=kept["mlp", 2].shape)}
            got = pair.ours.gradient(ids, of=of, at=[(at, 1)], types=types)
            direction = random.normal(size=kept[at, 1].shape)

            def value(step, at=at, of=of, direction=direction, pair=pair, ids=ids, types=types):
                edits = [attend.Edit(1, at=at, add=np.float32(step * direction))]
                hidden, kept = pair.ours.forward(ids, types=types, edits=edits, keep=[("mlp", 2)])
                return (of["hidden"] * hidden).sum() + (of["mlp", 2] * kept["mlp", 2]).sum()

            slopes = [(value(step) - value(-step)) / (2 * step) for step in (0.03, 0.01, 0.003)]
            along = float((got[at, 1] * direction).sum())
            size = np.linalg.norm(got[at, 1]) * np.linalg.norm(direction)
            assert min(abs(slope - along) for slope in slopes) <= 1e-3 * size, (name, at, slopes, along)


def test_with_edits(both):
    """What is set has no gradient before it; what is added passes by; what is scaled is scaled; a mean shares."""
    for name in ("llama", "bert", "gpt_neox"):
        pair = both(name)
        modules = Modules(pair.theirs, pair.ours.info)
        ids, types = pair.ids(LENGTH)
        keys = [(at, layer) for at, layer in keys_of(pair.ours.info) if (at, layer) != ("z", 1)]
        hidden, kept = pair.ours.forward(ids, types=types, keep=[("z", 1), ("mlp", 0)])
        cotangent = np.random.default_rng(6).normal(size=hidden.shape).astype(np.float32)
        size = kept["z", 1].shape[1] // pair.ours.info.heads
        own = kept["z", 1][:, size:2 * size]
        same = pair.ours.gradient(ids, of=cotangent, at=keys, types=types,
                                  edits=[attend.Edit(0, at="mlp", add=np.zeros(1)), attend.Edit(1, at="z", head=1, scale=1.0)])
        plain = pair.ours.gradient(ids, of=cotangent, at=keys, types=types)
        assert all(np.array_equal(same[key], plain[key]) for key in keys)

        def number(inputs, pair=pair, cotangent=cotangent):
            return (pair.theirs.base_model(**inputs).last_hidden_state[0] * torch.from_numpy(cotangent)).sum()

        for edit, change in (
            (attend.Edit(1, head=1, set=own), lambda z, own=own, size=size: z[:, size:2 * size].copy_(torch.from_numpy(own))),
            (attend.Edit(1, head=1, set="zero", rows=[1, 3]), lambda z, size=size: z[1:5:2, size:2 * size].mul_(0)),
            (attend.Edit(1, head=1, scale=-2.0), lambda z, size=size: z[:, size:2 * size].mul_(-2)),
            (attend.Edit(1, head=0, set="mean"),
             lambda z, size=size: z[:, :size].copy_(z[:, :size].mean(0, keepdim=True).expand(len(z), -1))),
        ):
            with modules.changed(1, "z", change):
                value, expected = theirs(pair, modules, ids, types, keys, number)
            for memory in (None, 0):
                got = pair.ours.gradient(ids, of=cotangent, at=keys, types=types, edits=[edit], memory=memory)
                assert abs(got.value - value) <= 1e-4 * max(1, abs(value))
                compare(got, expected)


def test_adding_is_done_once_where_layers_are_computed_a_second_time(both):
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    edits = [attend.Edit(layer, at=at, add=np.linspace(-1, 1, 32, dtype=np.float32))
             for at, layer in (("embeddings", 0), ("residual", 1), ("residual_mid", 1), ("residual", 2))]
    keys = ["embeddings", "residual", "z", "mlp_hidden"]
    whole, least = (pair.ours.gradient(ids, token=7, at=keys, edits=edits, memory=memory) for memory in (None, 0))
    assert all(np.array_equal(whole[key], least[key]) for key in keys) and whole.value == least.value


def test_bf16_is_as_near_as_theirs(tmp_path_factory):
    """To float32's gradient of the same weights, over four texts."""
    get = opener(tmp_path_factory)
    for name in ("llama", "gemma2", "bert", "gpt2"):
        pair, far_off = get(name, torch.bfloat16), {}
        modules, keys = Modules(pair.theirs, pair.ours.info), keys_of(pair.ours.info)
        for seed in range(4):
            random = np.random.default_rng(seed)
            ids = random.integers(6, 99, 20)
            cotangent = random.normal(size=pair.ours.forward(ids).shape).astype(np.float32)

            def number(inputs, pair=pair, cotangent=cotangent):
                return (pair.theirs.base_model(**inputs).last_hidden_state[0].float() * torch.from_numpy(cotangent)).sum()

            pair.theirs.bfloat16()
            narrow = theirs(pair, modules, ids, None, keys, number)[1]
            pair.theirs.float()
            exact = theirs(pair, modules, ids, None, keys, number)[1]
            got = pair.ours.gradient(ids, of=cotangent, at=keys)
            for key in keys:
                errors = far_off.setdefault(key[0], np.zeros(2))
                errors += [float(((of - exact[key]) ** 2).sum()) for of in (torch.from_numpy(got[key]), narrow[key].float())]
        ratios = {at: (ours / torchs) ** 0.5 for at, (ours, torchs) in far_off.items()}
        assert max(ratios.values()) <= 1.3 and np.mean(list(ratios.values())) <= 1.15, (name, ratios)


def shaken(model):
    """The same, each of its numbers off as f32 rounds it: its gradients are off by what rounding makes of them."""
    draw, made = torch.Generator().manual_seed(5), copy.deepcopy(model)
    with torch.no_grad():
        for each in made.parameters():
            each.mul_(1 + 2**-24 * torch.randn(each.shape, generator=draw, dtype=each.dtype))
    return made


def test_quantized_weights_are_their_numbers(tmp_path):
    """Beside torch.autograd in float64 on the dequantized weights, of twelve types of blocks.

    Streams of such numbers cancel: a gradient may be three times as far off as rounded weights bring it.
    """
    model = made(QUANTIZED["llama"])
    model.set_attn_implementation("eager")
    state = model.state_dict()
    matrices, kinds, numbers = quantized(state)
    for name, each in numbers.items():
        state[name].copy_(each)
    # Such numbers are large, and softmax over large scores has no gradient but rounding's: what is read of the stream is small.
    for n in range(model.config.num_hidden_layers):
        of = f"model.layers.{n}."
        for norm, reads in (("input_layernorm", ("self_attn.q_proj", "self_attn.k_proj")),
                            ("post_attention_layernorm", ("mlp.gate_proj",))):
            largest = max(float(numbers[f"{of}{each}.weight"].norm(dim=1).max()) for each in reads)
            matrices[f"{of}{norm}.weight"] = state[f"{of}{norm}.weight"].fill_(3 / largest)
    values, _ = gguf_files.converted(model)
    _, _, blocks = gguf_files.llama(model.config, matrices)
    kinds = {gguf_files.renamed(name, gguf_files.LLAMA): kind for name, kind in kinds.items()}
    gguf_files.write(tmp_path / "model.gguf", values, blocks, kinds)
    pair = Opened(attend.Model.load(tmp_path / "model.gguf"), model.double())
    other = pair._replace(theirs=shaken(pair.theirs))
    modules, others = Modules(pair.theirs, pair.ours.info), Modules(other.theirs, pair.ours.info)
    for length in (1, LENGTH, 20):
        ids = np.random.default_rng(length).integers(6, 99, length)
        keys = [key for key in keys_of(pair.ours.info) if length > 1 or key[0] not in ("q", "k")]
        value, expected = theirs(pair, modules, ids, None, keys, lambda inputs: pair.theirs(**inputs).logits[0, -1, 7])
        _, moved = theirs(other, others, ids, None, keys, lambda inputs: other.theirs(**inputs).logits[0, -1, 7])
        got = pair.ours.gradient(ids, token=7, at=keys)
        assert abs(got.value - value) <= 1e-4 * max(1, abs(value))
        off = max(float((moved[key] - expected[key]).abs().max() / expected[key].abs().max().clamp(min=1e-30)) for key in keys)
        compare(got, expected, max(FAR, 3 * off))


@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_of_the_cosine_of_an_embedding(both, name):
    pair = both(name)
    modules = Modules(pair.theirs, pair.ours.info)
    ids, types = pair.ids(LENGTH)
    vector = np.random.default_rng(7).normal(size=32).astype(np.float32)

    def number(inputs):
        mean = pair.theirs.base_model(**inputs).last_hidden_state[0].mean(0)
        return torch.nn.functional.cosine_similarity(mean, torch.from_numpy(vector), dim=0)

    keys = keys_of(pair.ours.info)
    value, expected = theirs(pair, modules, ids, types, keys, number)
    got = pair.ours.gradient(ids, of=vector, at=keys, types=types)
    assert abs(got.value - value) < 1e-5
    compare(got, expected)


def test_bits_for_any_number_of_threads(both):
    for name in ("llama", "bert", "gemma3"):
        pair = both(name)
        ids, types = pair.ids(40)
        cotangent = np.random.default_rng(3).normal(size=pair.ours.forward(ids, types=types).shape)
        before, found = attend.num_threads(), []
        try:
            for threads in (1, 2, 3):
                attend.set_num_threads(threads)
                found.append(pair.ours.gradient(ids, of=cotangent, at=["embeddings", "z", "residual"], types=types))
        finally:
            attend.set_num_threads(before)
        for each in found[1:]:
            assert all(np.array_equal(each[key], found[0][key]) for key in each)


@pytest.mark.parametrize("asked, error, words", [
    ({"token": 99}, ValueError, "token is 99, expected 0 to 98"),
    ({"position": 7}, ValueError, "position is 7, expected 0 to 6, or -7 to -1 from the end"),
    ({"of": "loss"}, ValueError, "of is 'loss', expected 'logit', 'log_probability', 'label', an array or a dict of arrays"),
    ({"of": "log_probability"}, ValueError, "log_probability needs at least one token"),
    ({"of": "log_probability", "token": [1, 2], "position": -1}, ValueError, "2 tokens from row 6 on reach beyond the 7 rows"),
    ({"of": np.zeros((6, 32))}, ValueError, r"cotangent has shape \[6,32\], expected \[7,32\]"),
    ({"of": np.zeros((7, 32), int)}, TypeError, "cotangent is int64, expected floating point"),
    ({"of": {("z", 3): np.zeros((7, 32))}}, ValueError, "a cotangent at z of layer 3, expected 0 to 2"),
    ({"of": {"z": np.zeros((7, 32))}}, ValueError, r"of has z, expected a layer of it too: \('z', 3\)"),
    ({"of": {("z", 1): np.zeros((7, 31))}}, ValueError, r"the cotangent at z of layer 1 has shape \[7,31\], expected \[7,32\]"),
    ({"of": {}}, ValueError, "a sum needs a cotangent for the hidden states, or for places"),
    ({"of": np.zeros((7, 32)), "token": 3}, ValueError, "token and against are for a logit, and of is something else"),
    ({"at": ["heads"]}, ValueError, "at is 'heads', expected one of 'embeddings', 'residual', 'q'"),
    ({"at": [3]}, TypeError, r"at\[0\]: expected \"mlp\" or \(\"z\", layer\), got 3"),
    ({"edits": [attend.Knockout([1], [0])]}, ValueError, "a backward pass takes no Knockout"),
    ({"of": np.full((7, 32), np.inf)}, ValueError, "the gradients at residual have NaN or infinity"),
])
def test_what_is_refused(both, asked, error, words):
    pair = both("llama")
    with pytest.raises(error, match=words):
        pair.ours.gradient(pair.ids(LENGTH)[0], **asked)


def test_nan_before_an_edit_is_refused_too(both):
    """What is set has no gradient before it; what comes there may still be NaN."""
    pair = both("llama")
    edit = attend.Edit(0, at="embeddings", set=np.zeros((7, 32), np.float32))
    with pytest.raises(ValueError, match="the gradients at residual have NaN or infinity"):
        pair.ours.gradient(pair.ids(LENGTH)[0], of={"hidden": np.full((7, 32), 3e38)}, edits=[edit])


def test_encoders_have_no_logits(both):
    with pytest.raises(ValueError, match="expected a decoder, and the model is an encoder of type bert"):
        both("bert").ours.gradient([6, 7])
    with pytest.raises(ValueError, match=r"vector has shape \[31\], expected \[32\]"):
        both("bert").ours.gradient([6, 7], of=np.zeros(31))


def test_what_it_takes_is_said_before(both):
    """What is observed of a long text is not more than what was said, with the layers' streams alone or with all."""
    ours = both("llama").ours
    all_of_it, least = ours.gradient_bytes(100)
    assert all_of_it > 4 * least > 0 and ours.gradient_bytes(200) == (2 * all_of_it, 2 * least)


# ---- Encoder-decoders ----

IDS, DECODER_IDS = np.random.default_rng(0).integers(6, 80, 9), np.concatenate([[0], np.random.default_rng(1).integers(6, 80, 5)])


def modules_of(model):
    """{(place, layer): (module, whether what it is given stands there, not what it gives)} of both stacks."""
    base = model.base_model if hasattr(model.base_model, "encoder") else model
    found = {}
    for stack, prefix in ((base.encoder, "encoder_"), (base.decoder, "")):
        found[f"{prefix}embeddings", 0] = stack.embed_tokens, False
        if hasattr(stack, "block"):
            for n, block in enumerate(stack.block):
                kinds = [(f"{prefix}", block.layer[0].SelfAttention)]
                kinds += [("cross_", block.layer[1].EncDecAttention)] if not prefix else []
                mlp = block.layer[-1].DenseReluDense
                found[f"{prefix}residual", n] = block, True
                for of, attention in kinds:
                    found |= {(f"{of}{at}", n): (getattr(attention, at), False) for at in "qkv"}
                    found |= {(f"{of}z", n): (attention.o, True), (f"{of}attention", n): (attention.o, False)}
                found |= {(f"{prefix}mlp_input", n): (mlp, True), (f"{prefix}mlp_hidden", n): (mlp.wo, True),
                          (f"{prefix}mlp", n): (mlp.wo, False)}
            continue
        for n, layer in enumerate(stack.layers):
            kinds = [(f"{prefix}", layer.self_attn, layer.self_attn_layer_norm)]
            kinds += [("cross_", layer.encoder_attn, layer.encoder_attn_layer_norm)] if not prefix else []
            found[f"{prefix}residual", n] = layer, True
            for of, attention, _ in kinds:
                found |= {(f"{of}{at}", n): (getattr(attention, f"{at}_proj"), False) for at in "qkv"}
                found |= {(f"{of}z", n): (attention.out_proj, True), (f"{of}attention", n): (attention.out_proj, False)}
            found |= {(f"{prefix}residual_mid", n): (kinds[-1][2], False), (f"{prefix}mlp_input", n): (layer.fc1, True),
                      (f"{prefix}mlp_hidden", n): (layer.fc2, True), (f"{prefix}mlp", n): (layer.fc2, False)}
            if not prefix:
                found["cross_residual", n] = layer.self_attn_layer_norm, False
    return found


@pytest.mark.parametrize("name", BOTH)
def test_at_every_place_of_encoder_decoders(both_stacks, name):
    pair = both_stacks(name)
    modules = modules_of(pair.theirs)
    hidden, kept = pair.ours.forward(IDS, decoder_ids=DECODER_IDS, keep=list(modules))
    cotangent = np.random.default_rng(3).normal(size=hidden.shape).astype(np.float32)
    zeros = {key: torch.zeros(kept[key].shape, requires_grad=True) for key in modules}
    calls = dict.fromkeys(modules, 0)

    def hook(key, before):
        def run(module, args, kwargs, output=None):
            calls[key] += 1
            shared = key[0].endswith("embeddings") and modules["embeddings", 0][0] is modules["encoder_embeddings", 0][0]
            if shared and calls[key] != (1 if key[0].startswith("encoder") else 2):
                return None  # one module for both texts, the encoder's first
            if not before:
                return output + zeros[key][None]
            return ((args[0] + zeros[key][None], *args[1:]), kwargs) if args else (args, kwargs | {
                "hidden_states": kwargs["hidden_states"] + zeros[key][None]})
        return run

    register = {True: "register_forward_pre_hook", False: "register_forward_hook"}
    handles = [getattr(module, register[before])(hook(key, before), with_kwargs=True) for key, (module, before) in modules.items()]
    out = pair.theirs(input_ids=torch.from_numpy(IDS)[None], decoder_input_ids=torch.from_numpy(DECODER_IDS)[None],
                      output_hidden_states=True)
    for handle in handles:
        handle.remove()
    states = out.last_hidden_state if hasattr(out, "last_hidden_state") else out.decoder_hidden_states[-1]
    value = (states[0] * torch.from_numpy(cotangent)).sum()
    found = torch.autograd.grad(value, list(zeros.values()))
    scale = {key: getattr(modules[key][0], "embed_scale", 1.0) if key[0].endswith("embeddings") else 1.0 for key in modules}
    expected = {key: d * scale[key] for key, d in zip(modules, found, strict=True)}
    got = pair.ours.gradient(IDS, of=cotangent, at=list(modules), decoder_ids=DECODER_IDS)
    assert abs(got.value - value.item()) <= 1e-4 * max(1, abs(value.item()))
    compare(got, expected)
    least = pair.ours.gradient(IDS, of=cotangent, at=list(modules), decoder_ids=DECODER_IDS, memory=0)
    assert all(np.array_equal(got[key], least[key]) for key in modules)


# ---- Several texts ----

def test_several_texts_are_each_alone(both, both_stacks):
    """To the bit, of a logit, log-probabilities and a cosine; with edits too, which go one by one."""
    texts = [[6, 7, 8, 9], [10, 11], [12, 13, 14, 15, 16, 17]]
    llama = both("llama").ours
    asked = [{"token": [7, 8, None], "against": 9, "position": [-1, 0, 2]},
             {"of": "log_probability", "token": [[7, 8], [9], 3], "position": 0}, {"token": 7, "edits": [attend.Edit(1, head=0)]}]
    for keywords in asked:
        found = llama.gradient(texts, at=["embeddings", ("z", 1), "residual"], **keywords)
        assert type(found) is attend.Results and len(found) == 3
        for n, (ids, got) in enumerate(zip(texts, found)):
            own = {key: value[n] if key in ("token", "position") and isinstance(value, list) else value for key, value in keywords.items()}
            alone = llama.gradient(ids, at=["embeddings", ("z", 1), "residual"], **own)
            assert (got.value, got.token, got.position) == (alone.value, alone.token, alone.position)
            assert all(np.array_equal(got[at], alone[at]) for at in alone)
    bert, vector = both("bert").ours, np.arange(32, dtype=np.float32)
    for got, ids in zip(bert.gradient(texts, of=vector), texts):
        assert np.array_equal(got["embeddings"], bert.gradient(ids, of=vector)["embeddings"])
    bart = both_stacks("bart").ours
    for got, ids in zip(bart.gradient(texts, token=7, decoder_ids=[0, 5]), texts):
        assert np.array_equal(got["embeddings"], bart.gradient(ids, token=7, decoder_ids=[0, 5])["embeddings"])
    with pytest.raises(ValueError, match=r"texts\[1\]: position is 3, expected 0 to 1"):
        llama.gradient(texts, token=7, position=3)
    with pytest.raises(ValueError, match="token has 2, expected one for each of 3 texts"):
        llama.gradient(texts, token=[7, 8])
