"""attend model --vary and --over: whether a head does in other texts what it does in one, counted again from its own weights."""

import csv
import io
import json
import xml.etree.ElementTree

import numpy as np
import pytest
import tiny

TEXT = "the cat sat word9 word4"
L, H = tiny.CONFIG["num_hidden_layers"], tiny.CONFIG["num_attention_heads"]
TABLE = "text\tquery\ttarget\tother\nthe cat sat word9\tword9\tcat\tthe\nword7 the cat word3\tcat\tword7\tthe\nthe sat cat\tcat\tthe\tsat\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vary")
    tiny.write(folder / "tiny")
    (folder / "table.tsv").write_text(TABLE)
    (folder / "lines.txt").write_text("the cat sat\ncat the word5 sat\n")
    return folder


@pytest.fixture
def model(command, folder):
    return tiny.asks(command, folder)


def given(text, tokens):
    """[L,H]: what the query gives to these tokens."""
    return np.array(text["weights"], np.float64)[:, :, tokens[0]:tokens[1]].sum(-1)


def tops(text):
    """[L,H]: the place of the word that gets most, but for the query's own."""
    others = [n for n, word in enumerate(text["words"]) if not word["tokens"][0] <= text["query"] < word["tokens"][1]]
    return np.array(others)[np.argmax([given(text, text["words"][n]["tokens"]) for n in others], 0)]


def test_other_words_in_the_place_of_one(model):
    found = json.loads(model(TEXT, "--vary", "cat=word7,word8 word6", "--vary", "word9=word1", "--query", "word4", "--json"))["variants"]
    assert [text["text"] for text in found["texts"]] == [
        TEXT, "the word7 sat word9 word4", "the word8 word6 sat word9 word4", "the cat sat word1 word4"]
    assert found["texts"][2]["tokens"] == ["the", "word8", "word6", "sat", "word9", "word4"] and found["texts"][2]["query"] == 5
    assert "baselines" not in found
    whole = json.loads(model("the word7 sat word9 word4", "--head", "1.2", "--query", "word4", "--json"))
    for key in whole["top"]:
        assert found["texts"][1]["weights"][1][2][key["key"]] == pytest.approx(key["weight"], abs=1e-6)
    first, held = tops(found["texts"][0]), np.zeros((L, H), int)
    for text in found["texts"]:
        if len(text["words"]) == len(found["texts"][0]["words"]):
            held += tops(text) == first
        else:
            words = np.array([word["word"] for word in text["words"]])
            held += words[tops(text)] == np.array([word["word"] for word in found["texts"][0]["words"]])[first]
    assert found["held"] == held.tolist() and 0 < held.min() < 4


def test_a_table_of_claims(model):
    found = json.loads(model("--over", "table.tsv", "--json"))["variants"]
    assert [(text["query"], text["target"], text["other"]) for text in found["texts"]] == [
        (3, [1, 2], [0, 1]), (2, [0, 1], [1, 2]), (2, [0, 1], [1, 2])]
    held = sum((given(text, text["target"]) > given(text, text["other"])).astype(int) for text in found["texts"])
    assert found["held"] == held.tolist() and held.min() < held.max()
    assert found["baselines"] == {"first": 2, "nearest": 1, "chance": 3}
    text = model("--over", "table.tsv")
    best = np.argsort(-held.ravel(), kind="stable")[0]
    assert f"{best // H}.{best % H}" in text.splitlines()[2] and f"{held.max()} of 3" in text.splitlines()[2]
    assert "stands first would be right in 2, the nearer in 1" in text
    lines = model("--over", "table.tsv", "--head", "1.2").splitlines()
    for line, text in zip(lines[2:5], found["texts"]):
        right, other = given(text, text["target"])[1, 2], given(text, text["other"])[1, 2]
        assert f"{right:.2f}" in line and f"{other:.2f}" in line and line.split()[-1] == ("yes" if right > other else "no")
    assert f"In {held[1, 2]} of 3 texts the right word gets more than the other." in lines


