#!/usr/bin/env python3
"""Writes tokenizers.json: small tokenizers, and what the package `tokenizers` makes of texts with them.

Usage: make_tokenizer_golden.py, with the environment of the tests that need PyTorch.
"""

import json
import pathlib
import random
import sys
import tempfile

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "pytorch"))
import test_tokenizer  # noqa: E402

SIZE = 420
CASES = 40


def wordpiece(repository):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(test_tokenizer.prose(repository), trainers.WordPieceTrainer(
        vocab_size=SIZE, limit_alphabet=70, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return tokenizer


def unigram(repository):
    tokenizer = Tokenizer(models.Unigram())
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("FB01\t66 69\nA\t20\n9\t20\nE9\t65 301\n200B\t\n3042\t61\nC4\t41\n")
        rules.flush()
        precompiled = normalizers.Precompiled(test_tokenizer.charsmap(normalization_rule_tsv=rules.name))
    tokenizer.normalizer = normalizers.Sequence([precompiled, normalizers.Nmt()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = test_tokenizer.sentencepiece_decoder()
    tokenizer.train_from_iterator(test_tokenizer.prose(repository), trainers.UnigramTrainer(
        vocab_size=SIZE, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    root = json.loads(tokenizer.to_str())
    root["model"]["vocab"] += [[f"<0x{byte:02X}>", -9.0] for byte in range(0x80, 256)]
    root["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(root))


def wordlevel(repository):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.UnicodeScripts(), pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Whitespace()])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.decoder = decoders.BPEDecoder("i")
    tokenizer.train_from_iterator(test_tokenizer.prose(repository), trainers.WordLevelTrainer(
        vocab_size=SIZE, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


def case(tokenizer, text, pair):
    found = tokenizer.encode(text, pair)
    number = [-1 if each is None else each for each in found.sequence_ids]
    offsets = [test_tokenizer.bytes_of([text, pair or ""][max(of, 0)], [each])[0].tolist()
               for of, each in zip(number, found.offsets)]
    return {"text": text, "pair": pair, "ids": found.ids, "offsets": offsets, "special": found.special_tokens_mask,
            "types": found.type_ids, "texts": number, "decoded": tokenizer.decode(found.ids),
            "with_special": tokenizer.decode(found.ids, skip_special_tokens=False)}


def main():
    test_tokenizer.SIZE = SIZE
    names = ("gpt2", "roberta", "llama3", "qwen", "llama2", "mistral")
    makers = {"wordpiece": wordpiece, **{name: test_tokenizer.ALL[name] for name in names}, "unigram": unigram,
              "wordlevel": wordlevel}
    everything = []
    for name, make in makers.items():
        tokenizer, dice = make(HERE.parent.parent), random.Random(name)
        texts = ["", " ", "Attention is all you need.", "Ünïcödé, 中文 and 12345 can't  stop\n\n it"]
        texts += [test_tokenizer.random_text(dice) for _ in range(CASES)]
        cases = [case(tokenizer, text, None) for text in texts] + [case(tokenizer, *pair) for pair in zip(texts, texts[5:15])]
        everything.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "cases": cases})
    (HERE / "tokenizers.json").write_text(json.dumps(everything, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
