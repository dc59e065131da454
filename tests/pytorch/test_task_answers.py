"""What a task's head answers beside Transformers: its classes' logits, and its pipelines for classes, tags and masked words."""

import dataclasses
import json
import os

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import torch
import transformers
from tiny_models import BOTH, CASES, TOLERANCE, edit, far, written
from tiny_tokenizers import tokenizer_of

import attend

LABELS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}, "label2id": {}}
TEXTS = ["the cat sat on a mat.", "The CATs ran", "a", "dogs, cats, dogs", "the cat " * 60, "unknown words", "ran the mat . " * 3]
PAIRS = [("the cat", "a mat"), ("a dog ran " * 20, "the mat."), ("a", "the cat sat " * 40), ("the " * 90, "a mat " * 90)]


def head(base, task, **config):
    """A case of that one, with another class and other values."""
    case = (CASES | BOTH)[base]
    stem = case.name.split("For")[0].removesuffix("LMHeadModel").removesuffix("Model")
    return dataclasses.replace(case, name=f"{stem}For{task}", config=case.config | config)


CLASSIFY, TAG, FILL = "SequenceClassification", "TokenClassification", "MaskedLM"
FIVE = {"num_labels": 5} | LABELS
HEADS = {
    "bert classify": head("bert", CLASSIFY), "bert one": head("bert", CLASSIFY, num_labels=1), "bert tag": head("bert", TAG, **FIVE),
    "bert fill": head("bert", FILL, hidden_act="relu", layer_norm_eps=1e-2),
    "bert fill untied": head("bert", FILL, tie_word_embeddings=False),
    "bert pretraining": head("bert", "PreTraining"),
    "roberta classify": head("roberta", CLASSIFY, num_labels=3), "roberta tag": head("roberta", TAG, **FIVE),
    "roberta fill": head("roberta", FILL, layer_norm_eps=1e-2), "xlm-roberta classify": head("xlm-roberta", CLASSIFY),
    "xlm-roberta tag": head("xlm-roberta", TAG, **FIVE),
    "xlm-roberta fill untied": head("xlm-roberta", FILL, tie_word_embeddings=False),
    "camembert classify": head("camembert", CLASSIFY), "camembert fill": head("camembert", FILL), "camembert tag": head("camembert", TAG),
    "distilbert classify": head("distilbert", CLASSIFY, num_labels=3), "distilbert tag": head("distilbert", TAG, **FIVE),
    "distilbert fill": head("distilbert", FILL, activation="relu"),
    "mpnet classify": head("mpnet", CLASSIFY, num_labels=1), "mpnet tag": head("mpnet", TAG), "mpnet fill": head("mpnet", FILL),
    "albert classify": head("albert", CLASSIFY), "albert tag": head("albert", TAG, **FIVE),
    "albert fill": head("albert", FILL, layer_norm_eps=1e-2), "albert pretraining": head("albert", "PreTraining"),
    "modernbert classify": head("modernbert", CLASSIFY), "modernbert classify mean": head(
        "modernbert", CLASSIFY, classifier_pooling="mean", classifier_bias=True, norm_bias=True, classifier_activation="relu",
        norm_eps=1e-2),
    "modernbert tag": head("modernbert", TAG, **FIVE), "modernbert fill": head("modernbert", FILL, decoder_bias=False),
    "modernbert fill untied": head("modernbert", FILL, tie_word_embeddings=False, classifier_bias=True),
    "electra classify": head("electra", CLASSIFY), "electra tag": head("electra", TAG, **FIVE), "electra fill": head("electra", FILL),
    "nomic_bert classify": head("nomic_bert", CLASSIFY), "nomic_bert tag": head("nomic_bert", TAG),
    "nomic_bert fill": head("nomic_bert", FILL),
    "gte classify": head("gte", CLASSIFY, num_labels=1), "gte tag": head("gte", TAG, **FIVE),
    "gte fill": head("gte", FILL, hidden_act="relu", layer_norm_eps=1e-2), "gte fill untied": head("gte", FILL, tie_word_embeddings=False),
    "gpt2 classify": head("gpt2", CLASSIFY, pad_token_id=0), "gpt2 tag": head("gpt2", TAG, **FIVE),
    "gpt_neox classify": head("gpt_neox", CLASSIFY, pad_token_id=0), "gpt_neox tag": head("gpt_neox", TAG),
    "opt classify": head("opt", CLASSIFY), "llama classify": head("llama", CLASSIFY, num_labels=3), "llama tag": head("llama", TAG, **FIVE),
    "llama classify untied": head("llama", CLASSIFY, tie_word_embeddings=False, pad_token_id=None),
    "mistral classify": head("mistral", CLASSIFY), "mistral tag": head("mistral", TAG),
    "qwen2 classify": head("qwen2", CLASSIFY, num_labels=1),
    "qwen2 tag": head("qwen2", TAG), "qwen3 classify": head("qwen3", CLASSIFY, num_labels=1), "qwen3 tag": head("qwen3", TAG),
    "smollm3 classify": head("smollm3", CLASSIFY), "smollm3 tag": head("smollm3", TAG), "phi3 classify": head("phi3", CLASSIFY),
    "phi3 tag": head("phi3", TAG), "olmo2 classify": head("olmo2", CLASSIFY), "gemma2 classify": head("gemma2", CLASSIFY),
    "gemma2 tag": head("gemma2", TAG), "gemma3 classify": head("gemma3 bare", CLASSIFY, num_labels=3),
    "bart classify": head("bart", CLASSIFY, num_labels=3, max_position_embeddings=128, decoder_start_token_id=2),
    "bart classify one": head("bart bare, scaled", CLASSIFY, num_labels=1, max_position_embeddings=128),
    "t5 classify": head("t5", CLASSIFY, num_labels=3), "t5 classify gated": head("t5 gated", CLASSIFY),
}
TASKS = {CLASSIFY: "classify", TAG: "tag", FILL: "fill", "PreTraining": "fill"}


