"""attend quantize beside the folders that its files are made from. What matrices become is said here again, in NumPy, and put into the
model of Transformers, whose numbers the file's are; ids are those of `tokenizers`. The models are small, their tokenizers trained here.
"""

import json
import random

import numpy as np
import pytest
import test_tokenizer
import torch
from test_tokenizer import QWEN
from tiny_models import GROUPED, LLAMA3, SHAPE, TOLERANCE, Case, far, hidden_of, made
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

import attend

TEXTS = ["Hello world", "In 1234   567 words, it's 8!", "café naïve É 日本語 🙂", "  two  spaces\n\n\ttab", "the <|end|> of <s>the tokens",
         "inat, what inating is"]
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
DECODER = GROUPED | SIZES


def qwen(repository):
    tokenizer = test_tokenizer.byte_level(repository, pre_tokenizers.Split(Regex(QWEN), "isolated"), normalizer=normalizers.NFC(),
                                          regex=False)
    tokenizer.add_tokens([AddedToken("<|end|>", normalized=False)])
    return tokenizer


def sentencepiece(tokenizer):
    """With all ways to make each token, as in what Transformers makes of SentencePiece's files."""
    root = json.loads(tokenizer.to_str())
    vocabulary, merges = root["model"]["vocab"], []
    for token in dict.fromkeys("".join(each) for each in root["model"]["merges"]):
        ways = [(token[:at], token[at:]) for at in range(1, len(token)) if token[:at] in vocabulary and token[at:] in vocabulary]
        merges += sorted(ways, key=lambda way: (-len(way[0]), vocabulary[way[0]]))
    root["model"]["merges"] = merges
    return Tokenizer.from_str(json.dumps(root))


def mistral(repository):
    """With a word that two of its tokens make, and that no merge does: it is found before."""
    tokenizer = sentencepiece(test_tokenizer.mistral(repository))
    assert tokenizer.token_to_id("in") and tokenizer.token_to_id("at") and not tokenizer.token_to_id("inat")
    tokenizer.add_tokens([AddedToken("inat", normalized=False)])
    return tokenizer


def llama2(repository):
    return sentencepiece(test_tokenizer.llama2(repository))


def gemma(repository):
    tokenizer = mistral(repository)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


GEMMA = DECODER | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 5}
MODELS = {
    "llama": (Case("LlamaForCausalLM", DECODER | {"attention_bias": True}), test_tokenizer.smollm2),
    "llama3": (Case("LlamaForCausalLM", DECODER | {"tie_word_embeddings": True, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, **LLAMA3}}), test_tokenizer.llama3),
    "mistral": (Case("MistralForCausalLM", DECODER | {"sliding_window": None, "head_dim": 12}), mistral),
    "mistral, older": (Case("MistralForCausalLM", DECODER | {"sliding_window": 4096, "intermediate_size": 80}), llama2),
    "qwen2": (Case("Qwen2ForCausalLM", DECODER), qwen),
    "qwen3": (Case("Qwen3ForCausalLM", DECODER | {"head_dim": 16, "tie_word_embeddings": True}), qwen),
    "gemma2": (Case("Gemma2ForCausalLM", GEMMA), gemma),
    "gemma3": (Case("Gemma3ForCausalLM", GEMMA | {"num_hidden_layers": 6, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 5e3}}}), gemma),
    "phi3": (Case("Phi3ForCausalLM", DECODER | {"original_max_position_embeddings": 8, "partial_rotary_factor": 0.5, "rope_parameters": {
        "rope_type": "longrope", "short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [1.25, 2.0, 3.5, 6.0]}}), mistral),
    "gpt2": (Case("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}), test_tokenizer.gpt2),
    "bert": (Case("BertModel", SHAPE | SIZES), test_tokenizer.minilm),
    "distilbert": (Case("DistilBertModel", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 96, "max_position_embeddings": 128}),
                   test_tokenizer.minilm),
}


def write_folder(folder, name, repository):
    """Returns the model of Transformers and the tokenizer of `tokenizers`."""
    case, train = MODELS[name]
    tokenizer = train(repository)
    size = tokenizer.get_vocab_size() + 3  # ids without a token
    model = made(Case(case.name, case.config | {"vocab_size": size, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    if name == "llama3":  # the ends of a text, a turn and a message
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5, 7]}))
    return model, tokenizer


def blocks(rows, type):
    """The numbers that are left of it, as ggml's reference rounds."""
    of = rows.reshape(-1, 32)
    if type == "q8_0":
        scale = np.abs(of).max(1, keepdims=True) / np.float32(127)
        whole = of * (1 / scale)
        whole = np.sign(whole) * np.floor(np.abs(whole) + np.float32(0.5))
    else:
        scale = np.take_along_axis(of, np.abs(of).argmax(1)[:, None], 1) / np.float32(-8)
        whole = np.trunc(of * (1 / scale) + np.float32(8.5)).clip(0, 15) - 8
    return (scale.astype(np.float16).astype(np.float32) * whole).reshape(rows.shape)


def round_weights(model, type):
    """In place, as the file has them."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2 or "position_embeddings" in name or "token_type" in name or "wpe" in name:
                continue
            turned = model.config.model_type == "gpt2" and ".h." in name
            rows = (parameter.T if turned else parameter).contiguous().numpy()
            left = blocks(rows, type) if rows.shape[1] % 32 == 0 else rows.astype(np.float16).astype(np.float32)
            parameter.copy_(torch.from_numpy(left.T.copy() if turned else left))


@pytest.mark.parametrize("name", MODELS)
def test_numbers_and_ids(name, repository, tmp_path):
    model, tokenizer = write_folder(tmp_path, name, repository)
    type = "q4_0" if name in ("llama", "bert", "gpt2") else "q8_0"
    attend.quantize(tmp_path, tmp_path / "model.gguf", type)
    ours = attend.Model.load(tmp_path / "model.gguf")
    assert ours.info.end == attend.Model.load(tmp_path).info.end
    round_weights(model, type)
    model.set_attn_implementation("eager")
    for length in (1, 7, 40):
        ids = np.random.default_rng(length).integers(6, 99, length)
        hidden = ours.forward(ids)
        assert far(hidden, hidden_of(model, ids)) <= TOLERANCE
        if ours.info.decoder:
            with torch.inference_mode():
                assert far(ours.logits(hidden), model(torch.from_numpy(ids)[None]).logits[0]) <= TOLERANCE
    dice = random.Random(1)
    for text in (*TEXTS, *(test_tokenizer.random_text(dice) for _ in range(200))):
        assert ours.tokenizer.encode(text).ids.tolist() == tokenizer.encode(text).ids, text
    assert ours.tokenizer.encode("one", "two").ids.tolist() == tokenizer.encode("one", "two").ids
