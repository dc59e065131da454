"""ONNX's operator Attention, opsets 23 to 25: every node case of the PyPI package onnx, through the library.

The package makes 93 cases whose one node is an Attention. It makes 93 more ("_expanded") with the same tensors and the
operator spelled in smaller ones: those test a backend's smaller operators, and have no Attention to run.
attend_onnx_attention (attention_node.cpp) says in C++ what the operator is in terms of the library.
"""

import copy
import dataclasses
import pathlib
import subprocess
import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
import safetensors.numpy
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

CASES = 93
TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": ml_dtypes.bfloat16, "I64": "i8", "BOOL": "?"}

# Half a unit in the last place of 1.
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# ONNX computes what it expects in the tensors' own type. Held against the same in f64, that is off by up to 4.4 roundings
# of the largest value in f32, where NumPy rounds at each of up to 18 terms of a sum, and 1.6 in f16 and bf16, where it sums
# in f32. (No term is negative: nothing cancels.) The library may be off by as much again, and twice that for another order
# of NumPy's sums; in 16 bits by one rounding of the weights and one of the result.
ALLOWED = {"float64": 16, "float32": 16, "float16": 4, "bfloat16": 4}


@dataclasses.dataclass
class Case:
    name: str
    model: onnx.ModelProto  # of one node
    inputs: dict  # arrays by the name of the input
    expected: dict  # and of the output

    @property
    def attributes(self):
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.model.graph.node[0].attribute}


def case_of(case):
    graph = case.model.graph
    ((inputs, expected),) = case.data_sets
    inputs = dict(zip([each.name for each in graph.input], inputs, strict=True))
    expected = dict(zip([each.name for each in graph.output], expected, strict=True))
    return Case(case.name.removeprefix("test_attention_"), case.model, inputs, expected)


def in_f64(case):
    """The same with every tensor in f64; what to expect comes from ONNX's reference implementation."""
    model = copy.deepcopy(case.model)
    (node,) = model.graph.node
    for attribute in list(node.attribute):
        if attribute.name == "softmax_precision":  # would round to f32 on the way
            node.attribute.remove(attribute)
        elif attribute.name == "scale":  # of which ONNX takes the root in f32: one that is exact
            attribute.f = 2.0**-6
    inputs = {name: x if x.dtype.kind in "bi" else x.astype("f8") for name, x in case.inputs.items()}
    expected = ReferenceEvaluator(model).run(list(case.expected), inputs)
    return Case(case.name, model, inputs, dict(zip(case.expected, expected, strict=True)))


@pytest.fixture(scope="module")
def cases():
    np.random.seed(0)
    with warnings.catch_warnings():  # from cases of other operators, made on the way
        warnings.simplefilter("ignore")
        cases = collect_testcases("Attention")
    return [case_of(case) for case in cases if [node.op_type for node in case.model.graph.node] == ["Attention"]]


def write(path, case):
    tensors = {name: np.ascontiguousarray(x) for name, x in case.inputs.items()}
    path.write_bytes(safetensors.numpy.save(tensors, {name: str(value) for name, value in case.attributes.items()}))


def read(path):
    return {
        name: np.frombuffer(bytes(x["data"]), TYPES[x["dtype"]]).reshape(x["shape"])
        for name, x in safetensors.deserialize(path.read_bytes())
    }


def difference(actual, expected):
    """What is wrong with an output, or None."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"is {actual.dtype} {actual.shape}, expected {expected.dtype} {expected.shape}"
    dtype = expected.dtype.name
    a, e = actual.astype("f8"), expected.astype("f8")
    finite = np.isfinite(e)
    if not np.array_equal(a[~finite], e[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return "differs in what is infinite or NaN"
    largest = np.abs(e[finite]).max(initial=0)
    off = np.abs(a[finite] - e[finite]).max(initial=0)
    roundings = off / (ROUNDING[dtype] * largest) if off else 0
    return f"is off by {roundings:.3g} roundings" if roundings > ALLOWED[dtype] else None


def faults(case, path):
    """What is wrong with a case's outputs, each in a few words."""
    if not path.exists():
        return ["no output"]
    outputs = read(path)
    found = [(name, difference(outputs[name], expected)) for name, expected in case.expected.items()]
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