def test_the_lines_of_a_file(model):
    found = json.loads(model("--over", "lines.txt", "--query", "sat", "--json"))["variants"]
    assert [text["query"] for text in found["texts"]] == [2, 3]
    for line, text in zip(model("--over", "lines.txt", "--query", "sat", "--head", "0.1").splitlines()[2:], found["texts"]):
        most = text["words"][tops(text)[0, 1]]
        assert f"{most['word']} {given(text, most['tokens'])[0, 1]:.2f}" in line


def test_files(model, folder):
    files = ["a.svg", "a.csv", "a.json"]
    model(TEXT, "--vary", "cat=word7", "--query", "word4", "--head", "1.2", *[argument for file in files for argument in ("-o", file)])
    words = [text.text for text in xml.etree.ElementTree.parse(folder / "a.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("word7") == 1 and words.count("sat") == 2 and "Colour scale" not in "".join(filter(None, words))
    rows = list(csv.DictReader(io.StringIO((folder / "a.csv").read_text())))
    assert len(rows) == 2 * L * H * 5 and rows[0]["token"] == "the"
    assert rows == list(csv.DictReader(io.StringIO(model(TEXT, "--vary", "cat=word7", "--query", "word4", "--csv"))))
    found = json.loads((folder / "a.json").read_text())["variants"]
    assert float(rows[-1]["weight"]) == pytest.approx(found["texts"][1]["weights"][-1][-1][-1], abs=1e-6)
    model("--over", "table.tsv", "-o", "b.png")
    assert (folder / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments, words", [
    ((TEXT, "--vary", "cat=a"), "--vary: needs a word, with --query"),
    ((TEXT, "--vary", "cat", "--query", "sat"), "has no '='"), ((TEXT, "--vary", "dog=cat", "--query", "sat"), "does not have 'dog'"),
    ((TEXT, "--vary", "cat=word7,", "--query", "sat"), "has an empty word"),
    ((TEXT, "--vary", "cat=word7", "--query", "dog"), "query is 'dog', which"),
    ((TEXT, "--vary", "sat=word7", "--query", "sat"), "texts[1]: query is"),
    ((TEXT, "--vary", "cat=word7", "--query", "sat", "--head", "9.0"), "--head: tiny has"),
    ((TEXT, "--vary", "cat=word7", "--query", "sat", "--lens"), "--vary and --lens can't stand together"),
    ((TEXT, "--vary", "cat=word7", "--query", "sat", "--strip", "lift"), "--vary and --strip can't stand together"),
    ((TEXT, "--vary", "cat=word7", "--query", "sat", "-o", "x.html"), "--vary goes into .svg, .png, .csv or .json"),
    ((TEXT, "--vary", "cat=word7", "--query", "sat", "--json", "-o", "x.svg"), "--json and -o can't stand together"),
    ((TEXT, "--over", "table.tsv"), "--over: takes its texts from the file, so TEXT and --file can't stand beside it"),
    (("--over", "lines.txt"), "needs a word, with --query or a column query"),
    (("--over", "lines.txt", "--query", "word5"), "texts[0]: query is"),
])
def test_what_is_refused(model, arguments, words):
    assert words in model(*arguments, status=2)


def test_a_decoder_does_not_see_what_stands_behind(model, folder):
    (folder / "behind.tsv").write_text("text\tquery\ttarget\tother\nthe cat sat\tcat\tsat\tthe\n")
    assert "target is 'sat', which comes after 'cat'" in model("--over", "behind.tsv", status=2)
    (folder / "none.tsv").write_text("a\tb\n")
    assert "names no column text" in model("--over", "none.tsv", status=1)


def test_a_query_is_a_word_too(model):
    assert json.loads(model(TEXT, "--head", "1.2", "--query", "sat", "--json"))["query"] == 2
    told = model(TEXT, "--head", "1.2", "--query", "dog", status=2)
    assert "no token is 'dog', expected a token of the text, or a number from 0 to 4" in told
