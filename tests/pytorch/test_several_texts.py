"""Analyses of several texts: each text's result has the bits that it has alone (and test_analysis.py has what is right of one)."""

import functools

import numpy as np
import pytest
import torch
from test_analysis import LENGTH, Places, columns_of, edited
from tiny_models import BOTH, Both, opener

import attend

NAMES = ["llama", "gpt2", "gemma2 bias, caps", "mistral window"]
LENGTHS = (5, 11, 1, 8)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return opener(tmp_path_factory)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return Both(tmp_path_factory.mktemp("model"), BOTH["t5"], torch.float32)


def arrays_of(found):
    """Of a NamedTuple of arrays, and of an Attribution."""
    fields = found if isinstance(found, tuple) else [getattr(found, name) for name in ("heads", "cross", "mlps", "neurons", "logit")]
    return [np.asarray(field) for field in fields if field is not None]


def each_alone(analysis, *lists, **options):
    """analysis() of all at once is that of each, with its own of each option that is a list."""
    several = analysis(*lists, **options)
    assert isinstance(several, attend.Results)
    for n, found in enumerate(several):
        own = {key: value[n] if isinstance(value, list) else value for key, value in options.items()}
        alone = analysis(*(each[n] for each in lists), **own)
        assert len(arrays_of(found)) == len(arrays_of(alone)) > 0
        assert all(np.array_equal(a, b) for a, b in zip(arrays_of(found), arrays_of(alone)))
    assert len(several) == len(lists[0])
    return several


# ---- To the last bit ----

@pytest.mark.parametrize("name", NAMES)
def test_each_text_has_what_it_has_alone(both, name):
    model, texts = both(name).ours, [both(name).ids(length)[0] for length in LENGTHS]
    z = [model.forward(both(name).ids(length + 20)[0][:length], keep=["z"])[1]["z"] for length in LENGTHS]
    each_alone(model.attribute, texts)
    each_alone(model.attribute, texts, token=[3, None, 7, 9], against=[None, 4, None, 2], position=[-1, 2, 0, -3], neurons=True)
    each_alone(model.lens, texts, top=3)
    each_alone(model.lens, texts, positions=[[0, -1], [3], [0], [2, 3, 7]])
    each_alone(model.ablate, texts)
    each_alone(model.ablate, texts, token=[3, None, 7, 9], against=4, set=z)
    each_alone(model.ablate, texts, token=5, rows=[[0, -2], [3], [0], [2, 3, 7]])
    each_alone(model.ablate, texts, heads=("1.2", (2, 0)))
    each_alone(model.ablate, texts, first_row=[2, -1, 0, 3])
    corrupt = [np.where(np.arange(len(ids)) % 3 == 0, (ids + 5) % 99, ids) for ids in texts]
    each_alone(model.patch, texts, corrupt, token=[7, 8, 9, 10], against=6)
    each_alone(model.patch, texts, corrupt, token=7, against=6, what="residual", position=[-1, -2, 0, 5])
    each_alone(model.patch, texts, corrupt, token=7, against=6, first_row=[0, 3, 0, 4], position=[-1, 5, 0, -1])


KEEP = ["z", ("residual", 2), "embeddings", ("mlp_hidden", 0)]


@pytest.mark.parametrize("name", [*NAMES, "bert"])
def test_forward_keeps_and_edits_each_text_as_alone(both, name):
    model, columns = both(name).ours, both(name).ours.info.embedding_size
    texts, types = zip(*(both(name).ids(length) for length in LENGTHS))
    types = None if types[0] is None else list(types)
    add = np.arange(columns, dtype=np.float32) / columns
    same = [attend.Edit(1, head=2), attend.Edit(0, at="mlp", add=add),
            attend.Edit(2, at="residual", rows=[-1], scale=0.5)]
    ones = np.ones((5, model.info.head_size), np.float32)
    own = [[attend.Edit(1, head=2, set=ones)], [attend.Edit(0, at="mlp", rows=[1, -2], scale=0.0)], [],
           [attend.Edit(2, at="z", set="mean")]]
    for edits in (None, same, [*same, attend.Knockout([0], rows=[-1], layer=1)], own):
        hidden, kept = model.forward(list(texts), types=types, edits=edits, keep=KEEP)
        assert len(hidden) == len(kept) == 4 and hidden[1].base is hidden[0].base is not None
        for n, ids in enumerate(texts):
            one = edits[n] if edits is own else edits
            alone, its = model.forward(ids, types=types and types[n], edits=one, keep=KEEP)
            assert np.array_equal(hidden[n], alone) and all(np.array_equal(kept[n][key], its[key]) for key in KEEP)
    assert all(np.array_equal(a, b) for a, b in zip(model.forward(list(texts), types=types, edits=own), hidden))


