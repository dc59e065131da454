"""attend.Model of a GGUF file beside the model of Transformers that it is made from: gguf_files.py has what becomes of it."""

import itertools
import os
import pathlib
import platform
import subprocess
import sys

import gguf_files
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_models import CASES, LENGTHS, LLAMA3, TOLERANCE, bert, far, gemma2, gemma3, gpt2, hidden_of, llama, made, phi3, rope, smollm3

import attend

# No file says by what a Gemma's scores are scaled: it is the size of a head.
MODELS = {name: CASES[name] for name in ("qwen2", "qwen3", "mistral", "phi3", "phi3 partial, window", "phi3 longrope", "gpt2",
                                         "gpt2 untied", "modernbert", "bert", "bert eps, types", "roberta", "xlm-roberta",
                                         "distilbert")} | {
    "smollm3": smollm3(num_hidden_layers=9),
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


# By their numbers in a file: make_blocks_golden.py has rows of each, and what the package `gguf` makes of them.
KINDS = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20,
         "IQ4_XS": 23}
WIDE = {"hidden_size": 512, "intermediate_size": 512}
QUANTIZED = {"llama": llama(**WIDE), "llama tied": llama(tie_word_embeddings=True, **WIDE), "phi3": phi3(**WIDE),
             "gpt2": gpt2(n_embd=512), "bert": bert(**WIDE)}


def quantized(tensors):
    """Every matrix but those of positions and types as blocks, of each type in turn: the blocks, their types, and their numbers."""
    golden = load_file(pathlib.Path(__file__).parents[1] / "golden" / "blocks.safetensors")
    generator, names = np.random.default_rng(5), itertools.cycle(KINDS)
    blocks, kinds, numbers = dict(tensors), {}, dict(tensors)
    for name, tensor in tensors.items():
        if tensor.dim() != 2 or "position" in name or "types" in name:
            continue
        kind = next(names)
        rows = generator.integers(2, 5, (tensor.shape[0], tensor.shape[1] // 512))  # the others have the largest scales
        blocks[name] = golden[f"{kind}.blocks"][rows].flatten(1)
        numbers[name] = golden[f"{kind}.numbers"][rows].flatten(1)
        kinds[name] = (KINDS[kind], tensor.shape[1])
    return blocks, kinds, numbers


SAME_BITS = """
import sys, attend, numpy as np
ours, theirs = map(attend.Model.load, sys.argv[1:])
ids = np.random.default_rng(3).integers(6, 99, 20)
for each in (ids, ids[:3], ids[:1]):
    assert np.array_equal(ours.forward(each), theirs.forward(each))
if ours.info.decoder:
    assert np.array_equal(ours.logits(ours.forward(ids)), theirs.logits(theirs.forward(ids)))
    assert np.array_equal(ours.generate(ids[:4], max_new_tokens=9), theirs.generate(ids[:4], max_new_tokens=9))
"""


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_weights_compute_what_their_numbers_do(name, tmp_path):
    values, tensors = gguf_files.converted(made(QUANTIZED[name]))
    blocks, kinds, numbers = quantized(tensors)
    gguf_files.write(tmp_path / "blocks.gguf", values, blocks, kinds)
    gguf_files.write(tmp_path / "numbers.gguf", values, numbers)
    ours, theirs = attend.Model.load(tmp_path / "blocks.gguf"), attend.Model.load(tmp_path / "numbers.gguf")
    wide, narrow = (attend.Model.load(tmp_path / "blocks.gguf", dtype=dtype) for dtype in ("float32", "bfloat16"))
    assert ours.info.weight_bytes < theirs.info.weight_bytes / 3 == wide.info.weight_bytes / 3
    assert set(ours.info.formats) >= {each for each, number in KINDS.items() if number in dict(kinds.values())}
    ids = np.random.default_rng(3).integers(6, 99, 20)
    for each in (ids, ids[:3], ids[:1]):
        expected = theirs.forward(each)
        assert np.array_equal(wide.forward(each), expected)
        # On some targets by products of bytes, which round elsewhere (tests/kernels/blocks_test.cpp has the bits of the others).
        assert np.abs(ours.forward(each) - expected).max() <= 1e-4 * np.abs(expected).max()
    assert np.array_equal(narrow.forward(ids), attend.Model.load(tmp_path / "numbers.gguf", dtype="bfloat16").forward(ids))
    if ours.info.decoder:
        expected = theirs.logits(theirs.forward(ids))
        assert np.abs(ours.logits(ours.forward(ids)) - expected).max() <= 1e-4 * np.abs(expected).max()
        assert np.array_equal(ours.generate(ids[:4], max_new_tokens=9), theirs.generate(ids[:4], max_new_tokens=9))
    # To the bit where products are of floats, as on this target.
    target = "baseline" if platform.machine() == "x86_64" else "neon"
    subprocess.run([sys.executable, "-c", SAME_BITS, tmp_path / "blocks.gguf", tmp_path / "numbers.gguf"], check=True,
                   env=os.environ | {"ATTEND_TARGET": target})


def test_quantized_weights_beside_transformers(tmp_path):
    theirs = made(QUANTIZED["llama"])
    theirs.set_attn_implementation("eager")
    state = theirs.state_dict()
    matrices, kinds, numbers = quantized(state)
    for name, each in numbers.items():
        state[name].copy_(each)
    values, _ = gguf_files.converted(theirs)
    _, _, blocks = gguf_files.llama(theirs.config, matrices)
    kinds = {gguf_files.renamed(name, gguf_files.LLAMA): kind for name, kind in kinds.items()}
    gguf_files.write(tmp_path / "model.gguf", values, blocks, kinds)
    ours = attend.Model.load(tmp_path / "model.gguf")
    ids = np.random.default_rng(3).integers(6, 99, 20)
    with torch.inference_mode():
        expected = theirs(torch.from_numpy(ids)[None]).logits[0]
    assert far(ours.logits(ours.forward(ids)), expected) <= TOLERANCE
    cache = ours.cache()
    one_by_one = np.concatenate([ours.logits(ours.forward(ids[n:n + 1], caches=[cache])) for n in range(len(ids))])
    assert far(one_by_one, expected) <= TOLERANCE
