"""Folders of static embeddings, a row for each token: attend embed, near and info, beside what NumPy makes of the table."""

import copy
import json
import os
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file
from test_model import WORDS, wordpiece

LINES = ["the cat sat", "", "the zzz dog", "zzz", "the cat sat", "mat " * 700]
SIZE = 6
UNKNOWN = WORDS.index("[UNK]")
MODULES = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
           {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}]


@pytest.fixture
def run(command, tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")

    def attend(*arguments, status=0):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
        done = subprocess.run([command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout, done.stderr

    return attend


def tensors(rows=None, dtype=np.float32, **more):
    table = np.random.default_rng(1).standard_normal((rows or len(WORDS), SIZE)) * 4
    return {"embeddings": table.astype(dtype), **more}


def write(folder, tensors, config=None, modules=None, tokenizer=None):
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer or wordpiece()))
    for name, content in ("config.json", config), ("modules.json", modules):
        if content is not None:
            (folder / name).write_text(json.dumps(content))


def expected(tensors, unknown=True, most=None, normalize=False):
    """unknown: whether the token of unknown words counts."""
    made = []
    for line in LINES:
        ids = [WORDS.index(word) if word in WORDS else UNKNOWN for word in line.split()]
        ids = [each for each in ids if unknown or each != UNKNOWN][:most]
        table = tensors.get("embeddings", tensors.get("embedding.weight")).astype(np.float64)
        rows = table[tensors["mapping"][ids] if "mapping" in tensors else ids]
        if "weights" in tensors:
            rows = rows * np.float64(tensors["weights"])[ids, None]
        made.append(rows.mean(0) if ids else np.zeros(SIZE))
    made = np.array(made)
    return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12) if normalize else made


MODEL2VEC = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": 99, "seq_length": 1000000}
MAPPED = {"mapping": (np.arange(len(WORDS)) % 5).astype(np.int32),
          "weights": np.linspace(0.5, 2, len(WORDS))}


@pytest.mark.parametrize("given", [tensors(), tensors(dtype=np.float16), tensors(dtype=np.int8), tensors(dtype=np.float64),
                                   tensors(rows=5, **MAPPED), tensors(weights=MAPPED["weights"].astype(np.float32))],
                         ids=["f32", "f16", "i8", "f64", "mapped", "weights"])
@pytest.mark.parametrize("normalize", [False, True])
def test_as_model2vec_embeds(run, tmp_path, given, normalize):
    write(tmp_path / "static", given, MODEL2VEC | {"normalize": normalize}, MODULES[:1 + normalize])
    _, told = run("embed", "static", "lines.txt", "-o", "x.npy")
    assert told == "attend: wrote x.npy: 6 vectors of 6 numbers; 1 of the lines were longer than 512 tokens, and cut\n"
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected(given, False, 512, normalize), atol=1e-6)
    found = json.loads(run("near", "x.npy", "lines.txt", "static", "the cat sat", "-k", "2", "--json")[0])["nearest"]
    assert [each["line"] for each in found] == [1, 5] and found[0]["similarity"] == pytest.approx(1)


def test_as_sentence_transformers_embeds(run, tmp_path):
    """Unknown words count, and no line is too long; the folder may have its module in a folder of its own."""
    own = {"embedding.weight": tensors()["embeddings"]}
    write(tmp_path / "root", own, modules=[MODULES[0] | {"path": ""}])
    write(tmp_path / "folder", own, modules=[MODULES[0] | {"path": "0_StaticEmbedding"}, MODULES[1]])
    inside = tmp_path / "folder/0_StaticEmbedding"
    inside.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / "folder" / name).rename(inside / name)
    for folder, normalize in ("root", False), ("folder", True):
        _, told = run("embed", folder, "lines.txt", "-o", "x.npy")
        assert told == "attend: wrote x.npy: 6 vectors of 6 numbers\n"
        np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected(own, normalize=normalize), atol=1e-6)


def test_a_tokenizer_that_cuts(run, tmp_path):
    tokenizer = wordpiece()
    tokenizer["truncation"] = {"direction": "Left", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    given = tensors()
    lines = [" ".join(line.split()[-2:]) for line in LINES]
    write(tmp_path / "whole", given, modules=MODULES[:1])
    write(tmp_path / "cut", given, modules=MODULES[:1], tokenizer=tokenizer)
    (tmp_path / "short.txt").write_text("\n".join(lines) + "\n")
    run("embed", "whole", "short.txt", "-o", "x.npy")
    assert "3 of the lines were longer than 2 tokens" not in run("embed", "whole", "lines.txt", "-o", "y.npy")[1]
    assert "4 of the lines were longer than 2 tokens" in run("embed", "cut", "lines.txt", "-o", "y.npy")[1]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.load(tmp_path / "x.npy"))