def test_forward_of_several_over_caches_and_of_an_encoder_decoder(both, translator):
    model, texts = both("llama").ours, [both("llama").ids(length)[0] for length in LENGTHS]
    caches = [model.cache() for _ in texts]
    for part in ([ids[:-1] if len(ids) > 1 else ids for ids in texts], [[7], [8], [9], [4]]):
        hidden = model.forward(part, caches=caches)
    for n, ids in enumerate(texts):
        whole = model.forward([*(ids[:-1] if len(ids) > 1 else ids), [7, 8, 9, 4][n]])
        np.testing.assert_allclose(hidden[n][-1], whole[-1], rtol=0, atol=1e-5)
    model = translator.ours
    texts, decoder = [[5, 6, 7], [8, 9], [10, 11, 12, 13]], [[0, 9], [0], [0, 7, 8]]
    edits = [attend.Edit(0, at="encoder_residual", rows=[-1], scale=2.0), attend.Edit(1, at="mlp", rows=[-1], scale=2.0),
             attend.Edit(0, at="cross_v", rows=[1], scale=0.0)]
    keep = ["z", ("cross_k", 1), "encoder_mlp", ("cross_z", 0)]
    hidden, kept = model.forward(texts, decoder_ids=decoder, edits=edits, keep=keep)
    for n, ids in enumerate(texts):
        alone, its = model.forward(ids, decoder_ids=decoder[n], edits=edits, keep=keep)
        assert np.array_equal(hidden[n], alone) and all(np.array_equal(kept[n][key], its[key]) for key in keep)


def test_more_than_a_pass_holds(both):
    model, texts = both("llama").ours, [both("llama").ids(length)[0] for length in range(10, 46)] * 2
    assert sum(map(len, texts)) > 1900 and 4 * sum(map(len, texts)) > 3 * 2048
    shares = []
    several = model.ablate(texts, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1)
    assert all(np.array_equal(several[n].kl, model.ablate(texts[n]).kl) for n in (0, 17, 35, 71))
    shares = []
    corrupt = [(ids + 1) % 99 for ids in texts]
    found = model.patch(texts, corrupt, 3, 4, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1)
    assert all(np.array_equal(found[n].recovered, model.patch(texts[n], corrupt[n], 3, 4).recovered) for n in (0, 17, 35, 71))
    attributed = model.attribute(texts, token=9)
    assert all(np.array_equal(attributed[n].heads, model.attribute(texts[n], token=9).heads) for n in (0, 17, 35, 71))


def test_encoders_and_encoder_decoders(both, translator):
    texts = [both("bert").ids(length)[0] for length in LENGTHS]
    each_alone(both("bert").ours.ablate, texts)
    model = translator.ours
    texts, decoder = [[5, 6, 7], [8, 9], [10, 11, 12, 13]], [[0, 9], [0], [0, 7, 8]]
    each_alone(model.attribute, texts, decoder_ids=decoder, token=3)
    each_alone(model.lens, texts, decoder_ids=decoder)
    for attention in ("self", "cross", "encoder"):
        each_alone(model.ablate, texts, decoder_ids=decoder, attention=attention)
        each_alone(model.patch, texts, [[6, 6, 7], [8, 8], [10, 11, 12, 14]], token=3, against=4, decoder_ids=decoder, attention=attention)


def test_over_one_cache_of_what_all_begin_with(both):
    model = both("llama").ours
    first = both("llama").ids(12)[0]
    cache = model.cache()
    model.forward(first, caches=[cache])
    texts = [np.concatenate([first, rest]) for rest in ([4, 5], [6], [7, 8, 9])]
    found, alone = model.ablate(texts, cache=cache, first_row=12), model.ablate(texts, first_row=12)
    for a, b in zip(found, alone):
        np.testing.assert_allclose(a.log_probability, b.log_probability, rtol=0, atol=1e-6)
    corrupt = [np.where(np.arange(len(ids)) == 12, 33, ids) for ids in texts]
    found = model.patch(texts, corrupt, 3, 4, first_row=12, clean_cache=cache, corrupt_cache=cache)
    for a, b in zip(found, model.patch(texts, corrupt, 3, 4, first_row=12)):
        np.testing.assert_allclose(a.recovered, b.recovered, rtol=0, atol=1e-4)
    assert len(cache) == 12


# ---- Spans, and rows from one on ----

