"""attend quantize beside the folders that its files are made from. What matrices become is said here again, in NumPy, and put into the
model of Transformers, whose numbers the file's are; ids are those of `tokenizers`. The models are small, their tokenizers trained here.
"""

import json
import random
import re

import gguf_files
import numpy as np
import pytest
import test_tokenizer
import tiny
import torch
from test_tokenizer import QWEN
from tiny_models import CASES, GROUPED, LLAMA3, SHAPE, TOLERANCE, Case, edit, far, gemma2, gemma3, hidden_of, made
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers, processors

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


def modernbert(repository):
    """As published: NFC, a mask that takes the space before it, and tokens of many spaces, which are sought in the normal form."""
    tokenizer = test_tokenizer.byte_level(repository, normalizer=normalizers.NFC())
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True)])
    tokenizer.add_tokens([AddedToken("     ", normalized=True)])
    cls, sep = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
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
    "smollm3": (Case("SmolLM3ForCausalLM", DECODER | {"num_hidden_layers": 5}), test_tokenizer.llama3),
    "modernbert": (Case("ModernBertModel", SHAPE | SIZES | {"num_hidden_layers": 5, "local_attention": 10}), modernbert),
    "xlm-roberta": (Case("XLMRobertaModel", SHAPE | SIZES | {"max_position_embeddings": 130}), test_tokenizer.xlmr),
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


