"""Model.trace(), edges(), circuit() and path_patch() beside the papers' formulas by hooks in Transformers' eager modules, in float64."""

import numpy as np
import pytest
import torch
from attending import Layer, Seen
from tiny_models import opener

LENGTH = 7
TOKEN, AGAINST = 11, 23


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


class Theirs:
    """A model of Transformers in float64, of which each reader can be given an input of its own."""

    def __init__(self, model):
        self.model = model.double().eval()
        info, base = model.config, model.base_model
        base = getattr(base, "decoder", base)
        blocks = next(getattr(base, name) for name in ("layers", "h") if hasattr(base, name))
        heads = info.num_attention_heads
        self.heads, self.kv_heads = heads, getattr(info, "num_key_value_heads", None) or heads
        size = getattr(info, "head_dim", None) or info.hidden_size // heads
        self.layers = [Layer(block, size, heads // self.kv_heads) for block in blocks]
        self.reading = False  # a projection is asked by itself
        self.blocks, self.parallel = blocks, getattr(info, "use_parallel_residual", False)
        self.last = next(getattr(base, name) for name in ("norm", "ln_f", "final_layer_norm") if hasattr(base, name))

    def difference(self, ids=None, **keywords):
        logits = self.model(None if ids is None else torch.from_numpy(ids)[None], **keywords).logits[0, -1]
        return logits[TOKEN] - logits[AGAINST]

    def parts(self, ids):
        """{writer: [N,E]}, and what each reader reads before its norm, of one pass."""
        seen = Seen(self.model, ids)
        wrote, read = {"embedding": seen.given[self.blocks[0]]}, {}
        for n, layer in enumerate(self.layers):
            parts = layer.heads(torch.from_numpy(seen.given[layer.out]), torch.from_numpy(seen.gave[layer.out]))
            wrote |= {f"{n}.{h}": part.numpy() for h, part in enumerate(parts)}
            wrote[f"mlp {n}"] = seen.gave[layer.mlp_written]
            read[n] = seen.given[self.blocks[n]]
            read[f"mlp {n}"] = read[n] if self.parallel else read[n] + seen.gave[layer.written]
        read["output"] = seen.given[self.last]
        return wrote, read, seen

    def readers(self):
        for n in range(len(self.layers)):
            yield from ((f"{n}.{h} {kind}", n) for kind in "qkv" for h in range(self.heads if kind == "q" else self.kv_heads))
            yield f"mlp {n}", n
        yield "output", len(self.layers)

    def writers_before(self, reader, n):
        yield "embedding"
        for layer in range(n if reader != "output" else len(self.layers)):
            yield from (f"{layer}.{h}" for h in range(self.heads))
            yield f"mlp {layer}"
        if reader.startswith("mlp") and not self.parallel:
            yield from (f"{n}.{h}" for h in range(self.heads))

    def read(self, reader, n, x):
        """What stands behind a reader's projection, or what its MLP reads, where it reads x [N,E]."""
        norm = self.layers[n].mlp_reads if reader.startswith("mlp") else self.layers[n].reads
        x = x if norm is None else norm(x[None])[0]
        if reader.startswith("mlp"):
            return x
        name, kind = reader.split()
        module, columns = self.layers[n].at(kind, int(name.split(".")[1]))
        return module(x[None])[0][:, columns]

    def gradients(self, **given):
        """{reader: d difference / d what it reads [N,E]} of one pass."""
        kept, reads, hooks = {}, {}, []

        def keep(key):
            def hook(module, inputs, output):
                kept[key] = output
                output.retain_grad()
            return hook

        def keep_input(key):
            def hook(module, inputs):
                kept[key] = inputs[0]
                inputs[0].retain_grad()
            return hook

        for n, layer in enumerate(self.layers):
            hooks += [module.register_forward_hook(keep(module)) for module in set(layer.projections)]
            if layer.mlp_reads is None:  # the stream itself goes past the MLP too: what flows through the MLP alone is wanted
                hooks.append(layer.mlp.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1.0, *inputs[1:])))
            hooks.append(layer.mlp.register_forward_pre_hook(keep_input(layer.mlp)))
            hooks.append(self.blocks[n].register_forward_pre_hook(lambda module, inputs, n=n: reads.update({n: inputs[0][0]})))
            hooks.append(layer.written.register_forward_hook(
                lambda module, inputs, output, n=n: reads.update({f"mlp {n}": reads[n] + (0 if self.parallel else output[0])})))
        hooks.append(self.last.register_forward_pre_hook(keep_input("output")))
        self.difference(**given).backward()
        for hook in hooks:
            hook.remove()
        found = {"output": kept["output"].grad[0]}
        for reader, n in self.readers():
            if reader == "output":
                continue
            x = (reads[reader] if reader.startswith("mlp") else reads[n]).detach().requires_grad_()
            if reader.startswith("mlp"):
                d = kept[self.layers[n].mlp].grad.flatten(0, -2)
            else:
                module, columns = self.layers[n].at(reader[-1], int(reader.split()[0].split(".")[1]))
                d = kept[module].grad[0][:, columns]
            found[reader] = torch.autograd.grad(self.read(reader, n, x), x, d)[0]
        return {reader: d.numpy() for reader, d in found.items()}

    def embeddings(self, ids):
        return self.model.get_input_embeddings()(torch.from_numpy(ids))[None].detach()

    def eap(self, clean, corrupt, method="eap", steps=3, at="corrupt"):
        wrote = [self.parts(ids)[0] for ids in (clean, corrupt)]
        begin, end = self.embeddings(corrupt), self.embeddings(clean)
        shares = [1.0 * (at == "clean")] if method == "eap" else [k / steps for k in range(1, steps + 1)]
        scores = {}
        for share in shares:
            gradients = self.gradients(inputs_embeds=(begin + share * (end - begin)).requires_grad_())
            for reader, n in self.readers():
                for writer in self.writers_before(reader, n):
                    value = ((wrote[0][writer] - wrote[1][writer]) * gradients[reader]).sum() / len(shares)
                    scores[writer, reader] = scores.get((writer, reader), 0.0) + value
        return scores

    @torch.no_grad()
    def circuit(self, clean, corrupt, edges):
        """The difference where readers see along these edges what writers write in this pass, else what the corrupt text has."""
        (wrote, read, seen), clean_wrote = self.parts(corrupt), self.parts(clean)[0]
        changes, hooks = {"embedding": torch.from_numpy(clean_wrote["embedding"] - wrote["embedding"])}, []

        def input_of(reader, n):
            x = torch.from_numpy(read["output" if reader == "output" else reader if reader.startswith("mlp") else n])
            own = [writer for writer, other in edges if other == reader]
            return sum((changes[writer] for writer in own), x), bool(own)

        for n, layer in enumerate(self.layers):
            def project(module, inputs, output, n=n, layer=layer):
                if self.reading:
                    return None
                output = torch.from_numpy(seen.gave[module])[None].clone()
                for reader, m in self.readers():
                    if m != n or reader == "output" or reader.startswith("mlp"):
                        continue
                    other, columns = layer.at(reader[-1], int(reader.split()[0].split(".")[1]))
                    x, any_of_them = input_of(reader, n)
                    if other is module and any_of_them:
                        self.reading = True
                        output[0][:, columns] = self.read(reader, n, x)
                        self.reading = False
                return output

            def attended(module, inputs, output, n=n, layer=layer):
                parts = layer.heads(inputs[0][0], output[0])
                before = layer.heads(torch.from_numpy(seen.given[module]), torch.from_numpy(seen.gave[module]))
                changes.update({f"{n}.{h}": now - then for h, (now, then) in enumerate(zip(parts, before))})

            def mlp_reads(module, inputs, n=n):
                x, _ = input_of(f"mlp {n}", n)
                return (self.read(f"mlp {n}", n, x).reshape(inputs[0].shape), *inputs[1:])

            def mlp_wrote(module, inputs, output, n=n):
                changes[f"mlp {n}"] = output.flatten(0, -2) - torch.from_numpy(seen.gave[module])
                return torch.from_numpy(seen.gave[module]).reshape(output.shape)

            hooks += [module.register_forward_hook(project) for module in set(layer.projections)]
            hooks.append(layer.out.register_forward_hook(attended))
            hooks.append(layer.written.register_forward_hook(
                lambda module, inputs, output: torch.from_numpy(seen.gave[module]).reshape(output.shape)))
            hooks.append(layer.mlp.register_forward_pre_hook(mlp_reads))
            hooks.append(layer.mlp_written.register_forward_hook(mlp_wrote))
        hooks.append(self.last.register_forward_pre_hook(lambda module, inputs: (input_of("output", None)[0][None],)))
        value = self.difference(corrupt).item()
        for hook in hooks:
            hook.remove()
        return value

    @torch.no_grad()
    def path_patched(self, clean, corrupt, senders, receivers):
        """The difference where receivers see what senders wrote in the clean text, and all else goes on."""
        (wrote, read, _), clean_wrote = self.parts(corrupt), self.parts(clean)[0]
        hooks = []

        def input_of(reader, n):
            before = [writer for writer in self.writers_before(reader, n) if writer in senders]
            x = read[reader if reader.startswith("mlp") else n]
            return torch.from_numpy(x + sum((clean_wrote[writer] - wrote[writer] for writer in before), np.zeros_like(x)))

        def project(reader, n, columns):
            def hook(module, inputs, output):
                if not self.reading:
                    self.reading = True
                    output[0][:, columns] = self.read(reader, n, input_of(reader, n))
                    self.reading = False
            return hook

        for reader, n in self.readers():
            if reader not in receivers:
                continue
            if reader == "output":
                change = torch.from_numpy(sum(clean_wrote[writer] - wrote[writer] for writer in senders))[None]
                hooks.append(self.last.register_forward_pre_hook(lambda module, inputs, change=change: (inputs[0] + change,)))
            elif reader.startswith("mlp"):
                hooks.append(self.layers[n].mlp.register_forward_pre_hook(
                    lambda module, inputs, reader=reader, n=n:
                    (self.read(reader, n, input_of(reader, n)).reshape(inputs[0].shape), *inputs[1:])))
            else:
                module, columns = self.layers[n].at(reader[-1], int(reader.split()[0].split(".")[1]))
                hooks.append(module.register_forward_hook(project(reader, n, columns)))
        value = self.difference(corrupt).item()
        for hook in hooks:
            hook.remove()
        return value


