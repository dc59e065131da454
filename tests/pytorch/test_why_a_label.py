"""attribute() and ablate() of a label's logit, beside gradients and hooks of Transformers' classes with a task's head."""

import contextlib
import functools
import os

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import torch
from test_analysis import Places, columns_of, compared, edited, parts_of, values_of
from test_task_answers import HEADS, TASKS, logits_of, opened, theirs_of
from tiny_models import CASES, written

import attend

IDS = np.random.default_rng(4).integers(6, 90, 12)
ATTRIBUTED = [
    "bert classify", "bert one", "bert tag", "bert fill", "roberta classify", "distilbert classify", "distilbert fill", "mpnet classify",
    "albert classify", "albert fill", "electra classify", "electra fill", "nomic_bert classify", "gte classify", "modernbert classify",
    "modernbert classify mean", "modernbert tag", "modernbert fill", "llama classify", "llama tag", "qwen3 classify", "qwen3 tag",
    "gemma2 classify", "gemma3 classify", "olmo2 classify", "gpt2 classify", "gpt_neox classify", "opt classify"]


def typed(name):
    """Types of tokens, where the model has some."""
    return np.random.default_rng(3).integers(0, 2, len(IDS)) if name.startswith(("bert", "albert")) else None


def held(f):
    """f, whose gradient is f(x) / x."""
    def of(x, *args, **kwargs):
        made = f(x, *args, **kwargs)
        return x * torch.where(x == 0, 0, made / x).detach()
    return of


def held_layer_norm(f):
    """A norm whose divisor has no gradient."""
    def of(x, shape, weight=None, bias=None, eps=1e-5):
        variance = x.var(-1, correction=0, keepdim=True).detach()
        made = (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps) * (1 if weight is None else weight)
        return made if bias is None else made + bias
    return of


@pytest.fixture
def opened_held(tmp_path, monkeypatch):
    """Ours, and theirs in f64, whose norms and activations have the gradients that attribute() means."""
    monkeypatch.setattr(torch, "tanh", held(torch.tanh))
    for name in ("gelu", "relu"):
        monkeypatch.setattr(torch.nn.functional, name, held(getattr(torch.nn.functional, name)))
    monkeypatch.setattr(torch.nn.functional, "layer_norm", held_layer_norm(torch.nn.functional.layer_norm))

    def of(name):
        folder = written(tmp_path, HEADS[name])
        theirs = theirs_of(HEADS[name], folder).double()
        for module in theirs.modules():
            if type(module).__name__.endswith(("RMSNorm", "GELUActivation")):
                module.forward = held(module.forward)
        return attend.Model.load(folder), theirs
    return of


def leaves(kept, key, values):
    """In place of what stands there, the same that gradients come to."""
    kept[key] = values.detach().requires_grad_()
    return kept[key]


