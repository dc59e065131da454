"""Which weights of a model of transformers project what its heads put out."""

import torch

# What the projection is called in the module that computes attention, or in its parent's `output` (BERT).
_NAMES = ("o_proj", "out_proj", "c_proj", "dense", "out_lin", "o", "wo", "Wo", "proj", "output.dense")


def output_weight(model, path, size):
    """W_O [E,size] of the attention at that path, with the weight of a norm on what it writes; None where none is found."""
    module, parent = model.get_submodule(path), model.get_submodule(path.rpartition(".")[0])
    for owner, name in [(owner, name) for owner in (module, parent) for name in _NAMES]:
        weight = _weight_of(_child(owner, name), size)
        if weight is not None:
            gamma = _norm_after(parent, weight.shape[0])
            return weight if gamma is None else gamma[:, None] * weight.float()
    return None


def _child(module, name):
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def _weight_of(module, size):
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        return None
    if type(module).__name__ == "Conv1D":  # of GPT-2: [in,out]
        weight = weight.T
    return weight.detach() if weight.shape[1] == size else None


def _norm_after(layer, size):
    """Of a norm between the projection and the stream (Gemma 2, OLMo 2, GLM 4); None: there is none."""
    norm = getattr(layer, "post_self_attn_layernorm", None)
    if norm is None and (hasattr(layer, "pre_feedforward_layernorm") or not hasattr(layer, "input_layernorm")):
        norm = getattr(layer, "post_attention_layernorm", None)
    weight = getattr(norm, "weight", None)
    if weight is None or weight.shape != (size,):
        return None
    with torch.no_grad():  # as the module applies it: Gemma's is 1 + weight
        return norm(torch.ones(1, size, dtype=torch.float32))[0].float()