NAMES = [
    "llama", "qwen2", "qwen3", "olmo2", "gemma2 bias, caps", "mistral window", "gpt2", "gpt_neox", "gpt_neox in turn, no biases", "opt",
    "opt projected, gelu",
]


def texts(pair):
    clean, _ = pair.ids(LENGTH)
    corrupt = clean.copy()
    corrupt[2] = (corrupt[2] + 17) % 90 + 5
    corrupt[4] = (corrupt[4] + 3) % 90 + 5
    return clean, corrupt


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", [{}, {"at": "clean"}, {"method": "eap-ig", "steps": 3}])
def test_edges(both, name, how):
    pair = both(name)
    clean, corrupt = texts(pair)
    theirs = Theirs(pair.theirs)
    expected = theirs.eap(clean, corrupt, **how)
    found = pair.ours.edges(clean, corrupt, TOKEN, AGAINST, **how)
    assert found.clean == pytest.approx(theirs.difference(clean).item(), rel=1e-4, abs=1e-5)
    assert found.corrupt == pytest.approx(theirs.difference(corrupt).item(), rel=1e-4, abs=1e-5)
    ours = {(writer, reader): found.scores[s, r] for s, writer in enumerate(found.sources) for r, reader in enumerate(found.receivers)}
    largest = max(map(abs, expected.values()))
    assert largest > 1e-4
    for edge, score in ours.items():
        assert score == pytest.approx(expected.get(edge, 0.0), rel=0, abs=1e-4 * largest), edge
    assert f"<td>{found.top(1)[0][2]:+.3f}</td>" in found._repr_html_() and found._repr_html_().count("<tr>") == 13
    assert set(expected) <= set(ours) and {edge for edge, score in ours.items() if score} <= set(expected)


