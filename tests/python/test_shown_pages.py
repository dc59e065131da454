"""Recording.show(), Recording.save("x.html") and Model.show(): the pages that the command writes too."""

import html.parser
import json
import pathlib
import shutil
import subprocess

import pages
import pytest
import tiny

import attend


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return attend.Model.load(tiny.write("tiny", tiny.bytes_tokenizer()))


def test_a_recording(model, tmp_path):
    recording = model.record("the cat sat", keep="qk")
    recording.tokens = list("the cat sat")
    recording.save("x.attend")
    page = recording.show(head="1.3")
    recording.save("x.html")
    read = pages.Page(page.html)
    assert page.left_out == "" and "2 layers, 8 heads" in read.text and repr(page).startswith("<attend.Page: ")
    page.save(tmp_path / "shown.html")
    assert (tmp_path / "shown.html").read_text() == page.html
    if read.request is None:
        assert "make page" in page.note
        return
    assert page.note == "" and read.request["head"] == "1.3"
    assert read.file == pages.Page((tmp_path / "x.html").read_text()).file == (tmp_path / "x.attend").read_bytes()


def test_a_notebook_shows_it_in_a_frame_of_its_own(model):
    frames = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attributes: frames.append((tag, dict(attributes)))
    page = model.show("the </script> \"cat\" & <b>")
    parser.feed(page._repr_html_())
    assert [tag for tag, _ in frames] == ["iframe"] and frames[0][1]["srcdoc"] == page.html
    assert frames[0][1]["sandbox"] == "allow-scripts allow-downloads"


def test_a_text_is_what_the_command_makes_of_it(model, command, tmp_path):
    subprocess.run([command, "model", "tiny", "a cat", "-o", "a.html"], cwd=tmp_path, check=True, capture_output=True)
    assert model.show("a cat").html == (tmp_path / "a.html").read_text()


def test_of_an_encoder_decoder_both_stacks_are_shown(command, tmp_path):
    """As the command has them: what the decoder, which has said nothing, reads in the text, too."""
    shutil.copytree(pathlib.Path(__file__).parents[1] / "golden/models/t5", tmp_path / "t5")
    words = {word: n for n, word in enumerate(tiny.WORDS[:23])}
    (tmp_path / "t5/tokenizer.json").write_text(json.dumps({**tiny.TOKENIZER, "model": {**tiny.TOKENIZER["model"], "vocab": words}}))
    model = attend.Model.load(tmp_path / "t5")
    subprocess.run([command, "model", "t5", "the cat sat", "-o", "a.html"], cwd=tmp_path, check=True, capture_output=True)
    assert model.show("the cat sat").html == (tmp_path / "a.html").read_text()


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    words = dict.fromkeys(["?", "the", "cat", *(f"word{n}" for n in range(1000))])
    tokenizer = {**tiny.TOKENIZER, "model": {**tiny.TOKENIZER["model"], "vocab": {word: n for n, word in enumerate(words)}}}
    model = attend.Model.load(tiny.write(tmp_path / "other", tokenizer))
    with pytest.raises(OSError, match="other: the tokenizer has 1003 tokens, and the model embeds 1000: they don't belong together"):
        model.show("the cat")
    with pytest.raises(OSError, match="its tokenizer has 'word999' as 1002, but its weights have embeddings 0 to 999"):
        model.forward("the word999")


def test_a_model_in_a_page(model, command, tmp_path):
    if model.show("a").note:
        with pytest.raises(ValueError, match="make page"):
            model.show("a cat", live=True)
        return
    page = model.show("a cat", live=True, why=" ", against="<")
    subprocess.run([command, "model", "tiny", "a cat", "--live", "--why", " ", "--against", "<", "-o", "a.html"], cwd=tmp_path,
                   check=True, capture_output=True)
    assert page.html == (tmp_path / "a.html").read_text()
    attend.quantize("tiny", "tiny.gguf")
    assert pages.Page(page.html).file == (tmp_path / "tiny.gguf").read_bytes()


def test_the_budget(model):
    recording = model.record("the cat sat on the mat", keep="qk")
    page = recording.show()
    if page.note:
        return  # there is nothing to leave out of a picture
    budget = len(page.html.encode()) - 1
    assert recording.show(budget=budget).left_out.startswith("q and k of 1 of 2 layers, those of the broadest heads (")
    with pytest.raises(ValueError, match="the page would take .*, and may take"):
        recording.show(budget=budget, strict=True)
    with pytest.raises(ValueError, match="may take 0.0 MB"):
        model.show("a cat", live=True, budget=10)


def test_what_is_asked_is_checked(model):
    recording = model.record("the cat sat")
    with pytest.raises(ValueError, match="Recording.show: the recording has no head '9.9'"):
        recording.show("9.9")
    with pytest.raises(ValueError, match="item 1, expected 0 to 0"):
        recording.show(item=1)
    with pytest.raises(TypeError, match="head: expected a name"):
        recording.show(head=3)
    with pytest.raises(ValueError, match="pass live=True"):
        model.show("a", why="b")
    with pytest.raises(ValueError, match="leaves nothing out"):
        model.show("a", live=True, strict=True)
    with pytest.raises(ValueError, match="nothing uses it without why"):
        model.show("a", live=True, against="b")
    with pytest.raises(ValueError, match="only an encoder compares sentences"):
        model.show("a", live=True, second="b")
    with pytest.raises(TypeError, match="text: expected a text"):
        model.show([1, 2])
