"""The numbers that the pages' sentences give of MiniLM and SmolLM2 are those that attend computes now. (What they show below a command is
compared by test_docs.py, and README's first picture too.)

Those that take more than 20 seconds are left to --every-number, which .ci/long gives. Left out of both are times, sizes of pages, and what
inside.md says of random logits (benchmarks/results/2026-11-29-moved-from-docs.md).

The kernels of another processor round otherwise (ATTEND_TARGET=avx2 here). Where that changes a digit, a page should give fewer.
"""

import dataclasses
import functools
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from page_code import REPOSITORY, cache_of_models
from safetensors import safe_open

import attend

FRANCE, ITALY = "The capital of France is", "The capital of Italy is"
ANIMAL = "the animal did not cross the street because it was too tired"
FRIEND = "My friend came home and said"
PAIRS = ("names", "pronouns")
# torch.manual_seed(0); torch.randint(0, 49152, (25,)).tolist(), as docs/inside.md draws them.
DRAWN = [2732, 27183, 9845, 3264, 13123, 21243, 30403, 48487, 25609, 40659, 4373, 38642, 46884, 47703, 15430, 32216, 6744, 3468, 31034, 705,
         48614, 18983, 26711, 2222, 24152]

functions = []


@dataclasses.dataclass(frozen=True)
class Numbers:
    page: str
    words: str  # as they stand in it, with {} for each number
    compute: Callable  # gives the numbers
    models: tuple
    long: bool = False


