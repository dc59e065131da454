"""Tokenizer.chat() beside apply_chat_template() of Transformers, which renders the templates of tests/golden/chat with Jinja."""

import itertools
import json
import pathlib
import random

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import attend

TEMPLATES = {path.stem: path.read_text() for path in sorted((pathlib.Path(__file__).parents[1] / "golden/chat").glob("*.jinja"))}
CONTENTS = ["", " ", "Hello", "  two  words \n", "\u00a0x\x1c", "<tool_response>a</tool_response>", "<|im_end|>", "中文 é{{ 1 }}{% x %}",
            "<think>\nso\n\n</think>\n\nyes", "a</think>b", "</think>", "<think>x</think>y<think>z</think>w"]


def make(folder, template, **config):
    theirs = Tokenizer(models.WordLevel({"?": 0, "<s>": 1, "</s>": 2}, "?"))
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    theirs.add_special_tokens(["<s>", "</s>"])
    (folder / "tokenizer.json").write_text(theirs.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "chat_template": template, **config}))
    return folder


def check(ours, theirs, messages, prompt):
    try:
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    except Exception as error:
        with pytest.raises(ValueError, match="(?i)role") as found:
            ours.chat(messages, prompt)
        assert str(error) in str(found.value)
        return
    assert ours.chat(messages, add_generation_prompt=prompt) == expected, messages
    ids = theirs.apply_chat_template(messages, add_generation_prompt=prompt)["input_ids"]
    assert ours.encode(expected, special=False).ids.tolist() == ids


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("written", ["as it is", "with a line's end", "as one line"])
def test_templates(name, written, tmp_path):
    template = TEMPLATES[name]
    if written == "with a line's end":
        if template.endswith("\n"):
            pytest.skip("it has one, and Jinja would keep that of two")
        template += "\n"
    if written == "as one line":
        if template.startswith(("{%-", "{{-")):
            pytest.skip("it has lines")
        template = template.replace("\n", "\\n")
    folder = make(tmp_path, template)
    ours, theirs = attend.Tokenizer.load(folder), PreTrainedTokenizerFast.from_pretrained(folder)
    dice = random.Random(name)
    roles = ["system", "query", "document"] if name == "qwen3_reranker" else ["system", "user", "assistant"]
    orders = [order for count in (1, 2, 3, 4) for order in itertools.product(roles, repeat=count)]
    orders += [("system", *["user", "assistant"] * 3), *[("user", "assistant") * 2] * 20, *[("system", "user", "assistant", "user")] * 20]
    for order in orders:
        messages = [{"role": role, "content": dice.choice(CONTENTS)} for role in order]
        check(ours, theirs, messages, dice.random() < 0.5)


def test_where_the_template_stands(tmp_path):
    say = [{"role": "user", "content": "Hi"}]
    expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    folder = make(tmp_path, [{"name": "tools", "template": "x"}, {"name": "default", "template": TEMPLATES["chatml"]}])
    assert attend.Tokenizer.load(folder).chat(say) == attend.Model.load_tokenizer(folder).chat(say) == expected
    (folder / "chat_template.jinja").write_text(TEMPLATES["phi35"])
    assert attend.Tokenizer.load(folder).chat(say) == "<|user|>\nHi<|end|>\n<|assistant|>\n"
    assert PreTrainedTokenizerFast.from_pretrained(folder).apply_chat_template(say, tokenize=False, add_generation_prompt=True) == (
        attend.Tokenizer.load(folder).chat(say))


def test_what_is_refused(tmp_path):
    say = [{"role": "user", "content": "Hi"}]
    for template, said in ((TEMPLATES["chatml"] + " ", "the chat template is not known here"), (None, "there is no chat template"),
                           (TEMPLATES["llama3"], "needs the bos_token")):
        folder = make(tmp_path, template, bos_token=None)
        with pytest.raises(OSError, match=said):
            attend.Tokenizer.load(folder).chat(say)
    (tmp_path / "tokenizer_config.json").write_text("{")
    tokenizer = attend.Tokenizer.load(tmp_path)
    assert len(tokenizer.encode("a")) == 1
    with pytest.raises(OSError, match="tokenizer_config.json.*is not JSON"):
        tokenizer.chat(say)
    tokenizer = attend.Tokenizer.load(make(tmp_path, TEMPLATES["chatml"]))
    with pytest.raises(ValueError, match="message 2 has the role 'tool', expected system, user or assistant"):
        tokenizer.chat([*say, {"role": "tool", "content": ""}])
    with pytest.raises(ValueError, match="expected messages"):
        tokenizer.chat([])
    for garbage in ("x", [1], [{}], [{"role": "user"}], [{"role": "user", "content": 1}], [{**say[0], "more": 1}]):
        with pytest.raises(TypeError, match="messages: expected a list of dicts with a role and a content"):
            tokenizer.chat(garbage)
