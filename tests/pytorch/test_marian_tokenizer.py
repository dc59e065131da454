"""Marian's folders beside Transformers' MarianTokenizer, on models that SentencePiece trains here."""

import json
import random

import pytest
import sentencepiece
import test_tokenizer
from transformers import MarianTokenizer

import attend


def train(path, texts, **options):
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    with open(path, "wb") as model:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, minloglevel=2, hard_vocab_limit=False,
                                                 vocab_size=900, **options)
    spm = sentencepiece.SentencePieceProcessor(str(path))
    return [spm.id_to_piece(each) for each in range(len(spm))]


def make_folder(folder, repository, config=None, **options):
    dice = random.Random(0)
    texts = test_tokenizer.prose(repository)
    source = train(folder / "source.spm", texts[:4], **options)
    target = train(folder / "target.spm", texts[4:6] + [test_tokenizer.words(dice, script, 100) for script in ("CYRILLIC", "GREEK")])
    special = ["</s>", "<unk>", "<pad>", ">>fra<<"]
    pieces = special + [each for each in dict.fromkeys(source + target) if each not in (*special, "<s>")]
    dice.shuffle(pieces)
    (folder / "vocab.json").write_text(json.dumps({piece: each for each, piece in enumerate(pieces)}))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


CASES = {
    "plain": {},
    "config": {"config": {"source_lang": "en", "target_lang": "fr", "clean_up_tokenization_spaces": True,
                          "additional_special_tokens": [">>fra<<"]}},
    "spaces": {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
    "no prefix": {"add_dummy_prefix": False, "normalization_rule_name": "nfkc_cf"},
}


@pytest.fixture(scope="module", params=CASES)
def both(request, repository, tmp_path_factory):
    folder = make_folder(tmp_path_factory.mktemp("marian"), repository, **CASES[request.param])
    return attend.Tokenizer.load(folder), MarianTokenizer.from_pretrained(folder), folder


@pytest.fixture
def amount(request):
    return 1.0 if request.config.getoption("--every-text") else 0.05


def check(both, text):
    ours, theirs, _ = both
    ids = theirs(text).input_ids
    found = ours.encode(text)
    assert found.ids.tolist() == ids, text
    assert found.special.tolist() == [False] * (len(ids) - 1) + [True]
    assert ours.encode(text, special=False).ids.tolist() == theirs(text, add_special_tokens=False).input_ids
    for skip in (True, False):
        assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text


def random_text(dice):
    parts = [test_tokenizer.random_text(dice), test_tokenizer.random_text(dice), ">>fra<<", ">>", "<<", " ", "  ", "\u2581"]
    return "".join(dice.choice(parts) for _ in range(dice.randint(1, 4)))


def test_vocabulary(both):
    ours, theirs, _ = both
    assert len(ours) == len(theirs)
    for token, each in theirs.get_vocab().items():
        assert (ours.id(token), ours.token(each)) == (each, theirs.convert_ids_to_tokens(each))


def test_texts(both, amount, repository):
    for text in test_tokenizer.prose(repository)[:3]:
        check(both, text)
    dice = random.Random(1)
    scripts = sorted(test_tokenizer.characters())
    for script in dice.sample(scripts, int(amount * len(scripts))):
        check(both, test_tokenizer.words(dice, script, 300))
    for _ in range(int(amount * 20_000)):
        check(both, random_text(dice))
    for _ in range(int(amount * 2000)):
        check(both, dice.randbytes(dice.randint(0, 200)).decode(errors="replace"))


def test_pairs(both, amount):
    ours, theirs, _ = both
    dice = random.Random(4)
    for _ in range(int(amount * 1000)):
        texts = random_text(dice), random_text(dice)
        assert ours.encode(*texts).ids.tolist() == theirs(*texts).input_ids


def test_decode_takes_any_ids(both, amount):
    ours, theirs, _ = both
    dice = random.Random(6)
    for _ in range(int(amount * 10_000)):
        some = dice.choices(range(len(theirs)), k=dice.randint(0, 12))
        for skip in (True, False):
            assert ours.decode(some, skip) == theirs.decode(some, skip_special_tokens=skip)


def test_offsets_are_sentencepieces(both, amount):
    ours, _, folder = both
    spm = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
    dice = random.Random(7)
    for _ in range(int(amount * 10_000)):
        text = "".join(dice.choices(" abcé\u0301\uff21ﬁ中　\n.", k=dice.randint(1, 12)))
        pieces = spm.encode(text, return_type="proto").pieces
        found = ours.encode(text, special=False)
        assert len(found.ids) == len(pieces)
        assert found.offsets.tolist() == [[each.begin, each.end] for each in pieces], text