@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2 bias, caps"])
@pytest.mark.parametrize("first", [None, 0, 4, -3])
def test_patches_of_spans_and_from_a_row_on_are_what_hooks_do(both, name, first):
    pair = both(name)
    clean = pair.ids(LENGTH)[0]
    corrupt = np.where(np.arange(LENGTH) % 3 == 1, (clean + 5) % 99, clean)
    places, info, model = Places(pair.theirs), pair.ours.info, pair.ours
    begin = 0 if first is None else first % LENGTH

    def difference(ids):
        with torch.inference_mode():
            logits = pair.theirs(torch.from_numpy(ids)[None]).logits[0, -1].double()
        return float(logits[7] - logits[8])

    ends = difference(clean), difference(corrupt)
    def is_share_of(layer, at, rows, columns, got):
        kept = places.seen(layer, at, lambda: difference(clean)).float()[rows][:, columns]
        with places.changed(layer, at, functools.partial(edited, rows=rows, columns=columns, to=kept)):
            assert got == pytest.approx((difference(corrupt) - ends[1]) / (ends[0] - ends[1]), rel=2e-4, abs=2e-4)

    spans = {"a verb": (begin, begin + 2), "last": -1, "end": (-3, LENGTH)}
    found = model.patch(clean, corrupt, 7, 8, "residual", spans=spans, first_row=first)
    assert found.recovered.shape == (4, 3)
    for layer in range(4):
        for n, rows in enumerate(([begin, begin + 1], [LENGTH - 1], [LENGTH - 3, LENGTH - 2, LENGTH - 1])):
            is_share_of(layer, "residual", rows, slice(None), found.recovered[layer, n])
    rows = list(range(begin, LENGTH))
    heads, stream = (model.patch(clean, corrupt, 7, 8, what, first_row=first).recovered for what in ("heads", "residual"))
    assert stream.shape == (4, LENGTH - begin)
    for layer in range(3):
        for head in (0, 3):
            is_share_of(layer, "z", rows, columns_of(info, "z", head), heads[layer, head])
        is_share_of(layer, "residual", [begin], slice(None), stream[layer, 0])
    lines = found.to_csv().splitlines()
    assert lines[0] == "layer,position,token,recovered" and [line.split(",")[2] for line in lines[1:4]] == list(spans)
    assert "a verb" in found.picture().to_svg()
    assert model.patch(clean, corrupt, 7, 8, "residual", first_row=first).to_csv().splitlines()[1].split(",")[1] == str(begin)


# ---- Averages ----

def mean_and_error(values):
    values = np.asarray(values, np.float64)
    return values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))


def are_close(got, expected):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 * np.abs(b).max())


def is_average_of(average, field, found):
    values = [getattr(each, field) for each in found]
    are_close((getattr(average.mean, field), getattr(average.standard_error, field)), mean_and_error(values))


def test_averages_are_means_with_their_standard_errors(both):
    model, texts = both("llama").ours, [both("llama").ids(length)[0] for length in (5, 11, 4, 8)]
    found = model.ablate(texts, token=7)
    average = found.average()
    for field in ("logit", "log_probability", "kl"):
        is_average_of(average, field, found)
    assert average.texts == 4 and average.mean.to_csv().count("\n") == 13 and "1.2" in average.mean.to_csv()
    found = model.attribute(texts, token=7, neurons=True)
    average = found.average()
    sums = [each.heads.astype(np.float64).sum(-1) for each in found]
    are_close((average.mean.heads[..., 0], average.standard_error.heads[..., 0]), mean_and_error(sums))
    for field in ("mlps", "neurons", "mlp_biases", "logit", "embedding"):
        is_average_of(average, field, found)
    spans = [{"subject": (1, 3), "last": -1}, {"subject": 4, "last": 10}, {"subject": (0, 2), "last": 3}, {"subject": (2, 6), "last": -1}]
    rows = [(slice(1, 3), 4), (slice(4, 5), 10), (slice(0, 2), 3), (slice(2, 6), 7)]
    by_span = [np.stack([each.heads[..., a].astype(np.float64).sum(-1), each.heads[..., b]], -1) for each, (a, b) in zip(found, rows)]
    average = found.average(spans)
    are_close((average.mean.heads, average.standard_error.heads), mean_and_error(by_span))
    assert {part.token for part in average.mean.top(20) if part.kind == "head"} == {"subject", "last"}
    assert "subject" in average.mean.to_csv() and "subject" in average.mean.picture().to_svg()
    average = model.attribute(texts, token=[7, 8, 9, 10], against=[3, 3, 3, 4]).average()
    assert (average.mean.token, average.mean.against, average.mean.position) == (-1, -1, -1)
    assert "why the answers" in average.mean.picture().title and "Difference of the logits" in average.mean.picture().to_svg()
    assert "not others" in model.attribute(texts, token=7, against=[3, 3, 3, 4]).average().mean.picture().title
    assert "the answers" in model.ablate(texts).average().mean.picture().title


