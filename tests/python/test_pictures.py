"""picture(), token_strip(), head_grid() and token_links()."""

import os
import xml.etree.ElementTree

import numpy
import pytest

import attend

SVG = "{http://www.w3.org/2000/svg}"
WORDS = ["the", "<script>", "cat & co"]
WEIGHTS = numpy.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]], numpy.float32)
CAUSAL = numpy.tri(3, dtype=bool)
TOP_KEYS = numpy.array([[0, -1], [1, 0], [0, 2]])
TOP_WEIGHTS = numpy.array([[1, 0], [0.75, 0.25], [0.5, 0.25]], numpy.float32)
MAKERS = {
    "picture": lambda **more: attend.picture(WEIGHTS, rows=WORDS, columns=WORDS, title="a <b>", **more),
    "token_strip": lambda **more: attend.token_strip(WORDS, WEIGHTS.sum(0), title="a <b>", **more),
    "head_grid": lambda **more: attend.head_grid(numpy.stack([[WEIGHTS] * 3] * 2), rows=["one", "<two>"], title="a <b>", **more),
    "token_links": lambda **more: attend.token_links(TOP_KEYS, TOP_WEIGHTS, rows=WORDS, columns=WORDS, title="a <b>", **more),
}


def texts(picture):
    root = xml.etree.ElementTree.fromstring(picture.to_svg())
    return [element.text for element in root.iter(f"{SVG}text")]


def hatched(picture):
    return "#eeeeee" in picture.to_svg()


@pytest.mark.parametrize("name", MAKERS)
def test_each_is_shown_and_saved_and_equal_arguments_give_equal_bytes(name, tmp_path):
    picture = MAKERS[name]()
    assert picture.title == "a <b>" and repr(picture) == "<attend.Picture: a <b>>"
    assert picture._repr_svg_() == picture.to_svg() == MAKERS[name]().to_svg()
    assert picture.to_png() == MAKERS[name]().to_png() and picture.to_png().startswith(b"\x89PNG\r\n")
    assert "a <b>" in texts(picture)
    picture.save(tmp_path / "x.svg")
    picture.save(os.fsencode(tmp_path / "x.png"))
    assert (tmp_path / "x.svg").read_text() == picture.to_svg() and (tmp_path / "x.png").read_bytes() == picture.to_png()
    for other in ("x.gif", "x", "svg"):
        with pytest.raises(ValueError, match=r"^Picture.save: '.*' should end in .svg or .png$"):
            picture.save(str(tmp_path / other))
    with pytest.raises(OSError, match="no/such"):
        picture.save("no/such/folder/x.svg")


@pytest.mark.parametrize("name", MAKERS)
def test_scales(name):
    pictures = {scale: MAKERS[name](scale=scale) for scale in ("linear", "sqrt", "log")}
    assert len({picture.to_svg() for picture in pictures.values()}) == 3
    assert "Colour scale: square root." in " ".join(texts(pictures["sqrt"]))
    if name == "token_links":
        with pytest.raises(ValueError, match="^token_links: scale is diverging"):
            MAKERS[name](scale="diverging")
    else:
        assert MAKERS[name](scale="diverging").to_svg() not in [picture.to_svg() for picture in pictures.values()]
    with pytest.raises(ValueError, match=f"^{name}: scale: expected 'linear', 'sqrt', 'log' or 'diverging', got 'cubic'$"):
        MAKERS[name](scale="cubic")
    assert MAKERS[name](low=0, high=2).to_svg() != pictures["linear"].to_svg()
    with pytest.raises(ValueError, match=f"^{name}: expected finite low <= high, got low 2 and high 1"):
        MAKERS[name](low=2, high=1)


def test_hidden_pairs():
    assert not hatched(attend.picture(WEIGHTS))
    nan = numpy.where(CAUSAL, WEIGHTS, numpy.nan)
    masked = attend.picture(WEIGHTS, mask=CAUSAL)
    assert hatched(masked) and masked.to_svg() == attend.picture(nan).to_svg()
    assert str(masked) == str(attend.picture(nan)) and str(masked).endswith("╱╱ hidden")
    assert hatched(attend.head_grid([WEIGHTS[None]], mask=CAUSAL))
    assert hatched(attend.token_strip(WORDS, [1, numpy.nan, 2]))
    heads = attend.picture(numpy.stack([WEIGHTS] * 2), mask=numpy.stack([CAUSAL, CAUSAL | True]))
    assert heads.to_text().count("hidden") == 1 and "head 1" in texts(heads)


def test_text_for_the_terminal():
    assert str(attend.picture(WEIGHTS, rows=WORDS, title="T")).splitlines()[0] == "T"
    strip = attend.token_strip(["a", "b"], numpy.array([0, 1.0]), name="lift")
    assert str(strip) == " a █b\nlift:\n0 │   ░░░░░▒▒▒▒▓▓▓▓▓███│ 1"
    assert "\x1b[" in strip.to_text(colour=True) and "\x1b[" not in strip.to_text()
    assert max(map(len, attend.picture(WEIGHTS).to_text(width=40).splitlines())) <= 40
    with pytest.raises(ValueError, match="^Picture.to_text: expected a width of 1 or more, got 0"):
        strip.to_text(width=0)
    assert str(attend.head_grid([WEIGHTS[None]])) == "<attend.Picture>"


