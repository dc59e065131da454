"""explain() and Generator in Python."""

import html.parser
import json
import os

import numpy
import pytest
import safetensors.numpy

import attend


def test_a_trace_has_each_step_as_an_array():
    trace = attend.explain("the cat sat", heads=2, d_k=4, d_v=5, embedding_size=6)
    assert trace.tokens == ["the", "cat", "sat"] and len(trace.ids) == 3 and trace.preset == ""
    shapes = {"embeddings": (3, 6), "queries": (2, 3, 4), "keys": (2, 3, 4), "values": (2, 3, 5), "scores": (2, 3, 3),
              "scaled_scores": (2, 3, 3), "weights": (2, 3, 3), "context": (2, 3, 5)}
    for name, shape in shapes.items():
        array = getattr(trace, name)
        assert isinstance(array, numpy.ndarray) and array.shape == shape and not array.flags.writeable
    numpy.testing.assert_allclose(trace.scores, trace.queries @ trace.keys.swapaxes(1, 2), atol=1e-4)
    numpy.testing.assert_allclose(trace.context, trace.weights @ trace.values, atol=1e-5)
    numpy.testing.assert_allclose(trace.output, trace.concat_heads @ trace.w_output.T, atol=1e-5)
    assert trace.embeddings_2 is None and trace.positions is None and trace.tokens_2 == []
    assert attend.explain("the cat sat").output is None


def test_an_array_keeps_the_trace_alive():
    weights = attend.explain("a b c").weights
    copies = [numpy.random.rand(3, 3) for _ in range(100)]
    assert len(copies) == 100 and numpy.allclose(weights.sum(1), 1)


def test_the_documents_numbers(repository):
    trace = attend.explain(preset="life")
    with numpy.load(repository / "tests/golden/document_000.npz") as golden:
        numpy.testing.assert_allclose(trace.embeddings, golden["x"], atol=2e-6)
    with pytest.raises(ValueError, match="explain: a preset is given alone"):
        attend.explain(preset="life", heads=2)
    assert attend.explain(preset="my-name-multihead").output.shape == (5, 16)
    for name, summary in attend.explain_presets().items():
        assert attend.explain(preset=name).preset == name and summary


def test_options_reach_the_pipeline():
    causal = attend.explain("one two three", causal=True, seed=5)
    assert causal.causal and (numpy.triu(causal.weights, 1) == 0).all()
    cross = attend.explain("the cat sat", second_text="le chat dormait bien")
    assert cross.weights.shape == (3, 4) and cross.embeddings_2.shape == (4, 16) and len(cross.tokens_2) == 4
    linear, uniform = (attend.explain("a b", weights=weights).w_query for weights in ("linear", "uniform"))
    assert linear.min() < 0 <= uniform.min() and (linear == attend.explain("a b", weights=None).w_query).all()
    placed = attend.explain("a b", positions=True)
    assert (placed.inputs == placed.embeddings + placed.positions).all()
    assert placed.positions[1, 0] == numpy.float32(numpy.sin(1))
    assert causal.logits[0, 1] == -numpy.inf and placed.logits is None


