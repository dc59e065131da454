"""The examples run, and print what they promise."""
import os
import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize("name, line", [
    ("numpy_attention", r"token by token, the largest difference: \S+e-0[78]$"),
    ("torch_drop_in", r"largest difference: \S+e-0[78]$"),
    ("hugging_face", r"largest difference from eager: \S+e-0[78]$"),
])
def test_example(repository, name, line):
    run = subprocess.run([sys.executable, repository / "examples" / f"{name}.py"], capture_output=True, text=True,
                         timeout=120, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert run.returncode == 0, run.stderr
    assert re.search(line, run.stdout, re.MULTILINE), run.stdout
