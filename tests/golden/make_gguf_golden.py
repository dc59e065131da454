#!/usr/bin/env python3
"""Writes gguf/*.gguf, small files of the package `gguf`, and gguf.json: what Transformers makes of
them; gguf_rows.json: rows in blocks.

Usage: make_gguf_golden.py, with the environment of the tests that need PyTorch, and the packages gguf 0.19.0 and accelerate 1.15.0.
"""

import functools
import json
import pathlib
import random
import sys
import zlib

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "gguf"
sys.path.insert(0, str(HERE.parent / "pytorch"))
import test_tokenizer  # noqa: E402

SPECIAL = ["<|end|>", "<|start|>", "<think>", "<|turn|>"]
TYPES = [gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED, gguf.TokenType.CONTROL]
TEXTS = ["", "Hello world", "In 1234   567 words, it's 8.9!", "<|start|>user<|turn|>\nHi there<|end|>", "a<think> b </think>  ",
         "caf\u00e9 cafe\u0301 na\u00efve", "\u65e5\u672c\u8a9e 123\u4e2d\u6587", "  two  spaces\n\n\ttab \r\n",
         "I'LL we'd THEY'RE \U0001f642",
         "the attention of the tokens and the attention of the heads"]
CONFIG = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
          "rms_norm_eps", "tie_word_embeddings", "vocab_size", "bos_token_id", "eos_token_id", "model_type"]


