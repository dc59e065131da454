"""What is pickled, copied and sent to another process comes out as it went in, or says why it does not."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy
import pytest
import tiny

import attend

WORDS = "the cat sat".split()


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return attend.Model.load(tiny.write("tiny"))


def again(thing, protocol=pickle.HIGHEST_PROTOCOL):
    return pickle.loads(pickle.dumps(thing, protocol))


def pictures(model):
    weights = numpy.tril(numpy.ones((2, 3, 3), numpy.float32)) / 3
    mask = numpy.tri(3, dtype=bool)
    yield attend.picture(weights, rows=WORDS, columns=WORDS, mask=mask, heads=["a", "b"], title="two", scale="sqrt")
    yield attend.picture(numpy.ones((4, 4)), queries=(100, 108), keys=(0, 8), reduction="mean", low=0.5, high=2)
    yield attend.token_strip(WORDS, [0.25, float("nan"), 1.25], name="received")
    yield attend.head_grid(weights[None], rows=["layer"], title="grid", mask=mask)
    yield attend.token_links([[0, -1], [1, 0]], [[1.0, 0], [0.75, 0.25]], rows=WORDS[:2], columns=WORDS[:2])
    recording = model.record("the cat sat")
    yield recording.picture()
    yield recording["1.self"].picture(2)
    yield recording["1.self"].links(2)
    yield recording["1.self"].strip(2)
    yield model.attribute("the cat sat", "cat").picture()
    yield model.lens("the cat sat").picture()
    yield model.ablate("the cat sat").picture()


def test_pictures(model):
    for picture in pictures(model):
        for other in again(picture), copy.deepcopy(picture), copy.copy(picture):
            assert other.to_svg() == picture.to_svg() and other.to_png() == picture.to_png() and other.title == picture.title
            assert other.to_text(width=60, colour=True) == picture.to_text(width=60, colour=True)


@pytest.mark.parametrize("dtype, activations", [(None, "exact"), ("bfloat16", "exact"), (None, "int8")])
def test_a_model_is_opened_again(model, dtype, activations, monkeypatch, tmp_path):
    tiny.write("tiny", config=tiny.WIDE)
    given = attend.Model.load("tiny", dtype, activations)
    data = pickle.dumps(given)
    assert len(data) < 1000  # and not its weights
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    other = pickle.loads(data)
    assert repr(other) == repr(given) and other.info.dtype == given.info.dtype
    assert other.info.activations == given.info.activations == activations
    numpy.testing.assert_array_equal(other.forward("the cat sat"), given.forward("the cat sat"))
    assert copy.copy(given) is given and copy.deepcopy([given])[0] is given


def test_of_a_name_in_a_cache(model, monkeypatch, tmp_path):
    folder = tmp_path / "cache/attend/models"
    folder.mkdir(parents=True)
    tiny.write(folder / "named")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert repr(again(attend.Model.load("named"))) == repr(attend.Model.load("named"))


def test_tokenizers(model, tmp_path):
    path = tmp_path / "tiny/tokenizer.json"
    gguf = tmp_path / "tiny.gguf"
    tiny.write("bytes", tiny.bytes_tokenizer())
    attend.quantize("bytes", gguf)
    for tokenizer in (attend.Tokenizer(path.read_text()), attend.Tokenizer.load("tiny"), attend.Tokenizer.load(path),
                      attend.Model.load_tokenizer("tiny"), model.tokenizer, attend.Model.load(gguf).tokenizer):
        other = again(tokenizer)
        assert len(other) == len(tokenizer) and other.encode("cat").ids.tolist() == tokenizer.encode("cat").ids.tolist()
        assert copy.deepcopy(tokenizer) is tokenizer
    encoding = model.tokenizer.encode("the cat", "sat")
    for name in ("ids", "offsets", "special", "types", "texts"):
        numpy.testing.assert_array_equal(getattr(again(encoding), name), getattr(encoding, name))


@pytest.mark.parametrize("loaded", [False, True])
def test_recordings(model, loaded, tmp_path):
    recording = model.record("the cat sat", keep="qk", key_sizes=True)
    if loaded:
        recording.save("x.attend")
        recording = attend.Recording.load("x.attend")
    for other in again(recording), copy.copy(recording), copy.deepcopy(recording):
        assert other.model == recording.model and other.tokens == recording.tokens == [WORDS]
        numpy.testing.assert_array_equal(other.ids, recording.ids)
        for name in recording.layers:
            for mine, its in (recording[name], other[name]), (recording[name], again(recording[name])):
                numpy.testing.assert_array_equal(its.weights(2), mine.weights(2))
                numpy.testing.assert_array_equal(its.entropy, mine.entropy)
        assert other.to_json() == recording.to_json()
        other.model = "another"
        assert recording.model == "tiny"
    assert repr(again(attend.Recording())) == repr(attend.Recording())
    assert str(again(recording.heads())) == str(recording.heads())


def test_analyses(model):
    text = "the cat sat"
    found = model.attribute(text, "cat", against="sat")
    for other in again(found), copy.copy(found), copy.deepcopy(found):
        assert other.top(9) == found.top(9) and repr(other) == repr(found) and other.against == found.against
        for name in ("heads", "mlps"):
            numpy.testing.assert_array_equal(getattr(other, name), getattr(found, name))
        assert other.cross is None and other.to_csv() == found.to_csv() and other.picture().to_svg() == found.picture().to_svg()
    for found in (model.lens(text, positions=[1, 2]), model.ablate(text), model.ablate(text, heads=[(0, 1)]),
                  model.patch(text, "the sat sat", "cat", "sat"), model.patch(text, "the sat sat", "cat", "sat", what="residual")):
        for other in again(found), copy.copy(found), copy.deepcopy(found):
            assert type(other) is type(found) and other._fields == found._fields
            for mine, its in zip(found, other):
                numpy.testing.assert_array_equal(its, mine)
            if numpy.ndim(found[0]) > 0:
                assert other.to_csv() == found.to_csv() and other.picture().to_svg() == found.picture().to_svg()


def test_results_of_several_texts(model):
    found = model.ablate(["the cat sat", "the mat"])
    for other in again(found), copy.copy(found), copy.deepcopy(found):
        assert type(other) is attend.Results and len(other) == 2
        for mine, its in zip(found.average().mean, other.average().mean):
            numpy.testing.assert_array_equal(its, mine)


@pytest.mark.parametrize("edit", [
    attend.Edit(0, head=1), attend.Edit(1, at="mlp", rows=[0, 2], set="mean"),
    attend.Edit(0, at="mlp_hidden", unit=3, scale=0.5), attend.Edit(1, at="q", add=numpy.ones(16, numpy.float32)),
    attend.Knockout([0, 2]), attend.Knockout([1], rows=[-1], layer="1.2", attention="self"),
    attend.Edit(layer=1, at="residual", rows=numpy.array([1]), set=numpy.ones((1, 16), numpy.float32)),
], ids=repr)
def test_edits(model, edit):
    for other in again(edit), copy.copy(edit), copy.deepcopy(edit):
        assert repr(other) == repr(edit)
        numpy.testing.assert_array_equal(model.forward("the cat sat", edits=[other]), model.forward("the cat sat", edits=[edit]))


def test_steering(model):
    steering = model.steering([("the cat", "the mat")])
    other = again(steering)
    assert repr(other) == repr(steering) and other.model == steering.model
    numpy.testing.assert_array_equal(other.directions[1], steering.directions[1])


def test_features(model):
    autoencoder = attend.SparseAutoencoder.load(tiny.write_autoencoder("autoencoder"))
    found = model.features("the cat sat", autoencoder)
    for other in again(autoencoder), copy.copy(autoencoder), copy.deepcopy(autoencoder):
        assert repr(other) == repr(autoencoder)
        for name, array in other.weights.items():
            numpy.testing.assert_array_equal(array, autoencoder.weights[name])
        for mine, its in zip(found, again(model.features("the cat sat", other))):
            numpy.testing.assert_array_equal(its, mine)
    assert again(found).top(1, 2) == found.top(1, 2)


def test_gradients(model):
    found = model.gradient([1, 2, 3], token=4, at=["embeddings", ("z", 1)])
    other = again(found)
    assert (list(other), other.value, other.token, other.position) == (list(found), found.value, 4, 2)
    numpy.testing.assert_array_equal(other["z", 1], found["z", 1])


def test_what_attention_gives(model):
    x = numpy.random.default_rng(0).standard_normal((1, 2, 5, 8), numpy.float32)
    out, lse = attend.attention(x, x, x, return_lse=True)
    for found in attend.attention_steps(x, x, x), attend.attention_backward(out, x, x, x, out, lse), attend.attention_summary(x, x, lse):
        other = again(found)
        for name in (name for name in vars(type(found)) if not name.startswith("_")):
            numpy.testing.assert_array_equal(getattr(other, name), getattr(found, name), err_msg=name)


def test_pages_and_vectors(model, tmp_path):
    page = model.show("the cat sat")
    assert again(page).html == page.html and again(page).note == page.note and copy.deepcopy(page).left_out == page.left_out
    numpy.save("v.npy", numpy.eye(3, dtype=numpy.float32))
    vectors = attend.VectorFile("v.npy")
    assert again(vectors).nearest(vectors.rows[1], 2) == vectors.nearest(vectors.rows[1], 2)
    found = attend.Classification(("a", "b"), numpy.zeros((1, 2)), numpy.array([[0.25, 0.75]]), "softmax", 0)
    assert again(found).best() == found.best() and type(again(found)) is attend.Classification
    for made in (attend.Ranked(1, 0.5, "a"), attend.Tag("PER", 0.5, 0, 1, "a"), attend.Filling("a", 0.5, 1, "a"), attend.NearText(1, 0.5),
                 attend.Tagged([], None, None, ("a",), False)):
        assert again(made) == made and type(again(made)) is type(made)
    attend.TokenVectorFile.write("tokens.npy", [numpy.eye(2, 3, dtype=numpy.float32)])
    assert again(attend.TokenVectorFile("tokens.npy"))[0].tolist() == [[1, 0, 0], [0, 1, 0]]
    tokens = attend.TokenVectors(numpy.eye(2, 3, dtype=numpy.float32), numpy.array([1, 2]), ("a", "b"), ((0, 1), (2, 3)), False)
    assert again(tokens).match(again(tokens)).words() == again(tokens.match(tokens)).words() == [("a", "a", 1.0), ("b", "b", 1.0)]
    sparse = attend.SparseVector(numpy.array([1, 2]), numpy.array([0.5, 2], numpy.float32), ("a", "b"))
    assert again(sparse).top(1) == [("b", 2.0)]
    assert again(attend.Near(1, 0.5)) == attend.Near(1, 0.5) and again(attend.Part("mlp", 1, None, None, 2.0)).layer == 1


def test_what_is_not_pickled_says_why(model):
    x = numpy.zeros((1, 2, 3, 4), numpy.float32)
    scores = attend.head_scores(x, x)[0]
    for thing, why in {attend.KvCache(1, 2, 4, 4): "keys() and values() are arrays, and append() takes them",
                       model.cache(): "forward() of its ids fills another", model.info: "pickle the model, and ask that for info",
                       attend.Generator(1): "make one of the same seed", attend.plan(x, x, x): "plan() makes it of shapes alone",
                       attend.explain("the cat"): "explain() makes it again", scores: "head_scores() makes it again"}.items():
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError) as error:
                pickle.dumps(thing, protocol)
            assert str(error.value).startswith(f"{type(thing).__name__}: can't be pickled: ") and why in str(error.value)


def test_caches_are_copied_as_forks(model):
    cache = model.cache()
    model.forward([1, 2], caches=[cache])
    other = copy.deepcopy(cache)
    model.forward([3], caches=[other])
    assert (len(cache), len(other)) == (2, 3)
    of_arrays = attend.KvCache(1, 2, 4, 4)
    x = numpy.ones((1, 2, 3, 4), numpy.float32)
    of_arrays.append(x, x)
    for other in copy.copy(of_arrays), copy.deepcopy(of_arrays):
        other.append(x, x)
        assert (len(of_arrays), len(other)) == (3, 6)


def test_every_public_class_is_looked_at():
    """A class that is new is one of those above: without a line of its own a pickle would hold an object of nothing."""
    seen = {"Ablation", "AnswerTrace", "AttentionGradients", "AttentionPlan", "AttentionSteps", "AttentionSummary", "Attribution",
            "Average", "Chat", "Circuit", "Classification", "Composition", "Edges", "Edit", "Encoding", "Features", "Filling", "Generator",
            "Gradient", "HeadScores", "JacobianLens", "Knockout", "KvCache", "Lens", "Model", "ModelCache", "ModelInfo", "Near", "NearText",
            "Page", "Part", "Passages", "PathPatching", "Patching", "Picture", "Ranked", "RecordedLayer", "Recording", "Results",
            "Saliency", "ScoreSplit", "SparseAutoencoder", "SparseVector", "Steering", "Tag", "Tagged", "TokenMatch", "TokenVectorFile",
            "TokenVectors", "Tokenizer", "Trace", "TracedHead", "TracedPart",
            "ValueSplit", "Variants", "VectorFile", "WithoutSink"}
    assert {name for name in attend.__all__ if isinstance(getattr(attend, name), type)} == seen


def test_functions_and_methods(model):
    assert again(attend.attention) is attend.attention and again(attend.Model.load) is attend.Model.load
    assert again(attend.Model.embed) is attend.Model.embed and copy.deepcopy(attend.plan) is attend.plan
    assert again(model.tokenizer.encode)("the cat").ids.tolist() == [1, 2]


inherited = []


def embedded_by_what_was_inherited(texts):
    return inherited[0].embed(texts)


def test_in_forked_workers_after_threads_have_computed(model):
    """The model of the parent itself, which no pickle brings; and one that is pickled to them."""
    texts = WORDS * 400
    vectors = model.embed(texts)
    inherited.append(model)
    try:
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            parts = pool.map(embedded_by_what_was_inherited, [texts[:600], texts[600:]])
            numpy.testing.assert_array_equal(numpy.concatenate(list(parts)), vectors)
            numpy.testing.assert_array_equal(pool.submit(model.embed, texts).result(), vectors)
    finally:
        inherited.clear()


def test_in_another_process_that_starts_anew(model):
    edit = attend.Edit(0, head=1)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        vectors = pool.submit(model.embed, WORDS)
        hidden = pool.submit(model.forward, [1, 2, 3], edits=[edit])
        recording = pool.submit(model.record, "the cat sat", keep="qk")
        found = pool.submit(attend.Model.attribute, model, "the cat sat", "cat")
        picture = pool.submit(attend.token_strip, WORDS, [0.25, 1.5, 1.25])
        ids = pool.map(model.tokenizer.encode, WORDS)
        numpy.testing.assert_array_equal(vectors.result(), model.embed(WORDS))
        numpy.testing.assert_array_equal(hidden.result(), model.forward([1, 2, 3], edits=[edit]))
        assert recording.result().to_csv() == model.record("the cat sat", keep="qk").to_csv()
        assert found.result().to_csv() == model.attribute("the cat sat", "cat").to_csv()
        assert picture.result().to_svg() == attend.token_strip(WORDS, [0.25, 1.5, 1.25]).to_svg()
        assert [each.ids.tolist() for each in ids] == [[1], [2], [3]]
