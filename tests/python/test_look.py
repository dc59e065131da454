"""What a recording shows: the command and Python draw and say the same."""

import csv
import io
import json
import subprocess
import xml.etree.ElementTree

import numpy
import pytest

import attend
from attend import _core

H, D = 3, 8


def make(path, tokens=300, blocks=256, keep=True, words=None, sized=False, **options):
    """A recording of one layer, in a file."""
    random = numpy.random.default_rng(tokens)
    q, k = (random.standard_normal((1, H, tokens, D), numpy.float32) for _ in "qk")
    _, lse, lse_low = attend.attention(q, k, k, return_lse=True, return_lse_low=True, **options)
    recorder = _core._recorder(8, blocks, blocks, keep, sized, 2**30, False)
    sizes = numpy.abs(random.standard_normal((1, H, tokens), numpy.float32)) if sized else None
    q, k = (numpy.moveaxis(x, 1, 2) for x in (q, k))
    recorder.add("0.self", "self", [0, 1, 2], None, sizes, q, k, lse, lse_low, **options)
    recording = attend.Recording(recorder.finish())
    recording.model = "a/model"
    if words:
        recording.tokens = words
    recording.save(path)
    return attend.Recording.load(path)


@pytest.mark.parametrize("tokens, options", [
    (300, {"window": (16, 16)}), (300, {"causal": True}), (257, {"causal": True, "window": (16, 0)}),
    (5, {"causal": True}), (64, {"window": (2, 2)}), (1000, {"causal": True})])
@pytest.mark.parametrize("keep", [True, False])
def test_both_doors_draw_the_same(command, tmp_path, tokens, options, keep):
    words = [f"w{n}" for n in range(tokens)]
    recording = make(tmp_path / "x.attend", tokens, keep=keep, words=words, **options)
    layer = recording[0]
    for arguments, picture in (
            (["--head", "0.1"], layer.picture(1)), (["--head", "0.2", "--scale", "log"], layer.picture(2, scale="log")),
            (["--head", "0.1", "--strip", "lift"], layer.strip(1, "lift")), (["--head", "0.1", "--links"], layer.links(1)),
            ([], recording.picture())):
        subprocess.run([command, "show", "x.attend", *arguments, "-o", "x.svg", "-o", "x.png"], cwd=tmp_path, check=True,
                       capture_output=True)
        assert (tmp_path / "x.svg").read_text() == picture.to_svg()
        assert (tmp_path / "x.png").read_bytes() == picture.to_png()


def head_by_norm(recording, head):
    """(weights, carried as shares of what a query takes in the mean), from the exact weights."""
    layer = recording[0]
    weights = layer.weights(head).astype(numpy.float64)
    carried = weights * layer.key_sizes[0, head]
    return weights, carried / (carried.sum() / layer.queries)


