"""Golden gradients of the layers, from PyTorch's autograd in f64: layers_backward.safetensors.

    pip install torch==2.13.0 safetensors numpy
    python tests/golden/make_layers_backward_golden.py

The layers and their inputs are the cases of layers.safetensors (make_layers_golden.py). CASE.doutput is the gradient
of the output; CASE.dNAME that of NAME, rounded to f32: of inputs (query is all of x in self-attention), of float masks,
and of the layer's state (dlayer.ENTRY); bf16.CASE.dNAME the same as autograd computes it in bf16, of the rounded layer.
self_attention.* holds a whole case of its own, causal, with x, doutput and the state (query.weight, ...); so does
embedding.*, with ids.
"""

import pathlib

import torch
from safetensors.torch import load_file, save_file
from torch import nn

HERE = pathlib.Path(__file__).parent
INPUTS = ["query", "key", "value", "key_padding_mask", "attn_mask"]
WITH_ZEROS = {"zero_attention", "bias_kv_and_zero", "everything", "everything_float"}


def leaf(tensor, dtype=torch.float64):
    return tensor.to(dtype).requires_grad_() if tensor.is_floating_point() else tensor


def gradients(inputs):
    return {f"d{name}": tensor.grad for name, tensor in inputs.items() if tensor.requires_grad}


def multi_head_case(name, tensors, dtype=torch.float64, doutput=None):
    state = {k.removeprefix("layer."): leaf(tensor, dtype) for k, tensor in tensors.items() if k.startswith("layer.")}
    inputs = {entry: leaf(tensors[entry], dtype) for entry in INPUTS if entry in tensors}
    query = inputs["query"]
    key = inputs.get("key", query)
    value = inputs.get("value", key)
    layer = nn.MultiheadAttention(query.shape[-1], 1 if name == "one_head" else 5, bias="in_proj_bias" in state,
                                  add_bias_kv="bias_k" in state, add_zero_attn=name in WITH_ZEROS,
                                  kdim=key.shape[-1], vdim=value.shape[-1], batch_first=True)
    masks = {entry: inputs[entry] for entry in ("key_padding_mask", "attn_mask") if entry in inputs}
    output, _ = torch.func.functional_call(layer, state, (query, key, value), {"need_weights": False, **masks})
    doutput = torch.randn(output.shape) if doutput is None else doutput
    output.backward(doutput.to(dtype))
    of_state = gradients({f"layer.{entry}": tensor for entry, tensor in state.items()})
    return doutput, {**gradients(inputs), **of_state}


def linear_case(tensors):
    leaves = {entry: leaf(tensors[entry]) for entry in ("x", "weight", "bias") if entry in tensors}
    output = nn.functional.linear(leaves["x"], leaves["weight"], leaves.get("bias"))
    doutput = torch.randn(output.shape)
    output.backward(doutput.double())
    return {"doutput": doutput, **gradients(leaves)}


def self_attention_case():
    b, t, e, d, dv = 2, 7, 6, 5, 4
    tensors = {"x": torch.randn(b, t, e)}
    for name, size in {"query": d, "key": d, "value": dv}.items():
        tensors |= {f"{name}.weight": torch.randn(size, e) / e**0.5, f"{name}.bias": torch.randn(size)}
    leaves = {name: leaf(tensor) for name, tensor in tensors.items()}
    q, k, v = (nn.functional.linear(leaves["x"], leaves[f"{name}.weight"], leaves[f"{name}.bias"])
               for name in ("query", "key", "value"))
    hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
    context = ((q @ k.mT) / d**0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v
    doutput = torch.randn(context.shape)
    context.backward(doutput.double())
    return {**tensors, "doutput": doutput, **gradients(leaves)}


def embedding_case():
    ids = torch.tensor([4, 0, 4, 2, 4, 0, 5])
    weight = leaf(torch.randn(7, 3))
    doutput = torch.randn(len(ids), 3)
    nn.functional.embedding(ids, weight).backward(doutput.double())
    return {"ids": ids, "doutput": doutput, "dweight": weight.grad}


torch.manual_seed(11)
cases = {}
for full, tensor in load_file(HERE / "layers.safetensors").items():
    case, entry = full.split(".", 1)
    cases.setdefault(case, {})[entry] = tensor
out = {}
for case, tensors in sorted(cases.items()):
    if case.startswith("linear"):
        out[case] = linear_case(tensors)
        continue
    doutput, exact = multi_head_case(case, tensors)
    out[case] = {"doutput": doutput, **exact}
out |= {"self_attention": self_attention_case(), "embedding": embedding_case()}
# Last: a layer that is made draws numbers.
for case, tensors in sorted(cases.items()):
    if not case.startswith("linear"):
        out[f"bf16.{case}"] = multi_head_case(case, tensors, torch.bfloat16, out[case]["doutput"])[1]
path = HERE / "layers_backward.safetensors"
flat = {f"{case}.{entry}": (tensor.float() if tensor.is_floating_point() else tensor).contiguous()
        for case, tensors in out.items() for entry, tensor in tensors.items()}
assert not any(tensor.isnan().any() for tensor in flat.values())
save_file(flat, path)
print(f"{path.name}: {len(flat)} tensors, {path.stat().st_size} bytes")
