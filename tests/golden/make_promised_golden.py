"""Writes tests/golden/promised/: what a version promises to keep (docs/promises.md), as the installed build has it.

    build/venv/bin/python tests/golden/make_promised_golden.py build/release/attend names    # after names were added
    build/venv/bin/python tests/golden/make_promised_golden.py build/release/attend files    # once for a release, never again for it

names.json is a list of names that only grows within 1.x. The folder files-1.0 is what 1.0 wrote; its numbers.json says what it holds.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import attend

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import promised  # noqa: E402
import tiny  # noqa: E402


def write_files(command, folder):
    folder.mkdir(parents=True)
    source = tiny.write(folder.parent / "model", tiny.bytes_tokenizer(), tiny.WIDE | {"vocab_size": 256})
    model = attend.Model.load(source)
    text = "the cat sat"
    model.record(text, keep="qk").save(folder / "recording.attend")
    attend.quantize(source, folder / "model.gguf", "q8_0")
    (folder.parent / "pairs.tsv").write_text("the cat\tthe sat\ncat sat\tsat cat\n")
    (folder.parent / "texts.txt").write_text("\n".join(["the cat sat the cat sat"] * 4))
    for arguments in (["steer", source, folder.parent / "pairs.tsv", "-o", folder / "direction.gguf"],
                      ["lens", "fit", source, folder.parent / "texts.txt", "-o", folder / "lens.safetensors"]):
        subprocess.run([command, *map(str, arguments)], check=True)
    (folder / "numbers.json").write_text(json.dumps(promised.numbers_of(folder), indent=1) + "\n")


if __name__ == "__main__":
    command, what = sys.argv[1:]
    golden = HERE / "promised"
    golden.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        if what == "names":
            found = promised.names(command, tiny.write(pathlib.Path(work) / "model"))
            (golden / "names.json").write_text(json.dumps(found, indent=0) + "\n")
        else:
            write_files(command, pathlib.Path(work) / "files")
            shutil.copytree(pathlib.Path(work) / "files", golden / "files-1.0")
