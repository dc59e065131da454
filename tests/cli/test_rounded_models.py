"""--activations: what it does to a model, who says so, and who refuses it."""

import json
import subprocess

import numpy
import pytest
import tiny
from safetensors import safe_open


@pytest.fixture
def attend(command, tmp_path):
    tiny.write(tmp_path / "tiny", config=tiny.WIDE)
    return tiny.asks(command, tmp_path)


def test_the_text_and_the_json_say_it(attend):
    assert ", f32, int8 activations\n" in attend("the cat sat", "--activations", "int8")
    assert "activations" not in attend("the cat sat")
    exact, rounded = (json.loads(attend("the cat sat", "--json", "--activations", each)) for each in ("exact", "int8"))
    assert (exact["info"]["activations"], rounded["info"]["activations"]) == ("exact", "int8")
    assert json.loads(attend("the cat sat", "--json")) == exact
    assert [each["probability"] for each in exact["next"]] != [each["probability"] for each in rounded["next"]]
    assert rounded["info"]["weight_bytes"] < exact["info"]["weight_bytes"]


def test_of_a_quantized_file_too(attend, command, tmp_path):
    tiny.write(tmp_path / "tiny", tiny.bytes_tokenizer(), tiny.WIDE | {"vocab_size": 256})
    subprocess.run([command, "quantize", "tiny", "-o", "tiny.gguf"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([command, "model", "tiny.gguf", "the cat sat", "--activations", "fast"], cwd=tmp_path, capture_output=True,
                          text=True, check=True)
    assert "in the file, computed in f32, fast activations: " in done.stdout


def test_a_recording_keeps_it(attend, command, tmp_path):
    attend("the cat sat", "--activations", "int8", "-o", "x.attend")
    attend("the cat sat", "-o", "exact.attend")
    show = lambda *what: subprocess.run([command, "show", *what], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert ", int8 activations" in show("x.attend") and "activations" not in show("exact.attend")
    assert json.loads(show("x.attend", "--json"))["activations"] == "int8"
    assert "activations" not in json.loads(show("exact.attend", "--json"))
    for name, there in (("x", True), ("exact", False)):
        with safe_open(tmp_path / f"{name}.attend", "np") as file:
            assert ("activations" in json.loads(file.metadata()["attend.recording"])) == there


@pytest.mark.parametrize("analysis, name", [
    (("--why", "cat"), "attribute"), (("--saliency",), "saliency"), (("--ablate",), "ablate")])
def test_analyses_refuse_it(attend, analysis, name):
    told = attend("the cat sat", *analysis, "--activations", "int8", status=1)
    assert f"{name}: the model's activations are int8, expected exact: sums would not hold" in told


def test_other_names_are_refused(attend):
    assert "--activations" in attend("the cat sat", "--activations", "int4", status=2)


def test_vectors(attend, command, tmp_path):
    (tmp_path / "lines.txt").write_text("the cat\nthe sat\n")
    for each in ("exact", "int8"):
        subprocess.run([command, "embed", "tiny", "lines.txt", "-o", f"{each}.npy", "--activations", each], cwd=tmp_path, check=True)
    exact, rounded = (numpy.load(tmp_path / f"{each}.npy") for each in ("exact", "int8"))
    assert not numpy.array_equal(exact, rounded)
    assert (exact * rounded).sum() / numpy.sqrt((exact**2).sum() * (rounded**2).sum()) > 0.99
