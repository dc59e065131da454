"""What a user of PyTorch and Transformers reads: docstrings, examples, and the pages' Python."""

import os
import shutil
import subprocess
import sys

import pytest
import tiny
import tiny_models
from documentation import check_example, check_module, check_name, public
from page_code import cache_of_models, name_of, pages_with, python_of
from tiny_tokenizers import tokenizer_of

MODULES = ("attend.torch", "attend.transformers")
PUBLIC = public(MODULES)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_explained_by_an_example(name):
    check_name(name, PUBLIC[name])


@pytest.mark.parametrize("module", MODULES)
def test_every_module_is_explained(module):
    check_module(module)


@pytest.mark.parametrize("name, line", [
    ("torch_drop_in", r"largest difference: \S+e-0[78]$"),
    ("look_inside", r"^it -> animal     0.65  3.1$"),
    ("hugging_face", r"largest difference from eager: \S+e-0[78]$"),
    ("ring_llama", r"^loss 4\.954 -> 4\.\d+ over 20 steps, largest difference: (0\.0e\+00|\S+e-(0[6-9]|1\d))$"),
])
def test_example(repository, name, line):
    check_example(repository, name, line)


# What a page's reader has, beside a file and two folders: its models, by name, and what its blocks take from the reader's program.
BERT = {"vocab_size": 23}
MODELS = {
    "docs/models.md": {"translator": tiny_models.marian(**BERT)},
    "docs/search.md": {
        "ms-marco-MiniLM-L6-v2": tiny_models.bert("ForSequenceClassification", num_labels=1, **BERT),
        "classifier": tiny_models.bert("ForSequenceClassification", num_labels=2, **BERT),
        "tagger": tiny_models.bert("ForTokenClassification", num_labels=3, **BERT),
        "filler": tiny_models.bert("ForMaskedLM", **BERT),
        "splade-v3": tiny_models.bert("ForMaskedLM", **BERT)},
}
PREAMBLES = {
    "docs/inside.md": "import attend, torch",
    "docs/models.md": "import attend\nmodel, ids = attend.Model.load('translator'), [6, 7, 8, 2]",
    "docs/search.md": """
import attend
sentences = ["a cat on a mat", "a dog", "two cats", "a horse", "stocks fell", "it rains"]
passages = ["Goethe wrote Faust.", "the cat sat on the mat", "a dog ran"]
passage = passages[0]
classifier, tagger, filler = (attend.Model.load(name) for name in ("classifier", "tagger", "filler"))
""",
    "docs/writing.md": "import attend\nmodel = attend.Model.load('folder')",
}


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_runs_one_block_after_the_other(repository, page, tmp_path):
    name, code = name_of(page), python_of(page)
    missing = [model for model in cache_of_models(tmp_path / "cache") if f'"{model}"' in code]
    if missing:
        pytest.skip(f"left out: {name}, which wants {' and '.join(missing)}: not installed (tests/models.txt)")
    shutil.copy(repository / "tests/fuzz/corpus/tokenizer/wordpiece", tmp_path / "tokenizer.json")  # a file that the reader has
    if name in ("docs/writing.md", "docs/steering.md"):  # texts of any words
        tiny.write_chat(tmp_path / "folder", longest=4000)
    else:
        tiny.write(tmp_path / "folder")
    tiny.write_autoencoder(tmp_path / "autoencoder")
    tiny.write_colbert(tmp_path / "colbertv2.0")
    for model, case in MODELS.get(name, {}).items():
        tiny_models.written(tmp_path / model, case)
        tokenizer_of("bert").save_pretrained(tmp_path / model)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", PREAMBLES.get(name, "") + "\n" + code], cwd=tmp_path,
                          env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