def numbers(page, words, *models, long=False):
    def add(compute):
        functions.append(Numbers(page, words, compute, models, long))
        return compute
    return add


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    missing = cache_of_models(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield missing
    for cached in (model, example, rows_of, referents, induction, head_186, answers, answered):
        cached.cache_clear()


@functools.cache
def model(name):
    return attend.Model.load(name)


@functools.cache
def example(name, *arguments):
    """What examples/NAME.py prints."""
    done = subprocess.run([sys.executable, REPOSITORY / "examples" / f"{name}.py", *arguments], cwd=REPOSITORY, env=os.environ,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def all_of(pattern, text):
    return re.findall(pattern, text, re.MULTILINE)


def short(value):
    """.91, as labels have it."""
    return f"{float(value):.2f}".removeprefix("0")


def range_of(values):
    return min(values), max(values)


# ---- docs/why.md ----

@numbers("docs/why.md", "Of its {} heads, {} look at the first token", "smollm2")
def first_token():
    recording = model("smollm2").record(FRANCE)
    largest = [recording[layer].top(head, -1)[0].key for layer in range(30) for head in range(9)]
    return len(largest), largest.count(0)


@numbers("docs/why.md", 'Layer {}, head {} read " France" and wrote {:+.2f} of the two logits\' difference, {:+.2f}.', "smollm2")
def why():
    found = model("smollm2").attribute(FRANCE, " Paris", " London")
    layer, head, token = map(int, np.unravel_index(found.heads.argmax(), found.heads.shape))
    assert token == 3
    return layer, head, found.heads[layer, head, token], found.logit


@numbers("docs/why.md", "Head 23.4 alone brings back {:.0f} % of the difference.", "smollm2")
def patched():
    return (100 * answers(False)[23, 4],)


@functools.cache
def answers(estimate):
    return model("smollm2").patch(FRANCE, ITALY, " Paris", " Rome", estimate=estimate).recovered


@numbers("docs/why.md", "Over eight countries head {} brings back {} of the difference, and {} next {}", "smollm2")
def capitals():
    found = all_of(r"^(\S+) brings back (\S+ ± \S+); of each country (.*)$", example("capitals"))
    assert found[0][2].count(",") + 1 == 8
    return *found[0][:2], *found[1][:2]


@numbers("docs/why.md", 'That of " Paris" is {:,} before layer 21, {} before layer 25, {} before the last.', "smollm2")
def lens():
    rank = model("smollm2").lens(FRANCE, [-1]).rank[:, 0]
    return rank[21], rank[25], rank[-2]


@numbers("docs/why.md", 'Even with one prompt " is" means "{}" after layer 23 and "{}" from {} on.', "smollm2", long=True)
def jacobian(command, path):
    (path / "corpus.txt").write_text("\n".join(lines("prompts.txt")[:9]) + "\n")
    fit = [command, "lens", "fit", "smollm2", "corpus.txt", "-o", "x.safetensors"]
    done = subprocess.run(fit, cwd=path, capture_output=True, text=True)
    assert "1 prompts of 64 tokens" in done.stderr, done.stderr
    return meanings(path / "x.safetensors")


def meanings(path):
    """After layer 23, after the last ones, and from which layer on the last ones are all the same."""
    found = model("smollm2").lens(FRANCE, [-1], top=1, jacobian=attend.JacobianLens.load(path))
    words = [model("smollm2").tokenizer.decode([int(token)]) for token in found.ids[1:, 0, 0]]  # after each layer
    return words[23], words[-1], next(layer for layer in range(30) if set(words[layer:]) == {words[-1]})


# ---- docs/inside.md ----

@functools.cache
def head_186():
    """The labels, and the score of induction, of 18.6 and of 18.7."""
    heads = model("smollm2").record(DRAWN * 4).heads()
    assert heads.largest("induction", 1)["name"][0] == "18.6"
    return heads["labels"][18 * 9 + 6], heads["induction"][18 * 9 + 6], heads["labels"][18 * 9 + 7]


@numbers("docs/inside.md", "reads 25 random tokens four times. Head 18.6 (layer 18, head 6, from 0) is `{}`.", "smollm2")
def label():
    return head_186()[:1]


@numbers("docs/inside.md", "Head 18.6 comes first, `{}`: {:.3f} of at most 0.75", "smollm2")
def most():
    return head_186()[:2]


@numbers("docs/inside.md", "`{}` gives nearly all that the sink leaves to what it copies.", "smollm2")
def besides():
    return head_186()[2:]


@numbers("docs/inside.md", 'the heads of "The capital of France is", with {} rows, have none.', "smollm2")
def no_labels():
    recording = model("smollm2").record(FRANCE)
    assert set(recording.heads()["labels"]) == {"unknown"}
    return (recording[0].queries,)


@numbers("docs/inside.md", "[CLS] gets {:.2f} of the weights of MiniLM's heads, but {:.2f} of what they carry. By weight {} heads are "
         "sinks, by norm {}:", "minilm")
def by_norm():
    recording = model("minilm").record(ANIMAL, key_sizes=True, keep="qk")
    weights = np.stack([[recording[layer].weights(head) for head in range(12)] for layer in range(6)])
    carried = weights * np.stack([recording[layer].key_sizes for layer in range(6)]).reshape(6, 12, 1, -1)
    sinks = [sum("sink" in labels for labels in recording.heads(**by)["labels"]) for by in ({}, {"by": "norm"})]
    return weights[..., 0].mean(), (carried[..., 0].sum(-1) / carried.sum((-1, -2))).mean(), *sinks


@numbers("docs/inside.md", '"it" gives "animal" {:.2f} in MiniLM\'s head 3.1', "minilm")
@numbers("docs/models.md", '"it → animal {0:.2f}": the row of "it" gives {0:.2f} to "animal".', "minilm")
def it():
    recording = model("minilm").record(ANIMAL, keep="qk")
    words = [token.strip() for token in recording.tokens[0]]
    return (recording[3].weights(1)[words.index("it"), words.index("animal")],)


@functools.cache
def referents():
    found = dict(zip(("minilm", "smollm2"), re.split(r"^smollm2", example("referents"), flags=re.MULTILINE), strict=True))
    best, chance = all_of(r"right most often: \S+, (\d+); .* guess in some (\d+)", found["smollm2"])[0]
    assert int(best) <= int(chance)  # SmolLM2 has no such head either
    return found["minilm"]


@numbers("docs/inside.md", "Head 3.1 prefers the right noun in {}. The best head, {}, does in {}; chosen on one half, it is right in {} of "
         "the other 20.", "minilm", "smollm2")
def right():
    text = referents()
    best = all_of(r"right most often: (\S+), (\d+)", text)[0]
    return all_of(r"3\.1: right in (\d+)", text)[0], *best, all_of(rf"chosen on 20: {best[0]}, .* in (\d+) of the other 20", text)[0]


@numbers("docs/inside.md", "Head {} follows the first noun, in {}.", "minilm", "smollm2")
def first_noun():
    return all_of(r"first noun most often: (\S+), in (\d+) of 40", referents())[0]


@numbers("docs/page.md", "In 40 such sentences the head finds the right noun in [{}]", "minilm", "smollm2")
def page():
    return right()[:1]


@numbers("docs/inside.md", "`scores`: [B,H,{}] f64", "minilm")
def scores(path):
    model("minilm").record(ANIMAL).save(path / "x.attend")
    with safe_open(path / "x.attend", "np") as file:
        return (file.get_slice("layers.0.scores").get_shape()[2],)


@numbers("docs/inside.md", "Scratch is {:.0f} bytes a row and head, and {:.1f} MiB a thread (D = 64); `plan_summary()` tells.")
def scratch():
    short, long = (attend.plan_summary((1, 8, rows, 64), (1, 8, rows, 64)) for rows in (1000, 2000))
    of_rows = long.scratch_bytes - short.scratch_bytes
    return of_rows / 8000, (short.scratch_bytes - of_rows) / short.threads / 2**20


# ---- docs/models.md ----

@numbers("docs/models.md", "`i{}+` is an induction head that is also a sink.", "smollm2")
def cell():
    return all_of(r"^induction (\.\d+), sink", head_186()[2])


@numbers("docs/models.md", "an encoder: {} MiB, Apache-2.0")
def size_of_minilm():
    return (sizes()["minilm"],)


@numbers("docs/models.md", "a decoder: {} MiB, Apache-2.0")
def size_of_smollm2():
    return (sizes()["smollm2"],)


def sizes():
    source = (REPOSITORY / "cli/model_get.cpp").read_text()
    found = re.findall(r'\.name = "(\w+)".*?\.wheel_size = (\d+)', source, re.DOTALL)
    return {name: round(int(size) / 2**20) for name, size in found}


# ---- docs/search.md, docs/teach.md ----

@numbers("docs/search.md", "the best of the {} nearest lines (`--candidates`)")
def candidates(command):
    told = subprocess.run([command, "near", "--help"], capture_output=True, text=True, check=True).stdout
    return all_of(r"--candidates N [^(]*\(default: (\d+)\)", told)


@numbers("docs/teach.md", "{:.0f} % becomes {:.0f} %; seven other countries", "smollm2")
def paris():
    found, ids = [], model("smollm2").tokenizer.encode(FRANCE).ids
    for edits in ([], [attend.Edit("23.4")]):
        logits = model("smollm2").logits(model("smollm2").forward(ids, edits=edits)[-1]).ravel().astype(float)
        found.append(100 * np.exp(logits[model("smollm2").tokenizer.encode(" Paris").ids[0]] - np.logaddexp.reduce(logits)))
    return found


@numbers("docs/teach.md", "{:.0f} %, with values a {} as long", "smollm2")
def sinks():
    """Of the texts that `attend class` takes."""
    source = (REPOSITORY / "src/class/decoder_experiments.cpp").read_text()
    texts = re.findall(r'"(.*?)"', re.search(r"sink_texts = \{(.*?)\};", source, re.DOTALL)[1])
    assert len(texts) == 5
    shares, lengths = [], []
    for text in texts:
        recording = model("smollm2").record(text, keep="qk")
        shares += [recording[layer].weights(head)[1:, 0] for layer in range(30) for head in range(9)]
        ids = model("smollm2").tokenizer.encode(text).ids
        _, kept = model("smollm2").forward(ids, keep=[("v", layer) for layer in range(30)])
        values = np.stack([np.linalg.norm(kept["v", layer].reshape(len(ids), 3, -1), axis=-1) for layer in range(30)])
        lengths.append(np.median(values[:, 0] / values[:, 1:].mean(1)))
    return 100 * np.concatenate(shares).mean(), {4: "quarter"}[round(1 / np.mean(lengths))]


# ---- docs/circuits.md ----

@numbers("docs/circuits.md", "SmolLM2's six largest by keys are {}: {:.2f} to {:.2f} (median: {:.3f}).", "smollm2")
def composition():
    found = model("smollm2").composition()
    top = found.top("k", 6)
    wrote = {}
    for reader, writer, _ in top:
        wrote.setdefault(writer, []).append(reader)
    told = ["{}, {} and {} reading {}".format(*sorted(readers), writer) for writer, readers in wrote.items()]
    return ", and ".join(told), top[-1][2], top[0][2], np.median(found.k[found.k > 0])


@numbers("docs/circuits.md", "the best of SmolLM2's {:,} edges", "smollm2")
def edges():
    info, count = model("smollm2").info, 0
    readers = info.heads + 2 * info.kv_heads
    for layer in range(info.layers):
        before = 1 + layer * (info.heads + 1)
        count += readers * before + before + info.heads  # and to the MLP
    return (count + 1 + info.layers * (info.heads + 1),)


@functools.cache
def induction():
    return example("induction")


@numbers("docs/circuits.md", "Head 16.0 is the largest part of the key's side in all {} scores taken", "smollm2", long=True)
def parts():
    found = all_of(r"of (\d+) scores, .* largest part of the key in (\d+)", induction())
    assert all(taken == largest for taken, largest in found)
    return (sum(int(taken) for taken, _ in found),)


@numbers("docs/circuits.md", "the token before gave {} % to {} % of it, and other tokens took away.", "smollm2", long=True)
def token_before():
    return range_of([int(each) for pair in all_of(r"before (\d+)% to (\d+)% of that", induction()) for each in pair])


@numbers("docs/circuits.md", "Head 17.3 then gives {} to {} to the tokens behind the same token, not {} to {}, and 18.6 gives {} to {}, "
         "not {} to {}.", "smollm2", long=True)
def taken_out():
    return [each for head in ("17.3", "18.6") for what in ("16.0 out of its k", "nothing")
            for each in range_of(all_of(rf"^  {head} looks .*, with {what} taken out: (\S+)$", induction()))]


@numbers("docs/circuits.md", "In {} to {} of 40 texts, depending on the side", "smollm2", long=True)
def traced():
    found = example("traced_parts", "tests/tasks/names.tsv", "tests/tasks/pronouns.tsv")
    assert "more, of 40" in found
    return range_of([int(each) for each in all_of(r"\| (\d+) \|$", found)])


@functools.cache
def rows_of(pairs):
    """Of each method, how much the best so many edges keep (as printed: those of them that lead on to the answer)."""
    halves = re.split(r"^eap-ig", example("circuit", f"tests/tasks/{pairs}.tsv"), flags=re.MULTILINE)
    assert all(": 20 pairs" in half for half in halves)
    kept = [all_of(r"edges keep (-?\d+) %", half) for half in halves]
    return [{keep: short(int(each) / 100) for keep, each in zip((50, 100, 200, 500, 1000, 2000), half, strict=True)} for half in kept]


def circuits(keep):
    return [each[keep] for pairs in PAIRS for each in rows_of(pairs)]


for keep in (50, 200, 2000):
    numbers("docs/circuits.md", f"| {keep:,} | {{}}, {{}} | {{}}, {{}} |", "smollm2", long=True)(functools.partial(circuits, keep))


# ---- docs/gradients.md ----

@numbers("docs/gradients.md", 'gives "The" {:+.1f} and " France" {:+.1f} of a change of {:.1f}.', "smollm2")
def saliency():
    found = answered()
    return found.tokens[0], found.tokens[3], found.value - found.baseline_value


@functools.cache
def answered():
    return model("smollm2").saliency(FRANCE, " Paris", " Rome")


@numbers("docs/gradients.md", "SmolLM2 needs about {} points until less than 0.5 % is missed.", "smollm2")
def points():
    found = answered()
    assert abs(found.missing) < 0.005 * abs(found.value - found.baseline_value)
    return (round(found.steps, -2),)


@numbers("docs/gradients.md", "head {} is first in both, with {:.2f} estimated and {:.2f} patched.", "smollm2")
def estimated():
    first = [divmod(int(answers(estimate).argmax()), 9) for estimate in (True, False)]
    assert first[0] == first[1]
    return "{}.{}".format(*first[0]), answers(True)[first[0]], answers(False)[first[0]]


@numbers("docs/gradients.md", "Hiding that one cost the answer most in all {} texts, and the estimate had it first in {}", "smollm2",
         long=True)
def passages():
    texts, estimated, measured = all_of(r"^of (\d+) texts .* first in (\d+) estimated and (\d+) measured", example("passages"))[0]
    assert texts == measured
    return texts, estimated


def heads_of(pairs, told):
    """A row of the table: the first heads, the first so many with their numbers."""
    halves = re.split(r"^patched", example("estimated_heads", f"tests/tasks/{pairs}.tsv"), flags=re.MULTILINE)
    row = []
    for half in halves:
        found = all_of(r"^    (\S+) brings back (\S+) ± (\S+)", half)
        row.append(", ".join([f"{head}: {short(mean)} ± {short(error)}" for head, mean, error in found[:told]] +
                             [head for head, *_ in found[told:3 if told == 1 else told]]))
    return *row, all_of(r"rank correlation of all 270 heads: 0(\.\d+)", halves[1])[0]


for pairs, told in zip(PAIRS, (1, 2)):
    numbers("docs/gradients.md", f"([{pairs}.tsv](../tests/tasks/{pairs}.tsv)) | {{}} | {{}} | {{}} |", "smollm2", long=True)(
        functools.partial(heads_of, pairs, told))


# ---- docs/steering.md ----

def steering():
    return model("smollm2").steering([tuple(line.split("\t")) for line in lines("pairs.tsv")], layers=(8, 20))


def lines(name):
    return (REPOSITORY / "examples/steering" / name).read_text().splitlines()


@numbers("docs/steering.md", 'continues "My friend came home and said" with "{}" With one direction added to its stream it continues '
         'with "{}"', "smollm2")
def written():
    found = [model("smollm2").generate(FRIEND, max_new_tokens=30, edits=edits) for edits in ([], steering().edits(0.2))]
    return [all_of(r'^, "([^"]*)"', text.removeprefix(FRIEND))[0] for text in found]


@numbers("docs/steering.md", "These are {} pairs such as")
def pairs_of_texts():
    return (len(lines("pairs.tsv")),)


@numbers("docs/steering.md", "lets SmolLM2 continue {} prompts by 30 tokens. It counts the prompts after which one of {} glad words comes, "
         "and one of {} sad ones.")
def counted():
    script = runpy.run_path(str(REPOSITORY / "examples/steering/measure.py"))
    return len(lines("prompts.txt")), len(script["GLAD"]), len(script["SAD"])


def added(scale):
    return [(int(glad), int(sad), f"{float(new):.0%}".replace("%", " %")) for glad, sad, new in
            all_of(rf"^ *{scale} +(\d+) glad +(\d+) sad +(\S+) of the words new", example("steering/measure"))]


def one_scale(scale):
    return added(scale)[0]


numbers("docs/steering.md", "| nothing | {} of 40 | {} of 40 | {} |", "smollm2", long=True)(functools.partial(one_scale, "0"))
for scale in ("0.1", "0.2", "0.3", "0.4", "-0.1", "-0.2"):
    words = "| **0.2** | **{}** | **{}** | {} |" if scale == "0.2" else f"| {scale} | {{}} | {{}} | {{}} |"
    numbers("docs/steering.md", words, "smollm2", long=True)(functools.partial(one_scale, scale))


@numbers("docs/steering.md", "| three random directions as long as 0.2 | {} | {} | {} |", "smollm2", long=True)
def random_directions():
    return [", ".join(map(str, column)) for column in zip(*added("random"))]


# ---- All of them ----

@pytest.mark.parametrize("each", functions, ids=lambda each: f"{each.page}: {each.words}")
def test_the_page_has_the_numbers(each, cache, every_number, request):
    if missing := [name for name in each.models if name in cache]:
        pytest.skip(f"left out: {' and '.join(missing)} not installed (tests/models.txt)")
    if each.long and not every_number:
        pytest.skip("left out: takes more than 20 seconds (--every-number)")
    asked = {"path": "tmp_path", "command": "command"}
    names = [] if isinstance(each.compute, functools.partial) else each.compute.__code__.co_varnames[:each.compute.__code__.co_argcount]
    found = each.compute(*(request.getfixturevalue(asked[name]) for name in names))
    words = " ".join((REPOSITORY / each.page).read_text().split())
    assert each.words.format(*found) in words
