#!/usr/bin/env python3
"""Times reranking 100 passages of 120 tokens beside Transformers: a BERT of MiniLM's shape with a head of one label, f32.

Usage: benchmarks/rerank.py FOLDER [--rounds 9]; FOLDER has MiniLM, whose tokenizer and shape are taken; the weights are random.
Both have as many threads as there are cores, and tokenise. Transformers (sdpa) takes the passages in batches of 8, 32 and 100: the best
counts. A round has all in turns. Scores must agree within 1e-5. It prints a Markdown table of milliseconds: median, lowest, highest.
"""
import argparse
import os
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import numpy as np
import torch
import transformers

import attend


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(asked.folder, num_labels=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.folder)
    words = [word for word in tokenizer.get_vocab() if word.isalpha() and word.isascii()]
    random = np.random.default_rng(1)
    query = "who wrote the play that everybody knows"
    passages = [" ".join(random.choice(words, 111)) for _ in range(100)]  # with the query and what is around them 120 tokens and more
    with tempfile.TemporaryDirectory() as folder:
        model = transformers.BertForSequenceClassification(config).eval()
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        ours = attend.Model.load(folder)

        def theirs(batch):
            scores = []
            with torch.inference_mode():
                for n in range(0, len(passages), batch):
                    some = passages[n : n + batch]
                    inputs = tokenizer([query] * len(some), some, padding=True, truncation=True, max_length=512, return_tensors="pt")
                    scores.append(torch.sigmoid(model(**inputs).logits[:, 0]))
            return torch.cat(scores).numpy()

        calls = {"attend, `rank()`": lambda: ours.rank(query, passages)} | {
            f"Transformers, batches of {batch}": lambda batch=batch: theirs(batch) for batch in (8, 32, 100)}
        ranked = {each.passage: each.score for each in ours.rank(query, passages)}
        np.testing.assert_allclose([ranked[n] for n in range(100)], theirs(32), atol=1e-5)
        times = {name: [] for name in calls}
        for _ in range(asked.rounds):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                times[name].append(1000 * (time.perf_counter() - start))
    tokens = len(tokenizer(query, passages[0])["input_ids"])
    print(f"100 pairs of about {tokens} tokens\n\n| | ms | lowest | highest |\n|---|---|---|---|")
    for name, each in times.items():
        print(f"| {name} | {np.median(each):.0f} | {min(each):.0f} | {max(each):.0f} |")


if __name__ == "__main__":
    main()
