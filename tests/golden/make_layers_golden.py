"""Golden data of the layers, from PyTorch: layers.safetensors (forward), layers_init.safetensors (initialisation).

    pip install torch==2.13.0 safetensors numpy
    python tests/golden/make_layers_golden.py

Forward: each case CASE holds the layer's state as CASE.layer.*, its inputs CASE.query, CASE.key, CASE.value,
CASE.key_padding_mask and CASE.attn_mask, torch's results CASE.output and CASE.weights, and CASE.output_f64 and CASE.output_bf16: the same
layer and inputs computed in f64, and rounded to bf16 and computed in it.
A case of self-attention has no CASE.key; a case without weights asked for no CASE.weights.

Initialisation: CASE.SEED.* is the state that torch draws, CASE.SEED.next what torch.rand(2) gives after it.
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).parent
SEEDS = [0, 123, 42, 2**63 + 5]


def random_layer(embed, heads, **options):
    layer = nn.MultiheadAttention(embed, heads, batch_first=True, **options)
    for parameter in layer.parameters():  # biases start at zero in torch, and would hide a missing addition
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.5)
    return layer.requires_grad_(False)


def bool_mask(*shape):
    """True = may not attend; every row keeps its first key."""
    mask = torch.rand(shape) < 0.4
    mask[..., 0] = False
    return mask


def cast(tensor, dtype):
    return tensor.to(dtype) if tensor is not None and tensor.is_floating_point() else tensor


def add_case(out, name, layer, query, key=None, value=None, masks=None, need_weights=False, average=True):
    masks = masks or {}

    def run(dtype):
        layer.to(dtype)
        query_, key_, value_ = (cast(tensor, dtype) for tensor in (query, key, value))
        key_ = query_ if key_ is None else key_
        value_ = key_ if value_ is None else value_
        cast_masks = {k: cast(v, dtype) for k, v in masks.items()}
        return layer(query_, key_, value_, need_weights=need_weights, average_attn_weights=average, **cast_masks)

    layer.train()  # not the fused path of inference, which takes fewer options
    output, weights = run(torch.float32)
    for entry, tensor in layer.state_dict().items():
        out[f"{name}.layer.{entry}"] = tensor.clone()
    inputs = {"query": query, "key": key, "value": value, **masks}
    out.update({f"{name}.{k}": v.clone() for k, v in inputs.items() if v is not None})
    out[f"{name}.output"] = output
    if need_weights:
        out[f"{name}.weights"] = weights
    out[f"{name}.output_f64"] = run(torch.float64)[0]
    out[f"{name}.output_bf16"] = run(torch.bfloat16)[0]


def forward_cases():
    torch.manual_seed(7)
    out = {}
    b, tq, tk, e = 2, 7, 13, 15

    def self_case(name, heads=5, shape=(b, tq, e), masks=None, options=None, **call):
        add_case(out, name, random_layer(shape[-1], heads, **(options or {})), torch.randn(shape), masks=masks, **call)

    def cross_case(name, heads=5, masks=None, options=None, kdim=e, vdim=e, **call):
        layer = random_layer(e, heads, kdim=kdim, vdim=vdim, **(options or {}))
        tensors = torch.randn(b, tq, e), torch.randn(b, tk, kdim), torch.randn(b, tk, vdim)
        add_case(out, name, layer, *tensors, masks=masks, **call)

    float_padding = torch.randn(b, tk)
    float_padding[0, 9:] = -torch.inf
    causal = torch.triu(torch.ones(tq, tq, dtype=torch.bool), diagonal=1)

    self_case("self", shape=(b, tq, 30))
    self_case("no_bias", options={"bias": False})
    self_case("one_head", heads=1)
    self_case("one_token", shape=(b, 1, e))
    self_case("unbatched", shape=(tq, e), need_weights=True)
    self_case("unbatched_per_head", shape=(tq, e), need_weights=True, average=False,
              masks={"key_padding_mask": bool_mask(tq), "attn_mask": bool_mask(5, tq, tq)})
    self_case("averaged", need_weights=True)
    self_case("per_head", need_weights=True, average=False)
    self_case("causal", masks={"attn_mask": causal}, need_weights=True)
    cross_case("cross")
    cross_case("cross_sizes", kdim=11, vdim=9)
    cross_case("bias_kv", options={"add_bias_kv": True}, need_weights=True)
    cross_case("bias_kv_sizes", kdim=11, vdim=9, options={"add_bias_kv": True, "bias": False})
    cross_case("zero_attention", options={"add_zero_attn": True}, need_weights=True, average=False)
    cross_case("bias_kv_and_zero", options={"add_bias_kv": True, "add_zero_attn": True}, need_weights=True,
               average=False)
    cross_case("padding_bool", masks={"key_padding_mask": bool_mask(b, tk)})
    cross_case("padding_float", masks={"key_padding_mask": float_padding})
    cross_case("mask_bool", masks={"attn_mask": bool_mask(tq, tk)})
    cross_case("mask_float", masks={"attn_mask": torch.randn(tq, tk)})
    cross_case("mask_bool_3d", masks={"attn_mask": bool_mask(b * 5, tq, tk)}, need_weights=True, average=False)
    cross_case("mask_float_3d", masks={"attn_mask": torch.randn(b * 5, tq, tk)})
    cross_case("both_bool", masks={"key_padding_mask": bool_mask(b, tk), "attn_mask": bool_mask(tq, tk)})
    cross_case("both_float", masks={"key_padding_mask": float_padding, "attn_mask": torch.randn(b * 5, tq, tk)})
    cross_case("everything", kdim=11, vdim=9, options={"add_bias_kv": True, "add_zero_attn": True},
               masks={"key_padding_mask": bool_mask(b, tk), "attn_mask": bool_mask(b * 5, tq, tk)},
               need_weights=True)
    cross_case("everything_float", options={"add_bias_kv": True, "add_zero_attn": True},
               masks={"key_padding_mask": float_padding, "attn_mask": torch.randn(tq, tk)}, need_weights=True)
    linear_cases(out)
    return out


def linear_cases(out):
    for name, (rows, inner, outer, bias) in {
        "linear": ([2, 5], 37, 19, True),
        "linear_no_bias": ([9], 8, 3, False),
        "linear_one": ([], 1, 1, True),
    }.items():
        layer = nn.Linear(inner, outer, bias=bias)
        x = torch.randn(*rows, inner)
        out.update({f"{name}.{k}": v for k, v in layer.state_dict().items()})
        out.update({f"{name}.x": x, f"{name}.output": layer(x), f"{name}.output_f64": layer.double()(x.double())})


def init_cases():
    makers = {
        "linear": lambda: nn.Linear(16, 24),
        "linear_no_bias": lambda: nn.Linear(3, 2, bias=False),
        "embedding": lambda: nn.Embedding(6, 5),
        "multihead": lambda: nn.MultiheadAttention(12, 3),
        "multihead_no_bias": lambda: nn.MultiheadAttention(12, 3, bias=False),
        "multihead_sizes": lambda: nn.MultiheadAttention(12, 4, kdim=7, vdim=5),
        "multihead_bias_kv": lambda: nn.MultiheadAttention(12, 2, add_bias_kv=True),
        "multihead_all": lambda: nn.MultiheadAttention(20, 2, kdim=7, vdim=5, add_bias_kv=True),
    }
    out = {}
    for name, make in makers.items():
        for seed in SEEDS:
            torch.manual_seed(seed)
            for entry, tensor in make().state_dict().items():
                out[f"{name}.{seed}.{entry}"] = tensor
            out[f"{name}.{seed}.next"] = torch.rand(2)
    return out


for file, tensors in {"layers": forward_cases(), "layers_init": init_cases()}.items():
    path = HERE / f"{file}.safetensors"
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    assert not any(tensor.isnan().any() for tensor in tensors.values())
    save_file(tensors, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")
