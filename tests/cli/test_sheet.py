"""Exercise sheets: what is asked and what is answered, worked out again from the numbers that the sheet gives."""

import html.parser
import re
import subprocess

import numpy as np
import pytest


class Tables(html.parser.HTMLParser):
    """A page's tables, as rows of texts."""

    def __init__(self, page):
        super().__init__()
        self.tables, self.cell = [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self.cell)
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data


@pytest.fixture
def sheet(command, tmp_path):
    def make(*arguments, status=0):
        done = subprocess.run([command, "explain", *arguments, "--sheet", "x.html"], capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        if status:
            assert not (tmp_path / "x.html").exists()
            return done.stderr
        assert done.stderr == "attend: wrote x.html\n"
        return (tmp_path / "x.html").read_text()

    return make


def numbers(cells):
    return np.array([float(cell.replace("−", "-")) for cell in cells])


def pages_of(page):
    return re.findall(r'<section class="sheet">.*?</section>', page, re.DOTALL)


def near(cells, expected, digits=0.011):
    assert np.abs(numbers(cells) - expected).max() <= digits, (cells, expected)


@pytest.mark.parametrize("arguments, focus, causal", [
    (["the cat sat on the mat"], 1, False), (["the cat sat on the mat", "--seed", "7"], 1, False),
    (["the cat sat on the mat", "--focus", "mat", "--seed", "8"], 5, False), (["to be or not to be", "--causal"], 5, True),
    (["one two three four five six seven eight nine ten eleven twelve", "--causal", "--focus", "5", "--seed", "2"], 4, True)])
def test_answers_follow_from_what_is_given(sheet, arguments, focus, causal):
    blanks, answers = pages_of(sheet(*arguments))
    words = arguments[0].split()
    matrix, asked, rows = Tables(answers).tables
    embedding = numbers(re.search(rf"embedding of {words[focus]}\S* is \((.*?)\)", answers)[1].split(", "))
    query = embedding @ np.array([numbers(row) for row in matrix])
    assert np.array_equal(numbers(asked[0][1:]), query)
    body, sums = rows[1:-1], rows[-1]
    assert [re.sub("[₀-₉]", "", row[0]) for row in body] == words
    keys, values = (np.array([numbers(row[begin:end]) for row in body]) for begin, end in ((1, 5), (5, 7)))
    seen = np.arange(len(words)) <= focus if causal else np.ones(len(words), bool)
    scores = keys @ query
    powers = np.where(seen, np.exp(scores / 2), 0)
    weights = powers / powers.sum()
    for row, is_seen, score, power, weight, value in zip(body, seen, scores, powers, weights, values, strict=True):
        if not is_seen:
            assert row[7:] == ["hidden", "", "", "", "", ""]
            continue
        assert np.array_equal(numbers(row[7:9]), [score, score / 2])
        near(row[9:10], power, 0.00501)
        near(row[10:], [weight, *(weight * value)], 0.03)
    near(sums[2:4], [powers.sum(), 1], 0.06)
    near(sums[4:], weights @ values, 0.1)
    near(re.search(r"Without rounding on the way: \((.*?)\)", answers)[1].split(", "), weights @ values, 0.00006)
    # Numbers for a pocket calculator, and weights that differ.
    assert all(float(2 * x).is_integer() for x in [*keys.ravel(), *values.ravel(), *query]) and np.abs(scores[seen] / 2).max() <= 3
    assert 0.35 <= weights.max() <= 0.85 and np.sort(weights)[-1] - np.sort(weights)[-2] >= 0.08
    # The questions.
    told = re.findall(r"<li>[^<]*<b>(.*?)</b></li>", answers)
    unscaled = np.where(seen, np.exp(scores), 0)
    assert re.sub("[₀-₉]", "", told[0]) == words[weights.argmax()]
    near(told[1:2], (unscaled / unscaled.sum())[weights.argmax()])
    assert len(told) == (2 if causal else 3)
    if not causal:
        near(told[2:], np.exp(scores[0] / 2) / np.exp(scores[:focus + 1] / 2).sum())
    # What is asked is given nowhere.
    _, empty, table = Tables(blanks).tables
    assert empty[0][2:] == ["", "", ""] and all(set(row[7:]) == {""} for row in table[1:-1]) and table[-1][2:] == [""] * 4
    assert [row[:7] for row in table[1:-1]] == [row[:7] for row in body] and "<b>" + told[1] not in blanks


def test_another_seed_is_another_sheet_and_the_same_is_the_same(sheet):
    text = "the cat sat on the mat"
    assert sheet(text, "--seed", "7") == sheet(text, "--seed", "7") != sheet(text, "--seed", "8")


def test_words_are_no_markup(sheet):
    page = sheet("a <script>x</script> & <b>")
    assert "<script" not in page and "&lt;script&gt;x&lt;/script&gt;" in page and "&amp;" in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize("arguments, told", [
    (["alone"], "--sheet: a sheet has 2 to 12 words, got 1"),
    (["a b c d e f g h i j k l m"], "--sheet: a sheet has 2 to 12 words, got 13"),
    (["a b", "--causal", "--focus", "a"], "--sheet: the first word sees itself alone, expected another focus with causal"),
    (["a b", "--focus", "c"], "--focus: the sentence has no word 'c'"),
    (["a b", "--heads", "2"], "--heads and --sheet can't stand together"),
    (["a b", "--json"], "--json and --sheet can't stand together"),
    (["a b", "-o", "y.svg"], "can't stand together")])
def test_what_a_sheet_does_not_have(sheet, arguments, told):
    assert told in sheet(*arguments, status=2)
