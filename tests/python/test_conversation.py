"""attend.Chat: a conversation has what generate() gives of its whole text, and reads what is new alone."""

import copy
import pickle
import threading

import pytest
import tiny

import attend


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return attend.Model.load(tiny.write_chat(tmp_path_factory.mktemp("chat") / "model"))


def text_of(messages):
    """What the template, ChatML's, makes of them, with the beginning of an answer."""
    said = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages)
    return said + "<|im_start|>assistant\n"


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.9, "top_k": 50, "seed": 3}, {"stop_strings": ["e", "~"]}, {"num_beams": 1}])
@pytest.mark.parametrize("system", [None, "Be short."])
def test_each_answer_is_what_generate_gives(model, system, settings):
    chat = attend.Chat(model, system)
    messages = [{"role": "system", "content": system}] if system else []
    for message in ("Hello!", "naïve?", "And then?"):
        answer = chat.say(message, 9, **settings)
        messages.append({"role": "user", "content": message})
        assert answer == model.generate(text_of(messages), 9, **settings)
        messages.append({"role": "assistant", "content": answer})
        assert chat.messages == messages


def test_it_reads_what_is_new_alone(model):
    chat, told = attend.Chat(model), []
    first = chat.say("Hello!", 8, on_text=told.append)
    assert "".join(told) == first and len(chat.ids) > 8
    plain = model.generate(text_of([*chat.messages, {"role": "user", "content": "More"}]), 5)
    rows = []
    louder = attend.Edit(0, at="residual", scale=1.0)  # changes nothing
    assert chat.say("More", 5, edits=[louder], on_token=rows.append) == plain and len(rows) == 5


def test_it_begins_again(model):
    chat = attend.Chat(model, "Be short.")
    first = chat.say("Hello!", 6)
    chat.say("More", 6)
    chat.clear()
    assert [each["role"] for each in chat.messages] == ["system"] and len(chat.ids) == 0
    assert chat.say("Hello!", 6) == first


def test_a_copy_goes_its_own_way(model):
    chat = attend.Chat(model)
    chat.say("Hello!", 4)
    other = copy.copy(chat)
    assert other.say("One", 4) == copy.deepcopy(chat).say("One", 4)
    assert len(chat.messages) == 2 and len(other.messages) == 4


def test_what_fails_leaves_the_conversation(model):
    chat = attend.Chat(model)
    chat.say("Hello!", 4)
    before, ids = chat.messages, chat.ids.tolist()
    with pytest.raises(ValueError, match="Chat.say: top_p is 3, expected a number above 0, at most 1"):
        chat.say("More", 4, top_p=3)
    with pytest.raises(ValueError, match="Chat.say: the conversation has .* tokens with this message, and the model takes at most 600"):
        chat.say("x" * 1000)

    def fails(text):
        raise KeyError(text)

    with pytest.raises(KeyError):
        chat.say("More", 4, on_text=fails)
    assert chat.messages == before and chat.ids.tolist() == ids


def test_an_answer_that_is_interrupted_is_what_was_said(model):
    chat, told = attend.Chat(model), []
    answer = chat.say("Hello!", 30, temperature=1.0, on_text=lambda more: told.append(more) or len(told) < 3)
    assert answer.startswith("".join(told)) and chat.messages[-1]["content"] == answer and len(told) == 3


def test_two_threads_can_not_speak_at_once(model):
    chat, started, ended = attend.Chat(model), threading.Event(), threading.Event()

    def waits(text):
        started.set()
        ended.wait()

    speaks = threading.Thread(target=lambda: chat.say("Hello!", 3, on_text=waits))
    speaks.start()
    started.wait()
    with pytest.raises(ValueError, match="another call computes with this conversation"):
        chat.say("More")
    ended.set()
    speaks.join()
    assert len(chat.messages) == 2


def test_what_can_not_chat(tmp_path, model):
    with pytest.raises(OSError, match="chat"):
        attend.Chat(attend.Model.load(tiny.write(tmp_path / "plain")))
    with pytest.raises(TypeError, match="Chat: model: expected a Model, got 5"):
        attend.Chat(5)
    with pytest.raises(TypeError, match="Chat: can't be pickled"):
        pickle.dumps(attend.Chat(model))
    assert repr(attend.Chat(model, "Be short.")) == "Chat(1 messages)"
