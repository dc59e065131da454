"""OpenVINO: ScaledDotProductAttention of opset 13, grouped heads broadcast as its own models do; models that it converts itself."""

import sys

import numpy as np
import openvino
from openvino import opset13 as op

import exported
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
    if case["dtype"] not in ("f32", "bf16") or case["kind"] not in ("attention", "pretrained"):
        raise protocol.CannotDo("only f32 and bf16 attention and models are compared")
    return pretrained_ways(case, inputs) if case["kind"] == "pretrained" else attention_ways(case, inputs)


def attention_ways(case, inputs):
    dtype = openvino.Type.bf16 if case["dtype"] == "bf16" else openvino.Type.f32
    q, k, v = (op.parameter(list(inputs[name].shape), dtype) for name in "qkv")
    groups = case["H"] // case["Hkv"]
    out = op.scaled_dot_product_attention(q, repeated(k, groups), repeated(v, groups), causal=case.get("causal", False))
    call = bound(openvino.Model([out], [q, k, v], "attention"), case["dtype"], [tensor(inputs[name], dtype) for name in "qkv"])
    return [(f"ScaledDotProductAttention, {case['dtype']}", call, as_array)]


def pretrained_ways(case, inputs):
    with exported.written(case, inputs, "openvino") as path:
        call = bound(core.read_model(path), case["dtype"], [openvino.Tensor(inputs["ids"])])
    rows = lambda request: as_array(request).reshape(inputs["ids"].size, -1)
    return [(f"openvino.convert_model, inference precision {case['dtype']}", call, rows)]


def bound(model, precision, tensors):
    compiled = core.compile_model(model, "CPU", settings | {"INFERENCE_PRECISION_HINT": precision})
    request = compiled.create_infer_request()
    for i, each in enumerate(tensors):
        request.set_input_tensor(i, each)
    return lambda: (request.infer(), request)[1]


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
