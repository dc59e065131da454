"""PyTorch: F.scaled_dot_product_attention and its backward, oneDNN's linear layer, nn.MultiheadAttention."""

import copy
import sys

import torch
import torch.nn.functional as F
import torch.utils.mkldnn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

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
    if case["kind"] == "cached":
        return cached_ways(case, tensors)
    if case["kind"] == "linear":
        return linear_ways(tensors)
    if case["kind"] == "layer":
        return layer_ways(case, tensors)
    if case["flex"]:
        return flex_ways(case, tensors)
    if case["summary"]:
        return summary_ways(case, tensors)
    return backward_ways(case, tensors) if case["backward"] else attention_ways(case, tensors)


def attention_ways(case, tensors):
    q, k, v = tensors["q"], tensors["k"], tensors["v"]
    grouped = case["H"] != case["Hkv"]

    def call():
        return F.scaled_dot_product_attention(q, k, v, is_causal=case.get("causal", False), enable_gqa=grouped)

    return [("F.scaled_dot_product_attention", call, as_array)]


def summary_ways(case, tensors):
    """From the whole matrix of weights: the 8 largest, entropies, what keys receive, means in 256 x 256 blocks."""
    q, k = tensors["q"], tensors["k"]
    hidden = torch.ones(case["Tq"], case["Tk"], dtype=torch.bool).triu(1)
    blocks = case["Tq"] // 256, case["Tk"] // 256

    def call():
        weights = torch.softmax((q @ k.transpose(-1, -2) * case["D"]**-0.5).masked_fill(hidden, -torch.inf), -1)
        largest = weights.topk(8, -1)
        entropy = torch.special.entr(weights).sum(-1)
        received = weights.sum(-2)
        map_ = weights.unflatten(-1, (-1, max(1, blocks[1]))).sum(-1).unflatten(-2, (-1, max(1, blocks[0]))).mean(-2)
        return entropy, largest, received, map_

    return [("softmax of q k^T, then topk, entr and sums", call, lambda result: as_array(result[0]))]


def cached_ways(case, tensors):
    """Sequences of different lengths: padded to the longest, with a mask."""
    lengths = torch.tensor(case["lengths"])
    pad = torch.nn.utils.rnn.pad_sequence
    k, v = (pad([x.transpose(0, 1) for x in tensors[name][0].split(case["lengths"], 1)], batch_first=True).transpose(1, 2).contiguous()
            for name in "kv")
    visible = (torch.arange(k.shape[2]) < lengths[:, None])[:, None, None]

    repeats = tensors["q"].shape[1] // k.shape[1]
    repeated = [x.repeat_interleave(repeats, 1) for x in (k, v)]  # made before: its fastest kernel knows no groups

    def grouped():
        return F.scaled_dot_product_attention(tensors["q"], k, v, attn_mask=visible, enable_gqa=True)

    def alike():
        return F.scaled_dot_product_attention(tensors["q"], *repeated, attn_mask=visible)

    return [("F.scaled_dot_product_attention, padded", grouped, as_array),
            ("F.scaled_dot_product_attention, padded, keys repeated for each head", alike, as_array)]


def flex_ways(case, tensors):
    """FlexAttention, compiled for the case: what is hidden as a mask of blocks, made before."""
    q, k, v = (tensors[name] for name in "qkv")
    documents = torch.repeat_interleave(torch.tensor(case.get("documents", [case["Tq"]])))
    left = case["window"][0] if "window" in case else case["Tk"]
    slopes = tensors["alibi_slopes"].float() if "alibi_slopes" in tensors else None
    cap = case["softcap"]

    def visible(b, h, i, j):
        seen = documents[i] == documents[j]
        return seen & (j <= i) & (i - j <= left) if case["causal"] else seen

    def score(score, b, h, i, j):
        if cap:
            score = cap * torch.tanh(score / cap)
        return score - slopes[h] * (i - j).abs() if slopes is not None else score

    hides = case["causal"] or "documents" in case
    blocks = create_block_mask(visible, None, None, case["Tq"], case["Tk"], device="cpu") if hides else None
    torch._dynamo.config.recompile_limit = 1000  # beyond 8 cases it would compute without compiling
    compiled = torch.compile(flex_attention, dynamic=False)
    changes = score if cap or slopes is not None else None
    return [("flex_attention, compiled", lambda: compiled(q, k, v, score_mod=changes, block_mask=blocks), as_array)]


def backward_ways(case, tensors):
    """The backward alone: through autograd on a graph that is kept, or the kernel that it calls."""
    names, causal = ("q", "k", "v"), case["causal"]
    with torch.inference_mode(False):  # else there is no graph
        leaves = [tensors[name].clone().requires_grad_() for name in names]
        dout = tensors["dout"].clone()
        out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    result = flash(*(tensors[name] for name in names), is_causal=causal)

    def through_autograd():
        return torch.autograd.grad(out, leaves, dout, retain_graph=True)

    def kernel():
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            tensors["dout"], *(tensors[name] for name in names), *result, 0.0, causal)

    def joined(gradients):
        return as_array(torch.cat([gradient.flatten() for gradient in gradients]))

    return [("torch.autograd.grad of F.scaled_dot_product_attention, graph kept", through_autograd, joined),
            ("aten._scaled_dot_product_flash_attention_for_cpu_backward", kernel, joined)]


def linear_ways(tensors):
    x, weight, bias = tensors["x"], tensors["weight"], tensors["bias"]
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, x.shape[0])
    return [
        ("F.linear", lambda: F.linear(x, weight, bias), as_array),
        ("oneDNN, packed weight", lambda: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], ""), as_array),
    ]


def layer_ways(case, tensors):
    """nn.MultiheadAttention: its own path of inference, or the one of training, without dropout."""
    x = tensors.pop("x")
    layer = torch.nn.MultiheadAttention(x.shape[-1], case["heads"], batch_first=True, dtype=x.dtype)
    layer.load_state_dict(tensors)

    ways = []
    for mode in "eval", "train":
        each = copy.deepcopy(getattr(layer, mode)())
        ways.append((f"nn.MultiheadAttention, {mode}()", lambda each=each: each(x, x, x, need_weights=False)[0], as_array))
    return ways


if __name__ == "__main__":
    with torch.inference_mode():
        protocol.serve(sys.modules[__name__])