@pytest.mark.parametrize("tokens", [30, 300])
def test_by_norm(command, tmp_path, tokens):
    """Maps, strips, links, heads and words say shares of what a query takes in the mean; both doors say the same."""
    recording = make(tmp_path / "x.attend", tokens, blocks=16, sized=True, causal=True, words=[f"w{n}" for n in range(tokens)])
    layer = recording[0]
    _, shares = head_by_norm(recording, 1)
    rows, columns = (numpy.arange(tokens) * 16 // tokens for _ in "rc")
    means = numpy.stack([[shares[rows == r][:, columns == c].sum(1).mean() for c in range(16)] for r in range(16)])
    if tokens > 64:
        drawn = numpy.asarray(layer.carried_map[0, 1]) / (layer.carried_received[0, 1].sum() / tokens)
        numpy.testing.assert_allclose(drawn, means, rtol=1e-4, atol=1e-6)
    assert [link[0] for link in layer._raw.scores(0, "norm")[1].labels] == [
        label.split()[0] for label in recording.heads(by="norm")[1]["labels"].split(", ")]

    def show(*arguments):
        return subprocess.run([command, "show", "x.attend", "--by", "norm", *arguments], cwd=tmp_path, check=True,
                              capture_output=True).stdout.decode()

    for arguments, picture in (
            (["--head", "0.1"], layer.picture(1, by="norm")), (["--head", "0.1", "--strip", "received"], layer.strip(1, by="norm")),
            (["--head", "0.1", "--links"], layer.links(1, by="norm")), ([], recording.picture(by="norm"))):
        show(*arguments, "-o", "x.svg")
        drawn = (tmp_path / "x.svg").read_text()
        assert drawn == picture.to_svg()
        texts = xml.etree.ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
        assert " by norm" in drawn and "By norm: weight times |W_O v|" in " ".join(text.text or "" for text in texts)
        assert drawn != layer.picture(1).to_svg()
    assert show("--json") == recording.to_json(by="norm") and json.loads(recording.to_json(by="norm"))["by"] == "norm"
    assert show("--csv") == recording.to_csv(by="norm") != recording.to_csv()
    row = json.loads(show("--head", "0.1", "--query", "20", "--json"))
    order = numpy.argsort(-shares[20], kind="stable")[:8]
    assert [key["key"] for key in row["top"]] == order.tolist()
    numpy.testing.assert_allclose([key["weight"] for key in row["top"]], shares[20][order], rtol=1e-4)
    telling = recording.telling_heads(by="norm")
    link = next(head for head in telling if head.name == "0.1").links[0]
    numpy.testing.assert_allclose(link.weight, shares[link.query, link.key], rtol=1e-4)
    assert "by norm" in show("--head", "0.1", "--query", "20") and "By norm: a weight times" in show()


def test_by_norm_where_it_is_not_known(command, tmp_path):
    recording = make(tmp_path / "x.attend", 30)
    for ask in (lambda: recording.heads(by="norm"), lambda: recording[0].picture(0, by="norm"),
                lambda: recording[0].weights(0, by="norm"), lambda: recording.telling_heads(by="norm")):
        with pytest.raises(ValueError, match="0.self.*by weight only: record with key_sizes"):
            ask()
    with pytest.raises(ValueError, match="by is 'length', expected weight or norm"):
        recording.heads(by="length")
    with pytest.raises(ValueError, match="values by norm: expected received, got 'lift'"):
        make(tmp_path / "y.attend", 30, sized=True)[0].strip(0, "lift", by="norm")
    told = subprocess.run([command, "show", "x.attend", "--by", "norm"], cwd=tmp_path, capture_output=True, check=False)
    assert told.returncode == 2 and b"--by: layer 0.self was recorded by weight only; record it with --by norm" in told.stderr


@pytest.mark.parametrize("tokens", [5, 300])
def test_captions_say_what_is_known(tmp_path, tokens):
    recording = make(tmp_path / "x.attend", tokens, words=[" the", "cat", *["."] * (tokens - 2)], causal=True)
    layer = recording[0]
    for picture in (layer.picture(1), layer.picture(1, queries=(1, 3)), layer.strip(1), layer.links(1), recording.picture()):
        texts = [text.text for text in xml.etree.ElementTree.fromstring(picture.to_svg()).iter("{http://www.w3.org/2000/svg}text")]
        found = " ".join(texts)
        assert "“thecat..." in found and f"{tokens} tokens, f32." in found and "a/model" in found
    assert "“thecat" not in make(tmp_path / "x.attend", tokens, causal=True)[0].picture(1).to_svg()


def expected_links(layer, head, words, causal):
    """Of each word its largest weight among words that are 2 or more apart, neither the sink nor a decoder's first token."""
    top, weights = layer.top_keys[0, head], layer.top_weights[0, head]
    is_word = [any(c.isalnum() for c in word) and word[0] + word[-1] not in ("[]", "<>") for word in words]
    scores = layer._raw.scores(0)[head]
    labels = [label for label, _ in scores.labels]
    found = []
    for i in range(len(words)):
        keys = [(float(w), int(j)) for j, w in zip(top[i], weights[i]) if j >= 0 and is_word[i] and is_word[j] and abs(i - j) > 1
                and not (causal and j == 0) and not ("sink" in labels and j == scores.sink_key)]
        if keys:
            found.append((i, keys[0][1], keys[0][0]))
    return sorted(found, key=lambda link: -link[2])


@pytest.mark.parametrize("causal", [False, True])
def test_telling_heads(tmp_path, causal):
    words = ["[CLS]", *(f"w{n}" if n % 3 else "." for n in range(28)), "<s>"]
    recording = make(tmp_path / "x.attend", 30, words=words, causal=causal)
    links = {head: expected_links(recording[0], head, words, causal) for head in range(H)}
    strength = {head: sum(link[2] for link in of[:max(3, len(of) // 4)]) / max(3, len(of) // 4) for head, of in links.items()}
    telling = recording.telling_heads()
    assert [head.name for head in telling] == [f"0.{head}" for head in sorted(links, key=lambda head: -strength[head])]
    for head in telling:
        found = [link[:3] for link in head.links]
        assert found == links[int(head.name[2:])]
        assert all((link.query_token, link.key_token) == (words[link.query], words[link.key]) for link in head.links)
    assert len(recording.telling_heads(1)) == 1 and make(tmp_path / "x.attend", 30).telling_heads() == []


def test_csv_and_json(command, tmp_path):
    recording = make(tmp_path / "x.attend", 20, causal=True, words=[f"w{n}" for n in range(20)])

    def show(*arguments):
        return subprocess.run([command, "show", "x.attend", *arguments], cwd=tmp_path, check=True, capture_output=True).stdout.decode()

    assert show("--json") == recording.to_json() and show("--csv") == recording.to_csv()
    show("-o", "x.csv")
    assert (tmp_path / "x.csv").read_text() == recording.to_csv()
    rows = list(csv.DictReader(io.StringIO(recording.to_csv())))
    heads = recording.heads()
    assert [*rows[0]] == [*heads.dtype.names]
    scores = recording[0]._raw.scores(0)
    for row, head, told, score in zip(rows, heads, json.loads(recording.to_json())["heads"], scores, strict=True):
        assert (row["layer"], row["name"], row["labels"]) == (head["layer"], told["name"], head["labels"])
        assert head["name"] == told["name"]
        for name in heads.dtype.names[4:]:
            assert row[name] == ("" if numpy.isnan(head[name]) else row[name]) and (not row[name] or float(row[name]) == head[name])
        for name in (name for name in heads.dtype.names[4:] if not name.endswith("_excess")):
            one = getattr(score, name)
            assert told[name] == one and (numpy.isnan(head[name]) if one is None else head[name] == one)
