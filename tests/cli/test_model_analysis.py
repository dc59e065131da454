"""attend model: why it answers so, in the terminal, as pictures, JSON and CSV (--why, --lens, --ablate, --patch)."""

import csv
import io
import json
import re
import subprocess
import xml.etree.ElementTree

import numpy as np
import pytest
import tiny
from safetensors.numpy import save_file

import attend

SVG = "{http://www.w3.org/2000/svg}"
L, H = tiny.CONFIG["num_hidden_layers"], tiny.CONFIG["num_attention_heads"]
TEXT, CORRUPT = "the cat sat word9", "the word7 sat word9"
WHY = ["--why", "word20", "--against", "word30"]
PATCH = [*WHY, "--patch", CORRUPT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysis")
    tiny.write(folder / "tiny")
    return folder


@pytest.fixture
def model(command, folder):
    return tiny.asks(command, folder)


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def colours(line):
    """(red, green, blue) of each background in a line."""
    return [tuple(map(int, found)) for found in re.findall(r"48;2;(\d+);(\d+);(\d+)m", line)]


# ---- Numbers ----


def test_json(model):
    found = json.loads(model(TEXT, "--lens", "--json"))["lens"]
    assert found["positions"] == [0, 1, 2, 3] and np.shape(found["ids"]) == np.shape(found["log_probabilities"]) == (L + 1, 4, 5)
    assert np.shape(found["rank"]) == (L + 1, 4) and set(found["rank"][-1]) == {0}
    whole = json.loads(model(TEXT, "--ablate", *WHY, "--json"))
    found = whole["ablation"]
    assert (found["token"], found["against"]) == (20, 30) and "why" not in whole
    for name in ("logit", "log_probability", "kl"):
        assert np.shape(found[name]) == (L, H)
    assert json.loads(model(TEXT, "--ablate", "--json"))["ablation"]["token"] == whole["next"][0]["id"]
    found = json.loads(model(TEXT, *PATCH, "--json"))["patching"]
    assert found["corrupt_ids"] == [1, 7, 3, 9] and (found["token"], found["against"]) == (20, 30)
    assert np.shape(found["recovered"]) == (L, H) and found["clean_difference"] != found["corrupt_difference"]
    one = json.loads(model(TEXT, "--without", "1.2", *WHY, "--json"))["without"]
    assert one["log_probability"] == pytest.approx(whole["ablation"]["log_probability"][1][2], abs=1e-5)


def test_csv_has_the_numbers_of_json(model, folder):
    tokens = TEXT.split()
    why = json.loads(model(TEXT, *WHY, "--json"))["why"]
    table = rows(model(TEXT, *WHY, "--csv"))
    heads = [row for row in table if row["kind"] == "head"]
    assert [float(row["value"]) for row in heads] == np.ravel(why["heads"]).tolist()
    assert [(int(row["layer"]), int(row["head"]), int(row["key"])) for row in heads] == list(np.ndindex(L, H, 4))
    assert [row["token"] for row in heads] == tokens * (L * H)
    assert [float(row["value"]) for row in table if row["kind"] == "mlp"] == why["mlps"]
    assert {row["kind"]: float(row["value"]) for row in table[-3:]} == {name: why[name] for name in ("embedding", "bias", "rounding")}
    lens = json.loads(model(TEXT, "--lens", "--json"))["lens"]
    table = rows(model(TEXT, "--lens", "--csv"))
    assert [int(row["id"]) for row in table] == np.ravel(lens["ids"]).tolist()
    assert [float(row["log_probability"]) for row in table] == np.ravel(lens["log_probabilities"]).tolist()
    assert [row["token"] for row in table] == [tiny.WORDS[int(row["id"])] for row in table]
    ablation = json.loads(model(TEXT, "--ablate", "--json"))["ablation"]
    table = rows(model(TEXT, "--ablate", "--csv"))
    assert {name: [float(row[name]) for row in table] for name in ("logit", "log_probability", "kl")} == {
        name: np.ravel(ablation[name]).tolist() for name in ("logit", "log_probability", "kl")}
    patching = json.loads(model(TEXT, *PATCH, "--json"))["patching"]
    assert [float(row["recovered"]) for row in rows(model(TEXT, *PATCH, "--csv"))] == np.ravel(patching["recovered"]).tolist()
    model(TEXT, *PATCH, "-o", "patch.csv")
    assert (folder / "patch.csv").read_text() == model(TEXT, *PATCH, "--csv")


# ---- Pictures ----


@pytest.mark.parametrize("asked, title", [
    (WHY, "tiny: why “word20”, not “word30”"),
    (["--lens"], "tiny: what the layers would answer"),
    (["--ablate", "--why", "word20"], "tiny: log-probability of “word20” without each head"),
    (PATCH, "tiny: heads that bring back “word20”, not “word30”"),
])
def test_files(command, model, folder, asked, title):
    for name in ("x.svg", "x.png", "x.json", "x.attend"):
        (folder / name).unlink(missing_ok=True)
    assert model(TEXT, *asked, "-o", "x.svg", "-o", "x.png", "-o", "x.json", "-o", "x.attend") == ""
    svg = xml.etree.ElementTree.parse(folder / "x.svg").getroot()
    assert svg.find(f"{SVG}title").text == title
    assert (folder / "x.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert (folder / "x.json").read_text() == model(TEXT, *asked, "--json")
    shown = subprocess.run([command, "show", "x.attend"], cwd=folder, capture_output=True, text=True, check=True)
    assert "tiny" in shown.stdout  # it still records


def test_json_has_a_query_of_a_head_too(model):
    found = json.loads(model(TEXT, *WHY, "--head", "1.0", "--query", "2", "--json"))
    assert found["why"]["token"] == 20 and found["query"] == 2 and len(found["heads"]) == 1


def test_a_long_text_is_cut_and_says_so(model, folder):
    text = " ".join(f"word{n}" for n in range(4, 44))
    model(text, "--lens", "-o", "long.svg")
    svg = (folder / "long.svg").read_text()
    assert "what the layers would answer (positions 8 to 39 of 40)" in svg and ">word12<" in svg and ">word11<" not in svg
    table = model(text, "--lens", "--width", "80")
    assert "\n(at the last 7 of 40 tokens: " in table and "word37" in table.split("→")[1].splitlines()[1]


# ---- The terminal ----


def test_why_in_the_terminal(model):
    text = model(TEXT, *WHY, "--width", "80")
    strip, name, _, empty, *table = text.split("counts as theirs.\n\n")[1].splitlines()
    assert [word[1:] for word in strip.split()] != [] and name == "heads, by token:" and empty == ""
    why = np.array(json.loads(model(TEXT, *WHY, "--json"))["why"]["heads"])
    strokes = "".join(re.findall(r"([ ░▒▓█·≡=-])(?:the|cat|sat|word9)", strip))
    for mark, total in zip(strokes, why.sum((0, 1)), strict=True):
        assert mark == " " or (mark in "░▒▓█") == (total > 0)
    assert "MLP" in table[1] and len(table) == L + 3 and all(len(line) <= 80 for line in table)
    assert "\x1b" not in text
    coloured = model(TEXT, *WHY, "--width", "80", "--color", "always").split("counts as theirs.\n\n")[1].splitlines()
    for (red, _, blue), total in zip(colours(coloured[0]), why.sum((0, 1)), strict=True):
        assert abs(red - blue) < 12 or (red > blue) == (total > 0)


@pytest.mark.parametrize("asked, said", [
    (["--lens"], "What the layers would answer"),
    (["--ablate"], "without each head (its output set to zero), after less\nbefore:"),
    (PATCH, 'The logit of "word20" less that of "word30":\n'),
])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_fit(model, asked, said, width):
    text = model(TEXT, *asked, "--width", str(width))
    assert said in text and "heads:" not in text
    tables = text.split("\n\n")[2:]
    assert all(len(line) <= width for table in tables for line in table.splitlines() if "→" not in line and "│" in line)


def test_hidden_units_are_parts_too(model):
    why = json.loads(model(TEXT, *WHY, "--neurons", "--json"))["why"]
    units, biases = np.array(why["neurons"]), np.array(why["mlp_biases"])
    np.testing.assert_allclose(units.sum(1) + biases, why["mlps"], atol=1e-5)
    layer, unit = np.unravel_index(np.abs(units).argmax(), units.shape)
    assert re.search(rf"layer {layer}, unit {unit} of the MLP +[+-]", model(TEXT, *WHY, "--neurons"))
    rows = list(csv.DictReader(io.StringIO(model(TEXT, *WHY, "--neurons", "--csv"))))
    assert {row["kind"] for row in rows} == {"head", "neuron", "embedding", "bias", "rounding"}
    assert abs(sum(float(row["value"]) for row in rows) - why["logit"]) < 1e-3
    assert f"mlp {layer}, unit {unit}" in {row["name"] for row in rows}


def test_the_strongest_heads_are_told(model):
    found = np.array(json.loads(model(TEXT, *PATCH, "--json"))["patching"]["recovered"])
    layer, head = np.unravel_index(np.argmax(found), found.shape)
    assert re.search(rf"text brings back into the corrupt one:\n  layer {layer}, head {head} +\+", model(TEXT, *PATCH))


# ---- What can't be ----


def test_passages_in_the_terminal(model, folder):
    """A line for each, what it gave by both ways side by side; lines and paragraphs; what is hidden is as many as asked for."""
    (folder / "text.txt").write_text("the cat\nsat word9\n\nword5 word6\n\nword7")
    for asked, hidden, spans in ((["--hide", "1"], 1, [[0, 4], [4, 6], [6, 7]]), (["--lines"], 4, [[0, 2], [2, 4], [4, 6], [6, 7]])):
        arguments = ["--file", "text.txt", "--passages", *WHY, *asked]
        printed, found = model(*arguments), json.loads(model(*arguments, "--json"))["passages"]
        assert found["spans"] == spans and len(found["measured"]) == hidden
        lines = printed[printed.index("Which passages make "):].splitlines()
        assert f"measured for {hidden} by hiding" in lines[2] and max(map(len, lines)) <= 110
        own = [line for line in lines if re.match(r" +\d+  ", line)]
        assert len(own) == len(spans) and "the cat" in own[0]
        for n, line in enumerate(own):
            numbers = [float(number) for number in re.findall(r"[+-]\d+\.\d\d", line)]
            expected = [found["estimated"][n]] + [value for which, value in zip(found["hidden"], found["measured"]) if which == n]
            assert numbers == pytest.approx(expected, abs=0.006)
    assert "It is one passage" in model(TEXT, "--passages")


def test_a_trace_goes_two_steps_back(model):
    printed, found = model(TEXT, *WHY, "--trace"), json.loads(model(TEXT, *WHY, "--trace", "--json"))["trace"]
    heads = re.findall(r"layer (\d+), head (\d+) wrote ([+-]\d+\.\d\d) of it \(\d+ %\), reading .*; without it ([+-]\d+\.\d\d)", printed)
    assert len(heads) == len(found["heads"]) == 3
    for (layer, head, wrote, without), own in zip(heads, found["heads"]):
        assert (int(layer), int(head)) == (own["wrote"]["layer"], own["wrote"]["head"])
        assert float(wrote) == pytest.approx(own["wrote"]["value"], abs=0.006)
        assert float(without) == pytest.approx(own["wrote"]["without"], abs=0.006)
    assert printed.count("It looked there") == 3 and printed.count("was written by") == 3
    assert f"is {found['logit']:+.2f}." in printed and max(map(len, printed.splitlines())) <= 110
    why = json.loads(model(TEXT, *WHY, "--json"))["why"]
    strongest = np.abs(why["heads"]).max()
    assert abs(found["heads"][0]["wrote"]["value"]) == pytest.approx(strongest, rel=1e-5)


def test_a_circuit_is_measured_in_words_and_a_graph(model, folder):
    asked = [*PATCH, "--circuit", "--edges", "30"]
    printed, found = model(TEXT, *asked), json.loads(model(TEXT, *asked, "--json"))["circuit"]
    assert f"these {len(found['edges'])} of " in printed and f"{100 * found['faithfulness']:.1f} % of the way" in printed.replace("\n", " ")
    first = found["edges"][0]
    assert re.search(rf"  {re.escape(first['source'])} +to .*{re.escape(format(first['score'], '+.2f'))}", printed)
    assert found["faithfulness"] == pytest.approx((found["value"] - found["corrupt"]) / (found["clean"] - found["corrupt"]))
    model(TEXT, *asked, "-o", "x.dot")
    graph = (folder / "x.dot").read_text()
    assert graph.startswith("digraph circuit {") and graph.count("tooltip=") == len(found["edges"])
    rows = list(csv.DictReader(io.StringIO(model(TEXT, *asked, "--csv"))))
    assert [(row["source"], row["receiver"]) for row in rows] == [(edge["source"], edge["receiver"]) for edge in found["edges"]]
    model(TEXT, *asked, "-o", "x.svg", "-o", "x.png")
    drawn = (folder / "x.svg").read_text()
    assert f"{len(found['edges'])} edges keep {100 * found['faithfulness']:.0f} % of the answer" in re.sub(r"</?text[^>]*>|\s+", " ", drawn)
    few = json.loads(model(TEXT, *PATCH, "--circuit", "--faithfulness", "0.5", "--json"))["circuit"]
    assert few["faithfulness"] >= 0.5 and few["tried"][0][0] == 1


def test_an_estimate_is_said_to_be_one(model):
    real, guess = model(TEXT, *PATCH), model(TEXT, *PATCH, "--estimate")
    assert "into the corrupt one, estimated:" in guess and "estimated" not in real


@pytest.mark.parametrize("arguments, message", [
    (["--lines"], "--lines: nothing uses it without --passages"), (["--hide", "2"], "--hide: nothing uses it without --passages"),
    (["--passages", "--hide", "-1"], "--hide: -1, expected 0 or more"),
    (["--estimate"], "--estimate: nothing uses it without --patch"),
    (["--circuit", *WHY], "--circuit: needs the corrupt text, with --patch TEXT2"),
    (["--edges", "3"], "--edges: nothing uses it without --circuit"), (["--faithfulness", "1"], "--faithfulness: nothing uses it"),
    ([*PATCH, "--circuit", "--faithfulness", "x"], "--faithfulness: 'x', expected a number up to 1, such as 0.85"),
    ([*PATCH, "--circuit", "--edges", "-1"], "--edges: -1, expected 0 or more"),
    ([*PATCH, "--circuit", "--edges", "2", "--faithfulness", "1"], "--edges and --faithfulness can't stand together"),
    ([*PATCH, "-o", "x.dot"], "-o x.dot: only --circuit makes a graph"),
    ([*PATCH, "--circuit", "--estimate"], "--estimate: nothing uses it without --patch"),
    ([*WHY, "--trace", "--lens"], "can't stand together"),
    (["--lens", "--ablate"], "--ablate and --lens can't stand together"),
    (["--lens", *WHY], "--why and --lens can't stand together"),
    (["--ablate", "--without", "0.0"], "--without and --ablate can't stand together"),
    (["--ablate", *PATCH], "--patch and --ablate can't stand together"),
    (["--neurons"], "--neurons: nothing uses it without --why"),
    (["--neurons", "--ablate", *WHY], "--neurons: nothing uses it without --why"),
    (["--patch", CORRUPT], "--patch: needs two tokens, with --why and --against"),
    (["--patch", CORRUPT, "--why", "word20"], "--patch: needs two tokens"),
    ([*WHY, "--patch", "the cat"], "--patch: the clean text has 4 tokens and the corrupt one 2, expected equal numbers"),
    ([*WHY, "--patch", TEXT], "--patch: both texts answer with a difference of"),
    ([*WHY, "--layer", "0", "-o", "x.svg"], "--why: the file holds this analysis, so options that choose heads, layers or labels"),
    (["--ablate", "--by", "norm", "-o", "x.svg"], "--ablate: the file holds this analysis"),
    (["--ablate", "--head", "0.1", "-o", "x.csv"], "--ablate: the file holds this analysis"),
    (["--lens", "--sort", "sink", "--csv"], "--lens: the file holds this analysis"),
    (["--ablate", "--why", "no such"], "--why: 'no such' is 2 tokens, expected one"),
])
def test_mistakes(model, arguments, message):
    told = model(TEXT, *arguments, status=2)
    assert message in told and told.startswith("attend: ") and told.count("\n") == 2


# ---- Words and their spaces ----


@pytest.fixture
def spaced(tmp_path):
    """A model whose tokenizer knows "a" and " a", and " no" but not "no"; what follows TEXT is " a", before "a"."""
    tokenizer = tiny.bytes_tokenizer()
    tokenizer["model"]["vocab"] |= {"Ġa": 256, "Ġn": 257, "Ġno": 258}
    tokenizer["model"]["merges"] = ["Ġ a", "Ġ n", "Ġn o"]
    tiny.write(tmp_path / "tiny", tokenizer)
    tensors = tiny.tensors()
    model = attend.Model.load(tmp_path / "tiny")
    last = model.forward(TEXT)[-1]
    tensors["lm_head.weight"][256], tensors["lm_head.weight"][97] = 9 * last, 8 * last
    save_file(tensors, tmp_path / "tiny/model.safetensors")
    return tmp_path


def test_which_token_is_explained_is_said(command, spaced):
    def why(token):
        done = subprocess.run([command, "model", "tiny", TEXT, "--why", token], cwd=spaced, capture_output=True, text=True)
        return done.stdout, done.stderr

    hint = '"a" goes on with a word; " a", which begins one, is likelier here ('
    assert hint in why("a")[0] and '%): --why " a".\nWhy "a": its logit' in why("a")[0]
    assert "begins one" not in why(" a")[0] and 'Why " a": its logit' in why(" a")[0]
    assert "begins one" not in why("b")[0]  # and " b" is no token
    assert "--why: 'no' is 2 tokens, expected one: 'n', 'o'; ' no' is one\n" in why("no")[1]
    assert "--why: 'bo' is 2 tokens, expected one: 'b', 'o'\n" in why("bo")[1]
    model = attend.Model.load(spaced / "tiny")
    with pytest.raises(ValueError, match="^Model.attribute: 'no' is 2 tokens, expected one: 'n', 'o'; ' no' is one$"):
        model.attribute(TEXT, "no")
    assert model.attribute(TEXT, " no").token == 258
