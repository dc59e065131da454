"""Model.explain_score() and explain_value(), each number by itself, beside float64 sums of what hooks see in Transformers' modules."""

import numpy as np
import pytest
import torch
from attending import Layer, Seen, array
from tiny_models import BOTH, Both, opener

LENGTH = 9


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


class Norm:
    """A norm that divides as it does where it is given x [N,E]."""

    def __init__(self, module, x):
        weight = array(module.weight)
        self.weight = 1 + weight if "Gemma" in type(module).__name__ else weight
        self.bias = array(module.bias) if getattr(module, "bias", None) is not None else 0
        self.centres = isinstance(module, torch.nn.LayerNorm)
        eps = next(getattr(module, name) for name in ("eps", "variance_epsilon") if hasattr(module, name))
        own = x - x.mean(-1, keepdims=True) if self.centres else x
        self.divisor = np.sqrt((own**2).mean(-1, keepdims=True) + eps)

    def __call__(self, part, biases=False):
        part = part - part.mean(-1, keepdims=True) if self.centres else part
        return part / self.divisor * self.weight + (self.bias if biases else 0)


class Parts(dict):
    """{name: [N,E]} of the stream, in the order in which it is written; "bias" last."""

    def __init__(self, embedding):
        super().__init__(embedding=embedding)
        self.bias = np.zeros_like(embedding)

    def heads(self, layer, z, weight, bias, heads, norm=None):
        size = z.shape[1] // heads
        for h in range(heads):
            own = slice(h * size, (h + 1) * size)
            part = z[:, own] @ weight[:, own].T
            self[f"{layer}.{h}"] = part if norm is None else norm(part)
        if bias is not None:
            self.bias = self.bias + (bias if norm is None else norm(np.broadcast_to(bias, self.bias.shape)))

    def through(self, norm):
        for name in self:
            self[name] = norm(self[name])
        self.bias = norm(self.bias, biases=True)

    def all(self):
        return {**self, "bias": self.bias}


