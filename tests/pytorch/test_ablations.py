"""Mean and resample ablation, and heads taken out from a row on, beside hooks on Transformers' modules."""

import numpy as np
import pytest
import torch
from test_analysis import LENGTH, Places
from tiny_models import opener

NAMES = ["llama", "gpt2", "gpt_neox", "mistral window", "gemma2 bias, caps", "opt"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


def answers(pair, ids, layer=None, change=None):
    """Their log-probabilities of what follows the last token."""
    def run():
        with torch.inference_mode():
            return pair.theirs(input_ids=torch.from_numpy(ids)[None]).logits[0, -1].double().log_softmax(-1).numpy()
    if layer is None:
        return run()
    with Places(pair.theirs).changed(layer, "z", change):
        return run()


def set_head(head, size, rows, to):
    def change(z):
        z[rows, head * size:(head + 1) * size] = torch.as_tensor(to, dtype=z.dtype)
        return z
    return change


@pytest.mark.parametrize("name", NAMES)
def test_means_are_over_all_tokens_of_all_texts(both, name):
    model = both(name).ours
    texts = [both(name).ids(length)[0] for length in (5, 9, 2)]
    kept = [model.forward(ids, keep=["z", ("residual", 2), "embeddings"])[1] for ids in texts]
    assert sum(array.nbytes for array in kept[1].values()) == model.kept_bytes(["z", ("residual", 2), "embeddings"], 9)
    means, at = model.means(texts, ["z", ("residual", 2), "embeddings"]), model.means(texts, ["z", ("residual", 2)], by_position=True)
    for key in kept[0]:
        whole = np.concatenate([each[key].astype(np.float64) for each in kept], axis=-2).mean(-2)
        np.testing.assert_allclose(means[key], whole, rtol=0, atol=1e-6 * np.abs(whole).max())
    assert at["z"].shape == (3, 9, means["z"].shape[-1]) and at["residual", 2].shape == (9, 32)
    for t in range(9):
        some = np.mean([each["z"][:, t].astype(np.float64) for each in kept if each["z"].shape[1] > t], axis=0)
        np.testing.assert_allclose(at["z"][:, t], some, rtol=0, atol=1e-6 * np.abs(some).max())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by_row", [False, True])
def test_given_numbers_are_what_hooks_set(both, name, by_row):
    pair = both(name)
    ids, other = pair.ids(LENGTH)[0], pair.ids(LENGTH + 1)[0][:LENGTH]
    size = pair.ours.info.head_size
    values = pair.ours.forward(other, keep=["z"])[1]["z"] if by_row else pair.ours.means([other, ids[:4]], ["z"])["z"]
    found = pair.ours.ablate(ids, token=7, set=values)
    before = answers(pair, ids)
    for layer in range(3):
        for head in (0, 3):
            to = values[layer][..., head * size:(head + 1) * size]
            after = answers(pair, ids, layer, set_head(head, size, slice(None), to))
            assert abs(found.log_probability[layer, head] - (after[7] - before[7])) < 5e-5
            assert abs(found.kl[layer, head] - (np.exp(before) * (before - after)).sum()) < 5e-5
    together = pair.ours.ablate(ids, token=7, set=values, heads=[(1, 2)])
    assert abs(together.log_probability - found.log_probability[1, 2]) < 1e-5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", [-1, LENGTH - 4, 0])
def test_from_a_row_on_is_what_hooks_do_in_these_rows(both, name, first):
    pair = both(name)
    ids, size = pair.ids(LENGTH)[0], pair.ours.info.head_size
    found, before = pair.ours.ablate(ids, token=7, first_row=first), answers(pair, ids)
    for layer in range(3):
        for head in (0, 3):
            after = answers(pair, ids, layer, set_head(head, size, slice(first, None), 0.0))
            assert abs(found.log_probability[layer, head] - (after[7] - before[7])) < 5e-5
            assert abs(found.kl[layer, head] - (np.exp(before) * (before - after)).sum()) < 5e-5
    if first == 0:
        return
    for length in (3, LENGTH):  # a cache of the beginning, or of all
        cache = pair.ours.cache()
        pair.ours.forward(ids[:length], caches=[cache])
        over = pair.ours.ablate(ids, token=7, first_row=first, cache=cache)
        np.testing.assert_allclose(over.log_probability, found.log_probability, rtol=0, atol=1e-5)
        assert len(cache) == length
    rows = [LENGTH - 3, LENGTH - 2] if first != -1 else [LENGTH - 1]
    several = pair.ours.ablate(ids, token=7, rows=rows, first_row=first, set=pair.ours.means([ids], ["z"])["z"])
    edited = [pair.ours.ablate(ids, token=7, rows=rows, first_row=first, heads=[(layer, 1)], set=pair.ours.means([ids], ["z"])["z"])
              for layer in range(3)]
    np.testing.assert_allclose(several.kl[:, 1], [each.kl for each in edited], rtol=0, atol=1e-6)


def test_what_is_refused(both):
    model = both("llama").ours
    ids, cache = [1, 2, 3, 4, 5], model.cache()
    for options, words in (({"cache": cache}, "a cache needs first_row too: rows in the cache keep their heads"),
                           ({"first_row": 5}, "first_row is 5, expected 0 to 4"),
                           ({"first_row": 3, "rows": [2], "token": 7}, "rows has 2, before first_row 3: nothing changes there"),
                           ({"first_row": -1, "set": "mean"}, "a sequence has one row there"),
                           ({"set": np.zeros((3, 8), np.float32)}, r"values have shape \[3,8\], expected \[3,32\] or \[3,5,32\]"),
                           ({"set": "half"}, "set is 'half', expected 'zero', 'mean' or an array")):
        with pytest.raises(ValueError, match=words):
            model.ablate(ids, **options)
    model.forward([9, 9], caches=[cache])
    with pytest.raises(ValueError, match="the cache holds another text"):
        model.ablate(ids, first_row=3, cache=cache)
    with pytest.raises(ValueError, match="first_row needs a decoder-only model"):
        both("bert").ours.ablate(ids, first_row=3)
    with pytest.raises(ValueError, match="there are no texts"):
        model.means([], ["z"])
