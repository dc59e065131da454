"""attend inspect."""

import json
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file


@pytest.fixture
def inspect(command, tmp_path):
    def attend(*arguments):
        result = subprocess.run([command, "inspect", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    return attend


@pytest.fixture
def model(tmp_path):
    tensors = {
        "weight": np.array([[1, -2, 0.5], [np.nan, np.inf, -np.inf]], np.float32),
        "ids": np.array([3, -(2**62) - 1, 2**63 - 1], np.int64),
        "mask": np.array([True, False, False, False]),
        "empty": np.zeros((0, 4), np.float16),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return "model.safetensors"


def test_table(inspect, model):
    assert inspect(model) == (
        "model.safetensors\n"
        "  format = pt\n"
        "  name    dtype  shape  bytes                   min         mean                  max  nan  inf\n"
        "  empty   f16    [0,4]      0                     -            -                    -\n"
        "  ids     i64    [3]       24  -4611686018427387905  1.53723e+18  9223372036854775807\n"
        "  mask    bool   [4]        4                     0         0.25                    1\n"
        "  weight  f32    [2,3]     24                    -2    -0.166667                    1    1    2\n"
    )


def test_npy_has_no_names(inspect, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.float64).reshape(2, 3))
    assert inspect("a.npy") == "a.npy\n  dtype  shape  bytes  min  mean  max\n  f64    [2,3]     48    0   2.5    5\n"


def test_json(inspect, model, tmp_path):
    np.save(tmp_path / "a.npy", np.float32([0.1]))
    report = json.loads(inspect("--json", model, "a.npy"))
    assert report["schema_version"] == 1
    first, second = report["files"]
    assert first["file"] == model and first["metadata"] == {"format": "pt"}
    weight = next(tensor for tensor in first["tensors"] if tensor["name"] == "weight")
    assert weight == {"name": "weight", "dtype": "f32", "shape": [2, 3], "bytes": 24, "min": -2, "mean": -0.5 / 3,
                      "max": 1, "nan": 1, "inf": 2}
    assert next(tensor for tensor in first["tensors"] if tensor["name"] == "empty")["min"] is None
    assert second["tensors"][0]["mean"] == float(np.float32(0.1))


def test_names_cannot_steer_the_terminal(inspect, tmp_path):
    save_file({"a\x1b[31m\nb": np.ones(1, np.float32)}, tmp_path / "c\x1b.safetensors",
              metadata={"k\n": "\u009b2J", "m": "\u202etxt\u2066.é"})
    text = inspect("c\x1b.safetensors", "--values")
    assert text.splitlines() == [
        r"c\x1b.safetensors",
        r"  k\x0a = \x9b2J",
        r"  m = \u202etxt\u2066.é",
        "  name            dtype  shape  bytes  min  mean  max",
        r"  a\x1b[31m\x0ab  f32    [1]        4    1     1    1",
        "",
        r"a\x1b[31m\x0ab = tensor([1.])",
    ]


def test_one_tensor_and_its_values(inspect, model, tmp_path):
    text = inspect(f"{model}:ids")
    assert "ids" in text and "weight" not in text
    np.savez(tmp_path / "b.npz", x=np.float32([[1, 2], [3, 4]]))
    assert inspect("b.npz", "--values").endswith("\nx = tensor([[1., 2.],\n        [3., 4.]])\n")


def test_statistics_of_a_large_tensor(inspect, tmp_path):
    values = np.random.default_rng(3).standard_normal(200_001).astype(np.float32)
    np.save(tmp_path / "large.npy", values)
    tensor = json.loads(inspect("--json", "large.npy"))["files"][0]["tensors"][0]
    assert tensor["min"] == values.min() and tensor["max"] == values.max()
    assert tensor["mean"] == pytest.approx(values.astype(np.float64).mean(), rel=1e-12)
