"""attend chat: a conversation by lines, in a pipe and in a terminal."""

import os
import pty
import select
import signal
import subprocess

import pytest
import tiny

import attend as library


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of words, what is none of them "?"."""
    return tiny.write_chat(tmp_path_factory.mktemp("chat") / "model", tiny.TOKENIZER)


def chats(command, folder, lines, *arguments, **options):
    return subprocess.run([command, "chat", folder, "--max-new-tokens", "8", *arguments], input="".join(f"{line}\n" for line in lines),
                          capture_output=True, text=True, errors="replace", **options)


def test_lines_are_messages_and_answers_lines(command, folder):
    chat = library.Chat(library.Model.load(folder), "the cat")
    expected = "".join(chat.say(message, 8, temperature=0.7, seed=5) + "\n" for message in ("the cat", "sat"))
    result = chats(command, folder, ["the cat", "", "sat"], "--system", "the cat", "--temperature", "0.7", "--seed", "5")
    assert (result.returncode, result.stdout, result.stderr) == (0, expected, "")


def test_what_else_there_is(command, folder, tmp_path):
    file = tmp_path / "said.attend"
    result = chats(command, folder, ["/help", "the cat", f"/save {file}", "/clear", "the cat", "/quit", "never"])
    assert (result.returncode, result.stderr) == (0, f"attend: wrote {file}\n")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("/why [TOKEN]") and lines[-1] == lines[-2]
    chat = library.Chat(library.Model.load(folder))
    assert chat.say("the cat", 8) == lines[-1]
    recording = library.Recording.load(file)
    assert recording.ids[0].tolist() == chat.ids.tolist() and len(recording.tokens[0]) == len(chat.ids)


def test_why_the_last_word_came(command, folder):
    """A bias makes it say "cat", and "sat" at last."""
    result = chats(command, folder, ["the", "/why", "/why cat"], "--sequence-bias", "cat=1000", "--forced-eos-token-id", "3")
    assert result.returncode == 0, result.stderr
    whys = result.stdout.split("Why ")[1:]
    assert whys[0].startswith('"sat": its logit') and whys[1].startswith('"cat": its logit') and "layer 1, MLP" in whys[0]
    model = library.Model.load(folder)
    chat = library.Chat(model)
    chat.say("the", 8, sequence_bias={(2,): 1000.0}, forced_eos_token_id=3)
    assert f"{model.attribute(chat.ids[:-1], 3).logit:.2f}," in whys[0]
    assert f"{model.attribute(chat.ids[:-2], 2).logit:.2f}," in whys[1]


@pytest.mark.parametrize("lines, message", [
    (["/foo"], "no command '/foo': /help lists the commands"),
    (["/why"], "/why: there is no answer yet that has a word"),
    (["/save x.png"], "/save: expected the name of a file that ends in .attend"),
    (["/save x.attend"], "/save: nothing has been said yet"),
    (["x " * 700], "Chat.say: the conversation has"),
])
def test_a_script_that_is_wrong_fails(command, folder, lines, message, tmp_path):
    result = chats(command, folder, [*lines, "the"], cwd=tmp_path)
    assert result.returncode == 1 and message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments, message", [
    (["--temperature", "hot"], "--temperature: expected a number, got 'hot'"),
    (["--top-p", "0"], "top_p is 0, expected a number above 0, at most 1"),
    (["--begin-suppress-tokens", "a"], "--begin-suppress-tokens: expected ids with commas between, such as 11,12, got 'a'"),
    (["--sequence-bias", "ok"], "--sequence-bias: expected TEXT=NUMBER, such as \" Paris=-5\", got 'ok'"),
    (["--early-stopping", "soon"], "--early-stopping: expected yes, no or never, got 'soon'"),
])
def test_settings_that_are_wrong_are_named(command, folder, arguments, message):
    result = chats(command, folder, ["the"], *arguments)
    assert result.returncode in (1, 2) and message in result.stderr


def test_a_model_that_does_not_write_needs_no_settings(command, folder):
    result = subprocess.run([command, "model", folder, "the cat", "--temperature", "1"], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("attend: no --generate N: without it, settings of how the model writes change nothing\n")


def test_what_can_not_chat(command, tmp_path):
    result = chats(command, tiny.write(tmp_path / "plain"), ["the"])
    assert result.returncode != 0 and "chat" in result.stderr


class Terminal:
    """One end of a pseudoterminal."""

    def __init__(self, end):
        self.end, self.seen = end, b""

    def read_until(self, text):
        """What comes up to this text; nothing waits for it longer than a minute."""
        while text not in self.seen:
            assert select.select([self.end], [], [], 60)[0], self.seen
            self.seen += os.read(self.end, 4096)
        before, _, self.seen = self.seen.partition(text)
        return before


def test_in_a_terminal(command, tmp_path):
    """A prompt; a mistake that ends nothing; Ctrl-C that ends an answer, which would have a million words."""
    folder = tiny.write_chat(tmp_path / "model", tiny.TOKENIZER, longest=1 << 20)
    us, them = pty.openpty()
    process = subprocess.Popen([command, "chat", folder, "--temperature", "1"], stdin=them, stdout=them, stderr=them,
                               start_new_session=True)
    shown = Terminal(us)
    try:
        shown.read_until(b"> ")
        os.write(us, b"/foo\n")
        shown.read_until(b"/help lists the commands")
        shown.read_until(b"> ")
        os.write(us, b"the cat\n")
        shown.read_until(b"the cat\r\n")
        shown.read_until(b" word")
        process.send_signal(signal.SIGINT)
        shown.read_until(b"\n> ")
        os.write(us, b"/quit\n")
        assert process.wait() == 0
    finally:
        process.kill()
        os.close(them)
        os.close(us)
