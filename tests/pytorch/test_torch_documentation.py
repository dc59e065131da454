"""What a user of PyTorch and Transformers reads: docstrings, examples, and the pages' Python."""

import os
import re
import shutil
import subprocess
import sys

import pytest
import tiny
from documentation import check_example, check_module, check_name, public

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


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/why.md", "docs/gradients.md", "docs/circuits.md"])
def test_python_runs_one_block_after_the_other(repository, page, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (repository / page).read_text(), re.DOTALL)
    assert blocks
    shutil.copy(repository / "tests/fuzz/corpus/tokenizer/wordpiece", tmp_path / "tokenizer.json")  # a file that the reader has
    tiny.write(tmp_path / "folder")
    tiny.write_autoencoder(tmp_path / "autoencoder")
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", "\n".join(blocks)], cwd=tmp_path, env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
