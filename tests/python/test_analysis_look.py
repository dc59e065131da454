"""What Model's analyses found as pictures and CSV: the command and Python draw and say the same."""

import csv
import io
import json
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
    "estimate": ([*WHY, "--patch", CORRUPT, "--estimate"], lambda model: model.patch(TEXT, CORRUPT, "word20", "word30", estimate=True)),
    "saliency": ([*WHY, "--saliency"], lambda model: model.saliency(TEXT, "word20", "word30")),
    "passages": ([*WHY, "--passages"], lambda model: model.passages(TEXT, token="word20", against="word30")),
}


@pytest.mark.parametrize("name", FOUND)
def test_the_command_and_python_write_the_same_bytes(command, folder, model, name):
    asked, find = FOUND[name]
    subprocess.run([command, "model", "tiny", TEXT, *asked, "-o", "x.svg", "-o", "x.png", "-o", "x.csv"], cwd=folder, check=True)
    found = find(model)
    picture = found.picture()
    assert picture.to_svg() == picture._repr_svg_() == found._repr_html_() == (folder / "x.svg").read_text()
    assert picture.to_png() == (folder / "x.png").read_bytes()
    assert found.to_csv() == (folder / "x.csv").read_text()
    assert found.picture(title="another").title == "another" and picture.title.startswith("tiny: ")


@pytest.mark.parametrize("name", FOUND)
def test_json_is_what_the_command_prints(command, folder, model, name):
    asked, find = FOUND[name]
    done = subprocess.run([command, "model", "tiny", TEXT, *asked, "--json"], cwd=folder, check=True, capture_output=True)
    printed = json.loads(done.stdout)[{"ablate": "ablation", "patch": "patching", "estimate": "patching"}.get(name, name)]
    printed.pop("corrupt_ids", None)
    found = json.loads(find(model).to_json())
    if name in ("saliency", "passages"):  # whose position no field has
        assert (printed.pop("position"), found.pop("position")) == (3, 0)
    if name == "lens":  # which knows them where it was asked for some
        assert found.pop("positions") == [] and printed.pop("positions") == [0, 1, 2, 3]
        assert json.loads(model.lens(TEXT, positions=[-1]).to_json())["positions"] == [3]
    assert found == printed
    if name == "ablate":
        assert numpy.array_equal(numpy.array(found["kl"], numpy.float32), find(model).kl)


def test_tables_have_the_numbers_with_names_and_tokens(model):
    """Each number at its place, and a name that joins tables: that of recordings."""
    pytest.importorskip("pandas")
    why, lens, ablation = model.attribute(TEXT, token=20), model.lens(TEXT, top=2), model.ablate(TEXT, token=20)
    words = TEXT.split()
    table = why.to_pandas()
    assert [*table.columns] == ["kind", "layer", "head", "name", "key", "token", "value"]
    heads = table[table.kind == "head"]
    assert len(heads) == why.heads.size
    for row in heads.itertuples():
        assert numpy.float32(row.value) == why.heads[row.layer, row.head, row.key]
        assert (row.name, row.token) == (f"{row.layer}.{row.head}", words[row.key])
    rest = table[table.kind != "head"].set_index("name").value
    assert [numpy.float32(rest[f"mlp {n}"]) for n in range(2)] == why.mlps.tolist() and rest["embedding"] == why.embedding
    table = lens.to_pandas()
    for row in table.itertuples():
        assert lens.ids[row.layer, row.position, row.place] == row.id and row.token == model.tokenizer.decode([row.id])
        assert lens.log_probabilities[row.layer, row.position, row.place] == row.log_probability
    table = ablation.to_pandas()
    assert [*table.columns] == ["layer", "head", "name", "logit", "log_probability", "kl"]
    assert table.kl.tolist() == ablation.kl.ravel().tolist()
    joined = heads.groupby("name").value.sum().to_frame().join(table.set_index("name"), how="inner")
    assert len(joined) == ablation.kl.size == len(pandas_of(model.record(TEXT)).set_index("name").join(joined, how="inner"))


