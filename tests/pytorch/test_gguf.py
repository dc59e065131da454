"""attend.Model of a GGUF file beside the model of Transformers that it is made from: gguf_files.py has what becomes of it."""

import gguf_files
import numpy as np
import pytest
import torch
from tiny_models import CASES, LENGTHS, LLAMA3, TOLERANCE, far, gemma2, gemma3, hidden_of, made, rope

import attend

# No file says by what a Gemma's scores are scaled: it is the size of a head.
MODELS = {name: CASES[name] for name in ("qwen2", "qwen3", "mistral", "phi3", "phi3 partial, window", "phi3 longrope", "gpt2",
                                         "gpt2 untied", "bert", "bert eps, types", "roberta", "xlm-roberta", "distilbert")} | {
    "llama3": rope("llama3", **LLAMA3, head_dim=16),
    "gemma2": gemma2(query_pre_attn_scalar=16, attn_logit_softcapping=2.0, final_logit_softcapping=1.5),
    "gemma3": gemma3(query_pre_attn_scalar=16, num_hidden_layers=6, layer_types=None),
    "gemma3 scaled": gemma3(query_pre_attn_scalar=16, num_hidden_layers=6, layer_types=None, final_logit_softcapping=3.0, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 5e3}})}


def opened(path, model, change=lambda values, tensors: None):
    values, tensors = gguf_files.converted(model)
    change(values, tensors)
    gguf_files.write(path, values, tensors)
    return attend.Model.load(path)


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_of_the_folder_that_it_is_made_from(name, tmp_path):
    theirs = made(MODELS[name])
    theirs.set_attn_implementation("eager")
    ours = opened(tmp_path / "model.gguf", theirs)
    for length in (*LENGTHS, 128):
        ids = np.random.default_rng(length).integers(6, 99, length)
        hidden = ours.forward(ids)
        assert far(hidden, hidden_of(theirs, ids)) <= TOLERANCE
        if not ours.info.decoder:
            continue
        with torch.inference_mode():
            expected = theirs(torch.from_numpy(ids)[None]).logits[0]
        assert far(ours.logits(hidden), expected) <= TOLERANCE
