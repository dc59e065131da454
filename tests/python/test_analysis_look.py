"""What Model's analyses found as pictures and CSV: the command and Python draw and say the same."""

import csv
import io
import shutil
import subprocess

import numpy
import pytest
import tiny

import attend

TEXT, CORRUPT = "the cat sat word9", "the word7 sat word9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look")
    tiny.write(folder / "tiny")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return attend.Model.load(folder / "tiny")


WHY = ["--why", "word20", "--against", "word30"]
FOUND = {
    "why": (WHY, lambda model: model.attribute(TEXT, "word20", "word30")),
    "lens": (["--lens"], lambda model: model.lens(TEXT)),
    "ablate": (["--ablate"], lambda model: model.ablate(TEXT)),
    "patch": ([*WHY, "--patch", CORRUPT], lambda model: model.patch(TEXT, CORRUPT, "word20", "word30")),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_command_and_python_write_the_same_bytes(command, folder, model, name):
    asked, find = FOUND[name]
    subprocess.run([command, "model", "tiny", TEXT, *asked, "-o", "x.svg", "-o", "x.png", "-o", "x.csv"], cwd=folder, check=True)
    found = find(model)
    picture = found.picture()
    assert picture.to_svg() == picture._repr_svg_() == (folder / "x.svg").read_text()
    assert picture.to_png() == (folder / "x.png").read_bytes()
    assert found.to_csv() == (folder / "x.csv").read_text()
    assert found.picture(title="another").title == "another" and picture.title.startswith("tiny: ")


@pytest.mark.parametrize("name", FOUND)
def test_csv_has_the_rows_of_pandas(model, name):
    found = FOUND[name][1](model)
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    pandas = pytest.importorskip("pandas")
    table = found.to_pandas()
    assert set(table.columns) | {"token"} == set(rows[0]) | {"token"} and len(table) == len(rows)
    for column in table.columns:
        if column == "kind":
            assert [row[column] for row in rows] == list(table[column])
        else:
            known = ["" if pandas.isna(value) else numpy.float32(value) for value in table[column]]
            assert ["" if row[column] == "" else numpy.float32(row[column]) for row in rows] == known


def test_positions_are_those_of_the_text(model):
    lens = model.lens(TEXT, positions=[1, 3], top=2)
    rows = list(csv.DictReader(io.StringIO(lens.to_csv())))
    assert [row["position"] for row in rows[:4]] == ["1", "1", "3", "3"]
    assert "what the layers would answer (2 positions of 4)" in lens.picture().to_svg()
    assert "(position 3 of 4)" in lens.picture(most=1).title
    assert "(position 3 of 4)" in model.lens(TEXT, positions=[3]).picture().title


def test_the_stream_names_both_texts(model):
    found = model.patch(TEXT, CORRUPT, "word20", "word30", what="residual")
    svg = found.picture().to_svg()
    assert ">cat /word7<" in svg and ">answer<" in svg and "Corrupt: “the word7 sat word9”" in svg
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [numpy.float32(row["recovered"]) for row in rows] == found.recovered.ravel().tolist()
    assert [row["token"] for row in rows[:4]] == TEXT.split()


def test_ids_stand_for_tokens_without_a_tokenizer(folder, tmp_path):
    other = tmp_path / "other"
    tiny.write(other)
    (other / "tokenizer.json").unlink()
    model = attend.Model.load(other)
    assert model.attribute([1, 2, 3], token=20).picture().title == "other: why “20”"
    assert ">2<" in model.lens([1, 2, 3]).picture().to_svg()


def test_what_was_made_by_hand_is_drawn_as_far_as_it_is_known(model):
    lens = attend.Lens(*model.lens(TEXT))
    assert lens.picture().title == "what the layers would answer" and lens.to_csv().startswith("layer,position,place,id,token,")
    assert attend.Patching(*model.patch(TEXT, CORRUPT, "word20", "word30")).picture().title == "heads that bring back the clean answer"
    assert attend.Ablation(*model.ablate(TEXT)).picture("kl").title == "KL divergence of the answer without each head"


@pytest.mark.parametrize("call, message", [
    (lambda model: model.ablate(TEXT).picture("loss"), "Ablation.picture: change: expected 'log_probability', 'logit', 'kl' or "),
    (lambda model: model.ablate(TEXT, heads=[(0, 1)]).picture(), "Ablation.picture: the heads were taken out together"),
    (lambda model: model.ablate(TEXT, heads=[(0, 1)]).to_csv(), "Ablation.to_csv: the heads were taken out together"),
    (lambda model: model.lens(TEXT).picture(most=0), "Lens.picture: most is 0, expected at least 1"),
    (lambda model: attend.Lens(*model.lens(TEXT)[:2], numpy.ones((9, 9)))._replace(ids=numpy.ones((3, 4, 5), int)[:2]).picture(),
     r"Lens.picture: log_probabilities has shape \[3,4,5\], expected that of ids, \[2,4,5\]"),
])
def test_mistakes(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


def test_a_model_that_was_opened_by_its_name_knows_its_tokens(folder, model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shutil.copytree(folder / "tiny", tmp_path / "attend/models/tiny")
    found, expected = (each.attribute([1, 2, 3], token=7) for each in (attend.Model.load("tiny"), model))
    assert found.to_csv() == expected.to_csv() and found.picture().to_svg() == expected.picture().to_svg()