def theirs_of(case, folder, **options):
    return getattr(transformers, case.name).from_pretrained(folder, attn_implementation="eager", **options).eval()


def logits_of(model, ids, types=None):
    inputs = {"input_ids": torch.from_numpy(ids)[None]}
    if types is not None:
        inputs["token_type_ids"] = torch.from_numpy(types)[None]
    with torch.no_grad():
        found = model(**inputs)
    return (found.prediction_logits if "prediction_logits" in found else found.logits)[0]


@pytest.mark.parametrize("name", HEADS)
def test_logits(tmp_path, name):
    case = HEADS[name]
    folder = written(tmp_path, case)
    ours, theirs = attend.Model.load(folder), theirs_of(case, folder)
    task = TASKS[case.name.split("For")[1]]
    assert ours.info.task == task and ours.info.head == case.name.split("For")[1]
    assert ours.info.labels == ([] if task == "fill" else [theirs.config.id2label[n] for n in range(theirs.config.num_labels)])
    shared = {each.data_ptr(): each for key, each in theirs.state_dict().items() if ".pooler." not in key or task == "classify"}
    if case.name.endswith("PreTraining"):
        shared = {pointer: each for pointer, each in shared.items() if each.shape[0] not in (2,)}
    if task != "fill":
        assert ours.info.parameters == sum(each.numel() for each in shared.values() if each.dtype.is_floating_point)
    texts = [np.random.default_rng(n).integers(6, 90, n) for n in (1, 7, 40)]
    if theirs.config.is_encoder_decoder:  # whose heads read the last id that ends a text
        texts[0][0] = texts[1][3] = 1
        texts[2][[5, 20]] = 1
    got, expected = [], []
    for ids in texts:
        types = np.random.default_rng(3).integers(0, 2, len(ids)) if "Bert" in case.name and name.startswith(("bert", "albert")) else None
        expected.append(logits_of(theirs, ids, types))
        got.append(ours.task_logits(ids, types=types))
        assert got[-1].shape[-1] == expected[-1].shape[-1]
    # Together: a text's only logit may be near 0 (gte's is -0.0035), which no sum of larger products is exact beside.
    assert far(np.concatenate([each.ravel() for each in got]), torch.cat([each.flatten() for each in expected])) <= TOLERANCE
    starts = np.cumsum([0, *map(len, texts)])
    together = ours.task_logits(np.concatenate(texts), starts=starts)
    np.testing.assert_array_equal(together, np.concatenate([ours.task_logits(ids) for ids in texts]))