def softmax(scores):
    e = numpy.exp(scores.astype(numpy.float64) - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_scores_may_stay_unscaled_and_words_see_a_window():
    unscaled = attend.explain("the cat sat on", scale=False)
    assert (unscaled.scaled_scores == unscaled.scores).all()
    numpy.testing.assert_allclose(unscaled.weights, softmax(unscaled.queries @ unscaled.keys.T), atol=1e-5)
    places = numpy.arange(4)
    for causal in (False, True):
        trace = attend.explain("the cat sat on", window=1, causal=causal)
        hidden = abs(places[:, None] - places) > 1
        if causal:
            hidden |= places[:, None] < places
        scores = trace.queries @ trace.keys.T / numpy.sqrt(24, dtype=numpy.float32)
        numpy.testing.assert_allclose(trace.weights, softmax(numpy.where(hidden, -numpy.inf, scores)), atol=1e-5)
        assert (numpy.isneginf(trace.logits) == hidden).all()


def test_a_trace_is_made_again_from_its_file(tmp_path):
    options = {"heads": 2, "seed": 9, "weights": "uniform", "causal": True, "positions": True, "embedding_size": 6, "d_k": 3, "d_v": 2,
               "scale": False, "window": 1}
    first = attend.explain("naïve 東京, c", **options)
    first.save(tmp_path / "t.npz")
    with numpy.load(tmp_path / "t.npz") as file:
        again = attend.explain(**json.loads(file["made"].tobytes()))
        assert json.loads(file["tokens"].tobytes()) == again.tokens
        assert (file["output"] == again.output).all()
    assert first.to_json() == again.to_json()


@pytest.mark.parametrize("keywords, kind, message", [
    ({"text": " "}, ValueError, "explain: "),
    ({"preset": "lif"}, ValueError, "no preset is called 'lif'"),
    ({"heads": -1}, ValueError, "heads"),
    ({"heads": "two"}, TypeError, "explain: heads can't be 'two'"),
    ({"weights": "ones"}, ValueError, "weights: expected 'uniform' or 'linear', got 'ones'"),
    ({"window": -1}, ValueError, "window is -1, expected at least 0"),
    ({"window": 1, "second_text": "b"}, ValueError, "window can't be used with a second sentence"),
    ({"scale": 2.5}, TypeError, "explain: scale can't be 2.5"),
    ({"head": 1}, TypeError, "unexpected keyword argument 'head'"),
])
def test_bad_arguments(keywords, kind, message):
    with pytest.raises(kind, match=message):
        attend.explain(**keywords)


def test_text_page_and_files(tmp_path):
    trace = attend.explain("the cat sat", heads=2)
    assert str(trace) == trace.to_text() and "Who attends to whom" in str(trace)
    assert repr(trace).startswith("<attend.Trace: ")
    assert trace.to_html().startswith("<!doctype html>")
    frames = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attributes: frames.append((tag, dict(attributes)))
    parser.feed(trace._repr_html_())
    assert [tag for tag, _ in frames] == ["iframe"] and frames[0][1]["srcdoc"] == trace.to_html()
    assert frames[0][1]["sandbox"] == "allow-scripts allow-downloads" and "height: " in frames[0][1]["style"]
    assert "\x1b[" in trace.to_text(colour=True) and trace.to_text(focus=2, head=1) != trace.to_text()
    assert len(trace.to_text(all=True)) > len(trace.to_text()) and trace.to_svg(head=1) != trace.to_svg()
    assert json.loads(trace.to_json())["tokens"] == ["the", "cat", "sat"]
    assert trace.to_svg().startswith("<svg") and trace.to_png().startswith(b"\x89PNG")
    for ending in ("json", "npz", "safetensors", "svg", "png", "html"):
        trace.save(tmp_path / f"cat.{ending}")
    assert (numpy.load(tmp_path / "cat.npz")["weights"] == trace.weights).all()
    assert (safetensors.numpy.load_file(tmp_path / "cat.safetensors")["queries"] == trace.queries).all()
    assert (tmp_path / "cat.png").read_bytes() == trace.to_png()
    with pytest.raises(ValueError, match="Trace.save"):
        trace.save(tmp_path / "cat.txt")
    with pytest.raises(OSError, match="Trace.save"):
        trace.save(tmp_path / "no" / "cat.json")
    with pytest.raises(ValueError, match="focus"):
        trace.to_text(focus=3)


def test_a_path_of_any_bytes_but_zero(tmp_path):
    trace = attend.explain("life")
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")  # no UTF-8
    trace.save(path)
    assert os.path.getsize(path) > 0
    with pytest.raises(OSError, match=r"Trace.save: .*\\xff.json"):
        trace.save(os.fsencode(tmp_path) + b"/no/\xff.json")
    with pytest.raises(OSError, match="Trace.save: .*zero byte"):
        trace.save(tmp_path / "victim.py\0.json")
    assert not (tmp_path / "victim.py").exists()


def test_what_a_generator_refuses():
    ours = attend.Generator(42)
    with pytest.raises(TypeError, match="Generator.rand: shape: expected a shape or an array, got 3"):
        ours.rand(3)
    with pytest.raises(TypeError, match="dtype"):
        ours.rand((3,), "int64")
    with pytest.raises(ValueError, match="shape .-3. has a negative size"):
        ours.rand((-3,))
    with pytest.raises(ValueError, match=r"Generator.xavier_uniform: shape expected \[out,in\]"):
        ours.xavier_uniform((3,))
