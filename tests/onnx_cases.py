"""The node cases of ONNX's operator Attention, opsets 23 to 25, in the PyPI package onnx; and how far from them a result
may be.

The package makes 93 cases whose one node is an Attention. It makes 93 more ("_expanded") with the same tensors and the
operator spelled in smaller ones: those test a backend's smaller operators, and have no Attention to run.
"""

import copy
import dataclasses
import warnings

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

CASES = 93

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


def published():
    """Every case, as the package makes it."""
    np.random.seed(0)
    with warnings.catch_warnings():  # from cases of other operators, made on the way
        warnings.simplefilter("ignore")
        cases = collect_testcases("Attention")
    return [case_of(case) for case in cases if [node.op_type for node in case.model.graph.node] == ["Attention"]]


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


def run(attention, case, convert=lambda x: x):
    """The four outputs of attend.onnx.attention by name."""
    inputs = {name: convert(np.asarray(x)) for name, x in case.inputs.items()}
    outputs = attention(**inputs, **case.attributes, return_qk_matmul_output=True)
    return dict(zip(["Y", "present_key", "present_value", "qk_matmul_output"], outputs, strict=True))