@pytest.mark.parametrize("name", ["bert classify", "modernbert classify mean", "llama classify", "bert fill", "distilbert tag"])
def test_in_bf16(tmp_path, name):
    """Weights are rounded, sums are not: as far from Transformers' f32 on the rounded weights as bf16 activations are."""
    case = HEADS[name]
    folder = written(tmp_path, case, torch.bfloat16)
    ours, theirs = attend.Model.load(folder), theirs_of(case, folder, dtype=torch.float32)
    ids = np.random.default_rng(1).integers(6, 90, 20)
    assert ours.info.dtype == "bfloat16"
    expected = logits_of(theirs, ids)
    assert far(ours.task_logits(ids).reshape(expected.shape), expected) <= 5e-2


def test_the_last_token_that_pads_not(tmp_path):
    """Transformers passes over tokens of the padding's id at the end, whoever put them there."""
    case = head("llama", CLASSIFY, pad_token_id=7)
    folder = written(tmp_path, case)
    ours, theirs = attend.Model.load(folder), theirs_of(case, folder)
    for ids in ([5, 6, 7], [5, 7, 6, 7, 7], [7, 7], [5, 6]):
        ids = np.array(ids)
        assert far(ours.task_logits(ids)[0], logits_of(theirs, ids)) <= TOLERANCE


# ---- Texts ----

