"""Model.patch() of q, k and v beside passes of Transformers that are given them, and patch(estimate=True) beside torch.autograd."""

import json

import numpy as np
import pytest
import torch
from attending import attended, attends
from tiny_models import BOTH, Both, opener

LENGTH = 9
WHAT = ("heads", "q", "k", "v")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


class Seen:
    """What a model's attentions were given and gave, one call after another: q, k, v and z [1,H,T,D]."""

    def __init__(self, model):
        self.calls, self.model, self.change = [], model, None
        attends(model, "seen", self.attend)

    def attend(self, module, query, key, value, mask, scaling):
        n = len(self.calls)
        given = {"q": query, "k": key, "v": value}
        if self.change is not None and self.change[0] == n and self.change[1] != "heads":
            given = self.change[2](given)
        z, weights = attended(given["q"], given["k"], given["v"], mask, scaling)
        if self.change is not None and self.change[0] == n and self.change[1] == "heads":
            z = self.change[2]({"heads": z})["heads"]
        if z.requires_grad:
            z.retain_grad()
        self.calls.append({**given, "heads": z, "mask": mask, "scaling": scaling})
        return z, weights

    def run(self, number, change=None):
        self.calls, self.change = [], change
        value = number()
        return value, self.calls


def with_clean(what, clean, head, first):
    """A change that takes rows of one head from the clean call."""
    def change(given):
        taken = given[what].clone()
        taken[:, head, first:] = clean[what][:, head, first:]
        return {**given, what: taken}
    return change


def compare(ours, theirs, number_of, texts, which, first=0, **options):
    """All of patch() and of its estimate, of the calls that `which` numbers."""
    seen = Seen(theirs)
    with torch.no_grad():
        good, clean = seen.run(lambda: number_of(texts[0]))
        bad, _ = seen.run(lambda: number_of(texts[1]))
    value, corrupt = seen.run(lambda: number_of(texts[1]))
    value.backward()
    for what in (options.pop("what", None) or WHAT):
        found = ours.patch(*texts, 7, 9, what=what, first_row=first or None, **options)
        guess = ours.patch(*texts, 7, 9, what=what, first_row=first or None, estimate=True, **options)
        shape = (len(which), clean[which[0]][what].shape[1])
        assert found.recovered.shape == guess.recovered.shape == shape
        assert abs(guess.clean - good.item()) < 1e-5 and abs(guess.corrupt - bad.item()) < 1e-5
        estimates = np.empty(shape)
        for layer, n in enumerate(which):
            call = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in corrupt[n].items()}
            for head in range(shape[1]):
                change = with_clean(what, clean[n], head, first)
                with torch.no_grad():
                    after, _ = seen.run(lambda change=change, n=n, what=what: number_of(texts[1]), (n, what, change))
                share = (after.item() - bad.item()) / (good.item() - bad.item())
                assert found.recovered[layer, head] == pytest.approx(share, rel=1e-3, abs=2e-4), (what, layer, head)
                given = change(call)
                z = given["heads"] if what == "heads" else attended(given["q"], given["k"], given["v"], call["mask"], call["scaling"])[0]
                d = (corrupt[n]["heads"].grad.double() * (z - call["heads"]).double()).sum().item()
                estimates[layer, head] = d / (good.item() - bad.item())
        np.testing.assert_allclose(guess.recovered, estimates, rtol=0, atol=1e-4 * abs(estimates).max(), err_msg=what)


def texts_of(pair):
    clean, _ = pair.ids(LENGTH)
    return clean, np.where(np.arange(LENGTH) % 3 == 1, (clean + 5) % 99, clean)


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "mistral window", "gpt_neox"])
@pytest.mark.parametrize("first", [0, 4])
def test_heads_queries_keys_and_values(both, name, first):
    pair = both(name)

    def number(ids):
        logits = pair.theirs(torch.from_numpy(ids)[None]).logits[0, -1].double()
        return logits[7] - logits[9]

    compare(pair.ours, pair.theirs, number, texts_of(pair), range(pair.ours.info.layers), first)


def test_of_encoder_decoders(tmp_path_factory):
    pair = Both(tmp_path_factory.mktemp("model"), BOTH["bart"])
    random, info = np.random.default_rng(0), pair.ours.info
    clean = random.integers(6, 80, LENGTH)
    texts = clean, np.where(np.arange(LENGTH) % 3 == 1, (clean + 5) % 80, clean)
    decoder = np.concatenate([[0], random.integers(6, 80, 4)])

    def number(ids):
        logits = pair.theirs(input_ids=torch.from_numpy(ids)[None], decoder_input_ids=torch.from_numpy(decoder)[None]).logits
        return logits[0, -1, 7].double() - logits[0, -1, 9].double()

    E, L = info.encoder_layers, info.layers
    own = {"encoder": (range(E), WHAT), "self": (range(E, E + 2 * L, 2), WHAT), "cross": (range(E + 1, E + 2 * L, 2), ("heads", "q"))}
    for attention, (which, what) in own.items():
        compare(pair.ours, pair.theirs, number, texts, which, what=what, attention=attention, decoder_ids=decoder)
    for what in "kv":
        with pytest.raises(ValueError, match="keys and values of a cross-attention come from the encoder's text"):
            pair.ours.patch(*texts, 7, 9, what, attention="cross", decoder_ids=decoder)


@pytest.mark.parametrize("spans", [None, {"a": (0, 2), "b": (3, 9)}])
def test_the_stream(both, spans):
    """(clean - corrupt) times the gradient at the corrupt pass, at each token or span."""
    for name in ("llama", "olmo2"):
        pair = both(name)
        texts = texts_of(pair)
        streams = []
        for ids in texts:
            x = pair.theirs(torch.from_numpy(ids)[None], output_hidden_states=True)
            for each in x.hidden_states:
                each.retain_grad()
            streams.append((x.logits[0, -1, 7] - x.logits[0, -1, 9], x.hidden_states))
        (good, clean), (bad, corrupt) = streams
        bad.backward()
        found = pair.ours.patch(*texts, 7, 9, "residual", spans=spans, estimate=True)
        by_token = np.stack([((c - x)[0].double() * x.grad[0].double()).sum(1).detach().numpy() for c, x in zip(clean, corrupt)])
        expected = by_token if spans is None else np.stack([by_token[:, b:e].sum(1) for b, e in spans.values()], 1)
        expected = expected / (good.item() - bad.item())
        # Transformers' last hidden state is behind the last norm.
        assert found.recovered.shape == expected.shape
        np.testing.assert_allclose(found.recovered[:-1], expected[:-1], rtol=0, atol=1e-4 * abs(expected).max())


def test_several_pairs_and_what_is_said(both):
    pair = both("llama")
    clean, corrupt = texts_of(pair)
    found = pair.ours.patch([clean, clean[:5]], [corrupt, corrupt[:5]], 7, 9, "q", estimate=True)
    for one, texts in zip(found, ((clean, corrupt), (clean[:5], corrupt[:5]))):
        assert np.array_equal(one.recovered, pair.ours.patch(*texts, 7, 9, "q", estimate=True).recovered)
    assert {"what": "q", "estimate": True}.items() <= json.loads(found[0].to_json()).items()
    assert "q 1.2" in found[0].to_csv() and "estimated" in found[0].picture().to_svg()
    with pytest.raises(ValueError, match="expected 'heads', 'residual', 'q', 'k' or 'v'"):
        pair.ours.patch(clean, corrupt, 7, 9, "mlp")
    with pytest.raises(ValueError, match="there is nothing to bring back"):
        pair.ours.patch(clean, clean, 7, 9, estimate=True)