def pandas_of(recording):
    return recording.heads().to_pandas()[["name", "entropy"]]


def test_heads_that_are_taken_out_together_are_one_line(model):
    together = model.ablate(TEXT, token=20, heads=["0.1", (-1, 0)])
    assert together == model.ablate(TEXT, token=20, heads=[(0, 1), (1, 0)])
    rows = list(csv.DictReader(io.StringIO(together.to_csv())))
    assert len(rows) == 1 and rows[0]["name"] == "0.1 1.0" and numpy.float32(rows[0]["kl"]) == numpy.float32(together.kl)


def test_a_part_names_what_it_is_and_what_it_read(model):
    parts = model.attribute(TEXT, token=20).top(200)
    assert {part.name for part in parts if part.kind == "mlp"} == {"mlp 0", "mlp 1"}
    for part in parts:
        if part.kind == "head":
            assert (part.name, part.token) == (f"{part.layer}.{part.head}", TEXT.split()[part.key])


def test_places_below_0_count_from_the_end(model):
    count = len(TEXT.split())
    lens = model.lens(TEXT, positions=[-2, -1])
    assert (lens.ids == model.lens(TEXT, positions=[count - 2, count - 1]).ids).all()
    assert next(csv.DictReader(io.StringIO(lens.to_csv())))["position"] == str(count - 2)
    assert (model.ablate(TEXT, rows=[-2]).kl == model.ablate(TEXT, rows=[count - 2]).kl).all()
    with pytest.raises(ValueError, match=rf"rows\[0\] is -9, expected 0 to {count - 1}, or -{count} to -1 from the end"):
        model.ablate(TEXT, rows=[-9])
    with pytest.raises(ValueError, match="positions must rise, and 0 follows -1"):
        model.lens(TEXT, positions=[-1, 0])
    for edit, same in [(attend.Edit(-1, head=-1), attend.Edit("1.3")), (attend.Edit("0.-2"), attend.Edit(0, head=2)),
                       (attend.Edit(-1, at="residual", rows=[-1]), attend.Edit(2, at="residual", rows=[count - 1])),
                       (attend.Edit(-2, at="mlp"), attend.Edit(0, at="mlp"))]:
        edited = model.forward(TEXT, edits=[edit])
        assert (edited == model.forward(TEXT, edits=[same])).all() and (edited != model.forward(TEXT)).any()
    layer = model.record(TEXT, keep="qk")[-1]
    assert (layer.weights("1.3") == layer.weights(3)).all() and (layer.weights(-1) == layer.weights(3)).all()
    assert layer.top("1.3", -1) == layer.top(3, count - 1)
    with pytest.raises(ValueError, match="layer 1.self: no head '0.3', expected one of 1.0, 1.1, 1.2, 1.3"):
        layer.weights("0.3")


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
    (lambda model: attend.Ablation(None, None, None, None).to_csv(), r"Ablation.to_csv: change has shape \[0\], expected 2 axes, and none"),
    (lambda model: model.ablate(TEXT, heads=["one"]), "Model.ablate: 'one' is not a head's name, expected one such as 18.6"),
    (lambda model: model.ablate(TEXT, heads=["9.1"]), r"Model.ablate: head 9.1, expected layers 0 to 1 and heads 0 to 3"),
    (lambda model: attend.Edit("1.2", head=1), "Edit: head is given twice: 1.2 names one"),
    (lambda model: attend.Edit("one"), "Edit: 'one' is not a head's name"),
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


def test_what_has_no_picture_a_notebook_prints(model):
    assert model.ablate(TEXT, heads=["0.1", "1.0"])._repr_html_() is None


def test_saliency_by_word(model):
    """Each word's tokens together, whether a blank begins it or WordPiece's ## goes on with it."""
    found = model.saliency(TEXT, "word20", "word30", method="input")
    words = found.words()
    assert [word for word, _ in words] == TEXT.split()
    numpy.testing.assert_allclose([value for _, value in words], found.tokens, rtol=1e-6)
