"""A vector for each token (ColBERT) and weights of words (SPLADE) beside Transformers, and beside sentence-transformers where it is
installed (.ci/long installs it)."""

import json
import os
import string

import numpy as np
import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import transformers
from safetensors.torch import save_file
from test_task_answers import head
from tiny_models import CASES, edit, made
from tiny_tokenizers import tokenizer_of

import attend

TOLERANCE = 1e-5
QUERIES = ["the cat", "a dog ran.", "", "the cat sat on a mat " * 8, "unknown words, here"]
DOCUMENTS = ["the cat sat on a mat.", "a", "dogs, cats, dogs", "the cat " * 60, "ran the mat . " * 3, "The CATs ran on, on, on."]


def write(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def projection(E, out):
    return torch.randn(out, E, generator=torch.Generator().manual_seed(7)).contiguous()


def base(folder, case="bert", extra=(), tensors=None, **config):
    """The model and its tokenizer, without modules. tensors: of its state, what is saved."""
    model = made(CASES[case])
    if tensors is None:
        model.save_pretrained(folder)
    else:
        folder.mkdir()
        save_file(tensors(model.state_dict()), folder / "model.safetensors")
        model.config.save_pretrained(folder)
    edit(folder, **config)
    tokenizer = tokenizer_of("bert")
    tokenizer.add_tokens(list(extra))
    tokenizer.save_pretrained(folder)


def native(folder, case="bert", expansion=None, skip=tuple(string.punctuation), tasks=("document",), sizes=(16,), prompts=None, **lengths):
    """As MultiVectorEncoder of sentence-transformers saves it: each Dense, then the mask, then Normalize."""
    base(folder, case)
    kinds = ["base.modules.transformer.Transformer"] + ["base.modules.dense.Dense"] * len(sizes) + [
        "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask", "base.modules.normalize.Normalize"]
    write(folder / "modules.json", [
        {"idx": n, "name": str(n), "path": f"{n}_M" if n else "", "type": f"sentence_transformers.{kind}"} for n, kind in enumerate(kinds)])
    of_tokens = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    E = 32
    for n, size in enumerate(sizes, 1):
        write(folder / f"{n}_M/config.json", {"in_features": E, "out_features": size, "bias": False,
                                              "activation_function": "torch.nn.modules.linear.Identity"} | of_tokens)
        save_file({"linear.weight": projection(E, size)}, folder / f"{n}_M/model.safetensors")
        E = size
    write(folder / f"{len(sizes) + 1}_M/config.json",
          {"skiplist_words": list(skip), "skiplist_tasks": list(tasks), "keep_only_token_ids": None})
    write(folder / f"{len(sizes) + 2}_M/config.json", of_tokens)
    write(folder / "config_sentence_transformers.json",
          {"model_type": "MultiVectorEncoder", "prompts": prompts or {"query": "", "document": ""}, "default_prompt_name": None,
           "similarity_fn_name": "maxsim"})
    write(folder / "sentence_bert_config.json",
          {"transformer_task": "feature-extraction",
           "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
           "module_output_name": "token_embeddings"} | lengths | ({"query_expansion": expansion} if expansion else {}))


def pylate(folder, case="bert", extra=("[Q] ", "[D] "), **own):
    """As PyLate saved it: a Transformer and a Dense, and the rest in config_sentence_transformers.json."""
    base(folder, case, extra)
    write(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"}])
    write(folder / "1_Dense/config.json",
          {"in_features": 32, "out_features": 16, "bias": False, "activation_function": "torch.nn.modules.linear.Identity",
           "use_residual": False})
    save_file({"linear.weight": projection(32, 16)}, folder / "1_Dense/model.safetensors")
    write(folder / "config_sentence_transformers.json",
          {"model_type": "ColBERT", "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "MaxSim", "query_prefix": "[Q] ",
           "document_prefix": "[D] ", "query_length": 12, "document_length": 20, "attend_to_expansion_tokens": False,
           "skiplist_words": list(string.punctuation)} | own)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 19, "do_lower_case": False})


