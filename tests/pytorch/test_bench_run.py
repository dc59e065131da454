"""A whole run of the benchmark on tiny cases, those from Python too, some of which take tensors."""

import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest
import tiny

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "benchmarks"))

import cases


@pytest.fixture(scope="module")
def result(repository, command, tmp_path_factory):
    """A whole run without peers, and the paths that it wrote."""
    out = tmp_path_factory.mktemp("bench")
    worker = pathlib.Path(command).with_name("attend_bench")
    model = tiny.write(tmp_path_factory.mktemp("model"))  # in the place of SmolLM2
    subprocess.run([sys.executable, repository / "benchmarks/bench.py", "--quick", "--no-peers", "--out", out, "--worker", worker,
                    "--smollm2", model], check=True, capture_output=True)
    paths = {path.suffix: path for path in out.iterdir()}
    return json.loads(paths[".json"].read_text()), paths


def test_every_case_is_measured(result):
    found, _ = result
    assert [group["name"] for group in found["groups"]] == [group.name for group in cases.groups()]
    for group, wanted in zip(found["groups"], cases.groups()):
        assert list(group["entries"]) == [entry.key for entry in wanted.entries if entry.worker.startswith("attend")]
        assert all(len(entry["rounds"]) == 2 and min(entry["rounds"]) > 0 for entry in group["entries"].values())
    assert found["memory"].keys() == cases.memory_cases().keys()
    assert all(roof["per_second"] > 0 for roof in found["roofs"].values())


def test_page_and_picture_are_written(result):
    _, paths = result
    page = paths[".md"].read_text()
    assert "measures nothing" in page
    for name in ("1024 causal", "decode 32768, bf16", "softcap", "512x768x768", "131072 keys", "backward 8192 causal",
                 "MiniLM, opened, bf16", "decode 32 after 1024, f32"):
        assert name in page
    xml.etree.ElementTree.parse(paths[".svg"])
