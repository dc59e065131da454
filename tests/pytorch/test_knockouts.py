"""Knockouts beside Transformers with a 4-D mask, and beside attention() with that mask, to the bit."""

import numpy as np
import pytest
import torch
from tiny_models import CASES, DECODERS, TOLERANCE, far, opener

import attend

LENGTH = 13


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def theirs(pair, ids, hidden_keys, rows, layers=None):
    """Their hidden states, where these rows see none of these keys: an attention mask of 4 axes, in the layers given."""
    visible = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    visible = visible.tril() if pair.ours.info.decoder else visible
    mask = torch.where(visible, 0.0, torch.finfo(torch.float32).min)
    for row in rows:
        mask[row, hidden_keys] = torch.finfo(torch.float32).min
    with torch.inference_mode():
        return pair.theirs.base_model(input_ids=torch.from_numpy(ids)[None], attention_mask=mask[None, None]).last_hidden_state[0]


# Those whose attention is of all tokens: a window is in no mask of 4 axes, of which OPT makes positions.
PLAIN = ["bert", "distilbert", "roberta", "mpnet", "gpt2", "llama", "qwen2", "qwen3", "gpt_neox", "olmo2"]


@pytest.mark.parametrize("name", [name for name in PLAIN if name in CASES])
def test_a_knockout_is_a_mask(both, name):
    pair = both(name)
    ids, _ = pair.ids(LENGTH)
    for rows, keys in (([12], [1, 2]), ([3, 4, 5, 9], [0, 2]), (range(LENGTH), [3])):
        expected = theirs(pair, ids, list(keys), list(rows))
        given = None if len(rows) == LENGTH else list(rows)
        if given is None and name in DECODERS:
            rows, given = range(4, LENGTH), list(range(4, LENGTH))  # row 3 sees others; Transformers' rows that see none are no zeros
            expected = theirs(pair, ids, list(keys), list(rows))
        got = pair.ours.forward(ids, edits=[attend.Knockout(keys, rows=given)])
        assert far(got, expected) <= TOLERANCE, (rows, keys)
        one = [attend.Knockout(keys, given, layer=layer, head=head)
               for layer in range(pair.ours.info.layers) for head in range(pair.ours.info.heads)]
        assert np.array_equal(pair.ours.forward(ids, edits=one), got)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral window", "gemma2 bias, caps", "mpnet", "modernbert"])
def test_the_bits_of_attention_with_that_mask(both, name):
    """z of a layer is attention(q, k, v) with the mask; rows and heads that are not named keep their bits."""
    pair = both(name)
    info = pair.ours.info
    ids, _ = pair.ids(LENGTH)
    _, plain = pair.ours.forward(ids, keep=["z"])
    for head, rows, keys in ((1, [2, 9], [0, 1]), (None, [LENGTH - 1], [4])):
        edit = attend.Knockout(keys, rows, layer=1, head=head)
        _, kept = pair.ours.forward(ids, keep=["z", "rotated_q", "rotated_k", "v"], edits=[edit])
        z, heads = kept["z"][1].reshape(LENGTH, info.heads, -1), range(info.heads) if head is None else [head]
        before = plain["z"][1].reshape(LENGTH, info.heads, -1)
        others = [h for h in range(info.heads) if h not in heads]
        assert np.array_equal(z[:, others], before[:, others])
        untouched = [row for row in range(LENGTH) if row not in rows]
        assert np.array_equal(z[untouched], before[untouched])
        if name in ("llama", "gpt2"):  # the others' windows hide these keys from some rows anyway
            assert not np.array_equal(z[rows][:, heads], before[rows][:, heads])
            q, k, v = (kept[at][1].reshape(1, LENGTH, -1, info.head_size).swapaxes(1, 2) for at in ("rotated_q", "rotated_k", "v"))
            mask = np.ones((1, info.heads, LENGTH, LENGTH), bool)
            for row in rows:
                mask[0, heads, row, :] &= ~np.isin(np.arange(LENGTH), keys)
            expected = attend.attention(q, k, v, causal=True, mask=mask)[0].swapaxes(0, 1)
            assert np.array_equal(z, expected)


def test_over_a_cache_and_in_a_generation(both):
    for name in ("llama", "gpt2"):
        pair = both(name)
        ids, _ = pair.ids(LENGTH)
        edits = [attend.Knockout([1, 2], layer=0), attend.Knockout([0], rows=range(6, LENGTH), head=1)]
        whole = pair.ours.forward(ids, edits=edits)
        cache, parts = pair.ours.cache(), []
        for begin, end in ((0, 7), (7, 8), (8, LENGTH)):
            later = [attend.Knockout([1, 2], layer=0), attend.Knockout([0], rows=list(range(6, end)), head=1)]
            parts.append(pair.ours.forward(ids[begin:end], caches=[cache], edits=later))
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=2e-5 * np.abs(whole).max())

        made, text = pair.ours.generate(ids, max_new_tokens=6, end=[], edits=[attend.Knockout([2, 3])]), list(ids)
        for each in made:
            hidden = pair.ours.forward(text, edits=[attend.Knockout([2, 3])])
            assert each == pair.ours.logits(hidden[-1:]).argmax()
            text.append(int(each))


def test_several_sequences_are_each_alone(both):
    pair = both("bert")
    ids, _ = pair.ids(LENGTH)
    edits = [attend.Knockout([0, -1], rows=[1, 2])]
    together = pair.ours.forward(ids, starts=[0, 5, LENGTH], edits=edits)
    assert np.array_equal(together, np.concatenate([pair.ours.forward(part, edits=edits) for part in (ids[:5], ids[5:])]))


@pytest.mark.parametrize("edit, words", [
    (attend.Knockout([5]), "a knockout of key 5, expected 0 to 4"),
    (attend.Knockout([0], rows=[-6]), "a knockout of row -6, expected 0 to 4"),
    (attend.Knockout([0], layer=3), "a knockout in layer 3, expected 0 to 2"),
    (attend.Knockout([0], head=4), "a knockout of head 4, expected 0 to 3"),
    (attend.Knockout([0], attention="cross"), "a knockout of cross-attention needs an encoder-decoder; the model is of type llama"),
])
def test_what_is_refused(both, edit, words):
    with pytest.raises(ValueError, match=words):
        both("llama").ours.forward([1, 2, 3, 4, 5], edits=[edit])
    with pytest.raises(ValueError, match="knockouts can't be recorded"):
        both("llama").ours.record([1, 2, 3], edits=[attend.Knockout([0])])