def as_words(folder, tokens):
    """Those that were added become words of the vocabulary, as BERT's files have them: the tokenizer takes their text apart."""
    content = json.loads((folder / "tokenizer.json").read_text())
    for added in [each for each in content["added_tokens"] if each["content"] in tokens]:
        content["added_tokens"].remove(added)
        content["model"]["vocab"][added["content"]] = added["id"]
    (folder / "tokenizer.json").write_text(json.dumps(content))


def stanford(folder, metadata=True, words=True, **own):
    """As ColBERT's own program saves it: all in one file."""
    markers = ["[unused0]", "[unused1]"]
    base(folder, extra=markers, architectures=["HF_ColBERT"], tensors=lambda state: {
        "linear.weight": projection(32, 16)} | {f"bert.{name}": value for name, value in state.items()})
    if words:
        as_words(folder, markers)
    if metadata:
        write(folder / "artifact.metadata", {"query_maxlen": 10, "doc_maxlen": 24, "similarity": "cosine", "dim": 16} | own)


FIXED = {"strategy": "fixed", "attend": False, "length": 12, "token": None}
FOLDERS = {
    "fixed": lambda folder: native(folder, expansion=FIXED, document_length=30),
    "attended": lambda folder: native(folder, expansion=FIXED | {"attend": True}),
    "min": lambda folder: native(folder, expansion=FIXED | {"strategy": "min", "token": "dog"}, query_length=18),
    "none": lambda folder: native(folder, query_length=9, sizes=(24, 8), prompts={"query": "query: ", "document": "passage: "}),
    "skipped in both": lambda folder: native(folder, expansion=FIXED, skip=[".", ",", "unheard"], tasks=["query", "document"]),
    "skipped in queries": lambda folder: native(folder, skip=["the"], tasks=["query"]),
    "roberta": lambda folder: native(folder, "roberta", expansion=FIXED),
    "modernbert": lambda folder: native(folder, "modernbert", expansion=FIXED),
    "pylate": pylate, "pylate, plain marks": lambda folder: pylate(folder, query_prefix="query : ", document_prefix="", extra=()),
    "pylate, attended": lambda folder: pylate(folder, attend_to_expansion_tokens=True, skiplist_words=["the"]),
    "pylate, not filled up": lambda folder: pylate(folder, do_query_expansion=False),
    "pylate, prompts": lambda folder: pylate(folder, prompts={"query": "passage", "document": "[D] a"}),
    "stanford": stanford, "stanford, plain": lambda folder: stanford(folder, metadata=False),
    "stanford, added": lambda folder: stanford(folder, words=False),
    "stanford, attended": lambda folder: stanford(folder, attend_to_mask_tokens=True, mask_punctuation=False),
}


