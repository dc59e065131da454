"""The .pt file of a Jacobian lens, as TransformerLens 4.3 and the papers' own code write it."""

import os

import torch

from ._core import JacobianLens


def read(path):
    """What torch's loader of weights alone makes of {"J": {layer: [E,E]}, "n_prompts", "d_model"}."""
    found = torch.load(os.fsdecode(path), map_location="cpu", weights_only=True)
    matrices = found.get("J") if isinstance(found, dict) else None
    if not isinstance(matrices, dict) or sorted(matrices) != list(range(len(matrices))) or not matrices:
        raise ValueError(f"JacobianLens.from_torch: {os.fsdecode(path)!r} has no J of the layers 0, 1, ..., as a Jacobian lens has")
    return JacobianLens(torch.stack([matrices[layer].float() for layer in sorted(matrices)]), int(found.get("n_prompts", 0)))


def write(lens, path):
    matrices = torch.from_numpy(lens.jacobians).half()
    layers = list(range(len(matrices)))
    with open(os.fsdecode(path), "wb") as file:  # of which torch raises no OSError
        torch.save({"J": {layer: matrices[layer].clone() for layer in layers}, "n_prompts": lens.prompts, "source_layers": layers,
                    "d_model": matrices.shape[-1]}, file)
