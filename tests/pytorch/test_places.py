"""Every place of a pass, read and changed, beside hooks on Transformers' eager modules."""

import contextlib
import itertools

import numpy as np
import pytest
import torch
import transformers
from test_analysis import Places
from tiny_models import CASES, TOLERANCE, far, hidden_of, opener
from transformers.models.llama.modeling_llama import eager_attention_forward

import attend

LENGTH = 7
# What a layer's projections are called; each class has one name of a line.
QUERIES, KEYS, VALUES = ({f"{of}_proj", name, of, f"{of}_lin"} for of, name in (("q", "query"), ("k", "key"), ("v", "value")))
FUSED = {"c_attn", "qkv_proj", "query_key_value", "Wqkv"}
# The norms whose input the MLP reads, and those whose output it reads.
BEFORE_MLP = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2", "mlp_norm", "layer.1.layer_norm")
# What reads it: the MLP, or its first projection.
MLPS = ("mlp", "intermediate.dense", "ffn.lin1", "fc1", "layer.1.DenseReluDense", "ffn")
AFTER_ATTENTION = ("attention.output.LayerNorm", "sa_layer_norm", "attention.LayerNorm")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def by_place(info, parallel):
    names = ["embeddings", "residual", "q", "k", "v", "z", "attention", "residual_mid", "mlp_input", "mlp_hidden", "mlp"]
    return [at for at in names if not (parallel and at == "residual_mid")]