def write_folder(folder, name, repository, changes=None):
    """Returns the model of Transformers and the tokenizer of `tokenizers`. changes: of the configuration."""
    case, train = MODELS[name]
    tokenizer = train(repository)
    size = tokenizer.get_vocab_size() + 3  # ids without a token
    padding = 3 if name == "xlm-roberta" else 0  # a token that stands in no text: RoBERTa gives it a place of its own
    ids = {"vocab_size": size, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": padding}
    model = made(Case(case.name, case.config | (changes or {}) | ids))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    if name in ("modernbert", "xlm-roberta"):
        mask = "[MASK]" if name == "modernbert" else "<mask>"
        (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": mask}}))
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
    """In place, as the file has them. What the logits come from has 8 bits: its rows are too short for blocks of Q6_K."""
    table = model.get_output_embeddings() or model.get_input_embeddings()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2 or "position_embeddings" in name or "token_type" in name or "wpe" in name:
                continue
            turned = model.config.model_type == "gpt2" and "h." in name
            rows = (parameter.T if turned else parameter).contiguous().numpy()
            own_type = "q8_0" if parameter is table.weight else type
            left = blocks(rows, own_type) if rows.shape[1] % 32 == 0 else rows.astype(np.float16).astype(np.float32)
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


# Errors of random normal numbers, relative to them, at most.
ERRORS = {"F16": 3e-4, "Q8_0": 0.006, "Q6_K": 0.018, "Q5_K": 0.038, "Q5_1": 0.036, "Q5_0": 0.042, "Q4_K": 0.075, "Q4_0": 0.1}
SHORTER = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}  # of rows that are no multiple of 256


def expected_type(type, name, columns, layers, has_output):
    """As llama.cpp's quantizer chooses it: tests/pytorch/test_llama_cpp_types.py asks it."""
    kind = {"q4_k_m": "Q4_K", "q5_k_m": "Q5_K"}.get(type, type.upper())
    block = 32 if kind.endswith("_0") else 256
    part, layer = name.split(".")[-2], int(name.split(".")[1]) if name.startswith("blk") else None
    if part == ("output" if has_output else "token_embd"):
        kind = "Q8_0" if kind == "Q8_0" or columns % block else "Q6_K"
    elif type.endswith("_m") and part in ("attn_v", "attn_qkv", "ffn_down") and (
            layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2):
        kind = "Q6_K"
    if kind.endswith("_K") and columns % 256:
        kind = SHORTER[kind]
    return "F16" if columns % 32 else kind


@pytest.mark.parametrize("type", ["q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "phi3", "gpt2", "bert"])
def test_types_and_numbers_of_tensors(name, type, repository, tmp_path):
    """By the package gguf, of layers with rows of 256 numbers, of 288 and, of BERT, of 260."""
    gguf = pytest.importorskip("gguf")
    layers = {"num_hidden_layers": 9} | ({"hidden_size": 260} if name == "bert" else {"hidden_size": 256}) | {"intermediate_size": 288}
    if name == "gpt2":
        layers = {"n_layer": 9, "n_embd": 256, "n_inner": 288}
    if name == "phi3":
        layers |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    model, _ = write_folder(tmp_path, name, repository, layers)
    attend.quantize(tmp_path, tmp_path / "model.gguf", type)
    _, expected = gguf_files.converted(model)
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    assert found.keys() == expected.keys()
    for tensor, numbers in expected.items():
        kind = found[tensor].tensor_type.name
        if numbers.dim() < 2 or tensor in ("position_embd.weight", "token_types.weight"):
            assert kind == "F32" and np.array_equal(found[tensor].data, numbers), tensor
            continue
        assert kind == expected_type(type, tensor, numbers.shape[1], 9, "output.weight" in expected), tensor
        left = gguf.dequantize(found[tensor].data, found[tensor].tensor_type) - numbers.numpy()
        assert np.square(left).mean() ** 0.5 <= ERRORS[kind] * numbers.square().mean() ** 0.5, tensor
    assert set(attend.Model.load(tmp_path / "model.gguf").info.formats) == {
        {"F32": "f32", "F16": "f16"}.get(each, each) for each in (tensor.tensor_type.name for tensor in found.values())}


# What GGUF has no word for, where the type is one that is written: the path of what is refused, or the words.
SCALED = "this scaling of rotary positions can't be said in GGUF"
WINDOW = "sliding_window: a window can't be said in GGUF"
HEAD = "a model with a task's head"
ALONE = "'lm_head.weight' is missing: a GGUF file has an output layer"
OF_GEMMA = {"query_pre_attn_scalar": 16, "layer_types": None}
BY_GEMMA3 = OF_GEMMA | {"num_hidden_layers": 6}
FULL, SLIDING = {"rope_type": "default", "rope_theta": 5e5}, {"rope_type": "default", "rope_theta": 5e3}
OTHERS = {
    "gemma2 said": gemma2(**OF_GEMMA),
    "gemma2 bias": gemma2(**OF_GEMMA, attention_bias=True),
    "gemma2 untied": gemma2(**OF_GEMMA, tie_word_embeddings=False),
    "gemma2 gelu": gemma2(**OF_GEMMA, hidden_activation="gelu"),
    "gemma2 windows": gemma2(**OF_GEMMA | {"layer_types": ["full_attention"] * 3}),
    "gemma2 linear": gemma2(**OF_GEMMA, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
    "gemma3 said": gemma3(**BY_GEMMA3),
    "gemma3 scaled window": gemma3(**BY_GEMMA3, rope_parameters={
        "full_attention": FULL, "sliding_attention": SLIDING | {"rope_type": "linear", "factor": 2.0}}),
    "gemma3 yarn": gemma3(**BY_GEMMA3, rope_parameters={
        "full_attention": FULL | {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},
        "sliding_attention": SLIDING}),
}
REFUSED = {
    **dict.fromkeys(["gemma3 both sides", "gemma3 both sides, with a head"],
                    "a GGUF file of type gemma3_text is of a llama, and this model is of family llama_encoder"),
    "bert for classes": HEAD, "distilbert for classes": HEAD,
    **{f"bert {name}": f"hidden_act: '{name}'" for name in ("gelu_new", "gelu_pytorch_tanh", "relu", "silu")},
    "distilbert sines, relu": "activation: 'relu'",
    "gpt2 bare, untied": ALONE, "gpt2 n_inner, relu": "activation_function: 'relu'", "gpt2 gelu": "activation_function: 'gelu'",
    "gpt2 unscaled": "scale_attn_weights: false", "gpt2 by layer": "scale_attn_by_inverse_layer_idx",
    "gpt2 by layer, reordered": "scale_attn_by_inverse_layer_idx",
    "llama bare, untied": ALONE, "llama one kv head, gelu": "hidden_act: 'gelu'",
    "llama gelu_pytorch_tanh": "hidden_act: 'gelu_pytorch_tanh'",
    **dict.fromkeys(["linear", "yarn", "yarn betas", "yarn attention_factor", "yarn mscale", "yarn mscale alone", "longrope",
                     "longrope factor", "longrope attention_factor", "longrope of its own length", "longrope as Phi has it", "old linear",
                     "gemma2 linear", "gemma3 scaled window", "gemma3 yarn"], SCALED),
    **dict.fromkeys(["mistral window", "mistral layer_types", "qwen2 windows", "qwen2 windows, old", "qwen2 layer_types",
                     "qwen3 windows"], WINDOW),
    **dict.fromkeys(["gemma2", "gemma2 bias, caps", "gemma2 no caps", "gemma3", "gemma3 bare", "gemma3 scaled", "gemma3 old"],
                    "query_pre_attn_scalar: 24 can't be said in GGUF, where such a model has 16"),
    "smollm3": "which layers see positions", "smollm3 windows": "a window can't be said", "smollm3 layer_types": "a window can't be said",
    "modernbert for classes": HEAD, "modernbert biases": "norm_bias: can't be said", "modernbert scalings": SCALED,
    "modernbert for masks": "hidden_activation: 'silu'",
    "gemma2 bias": "attention_bias", "gemma2 untied": "tie_word_embeddings: false", "gemma2 gelu": "hidden_activation: 'gelu'",
    "gemma2 windows": "which layers have a window",
}
WRITTEN = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma2", "gemma3_text", "phi3", "gpt2", "bert", "xlm-roberta", "distilbert",
           "modernbert")
WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "the": 3}
CLS, SEP = ({"SpecialToken": {"id": token, "type_id": 0}} for token in ("[CLS]", "[SEP]"))
FIRST, SECOND = ({"Sequence": {"id": name, "type_id": type}} for type, name in enumerate("AB"))
WORDPIECE = {
    "version": "1.0", "added_tokens": [],
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "post_processor": {"type": "TemplateProcessing", "single": [CLS, FIRST, SEP],
                       "pair": [CLS, FIRST, SEP, SECOND, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                       "special_tokens": {token: {"id": token, "ids": [WORDS[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")}},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
              "vocab": WORDS}}


@pytest.mark.parametrize("name", CASES | OTHERS)
def test_a_file_says_what_its_folder_says_or_is_refused(name, tmp_path):
    case = (CASES | OTHERS)[name]
    reads_words = "bert" in case.name.lower()
    model = made(Case(case.name, case.config | ({} if reads_words else {"vocab_size": 300})))
    model.save_pretrained(tmp_path)
    if case.old:
        edit(tmp_path, **case.old)
    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDPIECE if reads_words else tiny.bytes_tokenizer()))
    type = model.config.model_type
    refused = REFUSED.get(name) if type in WRITTEN else f"model_type: '{type}' is not written as GGUF"
    if refused:
        with pytest.raises(OSError, match=re.escape(refused)):
            attend.quantize(tmp_path, tmp_path / "model.gguf", "q8_0")
        assert not (tmp_path / "model.gguf").exists()
        return
    attend.quantize(tmp_path, tmp_path / "model.gguf", "q8_0")
    round_weights(model, "q8_0")
    model.set_attn_implementation("eager")
    ids = np.random.default_rng(1).integers(6, 99, 40)
    assert far(attend.Model.load(tmp_path / "model.gguf").forward(ids), hidden_of(model, ids)) <= TOLERANCE


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory, repository):
    """folder_of(name): one of MODELS, made once."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("model")
            write_folder(made[name], name, repository)
        return made[name]

    return get


def put(*path):
    """A change of tokenizer.json: path, and the value there."""
    def change(root):
        *parents, last, value = path
        for key in parents:
            root = root[key]
        root[last] = value
    return change


def swap_ways(root):
    """Two merges that make one token: scores of tokens can't tell them apart."""
    merges = root["model"]["merges"]
    at = next(n for n in range(len(merges) - 1) if "".join(merges[n]) == "".join(merges[n + 1]))
    merges[at], merges[at + 1] = merges[at + 1], merges[at]


def as_word_level(root):
    root["model"] = {"type": "WordLevel", "vocab": root["model"]["vocab"], "unk_token": "[UNK]"}


def with_space_inside(root):
    vocabulary = root["model"]["vocab"]
    vocabulary["##\u2581x"] = len(vocabulary)


METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}


@pytest.mark.parametrize("name, change, refused", [
    ("bert", put("normalizer", {"type": "Lowercase"}), "normalizer: this can't be said in GGUF"),
    ("bert", put("normalizer", "clean_text", False), "clean_text: this can't"),
    ("bert", put("normalizer", "handle_chinese_chars", False), "handle_chinese_chars: this can't"),
    ("bert", put("pre_tokenizer", {"type": "WhitespaceSplit"}), "pre_tokenizer: this can't"),
    ("bert", put("post_processor", None), "post_processor"),
    ("bert", put("post_processor", "single", [CLS, FIRST]), "post_processor: this can't"),
    ("bert", put("post_processor", "single", [CLS, FIRST, SEP, SEP]), "post_processor: this can't"),
    ("bert", put("post_processor", "pair", [CLS, FIRST, SEP, SECOND, SEP]), "post_processor: this can't"),
    ("bert", put("model", "max_input_chars_per_word", 50), "max_input_chars_per_word: this can't"),
    ("bert", put("model", "continuing_subword_prefix", "@@"), "continuing_subword_prefix: this can't"),
    ("bert", put("added_tokens", 0, "normalized", True), "normalized: this can't"),
    ("bert", put("added_tokens", 0, "single_word", True), "single_word: this can't"),
    ("bert", put("model", "vocab", "newest of all", 50000), "has the id 50000"),
    ("bert", with_space_inside, "can't be said in GGUF"),
    ("bert", as_word_level, "WordLevel is not written as GGUF"),
    ("llama", put("model", "ignore_merges", True), "this way to split words has no name"),
    ("llama", put("pre_tokenizer", {"type": "WhitespaceSplit"}), "this way to split words has no name"),
    ("modernbert", put("added_tokens", -2, "rstrip", True), "rstrip: this can't"),
    ("modernbert", put("post_processor", "single", [CLS, FIRST]), "post_processor: this can't"),
    ("xlm-roberta", put("normalizer", None), "normalizer: this can't"),
    ("xlm-roberta", put("normalizer", "normalizers", 1, {"type": "Lowercase"}), "normalizer: this can't"),
    ("xlm-roberta", put("pre_tokenizer", {"type": "WhitespaceSplit"}), "pre_tokenizer: this can't"),
    ("xlm-roberta", put("pre_tokenizer", METASPACE | {"prepend_scheme": "never"}), "pre_tokenizer: this can't"),
    ("xlm-roberta", put("post_processor", "single", [FIRST]), "post_processor: this can't"),
    ("xlm-roberta", put("model", "byte_fallback", True), "byte_fallback: this can't"),
    ("mistral", swap_ways, "these are not SentencePiece's"),
    ("mistral", put("model", "ignore_merges", True), "ignore_merges: this can't"),
    ("mistral", put("pre_tokenizer", METASPACE | {"split": True}), "pre_tokenizer: this can't"),
    ("mistral", put("pre_tokenizer", METASPACE | {"prepend_scheme": "always"}), "pre_tokenizer: this can't"),
    ("mistral", put("pre_tokenizer", METASPACE | {"replacement": "_"}), "pre_tokenizer: this can't"),
    ("mistral", put("pre_tokenizer", {"type": "WhitespaceSplit"}), "pre_tokenizer: this can't"),
])
def test_a_tokenizer_that_gguf_has_no_words_for_is_refused(name, change, refused, folder_of, tmp_path):
    folder = folder_of(name)
    path = folder / "tokenizer.json"
    before = path.read_text()
    root = json.loads(before)
    change(root)
    path.write_text(json.dumps(root))
    try:
        with pytest.raises(OSError, match=re.escape(refused)):
            attend.quantize(folder, tmp_path / "model.gguf", "q8_0")
    finally:
        path.write_text(before)
    assert not (tmp_path / "model.gguf").exists()
