"""attend show and attend model -o x.html, --open, --live: what is in the page. What there is to escape: tests/pages."""

import json
import os
import stat
import subprocess

import numpy
import pages
import pytest
import tiny
from safetensors import safe_open
from safetensors.numpy import save_file

WITHOUT = "does not compute: attend was built without the page that computes, which `make page` makes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the model `tiny`, the same as tiny.gguf, and a recording of it, x.attend."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def attend(command, folder, tmp_path):
    def run(*arguments, status=0, **variables):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), **variables}
        done = subprocess.run([command, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stderr if status else done

    if not (folder / "tiny").exists():
        tiny.write(folder / "tiny", tiny.bytes_tokenizer())
        run("quantize", "tiny", "-o", "tiny.gguf")
        run("model", "tiny", "the cat sat </script>", "-o", "x.attend")
    return run


@pytest.fixture
def computes(attend):
    """Whether pages do: attend was built with the page, or not."""
    return "does not compute" not in attend("show", "x.attend", "-o", "computes.html").stderr


@pytest.fixture
def live(computes):
    if not computes:
        pytest.skip("built without explorer.html")


def test_a_recording(attend, folder, computes):
    done = attend("show", "x.attend", "-o", "x.html", "--head", "1.2")
    page = pages.Page((folder / "x.html").read_text())
    assert done.stdout == "" and "tiny" in page.text and "2 layers, 8 heads" in page.text and page.tags.count("svg") == 1
    if not computes:
        assert done.stderr.splitlines() == [f"attend: x.html {WITHOUT}", "attend: wrote x.html"]
        assert page.request is None and WITHOUT[:40].split(":")[0] in page.text
        return
    assert done.stderr == "attend: wrote x.html\n"
    data = (folder / "x.attend").read_bytes()
    assert page.file == data
    assert page.request == {"recording": {"file": "x.attend", "bytes": len(data), "left_out": None}, "item": 0, "head": "1.2"}


def test_a_text(attend, folder, computes):
    """Its page has the recording that -o x.attend writes: with q and k, or without."""
    for keep in ("qk", "summary"):
        done = attend("model", "tiny", "a cat", "--keep", keep, "-o", "y.html")
        attend("model", "tiny", "a cat", "--keep", keep, "-o", "y.attend")
        page = pages.Page((folder / "y.html").read_text())
        assert done.stdout == "" and "a cat" in page.text
        if computes:
            assert page.file == (folder / "y.attend").read_bytes()
            assert page.request["recording"]["file"] == "tiny.attend" and page.request["head"] is None
        kept = [layer["qk"] for layer in json.loads(attend("show", "y.attend", "--json").stdout)["layers"]]
        assert kept == [keep == "qk"] * 2


def test_past_the_budget_something_is_left_out(attend, folder, live):
    """x.attend with q and k of 90 MB a layer."""
    with safe_open(folder / "x.attend", "numpy") as file:
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        recording = json.loads(file.metadata()["attend.recording"])
    for n, layer in enumerate(recording["layers"]):
        count = layer["queries"] * (len(layer["heads"]) + layer["kv_heads"])
        layer["head_size"] = 90_000_000 // (4 * count)
        for name in "qk":
            shape = tensors[f"layers.{n}.{name}"].shape[:3]
            tensors[f"layers.{n}.{name}"] = numpy.zeros((*shape, layer["head_size"]), numpy.float32)
    save_file(tensors, folder / "big.attend", {"attend.recording": json.dumps(recording)})
    broadest = int(tensors["layers.1.entropy"].mean() > tensors["layers.0.entropy"].mean())
    done = attend("show", "big.attend", "-o", "big.html")
    left_out = (f"q and k of 1 of 2 layers, those of the broadest heads ({broadest}.self), whose weights are shown in blocks "
                "and not exactly")
    assert done.stderr.splitlines() == [f"attend: big.html leaves out {left_out} (--strict refuses)", "attend: wrote big.html"]
    page = pages.Page((folder / "big.html").read_text())
    assert page.request["recording"]["left_out"] == left_out and 90e6 < len(page.file) < 91e6
    (folder / "part.attend").write_bytes(page.file)
    kept = [layer["qk"] for layer in json.loads(attend("show", "part.attend", "--json").stdout)["layers"]]
    assert kept == [broadest == 1, broadest == 0]


@pytest.mark.parametrize("model", ["tiny", "tiny.gguf"])
def test_a_model_in_a_page(attend, folder, live, model):
    done = attend("model", model, "the </script> cat", "--live", "-o", "live.html", "--why", " ", "--against", "<")
    page = pages.Page((folder / "live.html").read_text())
    data = (folder / "tiny.gguf").read_bytes()
    assert done.stdout == "" and done.stderr == "attend: wrote live.html\n"
    assert page.file == data  # a folder as attend quantize writes it, a file as it is
    assert page.request == {"model": {"file": "tiny.gguf", "bytes": len(data), "name": "tiny"}, "text": "the </script> cat",
                            "second": None, "why": " ", "against": "<", "chat": False}


def test_without_the_page_no_model_goes_in(attend, computes):
    if computes:
        pytest.skip("built with explorer.html")
    message = attend("model", "tiny", "the cat", "--live", "-o", "no.html", status=1)
    assert message == "attend: --live: attend was built without the page that computes, which `make page` makes\n"


def test_a_browser_is_asked(attend, folder, tmp_path):
    shows = tmp_path / "shows"
    shows.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/called"\n')
    shows.chmod(shows.stat().st_mode | stat.S_IXUSR)
    attend("show", "x.attend", "--open", BROWSER=str(shows))
    attend("model", "tiny", "the cat", "--open", BROWSER=str(shows))
    attend("show", "x.attend", "--open", "-o", "mine.html", BROWSER=str(shows))
    cache = tmp_path / "home/.cache/attend"
    assert (tmp_path / "called").read_text().splitlines() == [str(cache / "show.html"), str(cache / "model.html"),
                                                              str(folder / "mine.html")]
    assert "the cat" in pages.Page((cache / "model.html").read_text()).text


def test_what_has_no_place_in_a_page_is_refused(attend):
    for arguments, text in (
            (("show", "x.attend", "--strict"), "--strict: nothing uses it without a page"),
            (("model", "tiny", "a", "--live"), "--live: nothing uses it without a page"),
            (("model", "tiny", "a", "-o", "a.html", "--why", "b"), "--why: only a page with --live answers it"),
            (("model", "tiny", "a", "-o", "a.html", "--lens"), "--lens: a page can't show this analysis"),
            (("model", "tiny", "a", "-o", "a.html", "--without", "0.1"), "--without: a page can't show this analysis"),
            (("model", "tiny", "a", "-o", "a.html", "--live", "--strict"), "--strict: a page with --live leaves nothing out")):
        assert text in attend(*arguments, status=2)


def test_a_page_that_can_not_be_written(attend, computes):
    assert "no/such/x.html" in attend("show", "x.attend", "-o", "no/such/x.html", status=1)