def told(folder, **changes):
    """Other values in tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def opened(tmp_path, case, kind="bert", types=True, **changes):
    folder = written(tmp_path / "folder", case)
    tokenizer_of(kind).save_pretrained(folder)
    if types and case.name.startswith("Bert"):
        told(folder, model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    edit(folder, **changes)
    return folder, attend.Model.load(folder), theirs_of(case, folder), transformers.AutoTokenizer.from_pretrained(folder)


def kind_for(name):
    """The tokenizer that puts there what the head reads."""
    return {"llama": "end", "bart": "ends", "t5": "ends"}.get(name.split()[0], "bert")


def ends_for(name):
    return {"eos_token_id": 5} if kind_for(name) == "ends" else {}


@pytest.mark.parametrize("name, changes", [
    ("bert classify", {}), ("bert one", {}), ("roberta classify", {"problem_type": "multi_label_classification"}),
    ("distilbert classify", {"problem_type": "single_label_classification"}), ("mpnet classify", {"problem_type": "regression"}),
    ("modernbert classify mean", {}), ("llama classify", {}), ("bart classify", {}), ("t5 classify", {}),
], ids=str)
def test_classify(tmp_path, name, changes):
    _, ours, theirs, tokenizer = opened(tmp_path, HEADS[name], kind_for(name), **ends_for(name), **changes)
    pipeline = transformers.pipeline("text-classification", model=theirs, tokenizer=tokenizer, top_k=None)
    found = ours.classify([*TEXTS, *PAIRS])
    given = [*TEXTS, *({"text": first, "text_pair": second} for first, second in PAIRS)]
    expected = [pipeline(text, truncation=True, max_length=100) for text in given]
    expected = [each[0] if isinstance(each[0], list) else each for each in expected]
    table = np.array([[next(cell["score"] for cell in row if cell["label"] == label) for label in found.labels] for row in expected])
    assert found.labels == tuple(theirs.config.id2label.values()) and found.cut == 3
    np.testing.assert_allclose(found.scores, table, atol=1e-5 * max(1, np.abs(table).max()), rtol=0)
    for text, scores in zip([*TEXTS, *PAIRS], found.scores, strict=True):
        np.testing.assert_array_equal(ours.classify(text).scores[0], scores)
    assert found.best()[0] == (found.labels[int(found.scores[0].argmax())], float(found.scores[0].max()))
    np.testing.assert_array_equal(ours.classify(TEXTS, "none").scores, ours.classify(TEXTS).logits)


@pytest.mark.parametrize("most", [3, 4, 5, 8, 11, 100])
def test_pairs_are_cut(tmp_path, most):
    _, ours, _, tokenizer = opened(tmp_path, HEADS["bert one"])
    for first in (1, 2, 5, 9, 30):
        for second in (1, 3, 6, 20):
            pair = (" ".join(["the cat sat on a"] * first), " ".join(["a mat ran"] * second))
            encoded = tokenizer(*pair, truncation=True, max_length=most)
            ids, types = np.array(encoded["input_ids"]), np.array(encoded["token_type_ids"])
            np.testing.assert_array_equal(ours.classify([pair], max_tokens=most).logits, ours.task_logits(ids, types=types))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in HEADS if "classify" in name or name == "bert one"])
def test_rows_that_the_head_does_not_read_are_left_out_without_a_trace(name, dtype, tmp_path):
    """Of texts alone and among others, shorter and longer than attention takes another road for."""
    folder, *_ = opened(tmp_path, HEADS[name], kind_for(name), **ends_for(name))
    ours = attend.Model.load(folder, dtype=dtype)
    texts = [" ".join((["the", "cat", "sat", "on", "a", "mat", "."] * 9)[:count]) for count in (1, 3, 6, 7, 8, 20, 60)]
    together = ours.classify(texts).logits
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_array_equal(ours.classify([text]).logits[0], row)
        np.testing.assert_array_equal(ours.task_logits(ours.tokenizer.encode(text).ids)[0], row)


@pytest.mark.parametrize("changes, types", [
    ({}, False), ({"model_input_names": ["input_ids", "token_type_ids"]}, True), ({"model_input_names": ["input_ids"]}, False),
    ({"tokenizer_class": "BertTokenizer"}, True), ({"tokenizer_class": None}, True), ({"tokenizer_class": "BertTokenizerFast"}, True),
    ({"tokenizer_class": "AlbertTokenizer"}, False),
], ids=str)
def test_types_of_a_pair(tmp_path, changes, types):
    """Only some of Transformers' classes tell a model which of its two texts a token is of."""
    folder, *_ = opened(tmp_path, HEADS["bert one"], types=False)
    told(folder, **changes)
    ours, ids = attend.Model.load(folder), attend.Model.load(folder).tokenizer.encode("the cat", "a mat")
    their_class = changes.get("tokenizer_class") or "TokenizersBackend"
    if "model_input_names" not in changes and changes.get("tokenizer_class", "") is not None:
        assert types == ("token_type_ids" in getattr(transformers, their_class).model_input_names)
    expected = ours.task_logits(ids.ids, types=ids.types if types else None)
    np.testing.assert_array_equal(ours.classify(("the cat", "a mat")).logits, expected)


