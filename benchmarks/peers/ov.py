"""OpenVINO: ScaledDotProductAttention of opset 13. Grouped heads are broadcast as its own models do."""

import sys

import numpy as np
import openvino
from openvino import opset13 as op

import protocol

NAME, VERSION = "OpenVINO", openvino.__version__.split("-")[0]
core = openvino.Core()
settings = {"PERFORMANCE_HINT": "LATENCY"}


def set_threads(threads):
    settings["INFERENCE_NUM_THREADS"] = threads


def repeated(x, groups):
    """[B,Hkv,T,D] -> [B,Hkv*groups,T,D]"""
    if groups == 1:
        return x
    constant = lambda values: op.constant(np.array(values, dtype=np.int64))
    B, Hkv, T, D = x.get_output_shape(0)
    wide = op.broadcast(op.unsqueeze(x, constant(2)), constant([B, Hkv, groups, T, D]))
    return op.reshape(wide, constant([B, Hkv * groups, T, D]), False)


def ways(case, inputs):
    if case["dtype"] not in ("f32", "bf16") or case["kind"] != "attention":
        raise protocol.CannotDo("only f32 and bf16 attention is compared")
    dtype = openvino.Type.bf16 if case["dtype"] == "bf16" else openvino.Type.f32
    q, k, v = (op.parameter(list(inputs[name].shape), dtype) for name in "qkv")
    groups = case["H"] // case["Hkv"]
    out = op.scaled_dot_product_attention(q, repeated(k, groups), repeated(v, groups), causal=case.get("causal", False))
    compiled = core.compile_model(openvino.Model([out], [q, k, v], "attention"), "CPU",
                                  settings | {"INFERENCE_PRECISION_HINT": case["dtype"]})
    request = compiled.create_infer_request()
    for i, name in enumerate("qkv"):
        request.set_input_tensor(i, tensor(inputs[name], dtype))
    return [(f"ScaledDotProductAttention, {case['dtype']}", lambda: (request.infer(), request)[1], as_array)]


def tensor(array, dtype):
    made = openvino.Tensor(dtype, openvino.Shape(array.shape))
    if dtype == openvino.Type.bf16:  # a bf16 is the upper half of an f32
        made.data.view(np.uint16)[...] = (array.view(np.uint32) >> 16).astype(np.uint16)
    else:
        made.data[...] = array
    return made


def as_array(request):
    out = request.get_output_tensor(0)
    if out.element_type == openvino.Type.bf16:
        return (out.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return out.data


if __name__ == "__main__":
    protocol.serve(sys.modules[__name__])