def test_a_line_has_the_bits_that_it_has_alone(run, tmp_path):
    rng = np.random.default_rng(2)
    lines = [" ".join(rng.choice(WORDS[4:], n % 29)) for n in range(5000)]
    write(tmp_path / "static", tensors(rows=5, **MAPPED), MODEL2VEC)
    (tmp_path / "many.txt").write_text("\n".join(lines))
    run("embed", "static", "many.txt", "-o", "many.npy")
    vectors = np.load(tmp_path / "many.npy")
    for n in (0, 1, 28, 4096, 4999):
        (tmp_path / "one.txt").write_text(lines[n] + "\n")
        run("embed", "static", "one.txt", "-o", "one.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "one.npy"), vectors[n:n + 1])


def changed(**changes):
    given = tensors(rows=5, **copy.deepcopy(MAPPED)) | changes
    return {name: each for name, each in given.items() if each is not None}


@pytest.mark.parametrize("given, said", [
    (changed(mapping=np.full(len(WORDS), 5, np.int64)), "'mapping'[0] is 5, expected a row of the table, 0 to 4"),
    (changed(mapping=np.full(len(WORDS), -1, np.int32)), "'mapping'[0] is -1"),
    (changed(mapping=np.zeros((len(WORDS), 1), np.int64)), "expected whole numbers [tokens]"),
    (changed(mapping=np.zeros(len(WORDS), np.float32)), "expected whole numbers [tokens]"),
    (changed(weights=np.ones(5, np.float32)), f"expected a number for each of {len(WORDS)} tokens"),
    (changed(mapping=None), "expected a number for each of 5 tokens"),
    (changed(embeddings=np.zeros(5, np.float32)), "'embeddings' has shape [5], expected [tokens,size]"),
    (changed(embeddings=np.zeros((5, 0), np.float32)), "expected [tokens,size]"),
    (changed(embeddings=np.zeros((5, 6), np.int64)), "'embeddings' is i64"),
    (changed(embeddings=None, other=np.zeros((5, 6), np.float32)), "'embeddings' is missing"),
    (changed(other=np.zeros(3, np.float32)), "'other' is not known"),
])
def test_hostile_tables(run, tmp_path, given, said):
    write(tmp_path / "static", given, MODEL2VEC)
    printed, told = run("embed", "static", "lines.txt", "-o", "x.npy", status=3)
    assert said in told and told.startswith("attend: Model.load: 'static'") and len(told.splitlines()) == 1 and not printed
    assert not (tmp_path / "x.npy").exists()


@pytest.mark.parametrize("modules, status, said", [
    ([MODULES[0], MODULES[1] | {"type": "sentence_transformers.models.Pooling"}], 3, "after the vectors Dense"),
    ([MODULES[0] | {"path": "../static"}], 3, "a folder's name"),
    ([MODULES[0], MODULES[1] | {"path": "1_Dense", "type": "sentence_transformers.models.Dense"}], 3,
     "in_features: is 7, what comes has 6"),
])
def test_hostile_modules(run, tmp_path, modules, status, said):
    write(tmp_path / "static", tensors(), modules=modules)
    (tmp_path / "static/1_Dense").mkdir()
    (tmp_path / "static/1_Dense/config.json").write_text('{"in_features": 7, "out_features": 2}')
    assert said in run("embed", "static", "lines.txt", "-o", "x.npy", status=status)[1]


def test_what_the_command_says_of_one(run, tmp_path):
    given = tensors()
    write(tmp_path / "static", given, MODEL2VEC)
    shown = json.loads(run("model", "static", LINES[0], "--near", "the dog", "--json")[0])
    assert (shown["info"]["family"], shown["info"]["layers"], shown["heads"]) == ("static_table", 0, [])
    own, other = (given["embeddings"][[WORDS.index(word) for word in text.split()]].mean(0) for text in (LINES[0], "the dog"))
    assert shown["nearest"][0]["similarity"] == pytest.approx(own @ other / np.linalg.norm(own) / np.linalg.norm(other), abs=1e-5)
    assert "'model2vec' is not written as GGUF" in run("quantize", "static", "-o", "x.gguf", status=3)[1]


def test_files_of_two_models(run, tmp_path):
    write(tmp_path / "static", tensors(rows=9), MODEL2VEC)
    assert "do the files belong to two models?" in run("embed", "static", "lines.txt", "-o", "x.npy", status=3)[1]