@pytest.mark.parametrize("name", NAMES)
def test_faithfulness(both, name):
    """Of edges drawn at random, of all and of none."""
    pair = both(name)
    clean, corrupt = texts(pair)
    theirs = Theirs(pair.theirs)
    edges = pair.ours.edges(clean, corrupt, TOKEN, AGAINST)
    every = [(writer, reader) for reader, n in theirs.readers() for writer in theirs.writers_before(reader, n)]
    assert pair.ours.circuit(edges, keep=10**6).faithfulness == pytest.approx(1, abs=1e-4)
    assert pair.ours.circuit(edges, only=[]).faithfulness == pytest.approx(0, abs=1e-4)
    draw, whole = np.random.default_rng(3), abs(edges.clean - edges.corrupt)
    for share in (0.2, 0.5, 0.8):
        own = [edge for edge in every if draw.random() < share]
        found = pair.ours.circuit(edges, only=own)
        expected = theirs.circuit(clean, corrupt, own)
        assert found.value == pytest.approx(expected, abs=2e-4 * whole + 1e-5)
        assert found.faithfulness == pytest.approx((expected - edges.corrupt) / (edges.clean - edges.corrupt), abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_path_patching(both, name):
    """Of single edges, and of sets of senders and receivers; and how it goes with what edges() estimates."""
    pair = both(name)
    clean, corrupt = texts(pair)
    theirs = Theirs(pair.theirs)
    edges = pair.ours.edges(clean, corrupt, TOKEN, AGAINST)
    draw, whole = np.random.default_rng(5), edges.clean - edges.corrupt
    every = [(writer, reader) for reader, n in theirs.readers() for writer in theirs.writers_before(reader, n)]
    single = [every[n] for n in draw.choice(len(every), 5, replace=False)]
    for senders, receivers in [*(([writer], [reader]) for writer, reader in single),
                               (["embedding", "0.1", "mlp 0"], ["1.0 q", "1.1 k", "2.0 v", "mlp 1", "mlp 2", "output"])]:
        found = pair.ours.path_patch(clean, corrupt, TOKEN, AGAINST, senders=senders, receivers=receivers)
        expected = theirs.path_patched(clean, corrupt, senders, receivers)
        assert found.value == pytest.approx(expected, abs=1e-4 * abs(whole) + 1e-5)
        assert found.recovered == pytest.approx((expected - edges.corrupt) / whole, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_trace(both, name):
    """Each part is that of explain_score() and explain_value(), and `without` a pass of theirs in which a row of it is 0."""
    pair = both(name)
    clean, _ = texts(pair)
    theirs = Theirs(pair.theirs)
    found = pair.ours.trace(clean, TOKEN, AGAINST, heads=3, parts=4)
    assert found.logit == pytest.approx(theirs.difference(clean).item(), abs=1e-4)

    def without(part, row):
        layer, _, head = part.removeprefix("mlp ").partition(".")
        of = theirs.layers[int(layer)]

        def zero(x, columns=slice(None)):
            x = x.clone()
            x.view(-1, x.shape[-1])[row, columns] = 0
            return x

        if head:
            D = of.size
            hook = of.out.register_forward_pre_hook(lambda module, given: (zero(given[0], slice(int(head) * D, (int(head) + 1) * D)),))
        else:
            hook = of.mlp_written.register_forward_hook(lambda module, given, gave: zero(gave))
        with torch.no_grad():
            value = theirs.difference(clean).item()
        hook.remove()
        return value

    wrote = pair.ours.attribute(clean, TOKEN, AGAINST).heads
    strongest = sorted((-abs(wrote[place]), place) for place in np.ndindex(wrote.shape))
    for head, (_, (layer, number, key)) in zip(found.heads, strongest):
        score = pair.ours.explain_score(clean, head.head, -1, key)
        value = pair.ours.explain_value(clean, head.head, key, token=TOKEN, against=AGAINST)
        assert (head.head, head.key) == (f"{layer}.{number}", key)
        assert head.wrote == pytest.approx(wrote[layer, number, key], rel=1e-5, abs=1e-6)
        assert (head.score, head.value) == pytest.approx((score.score, value.value), rel=1e-5, abs=1e-6)
        sides = {"query": dict(score.top("query", 10**6)), "key": dict(score.top("key", 10**6)), "read": dict(value.top(10**6))}
        measured = [(head.head, len(clean) - 1, head.without)]
        for parts, side, row in ((head.query_parts, "query", len(clean) - 1), (head.key_parts, "key", key), (head.read_parts, "read", key)):
            size = sum(map(abs, sides[side].values()))
            for part in parts:
                assert part.value == pytest.approx(sides[side][part.part], rel=1e-5, abs=1e-6)
                assert part.share == pytest.approx(abs(part.value) / size, rel=1e-4)
                measured.append((part.part, row, part.without))
        for part, row, got in measured:
            assert got is None if part in ("embedding", "bias") else got == pytest.approx(without(part, row), abs=1e-4), (part, row)
    shown = found._repr_html_()
    parts = sum(len(side) for head in found.heads for side in (head.query_parts, head.key_parts, head.read_parts))
    assert shown.count("<tr>") == 1 + len(found.heads) + parts and f"<td>{found.heads[0].key_parts[0].value:+.3f}</td>" in shown
    bare = pair.ours.trace(clean, TOKEN, AGAINST, heads=3, parts=4, measured=False)
    assert [head.score for head in bare.heads] == [head.score for head in found.heads]
    assert all(x.without is None for head in bare.heads for x in (head, *head.query_parts, *head.key_parts, *head.read_parts))


def test_estimates_go_with_path_patching(both):
    """Up to 200 edges drawn at random, one token of the text another one: 0.948 here."""
    pair = both("llama")
    clean, _ = pair.ids(LENGTH)
    corrupt = clean.copy()
    corrupt[3] = corrupt[3] % 90 + 7
    edges = pair.ours.edges(clean, corrupt, TOKEN, AGAINST)
    every = np.argwhere(edges.scores)
    places = np.random.default_rng(7).permutation(every)[:200]
    found = [pair.ours.path_patch(clean, corrupt, TOKEN, AGAINST, senders=[edges.sources[s]], receivers=[edges.receivers[r]]).value
             - edges.corrupt for s, r in places]
    assert np.corrcoef(found, [edges.scores[s, r] for s, r in places])[0, 1] > 0.9


def test_greedy(both):
    """A circuit's edges lead to the output, each the strongest that was open; what nothing reaches is dropped."""
    pair = both("llama")
    clean, corrupt = texts(pair)
    edges = pair.ours.edges(clean, corrupt, TOKEN, AGAINST)
    scores = {(s, r): edges.scores[n, m] for n, s in enumerate(edges.sources) for m, r in enumerate(edges.receivers)}
    groups = pair.ours.info.heads // pair.ours.info.kv_heads

    def reads(writer):
        if "." not in writer:
            return {writer}
        layer, head = writer.split(".")
        return {f"{writer} q", f"{layer}.{int(head) // groups} k", f"{layer}.{int(head) // groups} v"}

    inside, taken = {"output"}, []
    while len(taken) < 40:
        open_ones = [edge for edge in scores if edge[1] in inside and edge not in taken and scores[edge]]
        taken.append(max(open_ones, key=lambda edge: abs(scores[edge])))
        inside |= reads(taken[-1][0])
    kept = list(taken)
    while True:
        reached = {"embedding"} | {s for s, _ in kept if reads(s) & {r for _, r in kept}}
        if all(s in reached for s, _ in kept):
            break
        kept = [edge for edge in kept if edge[0] in reached]
    found = pair.ours.circuit(edges, keep=40)
    assert sorted((s, r) for s, r, _ in found.edges) == sorted(kept) and 0 < len(kept)
    assert [abs(score) for _, _, score in found.edges] == sorted((abs(score) for _, _, score in found.edges), reverse=True)
    assert all(score == pytest.approx(scores[s, r]) for s, r, score in found.edges)
    least = pair.ours.circuit(edges, faithfulness=0.8)
    assert least.faithfulness >= 0.8 and least.tried[-1][1] <= 1.5
    fewest = min(n for n, share in least.tried if share >= 0.8)
    assert fewest == 1 or dict(least.tried)[fewest - 1] < 0.8
    assert pair.ours.circuit(edges, only=found.edges).faithfulness == found.faithfulness
    assert pair.ours.circuit(edges).edges[:5] == pair.ours.circuit(edges, keep=200).edges[:5]


def test_several_pairs(both):
    pair = both("gpt2")
    pairs = [texts(pair), (pair.ids(5)[0], pair.ids(5)[0][::-1].copy())]
    alone = [pair.ours.edges(clean, corrupt, TOKEN, AGAINST) for clean, corrupt in pairs]
    found = pair.ours.edges(*map(list, zip(*pairs)), TOKEN, AGAINST)
    np.testing.assert_allclose(found.scores, np.mean([each.scores for each in alone], 0), atol=1e-6)
    assert found.clean == pytest.approx(np.mean([each.clean for each in alone]))
    circuits = [pair.ours.circuit(each, only=found.top(30)) for each in alone]
    both_ = pair.ours.circuit(found, only=found.top(30))
    assert both_.value == pytest.approx(np.mean([each.value for each in circuits]))
    assert both_.faithfulness == pytest.approx((both_.value - found.corrupt) / (found.clean - found.corrupt))


@pytest.mark.parametrize("name, words", [("bert", "expected a decoder"), ("opt as 350m", "post-norm")])
def test_models_that_are_refused(both, name, words):
    with pytest.raises(ValueError, match=words):
        both(name).ours.edges([5, 6, 7], [5, 8, 7], TOKEN, AGAINST)


def test_what_is_refused(both):
    ours = both("llama").ours
    edges = ours.edges([5, 6, 7], [5, 8, 7], TOKEN, AGAINST)
    for asked, words in (({"method": "acdc"}, "'eap' or 'eap-ig'"), ({"at": "middle"}, "'corrupt' or 'clean'"),
                         ({"steps": 0}, "steps is 0"),
                         ({"position": 3}, "position is 3")):
        with pytest.raises(ValueError, match=words):
            ours.edges([5, 6, 7], [5, 8, 7], TOKEN, AGAINST, **asked)
    with pytest.raises(ValueError, match="3 tokens and the corrupt one 2"):
        ours.edges([5, 6, 7], [5, 8], TOKEN, AGAINST)
    with pytest.raises(ValueError, match="token and against are both 11"):
        ours.edges([5, 6, 7], [5, 8, 7], TOKEN, TOKEN)
    for asked, words in (({"keep": -1}, "keep is -1"), ({"keep": 3, "faithfulness": 0.5}, "one of keep, faithfulness and edges"),
                         ({"faithfulness": 1.5}, "at most 1"), ({"only": [("2.0", "1.0 q")]}, "no edge from"),
                         ({"only": [("9.0", "output")]}, "not one of the edges'"),
                         ({"only": ["output"]}, r"expected \(source, receiver\)")):
        with pytest.raises(ValueError, match=words):
            ours.circuit(edges, **asked)
    with pytest.raises(ValueError, match="another model"):
        both("gpt2").ours.circuit(edges)
    with pytest.raises(TypeError, match="expected an attend.Edges"):
        ours.circuit([1, 2])
    with pytest.raises(ValueError, match="no sender stands before"):
        ours.path_patch([5, 6, 7], [5, 8, 7], TOKEN, AGAINST, senders=["2.0"], receivers=["1.0 q"])
    with pytest.raises(ValueError, match="'x' names no node|x"):
        ours.path_patch([5, 6, 7], [5, 8, 7], TOKEN, AGAINST, senders=["x"], receivers=["output"])
    with pytest.raises(ValueError, match="'1.0 q' is not a writer"):
        ours.path_patch([5, 6, 7], [5, 8, 7], TOKEN, AGAINST, senders=["1.0 q"], receivers=["output"])