@pytest.mark.parametrize("changes, expected", [
    ({}, "sigmoid"), ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0"}}, "none"),
    ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "none"),
    ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, "sigmoid"),
])
def test_rank(tmp_path, changes, expected):
    _, ours, theirs, tokenizer = opened(tmp_path, HEADS["bert one"], **changes)
    query, passages = "a cat", [*TEXTS, TEXTS[0]]
    ranked = ours.rank(query, passages, progress=lambda share: None)
    scores = []
    for passage in passages:
        inputs = tokenizer(query, passage, truncation=True, max_length=100, return_tensors="pt")
        with torch.no_grad():
            logit = theirs(**inputs).logits[0, 0]
        scores.append(float(torch.sigmoid(logit) if expected == "sigmoid" else logit))
    order = sorted(range(len(passages)), key=lambda n: (-scores[n], n))
    assert [each.score for each in ranked] == pytest.approx([scores[n] for n in order], abs=1e-5)
    assert sorted(each.passage for each in ranked) == list(range(len(passages)))
    assert all(each.text == passages[each.passage] for each in ranked)
    same = [each.passage for each in ranked if each.text == TEXTS[0]]
    assert same == [0, len(TEXTS)]  # of equal scores the first
    assert ours.rank(query, passages, 2) == ranked[:2] and ours.rank(query, []) == []
    assert [each.score for each in ours.rank(query, passages, function="none", count=1)] == pytest.approx(
        [float(ours.classify((query, ranked[0].text)).logits[0, 0])])
    prompted = ours.rank("cat", passages, prompt="a ")
    assert prompted == ranked


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "max", "average"])
@pytest.mark.parametrize("kind", ["bert", "words"])
def test_tag(tmp_path, strategy, kind):
    """words: a tokenizer that does not mark what goes on with a word."""
    folder, ours, theirs, tokenizer = opened(tmp_path, HEADS["bert tag"])
    if kind == "words":
        tokenizer.backend_tokenizer.model = type(tokenizer.backend_tokenizer.model)(
            tokenizer.get_vocab(), unk_token="[UNK]", continuing_subword_prefix="")
        tokenizer.save_pretrained(folder)
        ours, tokenizer = attend.Model.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    pipeline = transformers.pipeline("token-classification", model=theirs, tokenizer=tokenizer, aggregation_strategy=strategy)
    texts = ["the cats sat on a mated mat.", "The CATs ran, dogs", "dogged unknown cats, the cats", "the cat " * 60, "é the cats"]
    for text, found in zip(texts, ours.tag(texts, strategy), strict=True):
        expected = pipeline(text)
        assert [(each.label, each.start, each.end) for each in found.tags] == [
            (each["entity" if strategy == "none" else "entity_group"], each["start"], each["end"]) for each in expected]
        assert [each.score for each in found.tags] == pytest.approx([float(each["score"]) for each in expected], abs=1e-5)
        assert [each.text for each in found.tags] == [text[each.start : each.end] for each in found.tags]
        assert found.scores.shape == (len(found.tokens.ids), 5) and found.cut == (len(text) > 200)
        alone = ours.tag(text, strategy)
        np.testing.assert_array_equal(alone.scores, found.scores)
        assert alone.tags == found.tags
    everything = ours.tag(texts[0], "none", without=[])
    assert len(everything.tags) == len(everything.tokens.ids) - 2


@pytest.mark.parametrize("name", ["bert fill", "bert fill untied", "distilbert fill", "albert fill", "modernbert fill"])
def test_fill(tmp_path, name):
    _, ours, theirs, tokenizer = opened(tmp_path, HEADS[name])
    # Its vocabulary is smaller than the model's, as in tests alone: the pipeline's probabilities are of the model's.
    pipeline = transformers.pipeline("fill-mask", model=theirs, tokenizer=tokenizer, top_k=5)
    for text in ("the [MASK] sat on a mat.", "[MASK]", "the [MASK] sat on [MASK]"):
        expected = pipeline(text)
        expected = expected if isinstance(expected[0], list) else [expected]
        found = ours.fill(text)
        assert [[each.id for each in row] for row in found] == [[each["token"] for each in row] for row in expected]
        for row, theirs_row in zip(found, expected, strict=True):
            assert [each.probability for each in row] == pytest.approx([each["score"] for each in theirs_row], rel=1e-4)
            assert [each.text for each in row] == [each["sequence"] for each in theirs_row]
    with pytest.raises(ValueError, match=r"Model.fill: the text has no mask, expected \[MASK\]"):
        ours.fill("the cat")
    with pytest.raises(ValueError, match="Model.fill: count is 0, expected 1 or more"):
        ours.fill("[MASK]", 0)


