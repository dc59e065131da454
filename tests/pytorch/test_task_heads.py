"""Folders of models with a task's head: what attend says of it, and that their hidden states are the model's."""

import dataclasses
import json
import os

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import transformers
from safetensors.torch import load_file, save_file
from tiny_models import BOTH, CASES, TOLERANCE, edit, far, hidden_of, opener, written

import attend

TYPES = ["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "albert", "electra", "nomic_bert", "gte", "modernbert"]
OF_PRETRAINING = ["MaskedLM", "PreTraining"]
TASKS = [*OF_PRETRAINING, "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice"]
MODULES = [{"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{name}"}
           for n, (path, name) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])]
get = pytest.fixture(scope="module")(opener)


def class_of(name, task):
    base = CASES[name].name
    return next((each for each in (base.replace("Model", f"For{task}"), base.split("For")[0] + f"For{task}")
                 if each.endswith(task) and hasattr(transformers, each)), None)


ALL = [(name, task) for name in TYPES for task in TASKS if class_of(name, task)]


@pytest.mark.parametrize("name, task", ALL, ids=" ".join)
def test_a_head_is_named(tmp_path, name, task):
    case = dataclasses.replace(CASES[name], name=class_of(name, task))
    folder, ids = written(tmp_path, case), np.arange(6, 30)
    model = attend.Model.load(folder)
    expected = hidden_of(getattr(transformers, case.name).from_pretrained(folder, attn_implementation="eager").eval(), ids)
    assert far(model.forward(ids), expected) <= TOLERANCE
    assert model.info.head == task and model.info.embeds == (task in OF_PRETRAINING)
    if task in OF_PRETRAINING:
        assert far(model.embed(ids)[0], expected.mean(0)) <= TOLERANCE
    else:
        with pytest.raises(OSError, match=f"Model.embed: .* has a head for {task} and no modules.json"):
            model.embed(ids)
        (folder / "modules.json").write_text(json.dumps(MODULES))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": "mean"}))
        model = attend.Model.load(folder)
        assert model.info.head == task and model.info.embeds and far(model.embed(ids)[0], expected.mean(0)) <= TOLERANCE


@pytest.mark.parametrize("name, change, head", [
    ("bert", {}, None), ("bert for classes", {"architectures": None}, "classifier"), ("bert for masks", {"architectures": None}, "cls"),
    ("bert for classes", {"architectures": ["BertModel"]}, "classifier"), ("bert", {"architectures": ["BertForMaskedLM"]}, None),
    ("bert for classes", {"architectures": "x"}, "classifier"), ("llama", {}, None), ("gpt2", {}, None),
])
def test_what_is_there_counts(tmp_path, name, change, head):
    """A class in config.json whose head the file does not have says nothing, and tensors say it where no class does."""
    folder = written(tmp_path, CASES[name])
    edit(folder, **change)
    info = attend.Model.load(folder).info
    assert info.head == head and info.embeds == (head != "classifier")


@pytest.mark.parametrize("name, model_class, tensor", [
    ("llama tied", "LlamaForSequenceClassification", "score.weight"),
    ("bart", "BartForSequenceClassification", "classification_head.dense.weight"),
    ("gpt2", "GPT2ForSequenceClassification", "score.weight"),
])
def test_heads_of_decoders(tmp_path, name, model_class, tensor):
    folder = written(tmp_path, dataclasses.replace((CASES | BOTH)[name], name=model_class))
    assert tensor in load_file(folder / "model.safetensors")
    info = attend.Model.load(folder).info
    assert info.head == "SequenceClassification" and not info.embeds


def test_a_head_that_its_class_does_not_have(tmp_path):
    folder = written(tmp_path, CASES["llama"])
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"score.weight": tensors["lm_head.weight"][:2].clone()}, folder / "model.safetensors", {"format": "pt"})
    assert attend.Model.load(folder).info.head == "score"


@pytest.mark.parametrize("name, begin", [("bert for classes", "classifier"), ("distilbert for classes", r"(pre_)?classifier")])
def test_a_file_without_its_head_is_not_written(tmp_path, name, begin):
    """What is read from it would be taken for a model of its own."""
    with pytest.raises(OSError, match=rf"a model with a task's head \({begin}\.\*\) can't be said in GGUF"):
        attend.quantize(written(tmp_path, CASES[name]), tmp_path / "x.gguf", "q8_0")
    assert not (tmp_path / "x.gguf").exists()


# ---- T5's encoder alone ----

@pytest.mark.parametrize("name", ["t5 encoder", "t5 encoder gated"])
def test_an_encoder_of_t5_alone(get, name):
    pair = get(name)
    info, config = pair.ours.info, pair.theirs.config
    assert (info.type, info.family, info.decoder, info.encoder_decoder, info.head) == ("t5", "t5_encoder", False, False, None)
    assert (info.layers, info.heads, info.head_size) == (config.num_layers, config.num_heads, config.d_kv)
    assert info.parameters == sum(each.numel() for each in {each.data_ptr(): each for each in pair.theirs.state_dict().values()}.values())
    for length in (1, 17, 300):
        ids, _ = pair.ids(length)
        expected = hidden_of(pair.theirs, ids)
        assert far(pair.ours.forward(ids), expected) <= TOLERANCE
        assert far(pair.ours.embed(ids)[0], expected.mean(0)) <= TOLERANCE
    with pytest.raises(ValueError, match="Model.logits: expected a decoder"):
        pair.ours.logits(pair.ours.forward([5, 6]))


def test_what_the_decoder_left_in_the_file(tmp_path):
    """sentence-transformers reads the encoder of a whole T5's file, where config.json says that it is alone."""
    ids, folder = np.arange(6, 30), written(tmp_path, BOTH["t5"])
    whole = attend.Model.load(folder)
    edit(folder, architectures=["T5EncoderModel"], is_encoder_decoder=False)
    np.testing.assert_array_equal(attend.Model.load(folder).forward(ids), whole.encoder_states(ids))
    edit(folder, architectures=None)
    np.testing.assert_array_equal(attend.Model.load(folder).forward(ids), whole.encoder_states(ids))
    edit(folder, architectures=["T5ForConditionalGeneration"])
    with pytest.raises(OSError, match="is_encoder_decoder"):
        attend.Model.load(folder)


def test_a_t5_without_its_decoder_is_no_encoder(tmp_path):
    folder = written(tmp_path, CASES["t5 encoder"])
    edit(folder, architectures=["T5ForConditionalGeneration"], is_encoder_decoder=True)
    with pytest.raises(OSError, match="'decoder.block.0.layer.0.layer_norm.weight' is missing"):
        attend.Model.load(folder)
