"""Heads count from 0 on every road: the same number is the same head in the command, its files, the page and Python."""

import json
import re
import subprocess

import numpy
import pytest

import attend

TEXT, HEADS, FOCUS = "the cat sat on the mat", 3, 1
SENTENCE = [TEXT, "--heads", str(HEADS), "--focus", str(FOCUS + 1)]


@pytest.fixture(scope="module")
def run(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")

    def attend_(*arguments, status=0):
        done = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done

    attend_.folder = folder
    return attend_


@pytest.fixture(scope="module")
def weights(run):
    """Of each head, by NumPy from the command's queries and keys: [H,T,T]."""
    tensors = {name: numpy.array(values) for name, values in json.loads(run("explain", *SENTENCE, "--json").stdout)["tensors"].items()}
    scores = tensors["queries"] @ tensors["keys"].swapaxes(1, 2) / numpy.sqrt(24)
    e = numpy.exp(scores - scores.max(-1, keepdims=True))
    found = e / e.sum(-1, keepdims=True)
    numpy.testing.assert_allclose(tensors["weights"], found, atol=1e-5)
    return found


def row_in(text):
    """The weights that the walk's softmax lists of the query."""
    table = text[text.index("Softmax turns scores"):text.index("row sum =")]
    return [float(line.split()[-1]) for line in table.splitlines() if re.fullmatch(r" +\S+( +-?\d+\.\d{4}){3}", line)]


@pytest.mark.parametrize("head", range(HEADS))
def test_a_head_has_one_number(head, run, weights):
    trace = attend.explain(TEXT, heads=HEADS)
    text = run("explain", *SENTENCE, "--head", str(head)).stdout
    numpy.testing.assert_allclose(row_in(text), weights[head, FOCUS], atol=6e-5)
    assert f"Who attends to whom (head {head})" in text and f"There are 3 heads, 0 to 2. This is what head {head} looks at." in text
    assert text == trace.to_text(focus=FOCUS, head=head)

    run("explain", *SENTENCE, "--head", str(head), "-o", "x.html", "-o", "x.svg", "-o", "x.attend")
    for page in ((run.folder / "x.html").read_text(), trace.to_html(focus=FOCUS, head=head)):
        assert f"Who attends to whom (head {head})" in page
        request = re.search(r'id="request">(.*?)</script>', page)  # where the page that computes is built in
        assert request is None or json.loads(request.group(1))["head"] == head
    assert re.findall(r">head (\d)<", (run.folder / "x.svg").read_text()) == [str(head)]

    run("show", "x.attend", "--layer", "0", "--head", str(head), "-o", "w.npy")
    numpy.testing.assert_allclose(numpy.load(run.folder / "w.npy"), weights[head], atol=1e-5)
    assert f"\n0.{head}: " in run("show", "x.attend", "--layer", "0", "--head", str(head)).stdout
    numpy.testing.assert_allclose(attend.Recording.load(run.folder / "x.attend")[0].weights(head), weights[head], atol=1e-5)


def test_the_first_is_head_0(run, tmp_path):
    assert run("explain", *SENTENCE).stdout == run("explain", *SENTENCE, "--head", "0").stdout
    trace = attend.explain(TEXT, heads=HEADS)
    assert re.findall(r">head (\d)<", trace.to_svg()) == ["0", "1", "2"]
    one = attend.explain(TEXT, heads=1).to_text()
    assert "(head 0)" in one and "heads, 0 to" not in one


def test_a_head_that_is_not_there(run):
    trace = attend.explain(TEXT, heads=HEADS)
    told = run("explain", *SENTENCE, "--head", "3", status=2).stderr
    assert told.startswith("attend: --head: expected a head from 0 to 2, got 3\n")
    run("explain", *SENTENCE, "-o", "x.attend")
    told = run("show", "x.attend", "--layer", "0", "--head", "3", status=2).stderr
    assert told.startswith("attend: --head: layer 0.self has 0 to 2, got 3\n")
    for ask in (trace.to_text, trace.to_html, trace.to_svg, trace.to_png):
        with pytest.raises(ValueError, match="explain: head is 3, expected 0 to 2$"):
            ask(head=3)
    with pytest.raises(ValueError, match="head 3, expected 0 to 2"):
        attend.Recording.load(run.folder / "x.attend")[0].weights(3)
    with pytest.raises(ValueError, match="explain: head is 1, expected 0 alone$"):
        attend.explain(TEXT).to_text(head=1)
