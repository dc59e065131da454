"""PyTorch: F.scaled_dot_product_attention, and oneDNN's linear layer."""

import sys

import torch
import torch.nn.functional as F
import torch.utils.mkldnn

import protocol

NAME, VERSION = "PyTorch", torch.__version__
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}

set_threads = torch.set_num_threads


def as_array(tensor):
    return tensor.float().numpy()


def ways(case, inputs):
    if case["dtype"] not in DTYPES:
        raise protocol.CannotDo(f"{case['dtype']} is not compared")
    dtype = DTYPES[case["dtype"]]
    tensors = {name: torch.from_numpy(array).to(dtype) for name, array in inputs.items()}
    return linear_ways(tensors) if case["kind"] == "linear" else attention_ways(case, tensors)


def attention_ways(case, tensors):
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    grouped = case["H"] != case["Hkv"]

    def call():
        return F.scaled_dot_product_attention(q, k, v, is_causal=case.get("causal", False), enable_gqa=grouped)

    return [("F.scaled_dot_product_attention", call, as_array)]


def linear_ways(tensors):
    x, weight, bias = tensors["x"], tensors["weight"], tensors["bias"]
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, x.shape[0])
    return [
        ("F.linear", lambda: F.linear(x, weight, bias), as_array),
        ("oneDNN, packed weight", lambda: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], ""), as_array),
    ]


if __name__ == "__main__":
    with torch.inference_mode():
        protocol.serve(sys.modules[__name__])
