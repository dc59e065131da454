"""attend quantize: a folder to a GGUF file that attend model opens. What is in the file: tests/pytorch/test_quantized_files.py."""

import json
import subprocess

import pytest
import tiny


@pytest.fixture
def attend(command):
    return lambda *arguments: subprocess.run([command, *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, tiny.bytes_tokenizer())
    return tmp_path


@pytest.mark.parametrize("type", ["q8_0", "q6_k", "Q5_K_M", "q4_k_m", "Q4_0"])
def test_a_folder(attend, folder, type):
    made = folder / "made.gguf"
    run = attend("quantize", folder, "-o", made, "--type", type)
    assert run.returncode == 0, run.stderr
    assert f"attend: wrote {made}: " in run.stderr and "of 21 tensors are quantized" in run.stderr
    ours, theirs = (json.loads(attend("model", path, "the cat", "--json").stdout) for path in (made, folder))
    assert ours["ids"] == theirs["ids"]
    assert [each["id"] for each in ours["next"][:3]] == [each["id"] for each in theirs["next"][:3]]


def test_what_is_refused(attend, folder):
    made = folder / "made.gguf"
    for arguments, status, text in (
            ((folder, "-o", made, "--type", "q5_0"), 2, "expected q8_0, q6_k, q5_k_m, q4_k_m or q4_0, got 'q5_0'"),
            ((folder, "-o", "made.bin"), 2, ".gguf"), ((folder,), 2, "--output"), ((folder / "nothing", "-o", made), 3, "nothing")):
        run = attend("quantize", *arguments)
        assert run.returncode == status and text in run.stderr, run.stderr
    for file, change, text in (
            ("config.json", {"hidden_act": "gelu"}, "hidden_act: 'gelu' can't be said in GGUF; silu can"),
            ("config.json", {"model_type": "opt"}, "model_type: 'opt' is not written as GGUF; llama, mistral, qwen2"),
            ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}, "this way to split words has no name"),
            ("tokenizer.json", {"added_tokens": [{"id": 256, "content": "<x>", "single_word": False, "lstrip": True, "rstrip": False,
                                                  "normalized": False, "special": True}]}, "lstrip: this can't be said in GGUF")):
        text_before = (folder / file).read_text()
        (folder / file).write_text(json.dumps(json.loads(text_before) | change))
        run = attend("quantize", folder, "-o", made)
        assert run.returncode == 3 and text in run.stderr, run.stderr
        assert not made.exists()
        (folder / file).write_text(text_before)