# ---- Why ----

@pytest.mark.parametrize("name, position", [("bert classify", 0), ("roberta classify", 0), ("modernbert classify mean", 0),
                                            ("modernbert tag", 5), ("albert fill", 3), ("llama classify", 0), ("qwen3 tag", -1),
                                            ("distilbert classify", 0)])
def test_gradient_of_a_label(tmp_path, name, position):
    folder = written(tmp_path, HEADS[name])
    ours, theirs = attend.Model.load(folder), theirs_of(HEADS[name], folder)
    ids = np.random.default_rng(4).integers(6, 90, 12)
    words = theirs.get_input_embeddings()(torch.from_numpy(ids)[None]).detach().requires_grad_()
    # Of Llama's last token Transformers warns that it can't look for padding in embeddings: none of these pads.
    logits = theirs(inputs_embeds=words).logits[0]
    logits = logits if logits.dim() == 1 else logits[position]
    (logits[1] - logits[0]).backward()
    found = ours.gradient(ids, 1, 0, of="label", position=position)
    assert found.value == pytest.approx(float(logits[1] - logits[0].detach()), abs=1e-4) and found.token == 1
    assert far(found["embeddings"], words.grad[0]) <= 1e-4
    highest = ours.gradient(ids, of="label", position=position)
    assert highest.token == int(logits.argmax()) and highest.value == pytest.approx(float(logits.max()), abs=1e-4)


def test_saliency_of_a_label(tmp_path):
    """Which words of the passage make it relevant: what a reranker's user asks."""
    _, ours, *_ = opened(tmp_path, HEADS["bert one"])
    pair = ours.tokenizer.encode("a cat", "the cat sat on a mat.")
    found = ours.saliency(pair.ids, "LABEL_0", of="label", types=pair.types)
    assert found.value == pytest.approx(float(ours.classify(("a cat", "the cat sat on a mat.")).logits[0, 0]), abs=1e-5)
    assert abs(found.tokens.sum() + found.missing - (found.value - found.baseline_value)) < 1e-4
    assert abs(found.missing) < 0.05 * abs(found.value - found.baseline_value)
    assert "the number" in found.picture().to_svg()
    of_input = ours.saliency(pair.ids, of="label", method="input", types=pair.types)
    gradient = ours.gradient(pair.ids, of="label", types=pair.types)["embeddings"]
    np.testing.assert_allclose(of_input.tokens, (gradient * ours.weights()["embeddings"][pair.ids]).sum(1), atol=1e-5)
    without = attend.Edit(1, 2)
    changed = ours.task_logits(pair.ids, types=pair.types, edits=[without])
    assert changed.shape == (1, 1) and changed[0, 0] != ours.task_logits(pair.ids, types=pair.types)[0, 0]
    with pytest.raises(ValueError, match="token is 'LABEL_1', expected one of the model's labels: LABEL_0"):
        ours.gradient(pair.ids, "LABEL_1", of="label")
    with pytest.raises(ValueError, match="a label is 1, expected 0 to 0"):
        ours.gradient(pair.ids, 1, of="label")
    with pytest.raises(ValueError, match="a label needs a model with a task's head"):
        attend.Model.load(written(tmp_path / "plain", CASES["bert"])).gradient([5, 6], of="label")


# ---- What is refused ----

@pytest.mark.parametrize("name", ["bart classify", "t5 classify"])
def test_what_heads_of_encoder_decoders_refuse(tmp_path, name):
    folder = written(tmp_path, HEADS[name])
    ours = attend.Model.load(folder)
    with pytest.raises(ValueError, match=r"the head reads the token that ends a text \(1\), and 3 ids do not have it"):
        ours.task_logits([5, 6, 7])
    with pytest.raises(ValueError, match="labels of encoder-decoders are not explained, and the model is of type"):
        ours.attribute([5, 6, 1], decoder_ids=[0, 5], of="label")
    edit(folder, eos_token_id=None)
    with pytest.raises(OSError, match="config.json.* has no eos_token_id, which is the token that the head reads"):
        attend.Model.load(folder)


