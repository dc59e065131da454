"""attend picture."""

import subprocess
import xml.etree.ElementTree

import numpy as np
import pytest

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def picture(command, tmp_path):
    def attend(*arguments, status=0):
        result = subprocess.run([command, "picture", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == status, result.stderr
        return result.stdout if status == 0 else result.stderr

    return attend


@pytest.fixture
def weights(tmp_path):
    values = np.array([[1, np.nan, np.nan], [0.25, 0.75, np.nan], [0.5, 0.26, 0.24]], np.float32)
    np.save(tmp_path / "w.npy", values)
    np.savez(tmp_path / "heads.npz", w=np.stack([np.nan_to_num(values)] * 2)[None], other=values)
    np.save(tmp_path / "mask.npy", np.tri(3, dtype=bool))
    (tmp_path / "words.txt").write_text("the\r\n<script>\ncat, &\n")
    return values


def texts(path):
    root = xml.etree.ElementTree.parse(path).getroot()
    return [element.text for element in root.iter(f"{SVG}text")]


def test_the_terminal(picture, weights):
    assert picture("w.npy", "--rows", "a,b,c", "--columns", "x,y,z", "--title", "Three") == (
        "Three\n"
        "          keys →\n"
        "queries ↓     x        y        z\n"
        "        a│███ 1.00 ╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱╱│\n"
        "        b│░░░ 0.25 ▓▓▓ 0.75 ╱╱╱╱╱╱╱╱╱│\n"
        "        c│▒▒▒ 0.50 ░░░ 0.26 ░░░ 0.24 │\n"
        "          0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 1  ╱╱ hidden\n"
    )


def test_heads_and_a_mask(picture, weights):
    text = picture("heads.npz:w", "--mask", "mask.npy", "--scale", "log")
    assert text.count("head 0\n") == text.count("head 1\n") == 1
    assert text.count("╱╱ hidden") == 2 and text.count("Colour scale: logarithm.") == 2
    assert "╱" not in picture("heads.npz:w")
    assert "\nA\ufffd: head 1\n" in picture("heads.npz:w", "--title", "A\x1b")


def test_a_diverging_scale(picture, weights, tmp_path):
    """Below 0 there are strokes."""
    np.save(tmp_path / "signed.npy", np.array([[-2, 0, 1]], np.float32))
    assert "│≡≡≡ -2.00      0.00 ▒▒▒  1.00 │" in picture("signed.npy", "--scale", "diverging")


def test_files(picture, weights, tmp_path):
    assert picture("w.npy", "--rows", "words.txt", "--columns", "words.txt", "-o", "w.svg", "-o", "w.png", "--scale", "sqrt",
                   "--title", "<b> & 'c'") == ""
    assert (tmp_path / "w.png").read_bytes().startswith(b"\x89PNG\r\n")
    found = texts(tmp_path / "w.svg")
    for text in ["the", "<script>", "cat, &"]:
        assert found.count(text) == 2
    assert "<b> & 'c'" in found and "Colour scale: square root." in found and "hidden" in found
    before = (tmp_path / "w.svg").read_bytes(), (tmp_path / "w.png").read_bytes()
    picture("w.npy", "--rows", "words.txt", "--columns", "words.txt", "-o", "w.svg", "-o", "w.png", "--scale", "sqrt",
            "--title", "<b> & 'c'")
    assert before == ((tmp_path / "w.svg").read_bytes(), (tmp_path / "w.png").read_bytes())


@pytest.mark.parametrize("arguments, status, message", [
    (["w.npy", "--rows", "a,b"], 2, "--rows: 2 words for 3"),
    (["w.npy", "--columns", "a,b,c,d"], 2, "--columns: 4 words for 3"),
    (["w.npy", "--rows", "token.txt"], 2, "--rows: no file 'token.txt'; put commas between words, as in the,cat,sat"),
    (["w.npy", "--rows", "."], 3, "'.' can't be read"),
    (["heads.npz"], 2, "heads.npz holds 2 tensors (other, w): name one, as in heads.npz:other"),
    (["missing.npy"], 3, "missing.npy"),
    (["below.npy", "--scale", "sqrt", "-o", "x.svg"], 1, "values have -0.5 at [0,1], expected 0 or more on the scale sqrt"),
    (["cube.npy"], 1, "weights have shape [2,2,2,2], expected [Tq,Tk] or [H,Tq,Tk]"),
    (["line.npy"], 1, "weights have shape [3], expected [Tq,Tk] or [H,Tq,Tk]"),
    (["empty.npy"], 1, "values have shape [0,3], expected at least one row and one column"),
    (["whole.npy"], 1, "values are i64, expected a floating point type"),
    (["w.npy", "--mask", "w.npy"], 1, "mask is f32, expected bool"),
    (["w.npy", "-o", "no/such/folder.svg"], 1, "no/such/folder.svg"),
])
def test_mistakes(picture, weights, tmp_path, arguments, status, message):
    np.save(tmp_path / "below.npy", np.array([[1, -0.5]], np.float32))
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2, 2), np.float32))
    np.save(tmp_path / "line.npy", np.zeros(3, np.float32))
    np.save(tmp_path / "empty.npy", np.zeros((0, 3), np.float32))
    np.save(tmp_path / "whole.npy", np.zeros((2, 2), np.int64))
    told = picture(*arguments, status=status)
    assert message in told and told.startswith("attend: ") and "Traceback" not in told
    assert told.count("\n") == (2 if status == 2 else 1)


def test_characters_that_the_font_lacks_are_named(command, weights, tmp_path):
    result = subprocess.run([command, "picture", "w.npy", "--rows", "a,b,猫", "-o", "w.png"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0 and "the font has no 猫, which became boxes" in result.stderr