def direct_effects(ours, theirs, pick, types):
    """The logit, and what heads [L,H,N], MLPs [L] and the embedding wrote: their outputs times gradients that flow in the stream alone."""
    info, places, kept = ours.info, Places(theirs), {}
    def stop(module, args):
        return tuple(each.detach() for each in args)
    with contextlib.ExitStack() as stack:
        inside = [module for layer in places.layers for module in layer.modules() if type(module).__name__ in ("Linear", "Conv1D")]
        for module in {id(each): each for each in inside if each not in [*places.projections, *places.narrow]}.values():
            stack.callback(module.register_forward_pre_hook(stop).remove)
        stack.enter_context(places.changed(0, "residual", functools.partial(leaves, kept, "embedding")))
        for layer in range(info.layers):
            for at in ("z", "mlp"):
                stack.enter_context(places.changed(layer, at, functools.partial(leaves, kept, (at, layer))))
        inputs = {"input_ids": torch.from_numpy(IDS)[None]} | ({} if types is None else {"token_type_ids": torch.from_numpy(types)[None]})
        out = theirs(**inputs, output_attentions=True)
    logit = pick((out.prediction_logits if "prediction_logits" in out else out.logits)[0])
    logit.backward()
    heads = []
    for layer in range(info.layers):
        values = values_of(places, layer, lambda: theirs(**inputs), info).repeat_interleave(info.heads // info.kv_heads, 1)
        d = kept["z", layer].grad.reshape(len(IDS), info.heads, -1)
        heads.append(torch.einsum("hij,jhd,ihd->hj", out.attentions[layer][0].detach(), values.detach(), d))
    mlps = [(kept["mlp", layer].grad * kept["mlp", layer]).sum().detach() for layer in range(info.layers)]
    return float(logit.detach()), np.stack(heads), np.stack(mlps), float((kept["embedding"].grad * kept["embedding"].detach()).sum())


@pytest.mark.parametrize("name", ATTRIBUTED)
def test_parts_are_direct_effects(opened_held, name):
    ours, theirs = opened_held(name)
    types, each = typed(name), TASKS[HEADS[name].name.split("For")[1]] != "classify"
    position, label = (5 if each else -1), (0 if len(ours.info.labels) == 1 else 1)
    against = 0 if label else None
    def pick(logits):
        row = logits[position] if each else logits
        return row[label] - (row[against] if label else 0)
    logit, heads, mlps, embedding = direct_effects(ours, theirs, pick, types)
    found = ours.attribute(IDS, label, against, position=position, of="label", types=types)
    seen = heads.shape[2] if not ours.info.decoder else len(IDS) if not each else position + 1
    assert found.heads.shape == (*heads.shape[:2], seen) and not heads[:, :, seen:].any()
    size = np.abs(heads).sum() + np.abs(mlps).sum() + abs(embedding)
    assert found.logit == pytest.approx(logit, abs=1e-5 * size) and np.abs(heads).max() > 1e-6
    assert np.abs(found.heads - heads[:, :, :seen]).max() <= 1e-5 * size and np.abs(found.mlps - mlps).max() <= 1e-5 * size
    assert abs(found.embedding - embedding) <= 1e-5 * size and abs(parts_of(found).sum() - logit) <= 1e-5 * size
    reads = {"modernbert classify mean": -1, "modernbert classify": 0}.get(name, 5 if each else len(IDS) - 1 if ours.info.decoder else 0)
    assert found.position == reads and found.rounding == 0
    units = ours.attribute(IDS, label, against, position=position, of="label", types=types, neurons=True)
    assert np.abs(units.neurons.sum(1) + units.mlp_biases - found.mlps).max() <= 1e-5 * size


@pytest.mark.parametrize("name", ["bert classify", "bert one", "modernbert classify mean", "qwen3 classify", "electra tag"])
def test_several_texts_have_the_bits_of_one(tmp_path, name):
    ours = attend.Model.load(written(tmp_path, HEADS[name]))
    texts = [np.random.default_rng(n).integers(6, 90, n) for n in (5, 12, 1)]
    types = [np.arange(len(ids)) % 2 for ids in texts] if name.startswith("bert") else None
    of_each = {"types": types} if types else {}
    for call in (ours.attribute, ours.ablate):
        for n, found in enumerate(call(texts, of="label", **of_each)):
            alone = call(texts[n], of="label", **({"types": types[n]} if types else {}))
            for field in ("heads", "mlps", "logit") if call == ours.attribute else ("logit",):
                np.testing.assert_array_equal(getattr(found, field), getattr(alone, field))
    if types:
        assert not np.array_equal(ours.attribute(texts, of="label")[1].heads, ours.attribute(texts, of="label", **of_each)[1].heads)


def test_in_bf16_there_is_a_rounding(tmp_path):
    for name in ("bert classify", "modernbert classify mean", "llama classify"):
        folder = written(tmp_path / name, HEADS[name])
        found = attend.Model.load(folder, dtype="bfloat16").attribute(IDS, 1, of="label")
        assert abs(parts_of(found).sum() + found.rounding - found.logit) <= 1e-5 * np.abs(parts_of(found)).sum()
        assert 0 < abs(found.rounding) < 0.05 * np.abs(parts_of(found)).sum()


@pytest.mark.parametrize("name", ["bert classify", "bert one", "roberta classify", "modernbert classify mean", "distilbert tag",
                                  "bert fill", "gte classify", "llama classify", "qwen3 classify", "qwen3 tag", "gpt2 tag"])
@pytest.mark.parametrize("to", ["zero", "mean"])
def test_ablation_is_what_hooks_do(tmp_path, name, to):
    folder = written(tmp_path, HEADS[name])
    ours, theirs = attend.Model.load(folder), theirs_of(HEADS[name], folder)
    types, each = typed(name), TASKS[HEADS[name].name.split("For")[1]] != "classify"
    info, places = ours.info, Places(theirs)
    one = len(info.labels) == 1
    rows = [3, 7] if each else None
    def run():
        return logits_of(theirs, IDS, types)
    before = run()
    for token, against in [(0, None)] if one else [(1, 0), (None, None)]:
        found = ours.ablate(IDS, token, against, rows=rows, set=to, of="label", types=types)
        for layer in range(info.layers):
            for head in range(info.heads):
                with places.changed(layer, "z", functools.partial(edited, rows=None, columns=columns_of(info, "z", head), to=to)):
                    after = run()
                answers = [(before[row], after[row]) for row in rows] if each else [(before, after)]
                expected = np.mean([compared(was, now, was.argmax() if token is None else token, against) for was, now in answers], 0)
                got = [found.logit] if one else [found.logit, found.log_probability, found.kl]
                assert np.abs([changed[layer, head] for changed in got] - expected[: len(got)]).max() < 2e-5
        assert np.abs(found.logit).max() > 1e-5 and found.cosine_distance is None
        assert not one or found.log_probability is found.kl is None
    with places.changed(0, "z", functools.partial(edited, rows=None, columns=columns_of(info, "z", 1), to="zero")):
        after = run()
    together = ours.ablate(IDS, 0, heads=["0.1"], of="label", types=types)
    last = (before[-1], after[-1]) if each else (before, after)
    assert together.logit == pytest.approx(float(last[1][0] - last[0][0]), abs=2e-5)


def test_a_rerankers_pair(tmp_path):
    """Which words of the passage made it relevant, and which heads read them."""
    _, ours, *_ = opened(tmp_path, HEADS["bert one"])
    pair = ours.tokenizer.encode("a cat", "the cat sat on a mat.")
    found = ours.attribute(pair.ids, "LABEL_0", of="label", types=pair.types)
    assert found.logit == pytest.approx(float(ours.classify(("a cat", "the cat sat on a mat.")).logits[0, 0]), abs=1e-6)
    assert "why “LABEL_0”" in found.picture().to_svg() and '"of":"label"' in found.to_json()
    ablated = ours.ablate(pair.ids, of="label", types=pair.types)
    without = ours.task_logits(pair.ids, types=pair.types, edits=[attend.Edit(1, 2)])[0, 0]
    assert ablated.logit[1, 2] == pytest.approx(without - found.logit, abs=1e-6)
    assert "logit of “LABEL_0” without each head" in ablated.picture().to_svg() and '"of":"label"' in ablated.to_json()
    assert ablated.to_csv().startswith("layer,head,name,logit\n") and "log_probability" not in ablated.to_json()
    mean, _, texts = ours.ablate([pair.ids, pair.ids], of="label", types=[pair.types, pair.types]).average()
    assert texts == 2 and mean.log_probability is None
    np.testing.assert_allclose(mean.logit, ablated.logit, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name, call, message", [
    ("bert classify", lambda model: model.attribute(IDS, "no", of="label"), "token is 'no', expected one of .*: LABEL_0, LABEL_1"),
    ("bert classify", lambda model: model.attribute(IDS, 2, of="label"), "attribute: a label is 2, expected 0 to 1"),
    ("bert classify", lambda model: model.ablate(IDS, 0, 2, of="label"), "ablate: a label is 2, expected 0 to 1"),
    ("bert classify", lambda model: model.attribute(IDS, of="cosine"), "of is 'cosine', expected 'logit' or 'label'"),
    ("bert classify", lambda model: model.attribute(IDS), "expected a decoder, and the model is an encoder"),
    ("bert classify", lambda model: model.ablate(IDS, rows=[1], of="label"), "rows need a head that labels tokens, and .* is for classify"),
    ("bert tag", lambda model: model.attribute(IDS, position=12, of="label"), "position is 12"),
    ("bert classify", lambda model: model.attribute(IDS, of="label", types=[0]), "1 types for 12 ids"),
    ("bert classify", lambda model: model.ablate(IDS, of="label", types=[0]), "1 types for 12 ids"),
    ("bert tag", lambda model: model.ablate(IDS, rows=[12], of="label"), r"rows\[0\] is 12"),
    ("llama classify", lambda model: model.ablate(IDS, of="label", types=IDS * 0), "types are for BERT-like encoders"),
])
def test_what_is_refused(tmp_path, name, call, message):
    with pytest.raises(ValueError, match=message):
        call(attend.Model.load(written(tmp_path, HEADS[name])))


def test_without_a_head_there_is_no_label(tmp_path):
    plain = attend.Model.load(written(tmp_path, CASES["bert"]))
    for call in (plain.attribute, plain.ablate):
        with pytest.raises(ValueError, match="a label needs a model with a task's head, and this one of type bert has none"):
            call(IDS, of="label")
    with pytest.raises(TypeError, match="Model.attribute: of: expected 'logit' or 'label', got 3"):
        plain.attribute(IDS, of=3)