@pytest.mark.parametrize("what", ["heads", "residual"])
def test_what_comes_back_is_a_ratio_of_means(both, what):
    """With the standard error of a ratio by the delta method, which a jackknife over the pairs has too, about."""
    model = both("llama").ours
    pairs = [both("llama").ids(6 + 30 * n)[0][:6] for n in range(1, 25)]
    corrupt = [np.where(np.arange(6) == 2, (ids + 7) % 99, ids) for ids in pairs]
    found = model.patch(pairs, corrupt, 7, 8, what)
    whole = np.array([each.clean - each.corrupt for each in found])
    parts = np.stack([each.recovered.astype(np.float64) for each in found]) * whole[:, None, None]
    average = found.average()
    ratio = parts.sum(0) / whole.sum()
    np.testing.assert_allclose(average.mean.recovered, ratio, rtol=0, atol=1e-5 * np.abs(ratio).max())
    rest = parts - ratio * whole[:, None, None]
    error = rest.std(0, ddof=1) / np.sqrt(len(found)) / abs(whole.mean())
    np.testing.assert_allclose(average.standard_error.recovered, error, rtol=1e-4, atol=1e-5 * error.max())
    is_average_of(average, "clean", found)
    is_average_of(average, "corrupt", found)
    assert "recovered" in average.mean.to_csv() and "<svg" in average.mean.picture().to_svg()


# ---- What is refused ----

def test_what_is_refused_says_of_which_text(both):
    model, texts = both("llama").ours, [both("llama").ids(length)[0] for length in LENGTHS]
    for call, words in ((lambda: model.attribute(texts, token=[1, 2]), "token has 2, expected one for each of 4 texts"),
                        (lambda: model.attribute(texts, position=[0, 0, 1, 0]), r"texts\[2\]: position is 1, expected 0 to 0"),
                        (lambda: model.lens(texts, positions=[[0], [0], [1], [0]]), r"texts\[2\]: positions\[0\] is 1"),
                        (lambda: model.ablate([*texts, [3, 400]]), r"texts\[4\]: "),
                        (lambda: model.ablate(texts, set=[np.zeros((3, 32), np.float32)] * 3), "set has 3, expected one for each of 4"),
                        (lambda: model.ablate(texts, heads=["9.1"]), "head 9.1, expected layers 0 to 2"),
                        (lambda: model.ablate(texts, cache=model.cache()), r"texts\[0\]: a cache needs first_row too"),
                        (lambda: model.patch(texts, texts, 7, 8), r"texts\[0\]: both texts answer with a difference of"),
                        (lambda: model.patch(texts, texts[0], 7, 8), "one is a text and the other several"),
                        (lambda: model.patch(texts, texts[:2], 7, 8), "corrupt has 2, expected one for each of 4 texts"),
                        (lambda: model.patch(texts, texts, 7, 8, spans={"a": 0}), "spans are for residual only"),
                        (lambda: model.patch(texts, texts, 7, 8, "residual", spans={"a": (3, 9)}),
                         r"spans\[a\] has tokens 3 to 9, expected a part of 0 to 5"),
                        (lambda: model.patch(texts[:2], texts[:2], 7, 8, "residual", spans=[{"a": 0}, {"b": 0}]),
                         "the texts' names differ"),
                        (lambda: model.patch(texts[1], texts[1], 7, 8, first_row=3, position=2), "position is 2, before first_row 3"),
                        (lambda: model.patch(texts[1], texts[1], 7, 8, clean_cache=model.cache()), "a cache needs first_row too"),
                        (lambda: both("bert").ours.attribute(texts), "encoder|decoder"),
                        (lambda: model.forward(texts, edits=[attend.Edit(0, rows=[3])]), r"texts\[2\]: an edit of row 3, expected 0 to 0"),
                        (lambda: model.forward(texts, edits=[[attend.Knockout([0])], [], [], []]), "a Knockout applies to all texts"),
                        (lambda: model.forward(texts, edits=[[], []]), "edits has 2, expected one for each of 4"),
                        (lambda: model.forward(texts, starts=[0, 5]), "starts are for ids in one list"),
                        (lambda: model.lens(texts).average(), "expected all Attribution, Ablation or Patching, got Lens"),
                        (lambda: attend.Results().average(), "got nothing"),
                        (lambda: model.ablate(texts).average({"a": 0}), "spans are for Attribution only, got Ablation"),
                        (lambda: model.attribute(texts).average({"a": 4}), r"spans\[a\] has tokens 4 to 5, expected a part of 0 to 1"),
                        (lambda: attend.Results([*model.patch(texts[:2], [ids + 1 for ids in texts[:2]], 7, 8, "residual")]).average(),
                         r"recovered of text 1 has shape \[4,11\], that of text 0 has \[4,5\]")):
        with pytest.raises(ValueError, match=words):
            call()
    for call, words in ((lambda: model.ablate(texts, cache=[3, None, None, None], first_row=0), "expected a ModelCache, got 3"),
                        (lambda: model.attribute(texts).average(3), "spans: expected a dict"),
                        (lambda: model.patch(texts, texts, 7, 8, "residual", spans={"a": "b"}), r"spans\[a\]: expected a place")):
        with pytest.raises(TypeError, match=words):
            call()
