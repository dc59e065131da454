"""attend show: recordings that NumPy made, and what the command says of them."""

import json
import subprocess
import xml.etree.ElementTree

import head_oracle
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

SVG = "{http://www.w3.org/2000/svg}"
SCORES = ["sink", "sink_key", "self", "previous", "duplicate", "induction", "local", "entropy", "effective_keys", "distance"]
T, H, LAYERS, D, BATCH = 12, 3, 2, 8, 2
TOKENS = [[f"t{i % 5}" for i in range(T)], ["the", "猫", "<b>", "\x1b[31m", "a\nb", "naïve", "x", "y", "z", "the", "猫", "end"]]


def softmax(q, k, visible):
    logits = np.where(visible, (q @ np.swapaxes(k, -1, -2)).astype(np.float64) / np.sqrt(q.shape[-1]), -np.inf)
    lse = np.log(np.exp(logits).sum(-1))
    return np.exp(logits - lse[..., None]), lse


def layer_tensors(rng, rows, columns, causal, blocks, top=3, ids=None, targets=None):
    """By the definitions of docs/inside.md, in float64: what a layer of a recording holds.

    targets: of each head, the key that query i looks at, target(i); without them q and k are random.
    """
    q, k = (rng.standard_normal((BATCH, H, n, D)).astype(np.float32) for n in (rows, columns))
    i, j = np.arange(rows)[:, None], np.arange(columns)
    visible = j <= i if causal else np.ones((rows, columns), bool)
    if targets:
        q, k = (np.broadcast_to(np.eye(rows, dtype=np.float32) * 4, (BATCH, H, rows, rows)) for _ in "qk")
        q = np.stack([10 * k[:, h, [min(max(0, target(n)), n) for n in range(rows)]] for h, target in enumerate(targets)], 1)
    w, lse = softmax(q, k, visible)
    order = np.argsort(-w, -1, kind="stable")[..., :top]
    top_weights = np.take_along_axis(w, order, -1)
    entropy = -(w * np.log(np.where(w > 0, w, 1))).sum(-1)
    uniform = np.where(visible, 1 / visible.sum(-1, keepdims=True), 0).sum(0)
    of_row, of_column = np.arange(rows) * blocks[0] // rows, np.arange(columns) * blocks[1] // columns
    in_blocks = [[w[..., of_row == r, :][..., of_column == c] for c in range(blocks[1])] for r in range(blocks[0])]
    maps = {name: np.moveaxis(np.array([[of(b) for b in row] for row in in_blocks]), (0, 1), (-2, -1))
            for name, of in (("map", lambda b: b.sum(-1).mean(-1)), ("map_max", lambda b: b.max((-1, -2))))}
    tensors = {"lse": lse, "lse_low": 0 * lse, "top_weights": top_weights, "entropy": entropy,
               "distance": (w * abs(i - j)).sum(-1), "received": w.sum(-2), "lift": w.sum(-2) / uniform, **maps, "q": q, "k": k}
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    tensors["top_keys"] = np.where(top_weights > 0, order, -1)
    offset = 0 if rows == columns else None
    tensors["scores"] = np.array([[head_oracle.file_row(head_oracle.scores(w[b, h], visible, ids, offset)) for h in range(H)]
                                  for b in range(BATCH)])
    return tensors, w


def save(path, layers, version=2, **root):
    """layers: of each its tensors and its metadata."""
    entries = []
    for tensors, more in layers:
        rows, columns = tensors["lse"].shape[2], tensors["received"].shape[2]
        blocks = list(tensors["map"].shape[2:])
        entry = {"kind": "self", "dtype": "f32", "batch": tensors["lse"].shape[0], "heads": [*range(tensors["lse"].shape[1])],
                 "kv_heads": tensors["lse"].shape[1], "head_size": tensors["q"].shape[-1] if "q" in tensors else D,
                 "queries": rows, "keys": columns,
                 "top": tensors["top_keys"].shape[-1], "map": {"blocks": blocks, "range": [rows, columns]},
                 "has": [name for name, key in (("distance", "distance"), ("qk", "q")) if key in tensors],
                 "calls": [{"queries": [0, rows], "keys": [0, columns], "scale": D ** -0.5}]}
        entry |= more
        entry["calls"][0] |= {"causal": True, "offset": 0} if more.get("causal") else {}
        entry.pop("causal", None)
        if entry["map"]["blocks"] == entry["map"]["range"]:  # of single pairs, both maps are the weights
            tensors.pop("map_max", None)
        entries.append(entry)
    metadata = {"version": version, "model": "a/model", "layers": entries, **root}
    flat = {f"layers.{n}.{name}": np.ascontiguousarray(t) for n, (tensors, _) in enumerate(layers) for name, t in tensors.items()}
    save_file(flat, path, {"attend.recording": json.dumps(metadata)})