def turned(x, cos, sin):
    """x [N,D], of which the first numbers are turned."""
    R = cos.shape[1]
    own, rest = x[:, :R], x[:, R:]
    half = np.concatenate([-own[:, R // 2:], own[:, : R // 2]], 1)
    return np.concatenate([own * cos + half * sin, rest], 1)


def bias_of(module):
    return None if module.bias is None else array(module.bias)


def rows_of(linear, head, size, parts, reads):
    """(name, [N,size]) of what the head's rows of a projection make of each part."""
    own = slice(head * size, (head + 1) * size)
    for name, part in parts.all().items():
        rows = (part if reads is None else reads(part, name == "bias")) @ array(linear.weight)[own].T
        yield name, rows + (array(linear.bias)[own] if name == "bias" and linear.bias is not None else 0)


def llama_like(model, ids, layer, head):
    """q, k and v {name: [N,D]} of all rows, and the scale."""
    seen, layers, info = Seen(model, ids), model.model.layers, model.config
    heads, groups = info.num_attention_heads, info.num_attention_heads // info.num_key_value_heads
    parts = Parts(seen.given[layers[0]])
    for n, of in enumerate(layers[:layer]):
        sandwich = hasattr(of, "pre_feedforward_layernorm") or not hasattr(of, "input_layernorm")
        after = Norm(of.post_attention_layernorm, seen.given[of.post_attention_layernorm]) if sandwich else None
        parts.heads(n, seen.given[of.self_attn.o_proj], array(of.self_attn.o_proj.weight), bias_of(of.self_attn.o_proj), heads, after)
        parts[f"mlp {n}"] = seen.gave[of.post_feedforward_layernorm if sandwich else of.mlp]
    of = layers[layer]
    reads = Norm(of.input_layernorm, seen.given[of.input_layernorm]) if hasattr(of, "input_layernorm") else None
    positions = torch.arange(len(ids))[None]
    cos, sin = (array(x[0]) for x in model.model.rotary_emb(torch.zeros(1, len(ids), 4), positions))
    found = []
    for which, number in (("q", head), ("k", head // groups), ("v", head // groups)):
        linear, size = getattr(of.self_attn, f"{which}_proj"), of.self_attn.head_dim
        norm, factor = getattr(of.self_attn, f"{which}_norm", None), 1
        if norm is not None:
            projected, own = seen.gave[linear], slice(number * size, (number + 1) * size)
            whole = len(norm.weight) != size
            held = Norm(norm, projected if whole else projected[:, own])
            factor = (held.weight[own] if whole else held.weight) / held.divisor
        found.append({name: turned(rows * factor, cos, sin) if which != "v" else rows
                      for name, rows in rows_of(linear, number, size, parts, reads)})
    return *found, of.self_attn.scaling


class Slice:
    """Some rows of a projection, as one of its own."""

    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias


def gpt2(model, ids, layer, head):
    seen, blocks, heads = Seen(model, ids), model.transformer.h, model.config.n_head
    parts = Parts(seen.given[blocks[0]])
    for n, of in enumerate(blocks[:layer]):
        parts.heads(n, seen.given[of.attn.c_proj], array(of.attn.c_proj.weight).T, bias_of(of.attn.c_proj), heads)
        parts[f"mlp {n}"] = seen.gave[of.mlp]
    of, E = blocks[layer], model.config.n_embd
    reads, weight = Norm(of.ln_1, seen.given[of.ln_1]), of.attn.c_attn.weight.T
    found = [dict(rows_of(Slice(weight[b:b + E], of.attn.c_attn.bias[b:b + E]), head, E // heads, parts, reads)) for b in (0, E, 2 * E)]
    return *found, (E // heads) ** -0.5


def gpt_neox(model, ids, layer, head):
    seen, layers, heads = Seen(model, ids), model.gpt_neox.layers, model.config.num_attention_heads
    parts = Parts(seen.given[layers[0]])
    for n, of in enumerate(layers[:layer]):
        parts.heads(n, seen.given[of.attention.dense], array(of.attention.dense.weight), bias_of(of.attention.dense), heads)
        parts[f"mlp {n}"] = seen.gave[of.mlp]
    of = layers[layer]
    reads, all_of_it = Norm(of.input_layernorm, seen.given[of.input_layernorm]), of.attention.query_key_value
    size = all_of_it.weight.shape[1] // heads
    cos, sin = (array(x[0]) for x in model.gpt_neox.rotary_emb(torch.zeros(1, len(ids), 4), torch.arange(len(ids))[None]))
    found = []
    for n in range(3):
        weight, bias = (x.reshape(heads, 3, size, *x.shape[1:])[:, n].flatten(0, 1) for x in (all_of_it.weight, all_of_it.bias))
        own = rows_of(Slice(weight, bias), head, size, parts, reads)
        found.append({name: turned(rows, cos, sin) if n < 2 else rows for name, rows in own})
    return *found, size**-0.5


def bert(model, ids, layer, head):
    seen, layers, heads = Seen(model, ids), model.base_model.encoder.layer, model.config.num_attention_heads
    parts = Parts(seen.given[layers[0]])
    for n, of in enumerate(layers[:layer]):
        own, out = of.attention.output, of.output
        parts.heads(n, seen.given[own.dense], array(own.dense.weight), bias_of(own.dense), heads)
        parts.through(Norm(own.LayerNorm, seen.given[own.LayerNorm]))
        parts[f"mlp {n}"] = seen.gave[out.dense]
        parts.through(Norm(out.LayerNorm, seen.given[out.LayerNorm]))
    of, size = layers[layer].attention.self, model.config.hidden_size // heads
    return *(dict(rows_of(linear, head, size, parts, None)) for linear in (of.query, of.key, of.value)), size**-0.5


OF = {"llama": llama_like, "qwen2": llama_like, "qwen3": llama_like, "olmo2": llama_like, "gemma2 bias, caps": llama_like,
      "mistral window": llama_like, "gpt2": gpt2, "gpt_neox": gpt_neox, "bert": bert}


def visible(name, query, window):
    if name == "bert":
        return range(LENGTH)
    return range(max(0, query - window + 1) if window else 0, query + 1)


@pytest.mark.parametrize("name", OF)
@pytest.mark.parametrize("against", ["mean", 2, None])
def test_each_pair(both, name, against):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    info, of = pair.ours.info, OF[name]
    for layer, head, query, key in ((info.layers - 1, 1, 4, 3), (1, info.heads - 1, 3, 3), (0, 0, 4, 4)):
        q, k, _, scale = of(pair.theirs, ids, layer, head)
        window = getattr(pair.theirs.config, "sliding_window", None) if name == "mistral window" else None
        found = pair.ours.explain_score(ids, (layer, head), query, key, against=against)
        keys = {n: rows[key] - (rows[list(visible(name, query, window))].mean(0) if against == "mean" else rows[against] if against else 0)
                for n, rows in k.items()}
        assert sorted(found.parts) == sorted(q)
        expected = scale * np.array([[q[a][query] @ keys[b] for b in found.parts] for a in found.parts])
        size = abs(expected).sum()
        np.testing.assert_allclose(found.pairs, expected, rtol=0, atol=2e-5 * size)
        assert abs(found.pairs.sum(dtype=np.float64) + found.bias + found.rest - found.score) < 1e-6 * max(1, size)
        assert abs(found.rest) < 1e-5 * size + 1e-6 and found.bias == 0
        if layer:
            assert size > 1e-2 and (abs(expected) > 1e-3 * size).sum() > 3


def output_of(pair, name, layer, ids, row):
    """[E,H*D] of the projection of the heads' output, which a norm that follows it divides as it does at the row."""
    if name == "bert":
        return array(pair.theirs.base_model.encoder.layer[layer].attention.output.dense.weight)
    base = pair.theirs.base_model
    own = Layer((base.h if hasattr(base, "h") else base.layers)[layer], 0, 0)
    weight = array(own.out_weight)
    if own.norm is None:
        return weight
    norm = Norm(own.norm, Seen(pair.theirs, ids).gave[own.out])
    return weight * (norm.weight / norm.divisor[row])[:, None]


@pytest.mark.parametrize("name", OF)
def test_each_value(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    info = pair.ours.info
    direction = np.random.default_rng(4).normal(size=info.embedding_size).astype(np.float32)
    for layer, head, key in ((info.layers - 1, 1, 3), (1, info.heads - 1, 5), (0, 0, 4)):
        _, _, v, _ = OF[name](pair.theirs, ids, layer, head)
        found = pair.ours.explain_value(ids, (layer, head), key, direction=direction, position=6)
        size = next(iter(v.values())).shape[1]
        along = output_of(pair, name, layer, ids, 6)[:, head * size:(head + 1) * size].T @ direction
        expected = np.array([v[part][key] @ along for part in found.parts])
        np.testing.assert_allclose(found.values, expected, rtol=0, atol=2e-5 * abs(expected).sum())
        assert found.value == pytest.approx(expected.sum(), abs=2e-5 * abs(expected).sum())
        assert abs(found.rest) < 1e-5 * abs(expected).sum() + 1e-6


@pytest.mark.parametrize("name", [name for name in OF if name != "bert"])
def test_values_are_those_of_the_answer(both, name):
    """A head's weight on a key times its value along the answer's direction is what attribute() says."""
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    with torch.no_grad():
        weights = pair.theirs(torch.from_numpy(ids)[None], output_attentions=True).attentions
    for keywords in ({"token": 11}, {"token": 11, "against": 23, "position": 5}):
        wrote = pair.ours.attribute(ids, **keywords)
        for layer, head, key in ((0, 0, 2), (1, 3, 4), (pair.ours.info.layers - 1, 2, 5)):
            found = pair.ours.explain_value(ids, (layer, head), key, **keywords)
            weight = weights[layer][0, head, wrote.position, key].item()
            assert weight * found.value == pytest.approx(wrote.heads[layer, head, key], abs=1e-4 * float(abs(wrote.heads).max()))


def test_values_that_are_refused(both):
    ours = both("llama").ours
    for asked, words in (({"key": 3, "position": 2}, "position 2 does not see key 3"), ({"key": 9}, "key is 9"),
                         ({"key": 1, "direction": np.ones(3, np.float32)}, r"direction has shape \[3\], expected \[32\]"),
                         ({"key": 1, "direction": np.ones(32, np.int64)}, "direction is i64|floating point")):
        with pytest.raises((ValueError, TypeError), match=words):
            ours.explain_value([6, 7, 8, 9], "1.0", **asked)
    with pytest.raises(ValueError, match="expected a decoder"):
        both("bert").ours.explain_value([6, 7, 8], "1.0", 1)


def test_by_distance(both):
    """MPNet's score has a bias of its own."""
    pair = both("mpnet")
    ids, _ = pair.ids(LENGTH)
    whole = pair.ours.explain_score(ids, "1.2", 4, 6, against=None)
    assert whole.bias != 0 and abs(whole.pairs.sum(dtype=np.float64) + whole.bias + whole.rest - whole.score) < 1e-5
    # Their weights are softmax of the scores.
    with torch.no_grad():
        weights = np.log(array(pair.theirs(torch.from_numpy(ids)[None], output_attentions=True).attentions[1][0, 2, 4]))
    other = pair.ours.explain_score(ids, "1.2", 4, 1, against=None)
    assert whole.score - other.score == pytest.approx(weights[6] - weights[1], abs=1e-4)
    assert pair.ours.explain_score(ids, "1.2", 4, 6, against=1).score == pytest.approx(weights[6] - weights[1], abs=1e-4)


@pytest.mark.parametrize("asked, words", [
    (("9.0", 1, 0), "layer is 9"), (("0.9", 1, 0), "head is 9"), (("1.0", 99, 0), "query is 99"), (("1.0", 1, 99), "key is 99"),
    (("1.0", 1, 2), "query 1 does not see key 2; it sees keys 0 to 1"), (("x", 1, 0), "x"),
    (("decoder.1.cross.0", 1, 0), "only encoder-decoders have heads of a cross-attention"),
    (("encoder.1.self.0", 1, 0), "only encoder-decoders have heads of an encoder before a decoder"),
])
def test_what_is_refused(both, asked, words):
    with pytest.raises(ValueError, match=words):
        both("llama").ours.explain_score([6, 7, 8, 9], *asked)
    with pytest.raises(ValueError, match="expected 'mean', a key or None"):
        both("llama").ours.explain_score([6, 7, 8, 9], "1.0", 1, 0, against="median")


@pytest.mark.parametrize("name", [name for name in OF if name != "bert"])
def test_with_a_cache(both, name):
    """The same parts, of the rows that are looked at alone: of a whole cache, of one of the beginning, and of one of more text."""
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    model = pair.ours
    last = model.info.layers - 1
    whole = {against: model.explain_score(ids, (last, 2), 6, 4, against) for against in ("mean", 5, None)}
    value = model.explain_value(ids, (last, 2), 4, token=11, against=23, position=6)
    for held in (LENGTH, 5, 1):
        cache = model.cache()
        model.forward(ids[:held], caches=[cache])
        for against, expected in whole.items():
            found = model.explain_score(ids, (last, 2), 6, 4, against, cache=cache)
            assert found.parts == expected.parts
            np.testing.assert_allclose(found.pairs, expected.pairs, atol=2e-5 * np.abs(expected.pairs).max())
            assert (found.score, found.bias) == pytest.approx((expected.score, expected.bias), abs=1e-4)
        found = model.explain_value(ids, (last, 2), 4, token=11, against=23, position=6, cache=cache)
        np.testing.assert_allclose(found.values, value.values, atol=2e-5 * np.abs(value.values).max())
        assert len(cache) == held, "it is not changed"
    other = model.cache()
    model.forward(ids[::-1].copy(), caches=[other])
    with pytest.raises(ValueError, match="the cache holds another text"):
        model.explain_score(ids, (last, 2), 6, 4, None, cache=other)


def t5_encoder(model, ids, layer, head):
    stack = model.get_encoder()
    seen, blocks, heads = Seen(model, ids, decoder_input_ids=torch.tensor([[0]])), stack.block, model.config.num_heads
    parts = Parts(seen.given[blocks[0]])
    for n, of in enumerate(blocks[:layer]):
        own = of.layer[0].SelfAttention
        parts.heads(n, seen.given[own.o], array(own.o.weight), None, heads)
        parts[f"mlp {n}"] = seen.gave[of.layer[1].DenseReluDense]
    own, norm = blocks[layer].layer[0].SelfAttention, blocks[layer].layer[0].layer_norm
    reads, size = Norm(norm, seen.given[norm]), own.q.weight.shape[0] // heads
    return *(dict(rows_of(linear, head, size, parts, reads)) for linear in (own.q, own.k)), 1.0


def bart_encoder(model, ids, layer, head):
    layers, heads = model.get_encoder().layers, model.config.encoder_attention_heads
    seen = Seen(model, ids, decoder_input_ids=torch.tensor([[2]]))
    parts = Parts(seen.given[layers[0]])
    for n, of in enumerate(layers[:layer]):
        own = of.self_attn.out_proj
        parts.heads(n, seen.given[own], array(own.weight), bias_of(own), heads)
        parts.through(Norm(of.self_attn_layer_norm, seen.given[of.self_attn_layer_norm]))
        parts[f"mlp {n}"] = seen.gave[of.fc2]
        parts.through(Norm(of.final_layer_norm, seen.given[of.final_layer_norm]))
    own, size = layers[layer].self_attn, model.config.d_model // heads
    return *(dict(rows_of(linear, head, size, parts, None)) for linear in (own.q_proj, own.k_proj)), size**-0.5


@pytest.mark.parametrize("name, of", [("t5", t5_encoder), ("t5 gated", t5_encoder), ("bart", bart_encoder)])
@pytest.mark.parametrize("against", ["mean", 2, None])
def test_an_encoder_that_a_decoder_reads(tmp_path, name, of, against):
    pair = Both(tmp_path, BOTH[name])
    ids, _ = pair.ids(LENGTH)
    info = pair.ours.info
    with torch.no_grad():
        weights = pair.theirs(torch.from_numpy(ids)[None], decoder_input_ids=torch.tensor([[0]]), output_attentions=True).encoder_attentions
    for layer, head, query, key in ((info.encoder_layers - 1, 1, 4, 6), (1, info.encoder_heads - 1, 3, 0), (0, 0, 4, 4)):
        q, k, scale = of(pair.theirs, ids, layer, head)
        found = pair.ours.explain_score(ids, f"encoder.{layer}.self.{head}", query, key, against=against)
        names = [part if not part.startswith("encoder.") else part.removeprefix("encoder.").replace(".self.", ".") for part in found.parts]
        assert sorted(names) == sorted(q) and (layer == 0 or f"encoder.0.self.{info.encoder_heads - 1}" in found.parts)
        keys = {n: rows[key] - (rows.mean(0) if against == "mean" else rows[against] if against else 0) for n, rows in k.items()}
        expected = scale * np.array([[q[a][query] @ keys[b] for b in names] for a in names])
        size = abs(expected).sum()
        np.testing.assert_allclose(found.pairs, expected, rtol=0, atol=2e-5 * size)
        assert abs(found.pairs.sum(dtype=np.float64) + found.bias + found.rest - found.score) < 1e-6 * max(1, size)
        assert abs(found.rest) < 1e-5 * size + 1e-6
        # Their weights are softmax of the scores, with T5's bias by distance.
        logs = np.log(array(weights[layer][0, head, query]))
        if against is not None:
            assert found.score == pytest.approx(logs[key] - (logs.mean() if against == "mean" else logs[against]), abs=1e-4)


ANSWERS = np.array([0, 11, 23, 7, 40, 12])


def t5_parts(stack, seen, behind):
    """What the stream is made of before a layer's attention in the encoder's text, (layer, True), or before a layer, (layer, False)."""
    layer, crosses = behind
    heads, parts = stack.config.num_heads, Parts(seen.given[stack.block[0]])
    for n, of in enumerate(stack.block[:layer + crosses]):
        own = of.layer[0].SelfAttention
        parts.heads(f"self {n}", seen.given[own.o], array(own.o.weight), None, heads)
        if n == layer:
            break
        if stack.is_decoder:
            parts.heads(f"cross {n}", seen.given[of.layer[1].EncDecAttention.o], array(of.layer[1].EncDecAttention.o.weight), None, heads)
        parts[f"mlp {n}"] = seen.gave[of.layer[-1].DenseReluDense]
    return parts


def bart_parts(stack, seen, behind):
    layer, crosses = behind
    heads = stack.layers[0].self_attn.num_heads
    parts = Parts(seen.given[stack.layers[0]])
    for n, of in enumerate(stack.layers[:layer + crosses]):
        kinds = [("self", of.self_attn, of.self_attn_layer_norm)]
        if hasattr(of, "encoder_attn") and n < layer:
            kinds.append(("cross", of.encoder_attn, of.encoder_attn_layer_norm))
        for kind, own, norm in kinds:
            parts.heads(f"{kind} {n}", seen.given[own.out_proj], array(own.out_proj.weight), bias_of(own.out_proj), heads)
            parts.through(Norm(norm, seen.given[norm]))
        if n < layer:
            parts[f"mlp {n}"] = seen.gave[of.fc2]
            parts.through(Norm(of.final_layer_norm, seen.given[of.final_layer_norm]))
    return parts


def crossing(pair, ids, layer, head):
    """q of the decoder's rows, k and v of the encoder's, {name: [N,D]}; the scale; and the weight of the head's output [E,D]."""
    model = pair.theirs
    seen, encoder, decoder = Seen(model, ids, decoder_input_ids=torch.from_numpy(ANSWERS)[None]), model.get_encoder(), model.get_decoder()
    if hasattr(encoder, "block"):
        own, last = decoder.block[layer].layer[1], encoder.final_layer_norm
        queries, keys = t5_parts(decoder, seen, (layer, True)), t5_parts(encoder, seen, (len(encoder.block), False))
        reads, memory = Norm(own.layer_norm, seen.given[own.layer_norm]), Norm(last, seen.given[last])
        q, k, v, out = (getattr(own.EncDecAttention, name) for name in "qkvo")
        heads, scale = model.config.num_heads, 1.0
    else:
        own = decoder.layers[layer].encoder_attn
        queries, keys = bart_parts(decoder, seen, (layer, True)), bart_parts(encoder, seen, (len(encoder.layers), False))
        reads = memory = None
        q, k, v, out = own.q_proj, own.k_proj, own.v_proj, own.out_proj
        heads = own.num_heads
        scale = (q.weight.shape[0] // heads) ** -0.5
    size = q.weight.shape[0] // heads
    found = [dict(rows_of(linear, head, size, *of)) for linear, of in ((q, (queries, reads)), (k, (keys, memory)), (v, (keys, memory)))]
    return *found, scale, array(out.weight)[:, head * size:(head + 1) * size]


def named(part, of_encoder):
    """As the parts above are called: "decoder.1.cross.0" is "cross 1.0"."""
    words = part.removeprefix("encoder." if of_encoder else "decoder.").split(".")
    return f"{words[1]} {words[0]}.{words[2]}" if len(words) == 3 else part


@pytest.mark.parametrize("name", ["t5", "t5 gated", "bart", "marian"])
@pytest.mark.parametrize("against", ["mean", 2, None])
def test_a_decoder_in_an_encoders_text(tmp_path, name, against):
    pair = Both(tmp_path, BOTH[name])
    ids, _ = pair.ids(LENGTH)
    info = pair.ours.info
    with torch.no_grad():
        answers = torch.from_numpy(ANSWERS)[None]
        weights = pair.theirs(torch.from_numpy(ids)[None], decoder_input_ids=answers, output_attentions=True).cross_attentions
    direction = np.random.default_rng(4).normal(size=info.embedding_size).astype(np.float32)
    for layer, head, query, key in ((info.layers - 1, 1, 4, 6), (1, info.heads - 1, 3, 8), (0, 0, 0, 4)):
        q, k, v, scale, out = crossing(pair, ids, layer, head)
        asked = (ids, f"decoder.{layer}.cross.{head}")
        found = pair.ours.explain_score(*asked, query, key, against=against, decoder_ids=ANSWERS)
        rows, columns = [named(part, False) for part in found.parts], [named(part, True) for part in found.key_parts]
        assert sorted(rows) == sorted(q) and sorted(columns) == sorted(k) and f"self {info.encoder_layers - 1}.0" in columns
        keys = {n: x[key] - (x.mean(0) if against == "mean" else x[against] if against else 0) for n, x in k.items()}
        expected = scale * np.array([[q[a][query] @ keys[b] for b in columns] for a in rows])
        size = abs(expected).sum()
        np.testing.assert_allclose(found.pairs, expected, rtol=0, atol=2e-5 * size)
        assert abs(found.rest) < 1e-5 * size + 1e-6 and found.bias == 0
        logs = np.log(array(weights[layer][0, head, query]))
        if against is not None:
            assert found.score == pytest.approx(logs[key] - (logs.mean() if against == "mean" else logs[against]), abs=1e-4)
        alone = pair.ours.explain_score(*asked, query, key, against=against, decoder_ids=ANSWERS, sides="query")
        np.testing.assert_allclose(alone.pairs[:, 0], expected.sum(1), rtol=0, atol=2e-5 * size)

        value = pair.ours.explain_value(*asked, key, direction=direction, decoder_ids=ANSWERS)
        expected = np.array([v[named(part, True)][key] @ (out.T @ direction) for part in value.parts])
        np.testing.assert_allclose(value.values, expected, rtol=0, atol=2e-5 * abs(expected).sum())
        wrote = pair.ours.attribute(ids, token=11, decoder_ids=ANSWERS, position=query)
        value = pair.ours.explain_value(*asked, key, token=11, position=query, decoder_ids=ANSWERS)
        assert weights[layer][0, head, query, key].item() * value.value == pytest.approx(wrote.cross[layer, head, key],
                                                                                         abs=1e-4 * float(abs(wrote.cross).max()))


def test_values_of_an_encoder_that_a_decoder_reads(tmp_path):
    pair = Both(tmp_path, BOTH["t5"])
    ids, _ = pair.ids(LENGTH)
    stack = pair.theirs.get_encoder()
    seen = Seen(pair.theirs, ids, decoder_input_ids=torch.tensor([[0]]))
    own, norm = stack.block[1].layer[0].SelfAttention, stack.block[1].layer[0].layer_norm
    size = own.q.weight.shape[0] // pair.theirs.config.num_heads
    v = dict(rows_of(own.v, 2, size, t5_parts(stack, seen, (1, False)), Norm(norm, seen.given[norm])))
    direction = np.random.default_rng(4).normal(size=stack.config.d_model).astype(np.float32)
    along = array(own.o.weight)[:, 2 * size:3 * size].T @ direction
    found = pair.ours.explain_value(ids, "encoder.1.self.2", 3, direction=direction, decoder_ids=ANSWERS)
    expected = np.array([v[named(part, True)][3] @ along for part in found.parts])
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=2e-5 * abs(expected).sum())
    for asked, other in (("encoder.1.self.2", "0.0"), ("decoder.1.cross.2", "encoder.0.self.0")):
        with pytest.raises(ValueError, match="another attention, expected the own one of the encoder"):
            pair.ours.explain_value(ids, asked, 3, direction=direction, decoder_ids=ANSWERS, by_token=["decoder.0.cross.1"])
        own = pair.ours.explain_value(ids, asked, 3, direction=direction, decoder_ids=ANSWERS, by_token=[other])
        assert sum("reading" in part for part in own.parts) == LENGTH
    with pytest.raises(ValueError, match="another attention, expected the own one of the decoder"):
        pair.ours.explain_score(ids, "decoder.1.cross.2", 2, 3, decoder_ids=ANSWERS, by_token=["encoder.0.self.1"])
    with pytest.raises(ValueError, match="the answer does not read"):
        pair.ours.explain_value(ids, "encoder.1.self.2", 3, decoder_ids=ANSWERS)


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral window", "gemma2 bias, caps", "gpt2", "bert"])
def test_by_the_token_that_a_head_read(both, name):
    """Each of its parts is its weight there, from Transformers, times what the value there writes."""
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    model, info = pair.ours, pair.ours.info
    query, key, asked = 6, 5, (info.layers - 1, 1)
    with torch.no_grad():
        weights = pair.theirs(torch.from_numpy(ids)[None], output_attentions=True).attentions
    for against in ("mean", 4, None):
        whole = model.explain_score(ids, asked, query, key, against)
        split = model.explain_score(ids, asked, query, key, against, by_token=["0.2", (1, 3)] if info.layers > 2 else ["0.2"])
        own = [n for n, part in enumerate(split.parts) if part.startswith("0.2 reading ")]
        assert [split.parts[n] for n in own] == [f"0.2 reading {n}" for n in range(len(own))] and len(own) >= query
        size = float(abs(whole.pairs).sum())
        sums = split.pairs.sum(1)
        assert sums[own].sum() == pytest.approx(whole.pairs.sum(1)[whole.parts.index("0.2")], abs=2e-5 * size)
        assert split.score == pytest.approx(whole.score, abs=1e-6 * size) and abs(split.rest) < 1e-5 * size + 1e-6
        unseen = array(weights[0][0, 2, query])[:len(own)] == 0
        assert np.all(sums[own][unseen] == 0) and not np.all(sums[own] == 0)
    value = model.explain_value(ids, asked, key, direction=np.ones(info.embedding_size, np.float32), by_token=["0.2"])
    whole = model.explain_value(ids, asked, key, direction=np.ones(info.embedding_size, np.float32))
    own = [v for part, v in zip(value.parts, value.values) if part.startswith("0.2 reading ")]
    assert sum(own) == pytest.approx(whole.values[whole.parts.index("0.2")], abs=2e-5 * float(abs(whole.values).sum()))


def test_by_token_beside_hooks(both):
    """Each number by itself, of a Llama."""
    pair = both("llama")
    ids, _ = pair.ids(LENGTH)
    theirs, (layer, head, query, key) = pair.theirs, (1, 1, 6, 5)
    seen, own = Seen(theirs, ids), theirs.model.layers[0].self_attn
    _, k, _, scale = llama_like(theirs, ids, layer, head)
    with torch.no_grad():
        weights = array(theirs(torch.from_numpy(ids)[None], output_attentions=True).attentions[0][0, 2])
    group, D = 2 // (theirs.config.num_attention_heads // theirs.config.num_key_value_heads), own.head_dim
    wrote = seen.gave[own.v_proj][:, group * D:(group + 1) * D] @ array(own.o_proj.weight)[:, 2 * D:3 * D].T
    of = theirs.model.layers[layer]
    reads = Norm(of.input_layernorm, seen.given[of.input_layernorm])
    cos, sin = (array(x[0]) for x in theirs.model.rotary_emb(torch.zeros(1, len(ids), 4), torch.arange(len(ids))[None]))
    found = pair.ours.explain_score(ids, (layer, head), query, key, None, by_token=["0.2"])
    whole = sum(rows[key] for rows in k.values())
    for token in range(query + 1):
        rows = reads(weights[:, token:token + 1] * wrote[token]) @ array(of.self_attn.q_proj.weight)[head * D:(head + 1) * D].T
        expected = scale * turned(rows, cos, sin)[query] @ whole
        given = found.pairs.sum(1)[found.parts.index(f"0.2 reading {token}")]
        assert given == pytest.approx(expected, abs=2e-5 * float(abs(found.pairs).sum()))
    for asked, words in ((["1.0"], "head 1.0 by token, expected one of the 1 layers before"), (["0.9"], "head 0.9 by token"),
                         (["-1.0"], "-1.0 by token")):
        with pytest.raises(ValueError, match=words):
            pair.ours.explain_score(ids, (layer, head), query, key, by_token=asked)
    with pytest.raises(ValueError, match="and a cache are both given"):
        pair.ours.explain_score(ids, (layer, head), query, key, by_token=["0.0"], cache=pair.ours.cache())


@pytest.mark.parametrize("name", [name for name in OF if name != "bert"])
def test_the_querys_side_alone(both, name):
    """Against the mean too it needs one row and what a cache has of the keys."""
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    model = pair.ours
    asked = (ids, (model.info.layers - 1, 2), 7, 5)
    for against in ("mean", 6, None):
        whole = model.explain_score(*asked, against)
        size = float(abs(whole.pairs).sum())
        for held in (None, LENGTH, 6, 2, 0):
            cache = None if held is None else model.cache()
            if held:
                model.forward(ids[:held], caches=[cache])
            found = model.explain_score(*asked, against, sides="query", cache=cache)
            assert found.parts == whole.parts and found.key_parts == [] and found.pairs.shape == (len(found.parts), 1)
            np.testing.assert_allclose(found.pairs[:, 0], whole.pairs.sum(1), rtol=0, atol=2e-5 * size)
            assert (found.score, found.bias, found.rest) == pytest.approx((whole.score, whole.bias, 0), abs=1e-5 * size + 1e-6)
            assert [part for part, _ in found.top("query", 3)] == [part for part, _ in whole.top("query", 3)]
            assert found.top("pairs", 1)[0][1] == "key"
    with pytest.raises(ValueError, match="sides is 'key', expected 'both' or 'query'"):
        model.explain_score(*asked, sides="key")