def test_blocks_and_tiles():
    picture = attend.picture(WEIGHTS, queries=(0, 96), keys=(0, 7), reduction="sum over keys, mean over queries")
    note = "Each cell is 32 queries × up to 3 keys: sum over keys, mean over queries."
    assert note in texts(picture) and note in str(picture)
    assert "1002" in texts(attend.picture(WEIGHTS, queries=(1000, 1003)))
    assert "Each cell is 32 queries × 3 keys." in texts(attend.head_grid([WEIGHTS[None]], queries=(0, 96), keys=(0, 9)))


def test_a_picture_has_its_own_numbers():
    weights = WEIGHTS.copy()
    picture = attend.picture(weights, mask=CAUSAL)
    png = picture.to_png()
    weights[:] = 0
    assert picture.to_png() == png


def test_lists_and_other_dtypes():
    svg = attend.picture(WEIGHTS).to_svg()
    assert attend.picture(WEIGHTS.tolist()).to_svg() == attend.picture(WEIGHTS.astype(numpy.float16)).to_svg() == svg
    assert attend.picture(WEIGHTS.T.copy().T[None, None]).to_svg() == svg
    layers = attend.head_grid([WEIGHTS[None, None], WEIGHTS[None]])
    assert layers.to_svg() == attend.head_grid(numpy.stack([WEIGHTS] * 2)[:, None]).to_svg()


def test_many_tokens():
    picture = attend.token_strip([f"token{i}" for i in range(2000)], numpy.arange(2000.0))
    assert "token1999" in texts(picture)


@pytest.mark.parametrize("make, kind, message", [
    (lambda: attend.picture(WEIGHTS, rows=WORDS[:2]), ValueError, "2 row labels for 3 rows"),
    (lambda: attend.picture(WEIGHTS, columns=[*WORDS, "x"]), ValueError, "4 column labels for 3 columns"),
    (lambda: attend.picture(WEIGHTS, rows="cat"), TypeError, "rows: expected a list of words, got 'cat'"),
    (lambda: attend.picture(WEIGHTS, rows=["a", "b", 3]), TypeError, r"rows\[2\] can't be 3"),
    (lambda: attend.picture(WEIGHTS, rows=["a", "b", "\udc80"]), TypeError, r"rows\[2\] can't be"),
    (lambda: attend.picture(WEIGHTS[0]), ValueError, r"weights have shape \[3\], expected \[Tq,Tk\] or \[H,Tq,Tk\]"),
    (lambda: attend.picture(numpy.zeros((0, 3))), ValueError, "expected at least one row"),
    (lambda: attend.picture(numpy.zeros((2, 2), int)), TypeError, "values are int64"),
    (lambda: attend.picture("w.npy"), TypeError, "picture: weights"),
    (lambda: attend.picture(WEIGHTS, mask=WEIGHTS), TypeError, "mask is float32, expected bool"),
    (lambda: attend.picture(WEIGHTS, mask=CAUSAL[:2]), ValueError, r"mask \[2,3\] does not broadcast to weights \[3,3\]"),
    (lambda: attend.picture(WEIGHTS, heads=["a", "b"]), ValueError, "2 titles for 1 heads"),
    (lambda: attend.picture(WEIGHTS, queries=3), TypeError, r"queries: expected \(begin, end\), two whole numbers, got 3"),
    (lambda: attend.picture(WEIGHTS, keys=(0, 2)), ValueError, "column_range is 0 to 2, expected 3 or more"),
    (lambda: attend.picture(-WEIGHTS, scale="log"), ValueError, r"values have -1 at \[0,0\], expected 0 or more on the scale log"),
    (lambda: attend.token_strip(WORDS, [1, 2]), ValueError, "3 tokens for 2 values"),
    (lambda: attend.token_strip([], []), ValueError, "expected .tokens., at least one"),
    (lambda: attend.head_grid(WEIGHTS), ValueError, r"maps have shape \[3,3\], expected \[L,H,Tq,Tk\]"),
    (lambda: attend.head_grid([]), ValueError, "no maps"),
    (lambda: attend.head_grid([WEIGHTS[None], numpy.stack([WEIGHTS] * 2)]), ValueError, "a layer has 2 heads, the one before 1"),
    (lambda: attend.head_grid([WEIGHTS[None]], rows=WORDS), ValueError, "3 row labels for 1 rows of maps"),
    (lambda: attend.token_links(TOP_KEYS, TOP_WEIGHTS, columns=["a"]), ValueError, r"top_keys have 1 at \[1,0\]"),
    (lambda: attend.token_links(TOP_KEYS, TOP_WEIGHTS[:2]), ValueError, r"got \[3,2\] and \[2,2\]"),
    (lambda: attend.token_links(TOP_WEIGHTS, TOP_WEIGHTS), TypeError, "top_keys are float32, expected int64"),
])
def test_mistakes(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
