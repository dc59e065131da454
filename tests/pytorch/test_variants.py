"""Model.vary(): rows beside Transformers' attentions, and what holds counted again in NumPy."""

import numpy as np
import pytest
import torch
from tiny_models import opener

import attend

TEXTS = ["the cat sat on a mat", "the mat the cat sat", "a dog saw the mat"]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


@pytest.fixture
def with_words():
    """A case whose folder has a tokenizer of whole words, none of which is padding."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    def opened(pair):
        words = sorted({word for text in TEXTS for word in text.split()})
        tokenizer = Tokenizer(models.WordLevel({word: n + 6 for n, word in enumerate(words)} | {"[UNK]": 5}, "[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(pair.folder / "tokenizer.json"))
        return attend.Model.load(pair.folder)

    return opened


@pytest.mark.parametrize("name", ["bert", "modernbert", "mpnet", "llama", "mistral window", "gemma2 bias, caps", "gpt2", "gpt_neox",
                                  "qwen3"])
def test_rows(both, with_words, name):
    pair = both(name)
    ours = with_words(pair)
    found = ours.vary(TEXTS, "mat", target=["cat", "the", "a"])
    held = 0
    for n, text in enumerate(TEXTS):
        assert found.texts[n] == text and found.ids[n].tolist() == ours.tokenizer.encode(text).ids.tolist()
        assert [word for word, _ in found.words[n]] == text.split() and found.query[n] == text.split().index("mat")
    for n in range(len(TEXTS)):
        with torch.no_grad():
            weights = pair.theirs(torch.from_numpy(np.array(found.ids[n]))[None], output_attentions=True).attentions
        rows = np.stack([layer[0, :, found.query[n]].numpy() for layer in weights])
        np.testing.assert_allclose(found.weights[n], rows, rtol=0, atol=2e-6)
        begin, end = found.target[n]
        others = [k for k, (_, (first, last)) in enumerate(found.words[n]) if not first <= found.query[n] < last]
        best = np.max([rows[:, :, first:last].sum(-1) for first, last in (found.words[n][k][1] for k in others)], 0)
        held = held + (rows[:, :, begin:end].sum(-1) >= best)
    np.testing.assert_array_equal(found.held, held)
