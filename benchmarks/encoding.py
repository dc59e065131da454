#!/usr/bin/env python3
"""Times attend.Tokenizer beside the package `tokenizers`, on one thread, in turns: WordPiece, BPE and Unigram on 10 MB of text each.
Time is the processor's for that thread.

Usage: benchmarks/encoding.py [--megabytes 10] [--rounds 5], with the environment of the tests that need PyTorch. It prints a Markdown
table: medians, the lowest and the highest of the rounds. The texts are of 10 kB, of the repository's words as often as it has them,
and of words that no round has seen; BPE and Unigram are trained on the repository.
"""
import argparse
import os
import pathlib
import random
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np

import attend

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests/pytorch"))
import test_tokenizer  # noqa: E402


def make_texts(megabytes, dice):
    """Of ten words, nine are the repository's; one is made of two of their parts."""
    words = " ".join(test_tokenizer.prose(REPOSITORY)).split(" ")
    texts, size = [], 0
    while size < megabytes * 1e6:
        chosen = dice.choices(words, k=1500)
        for at in range(0, len(chosen), 10):
            chosen[at] = chosen[at][:4] + dice.choice(words)[-4:]
        texts.append(" ".join(chosen))
        size += len(texts[-1].encode())
    return texts, size


def seconds(tokenizer, texts):
    begin = time.thread_time()  # what other programs take does not count
    count = sum(len(tokenizer.encode(text).ids) for text in texts)
    return time.thread_time() - begin, count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("| model | tokens | attend, MB/s | tokenizers, MB/s | attend's time, of theirs |\n|---|---|---|---|---|")
    makers = {"WordPiece (MiniLM)": "minilm", "BPE (GPT-2's steps)": "gpt2", "Unigram (XLM-R's steps)": "xlmr"}
    for name, make in makers.items():
        theirs = test_tokenizer.ALL[make](REPOSITORY)
        ours = attend.Tokenizer(theirs.to_str())
        times, counts = {"attend": [], "tokenizers": []}, set()
        for each in range(arguments.rounds):
            texts, size = make_texts(arguments.megabytes, random.Random(each))
            order = [("attend", ours), ("tokenizers", theirs)]
            for who, tokenizer in order if each % 2 == 0 else order[::-1]:
                taken, count = seconds(tokenizer, texts)
                times[who].append(taken)
                counts.add((each, count))
        assert len(counts) == arguments.rounds, "both give the same tokens"
        speed = {who: size / 1e6 / np.array(taken) for who, taken in times.items()}
        cells = [f"{np.median(of):.1f} ({min(of):.1f} to {max(of):.1f})" for of in speed.values()]
        ratio = np.median(np.divide(times["attend"], times["tokenizers"]))
        print(f"| {name} | {max(counts)[1]} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


main()
