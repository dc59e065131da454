"""ONNX Runtime: the operator Attention (opset 23, with 4- and 3-dimensional inputs) or com.microsoft's
MultiHeadAttention, whichever is faster; a model with that operator or with its parts. Inputs and output stay bound: no copies
are timed."""

import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import exported
import protocol

NAME, VERSION = "ONNX Runtime", onnxruntime.__version__
options = onnxruntime.SessionOptions()


def set_threads(threads):
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3


def tokens_first(x):
    """[B,H,T,D] -> [B,T,H*D]"""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def session(node, feeds, out_shape, opsets):
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "g", [value(n, x.shape) for n, x in feeds.items()], [value("out", out_shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets])
    model.ir_version = 10
    return bound(model.SerializeToString(), feeds)


def bound(model, feeds):
    """A call of a model, which is its bytes or its path, on these inputs."""
    made = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = made.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    out_shape = made.get_outputs()[0].shape
    binding.bind_ortvalue_output("out", onnxruntime.OrtValue.ortvalue_from_shape_and_type(out_shape, np.float32))
    return lambda: (made.run_with_iobinding(binding), binding)[1]


def ways(case, inputs):
    if case["dtype"] != "f32" or case["kind"] not in ("attention", "pretrained"):
        raise protocol.CannotDo("only f32 attention and models are compared")
    return pretrained_ways(case, inputs) if case["kind"] == "pretrained" else attention_ways(case, inputs)


def pretrained_ways(case, inputs):
    """From opset 23 on, attention is exported as one operator."""
    rows = lambda binding: binding.copy_outputs_to_cpu()[0].reshape(inputs["ids"].size, -1)
    for opset, how in (20, "attention in parts"), (23, "the operator Attention"):
        with exported.written(case, inputs, f"onnx-{opset}") as path:
            yield f"exported by torch.onnx, {how}", bound(str(path), inputs), rows


def attention_ways(case, inputs):
    B, H, Tq, Dv = case["B"], case["H"], case["Tq"], inputs["v"].shape[-1]
    causal, onnx23 = int(case.get("causal", False)), [("", 23)]
    flat = {name: tokens_first(x) for name, x in inputs.items()}
    heads_first = lambda binding: binding.copy_outputs_to_cpu()[0]
    tokens = lambda binding: heads_first(binding).reshape(B, Tq, H, Dv).transpose(0, 2, 1, 3)

    node = helper.make_node("Attention", list("qkv"), ["out"], is_causal=causal)
    yield "Attention-23, 4-D", session(node, inputs, (B, H, Tq, Dv), onnx23), heads_first
    node = helper.make_node("Attention", list("qkv"), ["out"], is_causal=causal, q_num_heads=H, kv_num_heads=case["Hkv"])
    yield "Attention-23, 3-D", session(node, flat, (B, Tq, H * Dv), onnx23), tokens
    if case["Hkv"] == H:
        node = helper.make_node("MultiHeadAttention", list("qkv"), ["out"], domain="com.microsoft", num_heads=H,
                                unidirectional=causal)
        yield "MultiHeadAttention", session(node, flat, (B, Tq, H * Dv), [("", 17), ("com.microsoft", 1)]), tokens


if __name__ == "__main__":
    protocol.serve(sys.modules[__name__])