def test_another_task_is_refused(tmp_path):
    _, ours, *_ = opened(tmp_path, HEADS["bert classify"])
    for refused, message in [
        (lambda: ours.tag("a"), "Model.tag: expected a model with a head for tag, and this one's is for classify: SequenceClassification"),
        (lambda: ours.fill("a"), "Model.fill: expected a model with a head for fill, and this one's is for classify"),
        (lambda: ours.rank("a", ["b"]), r"Model.rank: expected a model with one label, and this one has 2 \(LABEL_0, LABEL_1\): classify"),
        (lambda: ours.classify("a", "max"), "Model.classify: function is 'max', expected 'none', 'sigmoid', 'softmax'"),
        (lambda: ours.classify("a", max_tokens=0), "Model.classify: max_tokens is 0, expected 1 or more"),
        (lambda: ours.classify(["a", ("the " * 200, "a")], truncate=False), r"texts\[1\]: has 204 tokens, the model takes 100"),
    ]:
        with pytest.raises(ValueError, match=message):
            refused()
    for refused in (lambda: ours.classify([("a", "b", "c")]), lambda: ours.classify({"a": 1}), lambda: ours.classify([1]),
                    lambda: ours.rank("a", "b"), lambda: ours.classify("a", 3)):
        with pytest.raises(TypeError, match="expected"):
            refused()
    plain = attend.Model.load(written(tmp_path / "plain", CASES["bert"]))
    with pytest.raises(ValueError, match="expected a model with a head for classify, and this one of type bert has none"):
        plain.classify("a")
    with pytest.raises(ValueError, match="task_logits: expected a model with a task's head"):
        plain.task_logits([5, 6])


@pytest.mark.parametrize("changes, message", [
    ({"id2label": {"0": "a", "2": "b"}}, "id2label: has 2 labels and none for 1, expected 0 to 1"),
    ({"id2label": {"0": "a"}}, r"'classifier.weight' has shape \[2,32\], expected \[1,32\]"),
    ({"id2label": ["a", "b"]}, "id2label: expected an object of labels by their numbers"),
    ({"id2label": {"0": "a", "1": 3}}, "id2label: 1: expected text"),
    ({"problem_type": "guess"}, "problem_type: 'guess' is not known here"),
    ({"id2label": {}}, "id2label: expected a label or more"),
])
def test_labels_that_lie(tmp_path, changes, message):
    folder = written(tmp_path, HEADS["bert classify"])
    edit(folder, **changes)
    with pytest.raises(OSError, match=message):
        attend.Model.load(folder)


def test_an_activation_that_is_not_known(tmp_path):
    folder, *_ = opened(tmp_path, HEADS["bert one"], sentence_transformers={"activation_fn": "my.module.Own"})
    model = attend.Model.load(folder)
    with pytest.raises(OSError, match=r"sentence_transformers: activation_fn: .*my.module.Own.* is not known here; Identity and Sigmoid"):
        model.rank("a", ["b"])


def test_a_head_without_its_pooler(tmp_path):
    from safetensors.torch import load_file, save_file
    folder = written(tmp_path, HEADS["bert classify"])
    tensors = {name: each for name, each in load_file(folder / "model.safetensors").items() if "pooler" not in name}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(OSError, match="'bert.pooler.dense.weight' is missing; 'bert.pooler.dense.bias' is missing"):
        attend.Model.load(folder)


def test_a_mask_that_is_said(tmp_path):
    folder, *_ = opened(tmp_path, HEADS["bert fill"])
    told(folder, mask_token={"content": "query", "special": True})
    assert len(attend.Model.load(folder).fill("query the cat query")) == 2
