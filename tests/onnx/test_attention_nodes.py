"""Every node case of ONNX's operator Attention (onnx_cases.py), through the C++ library.

attend_onnx_attention (attention_node.cpp) says in C++ what the operator is in terms of the library.
"""

import pathlib
import subprocess

import ml_dtypes
import numpy as np
import onnx
import onnx_cases
import pytest
import safetensors.numpy
from onnx.reference import ReferenceEvaluator
from onnx_cases import CASES, Case, in_f64

TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": ml_dtypes.bfloat16, "I64": "i8", "BOOL": "?"}


@pytest.fixture(scope="module")
def cases():
    return onnx_cases.published()


def write(path, case):
    tensors = {name: np.ascontiguousarray(x) for name, x in case.inputs.items()}
    path.write_bytes(safetensors.numpy.save(tensors, {name: str(value) for name, value in case.attributes.items()}))


def read(path):
    return {
        name: np.frombuffer(bytes(x["data"]), TYPES[x["dtype"]]).reshape(x["shape"])
        for name, x in safetensors.deserialize(path.read_bytes())
    }


def faults(case, path):
    """What is wrong with a case's outputs, each in a few words."""
    if not path.exists():
        return ["no output"]
    outputs = read(path)
    found = [(name, onnx_cases.difference(outputs[name], expected)) for name, expected in case.expected.items()]
    return [f"{name} {what}" for name, what in found if what]


def run(cases, folder, command):
    """What is wrong with each case that went wrong, by name; and how the program ended, with what it had to say."""
    paths = [folder / f"{case.name}.safetensors" for case in cases]
    for case, path in zip(cases, paths):
        write(path, case)
    done = subprocess.run([pathlib.Path(command).parent / "attend_onnx_attention", *paths], capture_output=True, text=True)
    found = {case.name: faults(case, pathlib.Path(f"{path}.out")) for case, path in zip(cases, paths)}
    return {name: what for name, what in found.items() if what}, (done.returncode, done.stderr)


@pytest.mark.parametrize("change", [None, in_f64], ids=["as published", "in f64"])
def test_every_attention_node(cases, change, command, tmp_path, capsys):
    wrong, end = run([change(case) for case in cases] if change else cases, tmp_path, command)
    with capsys.disabled():
        print(f"\n{len(cases) - len(wrong)} of {CASES} ONNX Attention cases passed{' in f64' if change else ''}")
    report = "\n".join([*(f"{name}: {'; '.join(what)}" for name, what in wrong.items()), end[1]])
    assert (len(cases), wrong, end) == (CASES, {}, (0, "")), report


@pytest.mark.parametrize("mask", [np.array([[True, False, True]]), np.array([[0.5, -1.0, 0.0]])], ids=["bool", "f64"])
def test_a_mask_for_fewer_keys_hides_the_rest(mask, command, tmp_path):
    # In the published cases such a mask always comes with nonpad_kv_seqlen, which hides those keys too.
    inputs = dict(zip("QKV", np.random.default_rng(0).random((3, 1, 1, 5, 4))), attn_mask=mask)
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None) for name in [*inputs, "Y"]]
    node = onnx.helper.make_node("Attention", list(inputs), ["Y"])
    graph = onnx.helper.make_graph([node], "short_mask", infos[:-1], infos[-1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)])
    expected = dict(zip(["Y"], ReferenceEvaluator(model).run(None, inputs)))
    assert run([Case("short_mask", model, inputs, expected)], tmp_path, command) == ({}, (0, ""))