class Modules:
    """Which module of a layer computes a place: (module, whether its input is, which part of it [N,...] as [N,columns])."""

    def __init__(self, model, info):
        self.model, self.info, self.places = model, info, Places(model)
        base = getattr(model.base_model, "decoder", model.base_model)
        self.input = getattr(getattr(base, "encoder", None), "embed_tokens", None) or model.get_input_embeddings()
        self.scale = getattr(self.input, "scalar_embed_scale", 1.0)  # Gemma 3's module is more than a table

    def projected(self, layer, at):
        info, which = self.info, "qkv".index(at)
        names = {name: module for name, module in layer.named_modules() if "DenseReluDense" not in name}
        own = (QUERIES, KEYS, VALUES)[which]
        found = [module for name, module in names.items() if name.split(".")[-1] in own and hasattr(module, "weight")]
        if found:
            return found[0], lambda x: x
        name, module = next((name, module) for name, module in names.items() if name.split(".")[-1] in FUSED)
        sizes = [info.heads * info.head_size, info.kv_heads * info.head_size, info.kv_heads * info.head_size]
        begin = sum(sizes[:which])
        if name.endswith("query_key_value"):
            D = info.head_size
            return module, lambda x: x.view(len(x), info.heads, 3 * D)[:, :, which * D:(which + 1) * D]
        return module, lambda x: x[:, begin:begin + sizes[which]]

    def of(self, layer, at):
        one, identity = self.places.layers[min(layer, len(self.places.layers) - 1)], lambda x: x
        if at == "embeddings":
            return self.input, False, identity
        if at in ("q", "k", "v"):
            module, part = self.projected(one, at)
            return module, False, part
        if at == "mlp_hidden":
            return self.places.narrow[layer], True, identity
        if at == "mlp_input":
            modules = dict(one.named_modules())
            return next(modules[name] for name in MLPS if name in modules), True, identity
        if at == "residual_mid":
            modules = dict(one.named_modules())
            if getattr(one, "do_layer_norm_before", True) is False:
                return one.self_attn_layer_norm, False, identity
            if "do_layer_norm_before" in vars(one):
                return one.final_layer_norm, True, identity
            if "post_mlp_layernorm" in modules:
                return one.post_attention_layernorm, False, identity  # NomicBERT, GTE
            after = next((modules[name] for name in AFTER_ATTENTION if name in modules), None)
            if after is not None:
                return after, False, identity
            if self.places.output_norms and "pre_feedforward_layernorm" not in modules:
                return one.mlp, True, identity  # OLMo 2
            return next(modules[name] for name in BEFORE_MLP if name in modules), True, identity
        raise KeyError(at)

    @contextlib.contextmanager
    def changed(self, layer, at, change):
        """change([N,columns]) in place at that layer's place, of a copy that stands there then."""
        if at in ("residual", "z", "attention", "mlp"):
            def as_given(values):
                change(values)
                return values
            with self.places.changed(layer, at, as_given):
                yield
            return
        module, before, part = self.of(layer, at)
        moved, calls, turn = [], itertools.count(), self.places.turns[layer] if layer < len(self.places.turns) else 0
        layers = self.places.layers
        times = layers.count(layers[layer]) if isinstance(layers, list) and at != "embeddings" else 1

        def changed_copy(values):
            new = values.clone()
            rows = new.reshape(-1, new.shape[-1])  # the same memory
            seen = part(rows)
            flat = seen.reshape(len(rows), -1).clone()
            change(flat)
            seen.copy_(flat.reshape(seen.shape))
            moved.append((values, new))
            return new

        def hook(module, args, kwargs, output=None):
            if next(calls) % times != turn:
                return None
            if not before:
                return changed_copy(output)
            if args:
                return (changed_copy(args[0]), *args[1:]), kwargs
            return args, kwargs | {"hidden_states": changed_copy(kwargs["hidden_states"])}

        register = module.register_forward_pre_hook if before else module.register_forward_hook
        handles = [register(hook, with_kwargs=True)]
        if at == "residual_mid" and before:  # their stream goes past the norm, to where the MLP is added
            handles.append(self.places.mlps[layer].register_forward_hook(
                lambda module, args, output: output + (moved[-1][1] - moved[-1][0]).reshape(output.shape)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def theirs(pair, modules, layer, at, change):
    ids, types = pair.ids(LENGTH)
    with modules.changed(layer, at, change):
        return hidden_of(pair.theirs, ids, types)


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_is_what_their_modules_compute(both, name):
    pair = both(name)
    info, modules = pair.ours.info, Modules(pair.theirs, pair.ours.info)
    ids, types = pair.ids(LENGTH)
    places = by_place(info, info.parallel)
    hidden, kept = pair.ours.forward(ids, types=types, keep=places)
    for at in places:
        layers = 1 if at == "embeddings" else info.layers
        assert kept[at].shape == (*(() if at == "embeddings" else (layers + (at == "residual"),)), LENGTH, kept[at].shape[-1]), at
        for layer in range(layers):
            seen = []
            theirs(pair, modules, layer, at, lambda values, seen=seen: seen.append(values.double().clone()))
            got = kept[at] if at == "embeddings" else kept[at][layer]
            if at == "embeddings":
                seen[0] = seen[0] / modules.scale
            assert far(got, seen[0]) <= TOLERANCE, (at, layer)
    # Each place alone, put back where it was: the pass's own bits.
    everywhere = [*places, "rotated_q", "rotated_k"]
    keys = [(at, layer) for at in everywhere for layer in range(1 if at == "embeddings" else info.layers)]
    again, single = pair.ours.forward(ids, types=types, keep=keys)
    assert np.array_equal(again, hidden)
    for at, layer in keys:
        put_back = pair.ours.forward(ids, types=types, edits=[attend.Edit(layer, at=at, set=single[at, layer])])
        assert np.array_equal(put_back, hidden), (at, layer)


@pytest.mark.parametrize("name", CASES)
def test_adding_and_scaling_is_what_hooks_do(both, name):
    """At a layer of each place; an array of a row, of a number for each row, and a number."""
    pair = both(name)
    info, modules = pair.ours.info, Modules(pair.theirs, pair.ours.info)
    ids, types = pair.ids(LENGTH)
    random, turns = np.random.default_rng(1), itertools.cycle(("add", "scale", "rows"))
    plain = hidden_of(pair.theirs, ids, types)
    for at in by_place(info, info.parallel):
        width = pair.ours.forward(ids, types=types, keep=[(at, 0)])[1][at, 0].shape[-1]
        layer, turn = 0 if at == "embeddings" else int(random.integers(info.layers)), next(turns)
        row, column = random.normal(size=width).astype(np.float32), random.normal(size=(LENGTH, 1)).astype(np.float32)
        scale = modules.scale if at == "embeddings" else 1.0
        edit, change = {
            "add": (attend.Edit(layer, at=at, add=row), lambda x, row=row, scale=scale: x.add_(torch.from_numpy(row) * scale)),
            "scale": (attend.Edit(layer, at=at, rows=[1, 4], scale=-0.5), lambda x: x[1:5:3].mul_(-0.5)),
            "rows": (attend.Edit(layer, at=at, scale=column), lambda x, column=column: x.mul_(torch.from_numpy(column))),
        }[turn]
        expected = theirs(pair, modules, layer, at, change)
        got = pair.ours.forward(ids, types=types, edits=[edit])
        assert far(got, expected) <= TOLERANCE, (at, layer, turn)
        # What is added to all keys alike, softmax does not see, nor any score of a row that sees one key.
        assert far(got, plain) > 100 * TOLERANCE or at in ("q", "k") or layer == info.layers - 1, (at, layer, turn)


def test_the_queries_and_keys_that_attention_gets(both):
    """rotated_q and rotated_k, of head norms, partial rotary positions and grouped heads: what Transformers' attention is called with."""
    called = []

    def spy(module, query, key, value, attention_mask, **options):
        called.append([of[0].transpose(0, 1).flatten(1).double() for of in (query, key, value)])
        return eager_attention_forward(module, query, key, value, attention_mask, **options)

    transformers.AttentionInterface.register("spy", spy)
    transformers.AttentionMaskInterface.register("spy", transformers.masking_utils.eager_mask)
    for name in ("llama", "qwen3", "phi3 partial, window", "olmo2", "smollm3"):
        pair = both(name)
        ids, _ = pair.ids(LENGTH)
        called.clear()
        pair.theirs.set_attn_implementation("spy")
        try:
            hidden_of(pair.theirs, ids)
        finally:
            pair.theirs.set_attn_implementation("eager")
        _, kept = pair.ours.forward(ids, keep=["rotated_q", "rotated_k", "v", "q"])
        assert len(called) == pair.ours.info.layers
        for layer, (q, k, v) in enumerate(called):
            for got, expected in ((kept["rotated_q"], q), (kept["rotated_k"], k), (kept["v"], v)):
                assert far(got[layer], expected) <= TOLERANCE, (name, layer)
        assert any(far(kept["q"][layer], q) > 0.1 for layer, (q, _, _) in enumerate(called))


def test_nothing_added_and_times_one_keeps_every_bit(both):
    for name in ("llama", "bert", "gpt_neox"):
        pair = both(name)
        ids, types = pair.ids(LENGTH)
        plain = pair.ours.forward(ids, types=types)
        for at in by_place(pair.ours.info, pair.ours.info.parallel):
            same = ({"add": np.zeros(1, np.float32)}, {"scale": 1.0}, {"scale": np.ones((LENGTH, 1), np.float32)})
            edits = [attend.Edit(0, at=at, **change) for change in same]
            assert np.array_equal(pair.ours.forward(ids, types=types, edits=edits), plain), at


def test_a_steered_generation_is_a_full_pass_a_step(both):
    """Edits without rows hold for every new token, over a cache too; with rows for the prompt's."""
    for name in ("llama", "gpt2"):
        pair = both(name)
        ids, _ = pair.ids(LENGTH)
        size, random = pair.ours.info.embedding_size, np.random.default_rng(2)
        vector = random.normal(size=size).astype(np.float32)
        modules = Modules(pair.theirs, pair.ours.info)
        for rows in (None, [2, 4]):
            edits = [attend.Edit(1, at="residual", rows=rows, add=vector), attend.Edit(0, at="mlp_hidden", unit=3, rows=rows, scale=2.0)]
            made, kept = pair.ours.generate(ids, max_new_tokens=10, end=[], edits=edits, keep=[("residual", 1), "v"])
            text = list(ids)

            def steered(x, vector=vector, rows=rows):
                x[slice(None) if rows is None else rows] += torch.from_numpy(vector)

            def louder(x, rows=rows):
                x[slice(None) if rows is None else rows, 3] *= 2

            for step in range(10):
                with modules.changed(1, "residual", steered), modules.changed(0, "mlp_hidden", louder), torch.inference_mode():
                    logits = pair.theirs(input_ids=torch.tensor([text])).logits[0, -1]
                assert made[step] == int(logits.argmax()), (name, rows, step)
                text.append(int(made[step]))
            _, whole = pair.ours.forward(text[:-1], edits=edits, keep=[("residual", 1), "v"])
            assert kept["residual", 1].shape == (LENGTH + 9, size)
            for key in kept:
                np.testing.assert_allclose(kept[key], whole[key], rtol=0, atol=2e-5 * np.abs(whole[key]).max())


def test_observe_is_told_of_each_place_in_its_order(both):
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    told = []
    pair.ours.forward(ids, observe=lambda at, layer, values: told.append((at, layer, values.copy())))
    of_layer = ["residual", "q", "k", "v", "rotated_q", "rotated_k", "z", "attention", "residual_mid", "mlp_input", "mlp_hidden", "mlp"]
    layers = pair.ours.info.layers
    assert [each[:2] for each in told] == [("embeddings", 0), *((at, n) for n in range(layers) for at in of_layer), ("residual", layers)]
    _, kept = pair.ours.forward(ids, keep=["z"])
    assert np.array_equal(np.stack([values for at, _, values in told if at == "z"]), kept["z"])

    def stop(at, layer, values):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        pair.ours.forward(ids, observe=stop)
    with pytest.raises(TypeError, match="observe: expected a function, got 3"):
        pair.ours.forward(ids, observe=3)


@pytest.mark.parametrize("keep, words", [
    (["heads"], r"at is 'heads', expected one of 'embeddings', 'residual', 'q'"),
    ([("z", 3)], "z of layer 3, expected 0 to 2"),
    (["cross_z"], "only encoder-decoders have cross_z; the model is of type llama"),
])
def test_places_that_are_not_there(both, keep, words):
    with pytest.raises(ValueError, match=words):
        both("llama").ours.forward([1, 2], keep=keep)
    with pytest.raises(TypeError, match=r"keep\[0\]: expected \"mlp\" or \(\"z\", layer\), got 3"):
        both("llama").ours.forward([1, 2], keep=[3])
    with pytest.raises(ValueError, match="there is no residual_mid: attention and MLP of this model read the same stream"):
        both("gpt_neox").ours.forward([1, 2], keep=["residual_mid"])
    with pytest.raises(ValueError, match="an observer takes one prompt"):
        both("llama").ours.generate([[1, 2], [3]], keep=["z"])


def test_bf16_put_back(tmp_path_factory):
    get = opener(tmp_path_factory)
    for name in ("llama", "gpt_neox"):
        pair = get(name, torch.bfloat16)
        ids, _ = pair.ids(LENGTH)
        places = [*by_place(pair.ours.info, pair.ours.info.parallel), "rotated_q", "rotated_k"]
        hidden, kept = pair.ours.forward(ids, keep=[(at, 0) for at in places])
        for at in places:
            assert np.array_equal(pair.ours.forward(ids, edits=[attend.Edit(0, at=at, set=kept[at, 0])]), hidden), at
