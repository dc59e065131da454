"""What settings cost when a model writes: a token drawn, four beams, and a conversation that grows.

python benchmarks/writing.py [MODEL] [--tokens 64] [--rounds 7] [--turns 20]

MODEL: a folder, a .gguf file or a name (smollm2). Medians with the least and the most; forms in turns, in one process.
"""

import argparse
import itertools
import statistics
import time

import attend

FORMS = {
    "likeliest": {},
    "temperature 0.8": {"temperature": 0.8},
    "top_k 40, top_p 0.95": {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    "top_p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "min_p 0.05": {"temperature": 0.8, "min_p": 0.05},
    "repetition_penalty 1.1": {"repetition_penalty": 1.1},
    "all of these": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.1, "no_repeat_ngram_size": 4},
    "a stop string": {"stop_strings": ["\n\n\n\n\n"]},
    "4 beams": {"num_beams": 4},
}
PROMPT = "The history of the city begins with a small harbour on the river, where boats from the north brought salt and wool, and"

QUESTION = "please say more about the harbour, its boats, the salt and the wool that came with them, and who sold it. "


def seconds_a_token(model, ids, tokens, settings):
    """Of the tokens after the first, which the prompt's pass gives."""
    begin = time.perf_counter()
    model.generate(ids, 1, end=[], **settings)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    made = model.generate(ids, tokens, end=[], **settings)
    return (time.perf_counter() - begin - first) / (len(made) - 1)


def table(model, tokens, rounds):
    ids = model.tokenizer.encode(PROMPT).ids
    times = {name: [] for name in FORMS}
    for _ in range(rounds):
        for name, settings in FORMS.items():
            times[name].append(seconds_a_token(model, ids, tokens, settings))
    print(f"| {tokens} tokens after {len(ids)} | ms a token | least, most | beside the likeliest |\n|---|---|---|---|")
    for name, all in times.items():
        ratio = statistics.median(one / plain for one, plain in zip(all, times["likeliest"]))
        print(f"| {name} | {1e3 * statistics.median(all):.2f} | {1e3 * min(all):.2f}, {1e3 * max(all):.2f} | {ratio:.3f} |")


def conversation(model, turns):
    """Each turn beside one token written after as long a text: what grows is attention alone."""
    chat = attend.Chat(model)
    columns = ["turn", "tokens so far", "tokens read", "s to the first token", "ms a token after", "ms a token at that length, alone"]
    print(f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for turn in range(1, turns + 1):
        before, stamps = len(chat.ids), []
        begin = time.perf_counter()
        chat.say(f"Question {turn}: {QUESTION * 4}", 64, end=[], on_token=lambda token, to=stamps: to.append(time.perf_counter()))
        each = 1e3 * statistics.median(b - a for a, b in itertools.pairwise(stamps))
        if turn in (1, 2, 5, 10, 15, turns):
            cache = model.cache()
            model.forward(chat.ids, caches=[cache])
            alone = []
            for token in chat.ids[-16:].tolist():
                start = time.perf_counter()
                model.logits(model.forward([token], caches=[cache]))
                alone.append(time.perf_counter() - start)
            print(f"| {turn} | {len(chat.ids)} | {len(chat.ids) - 64 - before} | {stamps[0] - begin:.2f} | {each:.2f} | "
                  f"{1e3 * statistics.median(alone):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    attend.set_num_threads(2)
    model = attend.Model.load(options.model)
    table(model, options.tokens, options.rounds)
    conversation(model, options.turns)


if __name__ == "__main__":
    main()