def byte_level_vocabulary():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.train_from_iterator(test_tokenizer.prose(HERE.parent.parent), trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    file = json.loads(tokenizer.to_str())["model"]
    # A token without a merge, which only ignore_merges finds.
    tokens = [*sorted(file["vocab"], key=file["vocab"].get), "Hello"]
    return tokens, [" ".join(each) for each in file["merges"]]


def add_byte_level(writer, pre, **flags):
    tokens, merges = byte_level_vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([*TYPES, *[gguf.TokenType.NORMAL] * (len(tokens) - len(TYPES))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    if "adds_bos" in flags:
        writer.add_add_bos_token(flags["adds_bos"])
    if "adds_eos" in flags:
        writer.add_add_eos_token(flags["adds_eos"])
    return len(tokens)


def add_sentencepiece(writer):
    """Bytes, then pieces in the order of their scores, of which eight at a time are the same, then characters."""
    mark = "\u2581"
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=mark, prepend_scheme="first", split=True)
    tokenizer.train_from_iterator(test_tokenizer.prose(HERE.parent.parent), trainers.BpeTrainer(
        vocab_size=200, limit_alphabet=60, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)[3:]
    pieces = [each for each in vocabulary if len(each) > 1] + [each for each in vocabulary if len(each) == 1]
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], *pieces]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 259 + [-float(rank // 8) for rank in range(len(pieces))])
    writer.add_token_types([gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, *[gguf.TokenType.BYTE] * 256,
                            *[gguf.TokenType.NORMAL] * len(pieces)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    return len(tokens)


@functools.cache
def wordpiece():
    """The tokenizer that bert.gguf is made from, as BERT's tokenizer.json has it."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(test_tokenizer.prose(HERE.parent.parent), trainers.WordPieceTrainer(
        vocab_size=240, limit_alphabet=60, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def add_wordpiece(writer):
    vocabulary = wordpiece().get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")
    writer.add_token_list([*tokens[:5], *(each[2:] if each.startswith("##") else "\u2581" + each for each in tokens[5:])])
    writer.add_token_types([gguf.TokenType.CONTROL] * 5 + [gguf.TokenType.NORMAL] * (len(tokens) - 5))
    for add, id in ((writer.add_pad_token_id, 0), (writer.add_unk_token_id, 1), (writer.add_bos_token_id, 2), (writer.add_sep_token_id, 3),
                    (writer.add_eos_token_id, 3), (writer.add_mask_token_id, 4)):
        add(id)


def add_model(writer, vocabulary, bias, tied, types, hidden=32, heads=2, kv_heads=1, inner=64):
    """One layer, of every type in turn."""
    generator = np.random.default_rng(1)
    for add, value in ((writer.add_block_count, 1), (writer.add_context_length, 128), (writer.add_embedding_length, hidden),
                       (writer.add_feed_forward_length, inner), (writer.add_head_count, heads), (writer.add_head_count_kv, kv_heads),
                       (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_rope_freq_base, 50000.0)):
        add(value)

    def add(name, shape, type):
        values = generator.standard_normal(shape, dtype=np.float32)
        if type == Type.F16:
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, type), raw_dtype=type)

    of = iter(types * 4)
    kv = hidden // heads * kv_heads
    add("token_embd.weight", (vocabulary, hidden), Type.Q8_0)
    add("output_norm.weight", (hidden,), Type.F32)
    if not tied:
        add("output.weight", (vocabulary, hidden), Type.Q4_0)
    for name in ("attn_norm", "ffn_norm"):
        add(f"blk.0.{name}.weight", (hidden,), Type.F32)
    for name, rows, columns in (("attn_q", hidden, hidden), ("attn_k", kv, hidden), ("attn_v", kv, hidden), ("attn_output", hidden, hidden),
                                ("ffn_gate", inner, hidden), ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
        add(f"blk.0.{name}.weight", (rows, columns), next(of))
        if bias and name in ("attn_q", "attn_k", "attn_v"):
            add(f"blk.0.{name}.bias", (rows,), Type.F32)


def write(name, architecture, fill):
    writer = gguf.GGUFWriter(OUT / name, architecture)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(name):
    """Each tensor as f32, by its bytes' CRC-32."""
    model = AutoModelForCausalLM.from_pretrained(OUT, gguf_file=name, dtype=torch.float32)
    state = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight" or not model.config.tie_word_embeddings}
    config = {key: getattr(model.config, key) for key in CONFIG} | {"rope_theta": model.config.rope_parameters["rope_theta"]}
    return {"config": config, "tensors": {
        key: {"shape": list(value.shape), "crc32": zlib.crc32(value.contiguous().numpy().tobytes())} for key, value in state.items()}}


def texts(name, change=lambda file: None):
    """change: what Transformers leaves out of the tokenizer.json of the model that the pre-tokeniser is named after."""
    file = json.loads(AutoTokenizer.from_pretrained(OUT, gguf_file=name).backend_tokenizer.to_str())
    change(file)
    return texts_of(Tokenizer.from_str(json.dumps(file)))


def texts_of(tokenizer):
    pairs = [(text, None) for text in TEXTS] + [("one", "two")]
    found = [tokenizer.encode(*pair) for pair in pairs]
    return {"texts": [{"text": text, "pair": pair, "ids": each.ids, "types": each.type_ids, "special": each.special_tokens_mask,
                       "decoded": tokenizer.decode(each.ids)} for (text, pair), each in zip(pairs, found)]}


def merges(name):
    """Those that Transformers derives from the scores."""
    return {"merges": json.loads(AutoTokenizer.from_pretrained(OUT, gguf_file=name).backend_tokenizer.to_str())["model"]["merges"]}


def set_digits(file):
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, file["pre_tokenizer"]]}


def rows():
    """Blocks of 32 numbers, and what the package gguf makes of them."""
    generator = np.random.default_rng(2)
    blocks = generator.standard_normal((8, 32), dtype=np.float32)
    blocks[1] = 0
    blocks[2] = np.arange(-16, 16) / np.float32(2)  # halves, and -8 of 4 bits at both ends
    blocks[3] = -blocks[2]
    blocks[4] *= np.float32(1e-7)  # the scale is subnormal in f16
    blocks[5] *= np.float32(1e-12)  # and here 0
    blocks[6] = np.where(np.arange(32) % 2, 3, -3)  # two of the largest magnitude
    blocks[7, 5] = 900
    return {"numbers": blocks.view(np.uint32).ravel().tolist()} | {
        type.name: gguf.quants.quantize(blocks, type).tobytes().hex() for type in (Type.Q8_0, Type.Q4_0)}


def main():
    (HERE / "gguf_rows.json").write_text(json.dumps(rows()) + "\n")
    OUT.mkdir(exist_ok=True)
    random.seed(1)

    def llama(writer):
        size = add_byte_level(writer, "smollm", adds_bos=False)
        add_model(writer, size, False, True, [Type.Q4_0, Type.Q4_1, Type.F16, Type.Q8_0, Type.BF16, Type.F32, Type.Q4_1])

    def sentencepiece(writer):
        writer.add_custom_alignment(8)
        add_model(writer, add_sentencepiece(writer), False, True, [Type.F16, Type.BF16, Type.F32], inner=32, kv_heads=2)

    def qwen2(writer):
        size = add_byte_level(writer, "qwen2", adds_bos=False, adds_eos=True)
        add_model(writer, size, True, False, [Type.BF16, Type.Q4_1], inner=32)

    write("llama.gguf", "llama", llama)
    write("sentencepiece.gguf", "llama", sentencepiece)
    write("qwen2.gguf", "qwen2", qwen2)
    write("llama-bpe.gguf", "llama", lambda writer: add_byte_level(writer, "llama-bpe", adds_bos=True))
    write("gpt-2.gguf", "llama", lambda writer: add_byte_level(writer, "gpt-2"))
    write("bert.gguf", "bert", add_wordpiece)
    golden = {"llama.gguf": tensors("llama.gguf") | texts("llama.gguf", set_digits),
              "sentencepiece.gguf": tensors("sentencepiece.gguf") | texts("sentencepiece.gguf") | merges("sentencepiece.gguf"),
              "qwen2.gguf": tensors("qwen2.gguf") | texts("qwen2.gguf", lambda file: file.update(normalizer={"type": "NFC"})),
              "llama-bpe.gguf": texts("llama-bpe.gguf", lambda file: file["model"].update(ignore_merges=True)),
              "gpt-2.gguf": texts("gpt-2.gguf"),
              "bert.gguf": texts_of(wordpiece())}
    (HERE / "gguf.json").write_text(json.dumps(golden, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
