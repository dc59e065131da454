"""Model.saliency() beside sums of torch.autograd's gradients along the path, and what it says that it misses."""

import numpy as np
import pytest
import torch
from tiny_models import BOTH, Both, opener

import attend

LENGTH = 6


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def along_path(embedded, base, number, points=2000, together=250):
    """Of each token (e - b) . the mean of df/de at the middles of so many steps; f at both ends. number([B,N,E]) gives [B]."""
    sums = torch.zeros(len(embedded), dtype=torch.float64)
    for alphas in torch.split((torch.arange(points) + 0.5) / points, together):
        x = (base + alphas[:, None, None] * (embedded - base)).requires_grad_()
        (d,) = torch.autograd.grad(number(x).sum(), x)
        sums += ((embedded - base) * d).double().sum((0, 2)) / points
    with torch.no_grad():
        below, above = number(torch.stack([base.expand_as(embedded), embedded])).tolist()
        return sums.numpy(), below, above


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "gpt_neox", "olmo2"])
def test_integrated_gradients_of_a_logit(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    table = pair.theirs.get_input_embeddings().weight.detach()
    embedded, mean = table[torch.from_numpy(ids)], table.mean(0, keepdim=True)
    theirs = pair.theirs

    def number(x):
        logits = theirs(inputs_embeds=x).logits
        return logits[:, 3, 7] - logits[:, 3, 9]

    for baseline in (None, np.linspace(-0.1, 0.1, 32)):
        base = mean if baseline is None else torch.from_numpy(np.float32(baseline))[None]
        expected, below, above = along_path(embedded, base, number)
        assert abs(expected.sum() - (above - below)) <= 2e-3 * abs(expected).sum()  # theirs misses little too
        found = pair.ours.saliency(ids, token=7, against=9, position=3, baseline=baseline)
        assert abs(found.value - above) < 1e-5 and abs(found.baseline_value - below) < 1e-5 and found.encoder is None
        assert abs(found.tokens.sum(dtype=np.float64) + found.missing - (found.value - found.baseline_value)) < 1e-6
        assert found.steps <= 512 and abs(found.missing) <= 0.005 * abs(above - below)
        np.testing.assert_allclose(found.tokens, expected, rtol=0, atol=1e-2 * abs(expected).max())
        assert np.all(found.tokens[4:] == 0)  # what comes after the row


def test_from_zeros_few_points_miss_much_and_say_so(both):
    """RMSNorm divides by next to nothing there."""
    found = both("llama").ours.saliency([6, 7, 8], token=7, baseline=np.zeros(32), steps=9)
    size = np.abs(found.tokens).sum(dtype=np.float64)
    assert found.steps == 9 and size > 1000 * abs(found.value) and abs(found.tokens.sum(dtype=np.float64) + found.missing) < 1e-6 * size


def test_gradient_times_input(both):
    for name in ("llama", "gemma3"):
        pair = both(name)
        ids, _ = pair.ids(LENGTH)
        found = pair.ours.saliency(ids, token=7, method="input")
        d = pair.ours.gradient(ids, token=7)["embeddings"]
        expected = (d.astype(np.float64) * pair.ours.weights()["embeddings"][ids]).sum(1)
        np.testing.assert_allclose(found.tokens, expected, rtol=0, atol=1e-6 * abs(expected).max())
        assert (found.steps, found.missing) == (1, 0) and found.value == pair.ours.gradient(ids, token=7).value


def test_of_the_cosine_of_two_sentences(both):
    pair = both("bert")
    ids, types = pair.ids(LENGTH)
    vector = np.random.default_rng(7).normal(size=32).astype(np.float32)
    table = pair.theirs.get_input_embeddings().weight.detach()

    def number(x):
        own = torch.from_numpy(types)[None].expand(len(x), -1)
        mean = pair.theirs(inputs_embeds=x, token_type_ids=own).last_hidden_state.mean(1)
        return torch.nn.functional.cosine_similarity(mean, torch.from_numpy(vector)[None])

    expected, _, above = along_path(table[torch.from_numpy(ids)], table.mean(0, keepdim=True), number)
    found = pair.ours.saliency(ids, of=vector, types=types)
    assert abs(found.value - above) < 1e-5
    np.testing.assert_allclose(found.tokens, expected, rtol=0, atol=1e-2 * abs(expected).max())


@pytest.mark.parametrize("name", ["bart", "t5 gated"])
def test_both_texts_of_an_encoder_decoder(tmp_path, name):
    pair = Both(tmp_path, BOTH[name])
    ids, decoder = np.random.default_rng(0).integers(6, 80, 5), np.array([0, 12, 30])
    table = pair.theirs.get_input_embeddings().weight.detach()
    text, mean = table[torch.from_numpy(np.concatenate([ids, decoder]))], table.mean(0, keepdim=True)
    scale = getattr(pair.theirs.get_input_embeddings(), "embed_scale", 1.0)

    def number(x):
        return pair.theirs(inputs_embeds=x[:, :5] * scale, decoder_inputs_embeds=x[:, 5:] * scale).logits[:, -1, 23]

    expected, below, above = along_path(text, mean, number)
    found = pair.ours.saliency(ids, token=23, decoder_ids=decoder)
    assert abs(found.value - above) < 1e-5 * max(1, abs(above)) and abs(found.baseline_value - below) < 1e-5 * max(1, abs(below))
    largest = abs(expected).max()
    np.testing.assert_allclose(found.encoder, expected[:5], rtol=0, atol=1e-2 * largest)
    np.testing.assert_allclose(found.tokens, expected[5:], rtol=0, atol=1e-2 * largest)


def test_points_in_one_pass_or_each_alone(both, monkeypatch):
    """A long text's points go alone, a short one's together: the same path."""
    pair = both("llama")
    long = np.random.default_rng(1).integers(6, 99, 120)
    found = pair.ours.saliency(long, token=7, position=2, steps=65)
    short = pair.ours.saliency(long[:3], token=7, steps=65)
    np.testing.assert_allclose(found.tokens[:3], short.tokens, rtol=0, atol=1e-5 * abs(short.tokens).max())
    assert found.steps == short.steps and np.all(found.tokens[3:] == 0)


def test_progress_and_what_is_refused(both):
    pair, told = both("llama"), []
    assert pair.ours.saliency([6, 7, 8], token=7, steps=20, progress=told.append).steps <= 20
    assert told == sorted(told) and told and 0 < told[0] <= told[-1] <= 1
    for asked, words in (({"steps": 2}, "steps is 2, expected at least 3"), ({"method": "smooth"}, "expected 'integrated' or 'input'"),
                         ({"of": np.zeros((3, 32))}, "expected a logit, log-probabilities or a cosine"),
                         ({"baseline": np.zeros(31)}, r"baseline has shape \[31\], expected \[32\]"), ({"token": 99}, "token is 99")):
        with pytest.raises(ValueError, match=words):
            pair.ours.saliency([6, 7, 8], **asked)

    def stop(share):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        pair.ours.saliency([6, 7, 8], progress=stop)
    with pytest.raises(ValueError, match="an encoder of type bert"):
        both("bert").ours.saliency([6, 7, 8])


def test_how_it_looks(both):
    found = both("llama").ours.saliency([6, 7, 8], token=7, against=9)
    assert isinstance(found, attend.Saliency) and "points of the path miss" in found.picture().to_svg()
    assert found.to_csv().splitlines()[0] == "text,position,token,value" and len(found.to_csv().splitlines()) == 4
    assert '"missing":' in found.to_json()


def test_from_a_token(both):
    """The baseline is that token's embedding."""
    pair = both("llama")
    table = pair.ours.weights()["embeddings"]
    found = pair.ours.saliency([6, 7, 8], token=7, baseline=20)
    assert np.array_equal(found.tokens, pair.ours.saliency([6, 7, 8], token=7, baseline=table[20]).tokens)
    assert abs(found.baseline_value - pair.ours.gradient([20, 20, 20], token=7).value) < 1e-6
    for baseline, words in ((999, "baseline_token"), (-1, "baseline_token")):
        with pytest.raises(ValueError, match=words):
            pair.ours.saliency([6, 7, 8], token=7, baseline=baseline)
