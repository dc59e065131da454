"""Tokenizers of a few words, for the models of tiny_models."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import tokenizers
import transformers

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "The", "CAT", "##s", "##ed", ".", ",", "query", "passage", ":"]


def tokenizer_of(kind):
    """BERT's around a text; or, for decoders, a token at its end, of pairs none, or one at each text's end ("ends"); or nothing."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "</s>"]
    vocabulary = {word: n for n, word in enumerate([*special, *WORDS])}
    own = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    own.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    own.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    around = {"bert": "[CLS] $A [SEP]", "end": "$A </s>", "ends": "$A </s>", "none": "$A"}[kind]
    pair = {"bert": "[CLS] $A [SEP] $B:1 [SEP]:1", "ends": "$A </s> $B </s>"}.get(kind, "$A $B:1")
    own.post_processor = tokenizers.processors.TemplateProcessing(
        single=around, pair=pair,
        special_tokens=[(word, vocabulary[word]) for word in special if word in around])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
                                                sep_token="[SEP]", eos_token="</s>", mask_token="[MASK]", model_max_length=100)