def check(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.vectors, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", FOLDERS)
def test_token_vectors_are_those_of_sentence_transformers(name, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    FOLDERS[name](tmp_path / "m")
    theirs = sentence_transformers.MultiVectorEncoder(str(tmp_path / "m"))
    ours = attend.Model.load(tmp_path / "m")
    queries, documents = theirs.encode_query(QUERIES, convert_to_numpy=True), theirs.encode_document(DOCUMENTS, convert_to_numpy=True)
    assert ours.info.vectors == "token" and ours.info.vector_size == theirs.get_embedding_dimension() and not ours.info.embeds
    check(ours.embed_tokens(QUERIES, role="query"), queries)
    check(ours.embed_tokens(DOCUMENTS), documents)
    scores = theirs.similarity(queries, documents).numpy()
    for query, row in zip(QUERIES, scores, strict=True):
        ranked = ours.rank(query, DOCUMENTS)
        np.testing.assert_allclose([each.score for each in ranked], row[[each.passage for each in ranked]], atol=1e-4, rtol=0)
        assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)


@pytest.mark.parametrize("attends", [False, True])
def test_a_query_is_filled_up_with_masks(attends, tmp_path):
    """By hand: masks that no token attends to, unless the file says so, and no vector of punctuation in documents alone."""
    native(tmp_path / "m", expansion=FIXED | {"attend": attends})
    ours = attend.Model.load(tmp_path / "m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    model = transformers.BertModel.from_pretrained(tmp_path / "m", attn_implementation="eager").eval()

    def vectors(ids, seen):
        with torch.no_grad():
            hidden = model(torch.tensor([ids]), attention_mask=torch.tensor([seen])).last_hidden_state[0] @ projection(32, 16).T
        return torch.nn.functional.normalize(hidden, dim=-1).numpy()

    for query in QUERIES:
        own = tokenizer(query, truncation=True, max_length=12)["input_ids"]
        rest = 12 - len(own)
        found = ours.embed_tokens(query, role="query")
        np.testing.assert_allclose(found.vectors, vectors(own + [4] * rest, [1] * len(own) + [int(attends)] * rest), atol=TOLERANCE, rtol=0)
        assert found.ids.tolist() == own + [4] * rest and found.cut == (query == QUERIES[3])
        words = [query[start:end] for start, end in found.offsets]
        assert words[0] == "" and (query == "" or words[1] == query.split()[0]) and words[len(own):] == [""] * rest
    for document in DOCUMENTS:
        own = tokenizer(document, truncation=True, max_length=100)["input_ids"]
        kept = [n for n, id in enumerate(own) if tokenizer.convert_ids_to_tokens(id) not in string.punctuation]
        found = ours.embed_tokens(document)
        np.testing.assert_allclose(found.vectors, vectors(own, [1] * len(own))[kept], atol=TOLERANCE, rtol=0)
        assert found.tokens == tuple(tokenizer.convert_ids_to_tokens([own[n] for n in kept]))


def test_a_marker_is_a_token_even_where_the_tokenizer_takes_it_apart(tmp_path):
    stanford(tmp_path / "m")
    ours = attend.Model.load(tmp_path / "m")
    tokenizer = ours.tokenizer
    assert len(tokenizer.encode("[unused0]", special=False).ids) > 1
    for role, marker in [("query", "[unused0]"), ("document", "[unused1]")]:
        ids = ours.embed_tokens("the cat", role=role).ids
        assert ids[:4].tolist() == [tokenizer.id(token) for token in ("[CLS]", marker, "the", "cat")]
    assert ours.embed_tokens("the cat", prompt="").ids.tolist() == tokenizer.encode("the cat").ids.tolist()


def test_texts_have_the_bits_that_they_have_alone(tmp_path):
    native(tmp_path / "m", expansion=FIXED)
    model = attend.Model.load(tmp_path / "m")
    for role in ("query", "document"):
        together = model.embed_tokens(DOCUMENTS * 7, role=role)
        for text, found in zip(DOCUMENTS, together, strict=False):
            np.testing.assert_array_equal(found.vectors, model.embed_tokens(text, role=role).vectors)


def test_max_sim_by_numpy():
    random = np.random.default_rng(0)
    query, passage = random.normal(size=(5, 24)).astype(np.float32), random.normal(size=(9, 24)).astype(np.float32)
    score, similarities, best = attend.max_sim(query, passage)
    products = query.astype(np.float64) @ passage.T.astype(np.float64)
    np.testing.assert_allclose(similarities, products, atol=1e-5)
    assert best.tolist() == products.argmax(axis=1).tolist() and abs(score - products.max(axis=1).sum()) < 1e-5
    for bad, message in [((query[0], passage), r"query has shape \[24\]"), ((query, passage[:0]), r"expected \[1 or more,24\]"),
                         ((query, passage[:, :8].copy()), r"passage has shape \[9,8\]")]:
        with pytest.raises(ValueError, match=message):
            attend.max_sim(*bad)


def test_a_match_says_which_word_matched_which(tmp_path):
    native(tmp_path / "m")
    model = attend.Model.load(tmp_path / "m")
    query, passage = model.embed_tokens("the cat", role="query"), model.embed_tokens("a cat sat.")
    found = query.match(passage)
    assert [word for word, _, _ in found.words()] == ["[CLS]", "the", "cat", "[SEP]"]
    assert abs(found.score - sum(value for _, _, value in found.words())) < 1e-6
    svg = found._repr_html_()
    assert "which token of the passage each of the query matched" in svg and svg.count(">sat<") == 1 and svg.count(">cat<") == 2
    assert "mine" in found.picture(title="mine")._repr_svg_() and "attention" not in svg


def test_files_are_searched_exactly(tmp_path):
    native(tmp_path / "m", expansion=FIXED)
    model = attend.Model.load(tmp_path / "m")
    texts = [f"{a} {b} {c}" for a in ("the", "a", ".") for b in ("cat", "dog", "mat", "..") for c in ("sat", "ran", ",")] * 30
    passages = model.embed_tokens(texts)
    attend.TokenVectorFile.write(tmp_path / "v.npy", passages)
    file = attend.TokenVectorFile(tmp_path / "v.npy")
    assert len(file) == len(texts) and (file[-1] == passages[-1].vectors).all()
    rows, starts = np.load(tmp_path / "v.npy"), np.load(tmp_path / "v.starts.npy")
    assert [len(part) for part in np.split(rows, starts[1:-1])] == [len(each.ids) for each in passages]
    query = model.embed_tokens("the cat ran", role="query")
    scores = np.array([attend.max_sim(query.vectors, each.vectors)[0] for each in passages])
    for k in (1, 7, 2000):
        best = np.argsort(-scores, kind="stable")[:k]
        assert [tuple(each) for each in file.nearest(query, k)] == [(n, scores[n]) for n in best]
    np.save(tmp_path / "v.starts.npy", starts[:-1])
    with pytest.raises(OSError, match="does not say where the texts in"):
        attend.TokenVectorFile(tmp_path / "v.npy")


REFUSED = {
    "skiplist_tasks": (2, {"skiplist_tasks": "query"}, "skiplist_tasks"),
    "kept alone": (2, {"keep_only_token_ids": [3]}, "keep_only_token_ids"),
    "of sentences": (1, {"module_input_name": "sentence_embedding"}, "token_embeddings"),
    "normalizes sentences": (
        3, {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}, "token_embeddings"),
    "another size": (1, {"in_features": 31}, "in_features"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused(name, tmp_path):
    module, changes, message = REFUSED[name]
    native(tmp_path / "m", expansion=FIXED)
    path = tmp_path / f"m/{module}_M/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    model = attend.Model.load(tmp_path / "m")
    with pytest.raises(OSError, match=message):
        model.embed_tokens("the cat")


EXPANSIONS = [({"strategy": "max"}, "strategy"), ({"length": 0}, "length"), ({"attend": 1}, "attend"), ({"more": 1}, "more")]


@pytest.mark.parametrize(("changes", "message"), EXPANSIONS)
def test_expansions_that_are_not_known_are_refused(changes, message, tmp_path):
    native(tmp_path / "m", expansion=FIXED | changes)
    with pytest.raises(OSError, match=message):
        attend.Model.load(tmp_path / "m").embed_tokens("the cat")


def test_other_models_and_functions_say_which_is_right(tmp_path):
    native(tmp_path / "m", expansion=FIXED)
    model = attend.Model.load(tmp_path / "m")
    with pytest.raises(ValueError, match=r"embed_tokens\(\) gives them"):
        model.embed("the cat")
    with pytest.raises(ValueError, match="function is sigmoid"):
        model.rank("the cat", DOCUMENTS, function="sigmoid")
    with pytest.raises(ValueError, match=r"texts\[0\]: has \d+ tokens, the model takes 12"):
        model.embed_tokens("the cat " * 60, role="query", truncate=False)
    with pytest.raises(ValueError, match="prompt 'passage' is not one of the model's"):
        model.embed_tokens("the cat", prompt="passage")
    with pytest.raises(ValueError, match="role is 'passage'"):
        model.embed_tokens("the cat", role="passage")
    with pytest.raises(ValueError, match="expected a model with a head for masked words"):
        model.embed_sparse("the cat")
    base(tmp_path / "plain")
    with pytest.raises(ValueError, match="expected a model with a vector for each token"):
        attend.Model.load(tmp_path / "plain").embed_tokens("the cat")


# ---- Weights of words ----


def fill_folder(folder, base="bert"):
    case = head(base, "MaskedLM")
    made(case).save_pretrained(folder)
    tokenizer_of("bert").save_pretrained(folder)
    return case


def splade(folder, pooling, kind="base.modules.transformer.Transformer", prompts=None):
    case = fill_folder(folder)
    write(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": f"sentence_transformers.{kind}"},
        {"idx": 1, "name": "1", "path": "1_SpladePooling",
         "type": "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"}])
    write(folder / "1_SpladePooling/config.json", pooling)
    write(folder / "config_sentence_transformers.json",
          {"model_type": "SparseEncoder", "prompts": prompts or {}, "default_prompt_name": None})
    if kind.endswith("MLMTransformer"):
        write(folder / "sentence_bert_config.json", {"max_seq_length": 30, "do_lower_case": False})
    else:
        write(folder / "sentence_bert_config.json",
              {"transformer_task": "fill-mask", "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
               "module_output_name": "token_embeddings"})
    return case


POOLINGS = [{"pooling_strategy": pooling, "activation_function": function}
            for pooling in ("max", "sum") for function in ("relu", "log1p_relu")]


def dense(vectors, size):
    rows = np.zeros((len(vectors), size))
    for row, vector in zip(rows, vectors, strict=True):
        row[vector.ids] = vector.weights
    return rows


@pytest.mark.parametrize("pooling", POOLINGS)
def test_sparse_vectors_by_transformers(pooling, tmp_path):
    case = splade(tmp_path / "m", pooling)
    model = getattr(transformers, case.name).from_pretrained(tmp_path / "m", attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    ours = attend.Model.load(tmp_path / "m")
    assert ours.info.vectors == "sparse" and ours.info.task == "fill" and ours.info.vector_size == ours.info.vocabulary
    found = dense(ours.embed_sparse(DOCUMENTS), ours.info.vocabulary)
    for text, row in zip(DOCUMENTS, found, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=100)).logits[0].double()
        weights = torch.log1p(logits.relu())
        weights = torch.log1p(weights) if pooling["activation_function"] == "log1p_relu" else weights
        expected = weights.amax(0) if pooling["pooling_strategy"] == "max" else weights.sum(0)
        np.testing.assert_allclose(row, expected.numpy(), atol=TOLERANCE * max(1, expected.max()), rtol=0)
    assert ours.fill("the [MASK] sat")[0]
    with pytest.raises(ValueError, match=r"embed_sparse\(\) makes them"):
        ours.embed("the cat")


@pytest.mark.parametrize("kind", ["base.modules.transformer.Transformer", "sparse_encoder.models.MLMTransformer"])
def test_sparse_vectors_are_those_of_sentence_transformers(kind, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    splade(tmp_path / "m", POOLINGS[0], kind, prompts={"query": "query : ", "document": ""})
    theirs = sentence_transformers.SparseEncoder(str(tmp_path / "m"))
    ours = attend.Model.load(tmp_path / "m")
    for encode, prompt in [(theirs.encode_query, "query"), (theirs.encode_document, "document")]:
        expected = encode(DOCUMENTS, convert_to_tensor=True).to_dense().numpy()
        found = ours.embed_sparse(DOCUMENTS, prompt=prompt)
        np.testing.assert_allclose(dense(found, ours.info.vocabulary), expected, atol=TOLERANCE, rtol=0)
        similarity = theirs.similarity(encode(DOCUMENTS), encode(DOCUMENTS)).to_dense().numpy()
        np.testing.assert_allclose([[a.dot(b) for b in found] for a in found], similarity, rtol=1e-5)


def test_a_head_for_masked_words_alone_is_taken_as_sparse_encoder_takes_it(tmp_path):
    fill_folder(tmp_path / "m", "roberta")
    model = attend.Model.load(tmp_path / "m")
    assert model.info.vectors == "sentence"
    one, many = model.embed_sparse("the cat sat"), model.embed_sparse(["the cat sat"] * 3)
    assert all((each.ids == one.ids).all() and (each.weights == one.weights).all() for each in many)
    assert one.top(1)[0] == (model.tokenizer.token(int(one.ids[one.weights.argmax()])), one.weights.max())
    assert (np.diff(one.ids) > 0).all() and (one.weights > 0).all()


@pytest.mark.parametrize(("changes", "message"), [({"pooling_strategy": "min"}, "min"), ({"activation_function": "gelu"}, "gelu")])
def test_sparse_poolings_that_are_not_known_are_refused(changes, message, tmp_path):
    splade(tmp_path / "m", POOLINGS[0] | changes)
    with pytest.raises(OSError, match=message):
        attend.Model.load(tmp_path / "m").embed_sparse("the cat")