@pytest.fixture
def weights(tmp_path):
    """x.attend: two causal layers of a batch of two, the second with a map of 4 x 4 blocks. Their weights."""
    rng = np.random.default_rng(15)
    first, w = layer_tensors(rng, T, T, True, (T, T))
    second, v = layer_tensors(rng, T, T, True, (4, 4), ids=np.arange(T) % 3)
    save(tmp_path / "x.attend", [(first, {"name": "0.self", "causal": True}), (second, {"name": "1.self", "causal": True})],
         tokens=TOKENS)
    return w, v


@pytest.fixture
def show(command, tmp_path):
    def attend(*arguments, status=0):
        done = subprocess.run([command, "show", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout

    return attend


def tensors_of(path):
    with safe_open(path, "numpy") as file:
        names, metadata = file.keys(), file.metadata()["attend.recording"]
        return {name: file.get_tensor(name) for name in names}, json.loads(metadata)


def expected_heads(weights, item=0):
    """From the layers' weights, without the library."""
    heads, ids = [], (None, np.arange(T) % 3)
    for n, w in enumerate(weights):
        for head in range(H):
            s = head_oracle.scores(w[item, head], np.tri(T, dtype=bool), ids[n])
            listed = [{"name": name, "value": value} for name, value in s["labels"]]
            rest = s["without_sink"]
            if rest:
                rest = {"labels": [{"name": name, "value": value} for name, value in rest["labels"]], "excess": rest["excess"],
                        "effective_keys": rest["effective_keys"], "rows_left_out": rest["rows_left_out"]}
            heads.append({"layer": f"{n}.self", "head": head, "name": f"{n}.{head}", "labels": listed} |
                         {name: s[name] for name in SCORES} | {"excess": s["excess"], "without_sink": rest, "text": head_oracle.text(s)})
    return heads


def near(found, expected):
    """Sums may be ordered otherwise."""
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(near(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(near, found, expected))
    return found == (pytest.approx(expected, rel=1e-9, abs=1e-12) if isinstance(expected, float) else expected)


# ---- JSON ----


@pytest.mark.parametrize("item", [0, 1])
def test_json(show, weights, tmp_path, item):
    found = json.loads(show("x.attend", "--json", "--item", str(item)))
    assert {name: found[name] for name in ("schema_version", "model", "item", "tokens", "decoder_tokens")} == {
        "schema_version": 1, "model": "a/model", "item": item, "tokens": TOKENS[item], "decoder_tokens": None}
    layer = {"kind": "self", "dtype": "f32", "heads": [0, 1, 2], "queries": T, "keys": T, "qk": True}
    assert found["layers"] == [{"name": name} | layer for name in ("0.self", "1.self")]
    for head, expected in zip(found["heads"], expected_heads(weights, item), strict=True):
        expected.pop("text")
        assert near(head, expected)


@pytest.mark.parametrize("score", ["sink", "self", "previous", "duplicate", "induction", "local", "entropy", "distance", "layer"])
def test_sorting_and_choosing(show, weights, score):
    heads = expected_heads(weights)
    if score != "layer":
        heads.sort(key=lambda head: -np.inf if head[score] is None else head[score], reverse=True)
    places = [(head["layer"], head["head"]) for head in heads]
    found = json.loads(show("x.attend", "--json", "--sort", score))["heads"]
    assert [(head["layer"], head["head"]) for head in found] == places
    assert [row.split()[:2] for row in table_of(show("x.attend", "--sort", score, "--limit", "4"))[1:]] == [
        [layer, str(head)] for layer, head in places[:4]]


@pytest.fixture
def kinds(tmp_path):
    """kinds.attend: 48 queries of 16 tokens, three times; of each head of two layers the key that it looks at."""
    targets = [[lambda i: i - 1, lambda i: i, lambda i: i - 16], [lambda i: i - 15, lambda i: 0, lambda i: i - 2 - i % 3]]
    layers = [layer_tensors(np.random.default_rng(n), 48, 48, True, (48, 48), ids=np.arange(48) % 16, targets=of)[0]
              for n, of in enumerate(targets)]
    save(tmp_path / "kinds.attend", [(tensors, {"name": f"{n}.self", "causal": True, "has": ["distance", "tokens", "qk"]})
                                     for n, tensors in enumerate(layers)])


def test_labels(show, kinds):
    heads = json.loads(show("kinds.attend", "--json"))["heads"]
    assert [head["labels"][0]["name"] for head in heads] == ["previous", "self", "duplicate", "induction", "sink", "local"]
    for name in ("sink", "self", "previous", "duplicate", "induction", "local"):
        found = json.loads(show("kinds.attend", "--json", "--label", name))["heads"]
        assert len(found) >= 1 and found == [head for head in heads if name in {
            label["name"] for label in head["labels"] + (head["without_sink"] or {"labels": []})["labels"]}]
    assert show("kinds.attend", "--label", "broad").endswith("no head has the label broad\n")
    assert json.loads(show("kinds.attend", "--json", "--layer", "1"))["heads"] == heads[3:]
    row = show("kinds.attend", "--label", "induction", "--width", "80").splitlines()[-2]
    assert row.split()[:4] == ["1.self", "0", "induction", "1.00"]
    assert "1.0: induction" in show("kinds.attend", "--head", "1.0").splitlines()[3]


def test_a_head_is_called_as_the_model_calls_it(show, tmp_path):
    """A recording may be of some layers: 4.1 is head 1 of layer 4, and no place among those that are there."""
    layers = [layer_tensors(np.random.default_rng(n), T, T, True, (T, T))[0] for n in range(2)]
    save(tmp_path / "part.attend", [(tensors, {"name": f"{n}.self", "causal": True}) for n, tensors in zip((3, 4), layers)])
    heads = json.loads(show("part.attend", "--json"))["heads"]
    for head in heads:
        assert json.loads(show("part.attend", "--json", "--head", head["name"]))["heads"] == [head]
    assert heads[4]["name"] == "4.1"
    for name in ("1.1", "0.0", "5.0"):
        layer = name.split(".")[0]
        assert f"--layer: no layer '{layer}'; there are 0 to 1, called 3.self to 4.self" in show(
            "part.attend", "--head", name, status=2)


def test_what_is_not_known_is_no_order(show, weights, tmp_path):
    """A score that no head has is an error where it is asked for."""
    tensors, _ = layer_tensors(np.random.default_rng(1), 5, 7, False, (5, 7))
    few, _ = layer_tensors(np.random.default_rng(2), 5, 5, True, (5, 5))
    del tensors["distance"]
    save(tmp_path / "cross.attend", [(tensors, {"name": "decoder.0.cross", "kind": "cross"})])
    save(tmp_path / "few.attend", [(few, {"name": "0.self", "causal": True})])
    tensors, _ = layer_tensors(np.random.default_rng(3), T, T, True, (T, T))
    save(tmp_path / "idless.attend", [(tensors, {"name": "0.self", "causal": True})])
    old = dict(tensors, scores=tensors["scores"][..., :8])
    save(tmp_path / "old.attend", [(old, {"name": "0.self", "causal": True})], version=1)
    for arguments, message in [
            (["cross.attend", "--sort", "previous"], "--sort: previous is not known for these heads: it is not said which key is level"),
            (["idless.attend", "--sort", "induction"], "--sort: induction is not known for these heads: the tokens' ids are not known"),
            (["idless.attend", "--label", "duplicate"], "--label: whether a head is duplicate is not known: the tokens' ids are not"),
            (["few.attend", "--label", "sink"], "--label: whether a head is sink is not known: 5 queries are too few to tell"),
            (["few.attend", "--label", "broad"], "5 queries are too few to tell from chance"),
            (["old.attend", "--sort", "self"], "--sort: self is not known for these heads: the recording is of version 1"),
            (["old.attend", "--label", "sink"], "the recording is of version 1; record again")]:
        told = show(*arguments, status=2)
        assert message in told and told.startswith("attend: ")
    # What a file of version 1 has is there.
    head = json.loads(show("old.attend", "--json", "--sort", "previous"))["heads"][0]
    assert head["labels"] == [] and head["self"] is None and set(head["excess"].values()) == {None}
    assert head["previous"] == max(tensors["scores"][0, :, 2]) and head["without_sink"] is None
    assert "0.1: unknown (the recording is of version 1; record again)" in show("old.attend", "--head", "0.1")
    assert "0.1: unknown (5 queries are too few to tell from chance" in show("few.attend", "--head", "0.1")


def test_json_holds_no_mark_that_a_terminal_obeys(show, tmp_path):
    tensors, _ = layer_tensors(np.random.default_rng(1), T, T, True, (T, T))
    save(tmp_path / "marks.attend", [(tensors, {"name": "0.self", "causal": True})], tokens=[["\u202e\x9b\x1b\x7f"] * T] * 2)
    text = show("marks.attend", "--json")
    assert not set(text) & set("\u202e\x9b\x1b\x7f") and json.loads(text)["tokens"][0] == "\u202e\x9b\x1b\x7f"


@pytest.mark.parametrize("layer, head, query", [(0, 0, 0), (0, 2, 11), (1, 1, 1), (1, 0, 7)])
def test_query(show, weights, tmp_path, layer, head, query):
    where = ["--layer", str(layer), "--head", str(head), "--query", str(query), "--item", "1"]
    found = json.loads(show("x.attend", "--json", *where))
    w = weights[layer][1, head, query]
    order = [j for j in np.argsort(-w, kind="stable")[:3] if w[j] > 0]
    assert [entry["key"] for entry in found["top"]] == order
    assert [entry["token"] for entry in found["top"]] == [TOKENS[1][j] for j in order]
    np.testing.assert_allclose([entry["weight"] for entry in found["top"]], w[order], rtol=1e-6)
    tensors, _ = tensors_of(tmp_path / "x.attend")
    assert found["query"] == query and found["token"] == TOKENS[1][query]
    assert found["entropy"] == tensors[f"layers.{layer}.entropy"][1, head, query]
    assert found["distance"] == tensors[f"layers.{layer}.distance"][1, head, query]
    assert [(h["layer"], h["head"]) for h in found["heads"]] == [(f"{layer}.self", head)]


# ---- The terminal ----


def table_of(text):
    return text.split("\n\n")[1].splitlines()


def test_the_table(show, weights):
    text = show("x.attend", "--item", "1")
    assert text.splitlines()[:3] == ["a/model", "12 tokens: the 猫 <b> \\x1b[31m a\\x0ab naïve x y z the 猫 end",
                                     "2 layers x 3 heads, q and k kept; item 1 of 2 (from 0)"]
    heading, *rows = table_of(text)
    assert heading.split() == ["layer", "head", "labels", "sink", "at", "key", "self", "previous", "duplicate", "induction",
                               "local", "entropy", "keys", "distance"]
    for row, expected in zip(rows, expected_heads(weights, 1), strict=True):
        assert row.startswith(f"{expected['layer']}  {expected['head']:>4}  {expected['text']}  ")
        sink, key, _token, *numbers = row[14 + len(expected["text"]):].split()
        assert int(key) == expected["sink_key"]
        for number, score in zip([sink, *numbers], [s for s in SCORES if s != "sink_key"], strict=True):
            assert number == "-" if expected[score] is None else abs(float(number) - expected[score]) < 0.06


def test_columns_that_do_not_fit_are_named(show, weights):
    lines = show("x.attend", "--width", "80").splitlines()
    assert max(map(len, lines)) <= 80 and lines[-1].startswith("(too wide for 80 columns: self, ")
    assert "keys  distance" in show("x.attend")
    narrow = show("x.attend", "--width", "60", "--sort", "distance").splitlines()
    assert narrow[4].endswith("entropy  distance")


def test_what_nobody_has_is_left_out(show, tmp_path):
    tensors, _ = layer_tensors(np.random.default_rng(1), 5, 7, False, (5, 7))
    del tensors["distance"], tensors["q"], tensors["k"]
    tensors["scores"][0, 0, 1] = -1  # no key at all
    save(tmp_path / "cross.attend", [(tensors, {"name": "decoder.0.cross", "kind": "cross"})],
         tokens=[["kk"] * 7] * 2, decoder_tokens=[["q"] * 5] * 2)
    text = show("cross.attend")
    assert text.splitlines()[1:4] == ["7 tokens: kk kk kk kk kk kk kk", "5 decoder tokens: q q q q q",
                                      "1 layer x 3 heads; item 0 of 2 (from 0)"]
    assert table_of(text)[0].split() == ["layer", "head", "labels", "sink", "at", "key", "entropy", "keys"]
    assert table_of(text)[1].split()[3:5] == ["-", "-"]
    head = json.loads(show("cross.attend", "--json"))["heads"][0]
    assert [name for name in SCORES if head[name] is None] == [
        "sink", "sink_key", "self", "previous", "duplicate", "induction", "local", "distance"]
    # Keys have the encoder's tokens, queries the decoder's.
    where = ["--layer", "0", "--head", "1"]
    found = json.loads(show("cross.attend", "--json", *where, "--query", "4"))
    queries = found["layers"][[layer["name"] for layer in found["layers"]].index(found["heads"][0]["layer"])]["queries"]
    assert json.loads(show("cross.attend", "--json", *where, "--query", str(4 - queries))) == found
    assert found["token"] == "q" and {entry["token"] for entry in found["top"]} == {"kk"}
    assert show("cross.attend", *where, "--strip", "received", "--scale", "linear").splitlines()[-3].count("kk") == 7
    assert "hidden" not in show("cross.attend", *where)


def test_a_head(show, weights, tmp_path):
    text = show("x.attend", "--layer", "0.self", "--head", "2", "--color", "never", "--width", "80")
    head = expected_heads(weights)[2]
    assert f"\n0.2: {head['text']}\n" in text and f"previous {head['previous']:.2f}" in text and "╱╱ hidden" in text
    assert show("x.attend", "--head", "0.2", "--color", "never", "--width", "80") == text
    rows = [line for line in text.splitlines() if line.endswith("│") and "│" in line[:-1]]
    for i, row in enumerate(rows):
        label, cells = row.split("│")[:2]
        assert label.strip().endswith(TOKENS[0][i])
        seen = cells.rstrip("╱")
        assert "╱" not in seen and (len(seen) < len(cells)) == (i < T - 1)
    assert max(map(len, text.splitlines())) <= 80 and len(rows) == T
    head = expected_heads(weights, 1)[0]
    other = show("x.attend", "--layer", "0", "--head", "0", "--item", "1")
    printed = {"a\nb": "a\\x0ab", "\x1b[31m": "\\x1b[31m"}.get(TOKENS[1][head["sink_key"]], TOKENS[1][head["sink_key"]])
    assert f"sink {head['sink']:.2f} at key {head['sink_key']} {printed} " in other
    # The second layer's map has blocks, but q and k are there, so its weights are exact.
    assert show("x.attend", "--layer", "1", "--head", "0").count("t0") >= 3


def test_a_query_in_words(show, weights):
    lines = show("x.attend", "--layer", "0", "--head", "2", "--query", "5", "--item", "1").splitlines()
    w = weights[0][1, 2, 5]
    top = np.argsort(-w)[:3]
    assert any(line.startswith("query 5 naïve: entropy ") for line in lines)
    assert lines[-5].split() == ["key", "token", "weight"]
    for line, j in zip(lines[-4:-1], top, strict=True):
        assert line.split()[0] == str(j) and f"{w[j]:.4f}" in line and line.count("█") == round(30 * w[j])
    assert lines[-1] == f"together {w[top].sum():.4f} of the row"
    assert show("x.attend", "--layer", "0", "--head", "2", "--query", "0").endswith("this is 1.0000 of the row\n")


@pytest.mark.parametrize("what", ["received", "lift", "entropy"])
def test_a_strip(show, weights, tmp_path, what):
    where = ["x.attend", "--layer", "1", "--head", "2", "--strip", what]
    text = show(*where, "--width", "80")
    assert all(token in text for token in TOKENS[0]) and f"\n{what}" in text
    assert show(*where, "-o", "s.npy", "-o", "s.svg", "-o", "s.png") == ""
    tensors, _ = tensors_of(tmp_path / "x.attend")
    assert (np.load(tmp_path / "s.npy") == tensors[f"layers.1.{what}"][0, 2]).all()
    assert texts(tmp_path / "s.svg").count("t1") == TOKENS[0].count("t1")
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG\r\n")
    tensors, _ = layer_tensors(np.random.default_rng(3), 6, 6, False, (6, 6))
    save(tmp_path / "nameless.attend", [(tensors, {"name": "a"})])
    lines = show("nameless.attend", "--head", "a.2", "--strip", what, "--scale", "linear").splitlines()
    assert [word[1:] for word in lines[-3].split()] == [*"012345"]


# ---- Files ----


def texts(path):
    return [element.text for element in xml.etree.ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def test_files_of_a_head(show, weights, tmp_path):
    where = ["x.attend", "--layer", "1.self", "--head", "1"]
    assert show(*where, "--scale", "sqrt", "-o", "h.svg", "-o", "h.png", "-o", "h.npy", "-o", "h.json") == ""
    np.testing.assert_allclose(np.load(tmp_path / "h.npy"), weights[1][0, 1], atol=1e-6)
    found = texts(tmp_path / "h.svg")
    assert found.count("t1") == 2 * TOKENS[0].count("t1") and "hidden" in found and "Colour scale: square root." in " ".join(found)
    assert f"a/model: 1.1: {expected_heads(weights)[4]['text']}" in found
    assert (tmp_path / "h.json").read_text() == show(*where, "--json")
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_maps_of_blocks(show, tmp_path):
    tensors, w = layer_tensors(np.random.default_rng(2), 70, 70, True, (5, 5))
    save(tmp_path / "long.attend", [(tensors, {"name": "0.self", "causal": True})])
    where = ["long.attend", "--layer", "0", "--head", "1"]
    show(*where, "-o", "m.npy", "-o", "m.svg")
    blocks = np.arange(70) // 14
    expected = [[w[0, 1][blocks == r][:, blocks == c].sum(-1).mean() for c in range(5)] for r in range(5)]
    np.testing.assert_allclose(np.load(tmp_path / "m.npy"), expected, atol=1e-6)
    assert "Each cell is 14 queries × 14 keys: sum over keys, mean over queries." in " ".join(texts(tmp_path / "m.svg"))
    text = show(*where, "--width", "80")
    assert "sum over keys, mean over queries" in text
    assert text.splitlines()[1] == "1 layer x 3 heads, 70 queries x 70 keys, q and k kept; item 0 of 2 (from 0)"
    # What lies above the diagonal alone is hidden; blocks on it are not.
    rows = [line.split("│")[1] for line in text.splitlines() if line.endswith("│") and line.count("│") == 2]
    assert ["╱" in row for row in rows[:5]] == [True] * 4 + [False]


def test_a_generation(show, tmp_path):
    """Its calls follow one another, and its maps have blocks of one size, of which the last is not full."""
    rows, block = 70, 8
    tensors, w = layer_tensors(np.random.default_rng(5), rows, rows, True, (1, 1))
    blocks = np.zeros((BATCH, H, 9, 9))
    for i in range(rows):
        for j in range(i + 1):
            blocks[..., i // block, j // block] += w[..., i, j] / min(block, rows - i // block * block)
    tensors["map"] = tensors["map_max"] = blocks.astype(np.float32)
    calls = [{"queries": [a, b], "keys": [0, b], "scale": D ** -0.5, "causal": True, "offset": a} for a, b in ((0, 60), (60, 61), (61, 70))]
    save(tmp_path / "g.attend", [(tensors, {"name": "0.self", "map": {"blocks": [9, 9], "range": [72, 72]}, "calls": calls})])
    show("g.attend", "--layer", "0", "--head", "1", "-o", "g.npy")
    np.testing.assert_allclose(np.load(tmp_path / "g.npy"), blocks[0, 1], atol=1e-6)
    text = show("g.attend", "--layer", "0", "--head", "1", "--width", "80")
    lines = [line.split("│")[1] for line in text.splitlines() if line.endswith("│") and line.count("│") == 2]
    assert [line.count("╱") * 9 // len(line) for line in lines] == [8 - n for n in range(9)]
    assert text.endswith("Each cell is 8 queries × 8 keys: sum over keys, mean over queries.\n")


def test_windows_and_calls_hide(show, tmp_path):
    """Query i of 8 sees keys i-1 to i+2 of the call's own, which are 2 to 9 of 10."""
    tensors, _ = layer_tensors(np.random.default_rng(6), 8, 10, False, (8, 10))
    del tensors["q"], tensors["k"]
    call = {"queries": [0, 8], "keys": [2, 10], "scale": 1, "window": [1, 2], "offset": 0}
    save(tmp_path / "w.attend", [(tensors, {"name": "0.self", "calls": [call]})])
    text = show("w.attend", "--layer", "0", "--head", "0", "--width", "100")
    rows = [line.split("│")[1] for line in text.splitlines() if line.endswith("│") and line.count("│") == 2]
    for i, row in enumerate(rows):
        cells = [row[n * len(row) // 10 : (n + 1) * len(row) // 10] for n in range(10)]
        assert ["╱" not in cell for cell in cells] == [i - 1 <= j - 2 <= i + 2 and j >= 2 for j in range(10)]


def test_a_long_map_is_drawn_in_larger_blocks_of_its_own_kind(show, tmp_path):
    tensors, w = layer_tensors(np.random.default_rng(4), 100, 100, True, (100, 100))
    del tensors["q"], tensors["k"]
    unseeing = 5  # queries that see nothing count in no mean
    tensors["map"][..., :unseeing, :] = w[..., :unseeing, :] = 0
    tensors["top_keys"][..., :unseeing, :] = -1
    save(tmp_path / "long.attend", [(tensors, {"name": "0.self", "causal": True})], tokens=[["w"] * 100] * 2)
    text = show("long.attend", "--layer", "0", "--head", "2", "--width", "50", "--scale", "linear")
    # Of 50 columns, labels and borders leave 32: blocks of 4.
    assert text.endswith("Each cell is 4 queries × 4 keys: sum over keys,\nmean over queries.\n")
    blocks = w[0, 2].reshape(25, 4, 25, 4).sum((1, 3)) / np.maximum(1, (np.arange(100) >= unseeing).reshape(25, 4).sum(1))[:, None]
    assert text.splitlines()[-3].split("│")[2].split()[0] == f"{blocks.max():.4g}"
    assert blocks.max() != (w[0, 2].reshape(25, 4, 25, 4).sum((1, 3)) / 4).max()  # the mean over all would differ


def test_all_heads_of_a_layer_and_of_the_model(show, weights, tmp_path):
    show("x.attend", "--layer", "0", "-o", "layer.npy", "-o", "layer.svg")
    np.testing.assert_allclose(np.load(tmp_path / "layer.npy"), weights[0][0], atol=1e-6)
    assert [text for text in texts(tmp_path / "layer.svg") if text.startswith("head ")] == [
        f"head {n}: {head['text']}" for n, head in enumerate(expected_heads(weights)[:3])]
    show("x.attend", "-o", "grid.svg", "-o", "grid.png", "--scale", "log")
    assert {"0.self", "1.self", "0", "1", "2", "a/model"} <= set(texts(tmp_path / "grid.svg"))
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_a_recording_of_explain(show, command, tmp_path):
    subprocess.run([command, "explain", "the cat saw the cat", "--heads", "2", "--causal", "-o", "e.attend", "-o", "e.npz"],
                   cwd=tmp_path, check=True, capture_output=True)
    trace = np.load(tmp_path / "e.npz")["weights"]
    found = json.loads(show("e.attend", "--json", "--layer", "0.self", "--head", "1", "--query", "4"))
    assert found["tokens"] == ["the", "cat", "saw", "the", "cat"]
    assert found["model"] == "attend explain (random weights, seed 123)"
    assert [entry["key"] for entry in found["top"]] == list(np.argsort(-trace[1, 4], kind="stable"))
    show("e.attend", "--layer", "0", "-o", "w.npy")
    np.testing.assert_allclose(np.load(tmp_path / "w.npy"), trace, atol=1e-6)


# ---- Mistakes ----


@pytest.mark.parametrize("arguments, status, message", [
    (["x.attend", "--layer", "0.slef"], 2, "--layer: no layer '0.slef'; did you mean '0.self'?"),
    (["x.attend", "--layer", "2"], 2, "--layer: no layer '2'; there are 0 to 1, called 0.self to 1.self"),
    (["x.attend", "--layer", "-9"], 2, "--layer"),
    (["x.attend", "--layer", "0", "--head", "3"], 2, "--head: layer 0.self has 0 to 2, got 3"),
    (["x.attend", "--head", "1"], 2, "--head: needs a layer: name it as in 18.1, or with --layer"),
    (["x.attend", "--head", "2.1"], 2, "--layer: no layer '2'; there are 0 to 1, called 0.self to 1.self"),
    (["x.attend", "--head", "0.self.3"], 2, "--head: layer 0.self has 0 to 2, got 3"),
    (["x.attend", "--head", "0.x"], 2, "--head: expected a head such as 18.6, or with --layer a number, got '0.x'"),
    (["x.attend", "--head", "0.1", "--layer", "0"], 2, "--head: 0.1 names its layer already"),
    (["x.attend", "--query", "1"], 2, "--query: needs a head, with --head"),
    (["x.attend", "--layer", "0", "--strip", "lift"], 2, "--strip: needs a head, with --head"),
    (["x.attend", "--layer", "0", "--head", "0", "--query", "12"], 2, "--query: layer 0.self has queries 0 to 11, got 12"),
    (["x.attend", "--layer", "0", "--head", "0", "--sort", "sink"], 2, "--head: one head has no table for --sort"),
    (["x.attend", "--item", "2"], 2, "--item: expected an item from 0 to 1, got 2"),
    (["x.attend", "--json", "-o", "y.json"], 2, "--json and -o can't stand together"),
    (["x.attend", "--json", "--csv"], 2, "--csv and --json can't stand together"),
    (["x.attend", "--csv", "--head", "0.1", "--query", "1"], 2, "--csv and --query can't stand together"),
    (["x.attend", "--head", "0.1", "--query", "1", "--strip", "lift"], 2, "--strip and --query can't stand together"),
    (["x.attend", "--head", "0.1", "--links"], 2, "--links: a terminal has no room for lines: say -o x.svg or -o x.png"),
    (["x.attend", "--links", "-o", "y.svg"], 2, "--links: needs a head, with --head"),
    (["x.attend", "--head", "0.1", "--links", "-o", "y.npy"], 2, "-o: links go into a .svg or .png file, not into 'y.npy'"),
    (["x.attend", "--head", "0.1", "--strip", "lift", "-o", "y.csv"], 2, "-o: a strip goes into a .svg, .png or .npy file"),
    (["x.attend", "-o", "y.npy"], 2, "-o: the numbers in a .npy file need a layer, with --layer"),
    (["x.attend", "-o", "y.jpg"], 2, "'y.jpg' should end in .html, .svg, .png, .npy, .csv or .json"),
    (["x.attend", "--layer", "0", "--head", "0", "--query", "1", "-o", "y.svg"], 2, "a query's top keys go into a .json file"),
    (["x.attend", "--sort", "entrpy"], 2, "did you mean 'entropy'?"),
    (["x.attend", "-o", "no/such/y.svg"], 1, "no/such/y.svg"),
    (["missing.attend"], 3, "missing.attend"),
    (["plain.safetensors"], 3, "plain.safetensors"),
    (["nameless.attend", "--layer", "0", "--head", "1"], 2, "--head: layer a has 2, 5, 6, got 1"),
    (["nameless.attend", "--item", "1"], 2, "--item: expected 0, the only item, got 1"),
    (["uneven.attend", "-o", "y.svg"], 2, "-o: layers a and b have different heads"),
])
def test_mistakes(show, weights, tmp_path, arguments, status, message):
    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "plain.safetensors")
    tensors, _ = layer_tensors(np.random.default_rng(3), 6, 6, False, (6, 6))
    one = {name: tensor[:1] for name, tensor in tensors.items()}
    save(tmp_path / "nameless.attend", [(one, {"name": "a", "heads": [2, 5, 6]})])
    save(tmp_path / "uneven.attend", [(one, {"name": "a", "heads": [2, 5, 6]}), (one, {"name": "b"})])
    told = show(*arguments, status=status)
    assert message in told and told.startswith("attend: ")
    assert told.count("\n") == (2 if status == 2 else 1)


def test_a_file_cut_short_is_one_error(show, weights, tmp_path):
    whole = (tmp_path / "x.attend").read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        (tmp_path / "cut.attend").write_bytes(whole[:size])
        assert show("cut.attend", status=3).count("\n") == 1
