#!/usr/bin/env python3
"""Times reranking 100 passages of 120 tokens beside Transformers and ONNX Runtime: a BERT of MiniLM's shape with a head of one label.

Usage: benchmarks/rerank.py FOLDER [--rounds 9]; FOLDER has MiniLM, whose tokenizer and shape are taken; the weights are random.
All compute in f32, have as many threads as there are cores, and tokenise. Transformers (sdpa) and ONNX Runtime (where it is installed, with
onnx and onnxscript: the graph that PyTorch exports) take the passages in batches of 8, 32 and 100: the best counts. A round has all in
turns. Scores must agree within 1e-5. It prints a Markdown table of milliseconds: median, lowest, highest.
"""
import argparse
import importlib.util
import os
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import numpy as np
import torch
import transformers

import attend


def exported(model, folder):
    """ONNX Runtime's session of the model, or None where it is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime
    inputs = {name: torch.ones((2, 16), dtype=torch.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    batch, length = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("length", min=2, max=512)
    torch.onnx.export(model, (), f"{folder}/model.onnx", kwargs=inputs, input_names=list(inputs), output_names=["logits"], dynamo=True,
                      external_data=False, opset_version=20, dynamic_shapes={name: {0: batch, 1: length} for name in inputs})
    return onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])


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

        session = exported(model, folder)

        def by_torch(inputs):
            with torch.inference_mode():
                return model(**{name: torch.from_numpy(each) for name, each in inputs.items()}).logits.numpy()

        def theirs(logits, batch):
            scores = []
            for n in range(0, len(passages), batch):
                some = passages[n : n + batch]
                inputs = tokenizer([query] * len(some), some, padding=True, truncation=True, max_length=512, return_tensors="np")
                scores.append(1 / (1 + np.exp(-logits(dict(inputs))[:, 0])))
            return np.concatenate(scores)

        peers = {"Transformers": by_torch}
        if session:
            peers["ONNX Runtime"] = lambda inputs: session.run(None, inputs)[0]
        calls = {"attend, `rank()`": lambda: ours.rank(query, passages)} | {
            f"{name}, batches of {batch}": lambda logits=logits, batch=batch: theirs(logits, batch)
            for name, logits in peers.items() for batch in (8, 32, 100)}
        ranked = {each.passage: each.score for each in ours.rank(query, passages)}
        for logits in peers.values():
            np.testing.assert_allclose([ranked[n] for n in range(100)], theirs(logits, 32), atol=1e-5)
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
