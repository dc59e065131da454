#!/usr/bin/env python3
"""Times sentences to vectors, end to end with tokenising, beside sentence-transformers, ONNX Runtime and OpenVINO.

Usage: benchmarks/sentences.py MODEL [--count 10000] [--rounds 5] [--tune 1000] [--only NAME ...]; MODEL: a folder of all-MiniLM-L6-v2.
The sentences are those of the docstrings of PyTorch, Transformers and NumPy: of real lengths, up to several hundred tokens. Each peer
sorts them by length, pads each batch to its longest, and has the batch size that was fastest on --tune of them. Each is a process of its
own; a round has all in turns. It prints a Markdown table: seconds, the lowest and the highest of the rounds, and the ratio to attend's in
each round.
"""
import argparse
import ast
import importlib.util
import multiprocessing
import os
import pathlib
import random
import re
import tempfile
import time

import numpy as np

os.environ["HF_HUB_OFFLINE"] = "1"
BATCHES = (8, 16, 32, 64, 128)


def corpus(count):
    found = {}
    for package in ("torch", "transformers", "numpy"):
        folder = pathlib.Path(importlib.util.find_spec(package).origin).parent
        for path in sorted(folder.rglob("*.py")):
            try:
                tree = ast.parse(path.read_text())
            except (SyntaxError, UnicodeDecodeError):
                continue
            for node in ast.walk(tree):
                if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                    continue
                for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                    for sentence in re.split(r"(?<=[.!?]) +(?=[A-Z])", " ".join(paragraph.split())):
                        if 15 <= len(sentence) <= 1500 and sentence[0].isupper() and sentence[-1] in ".!?" and ">>>" not in sentence:
                            found[sentence] = None
    chosen = list(found)
    random.Random(1).shuffle(chosen)
    return chosen[:count]


class Attend:
    batches = (None,)

    def __init__(self, folder, dtype):
        import attend
        self.model = attend.Model.load(folder, dtype=dtype)

    def __call__(self, sentences, batch):
        return self.model.embed(sentences)


class SentenceTransformers:
    batches = BATCHES

    def __init__(self, folder, dtype):
        import torch
        from sentence_transformers import SentenceTransformer
        torch.set_num_threads(os.cpu_count())
        self.model = SentenceTransformer(folder, model_kwargs={"dtype": getattr(torch, dtype)})

    def __call__(self, sentences, batch):
        vectors = self.model.encode(sentences, batch_size=batch, convert_to_tensor=True)
        return vectors.float().numpy()


class Padded:
    """What the two runtimes share: tokens, batches by length, the mean and its length."""
    batches = BATCHES

    def __init__(self, folder, dtype):
        import tokenizers
        self.tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.tokenizer.enable_truncation(256)
        self.tokenizer.no_padding()
        self.open(folder, dtype)

    def __call__(self, sentences, batch):
        encodings = self.tokenizer.encode_batch_fast(sentences)
        order = sorted(range(len(sentences)), key=lambda n: -len(encodings[n]))
        vectors = np.empty((len(sentences), 384), np.float32)
        for begin in range(0, len(order), batch):
            chosen = order[begin:begin + batch]
            longest = len(encodings[chosen[0]])
            ids, mask = np.zeros((len(chosen), longest), np.int64), np.zeros((len(chosen), longest), np.int64)
            for row, n in enumerate(chosen):
                length = len(encodings[n])
                ids[row, :length], mask[row, :length] = encodings[n].ids, 1
            hidden = self.run(ids, mask)
            mean = np.einsum("bte,bt->be", hidden, mask.astype(np.float32))
            vectors[chosen] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors


def wrapped(folder):
    import torch
    import transformers
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval().requires_grad_(False)

    class Hidden(torch.nn.Module):
        def forward(self, ids, mask):
            return model(input_ids=ids, attention_mask=mask).last_hidden_state

    return Hidden().eval(), (torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long))


class OnnxRuntime(Padded):
    def open(self, folder, dtype):
        import onnxruntime
        import torch
        model, inputs = wrapped(folder)
        with tempfile.TemporaryDirectory() as made:
            path = f"{made}/model.onnx"
            B, T = torch.export.Dim("B", min=1, max=4096), torch.export.Dim("T", min=2, max=512)
            torch.onnx.export(model, inputs, path, input_names=["ids", "mask"], output_names=["out"], dynamo=True,
                              external_data=False, opset_version=20, dynamic_shapes=({0: B, 1: T}, {0: B, 1: T}))
            self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(self, ids, mask):
        return self.session.run(None, {"ids": ids, "mask": mask})[0]


class OpenVino(Padded):
    def open(self, folder, dtype):
        import openvino
        model, inputs = wrapped(folder)
        made = openvino.convert_model(model, example_input=inputs)
        kind = {"float32": openvino.Type.f32, "bfloat16": openvino.Type.bf16}[dtype]
        self.call = openvino.Core().compile_model(made, "CPU", {"INFERENCE_PRECISION_HINT": kind, "PERFORMANCE_HINT": "LATENCY"})

    def run(self, ids, mask):
        return self.call([ids, mask])[0]


IMPLEMENTATIONS = [("attend", Attend, "float32"), ("sentence-transformers", SentenceTransformers, "float32"),
                   ("ONNX Runtime", OnnxRuntime, "float32"), ("OpenVINO", OpenVino, "float32"),
                   ("attend, bf16", Attend, "bfloat16"), ("sentence-transformers, bf16", SentenceTransformers, "bfloat16"),
                   ("OpenVINO, bf16", OpenVino, "bfloat16")]


def serve(pipe, kind, folder, dtype):
    try:
        model = kind(folder, dtype)
        pipe.send(None)
    except Exception as error:
        pipe.send(repr(error)[:300])
        return
    while (asked := pipe.recv()) is not None:
        begin = time.perf_counter()
        vectors = model(*asked)
        pipe.send((time.perf_counter() - begin, vectors))


class Served:
    def __init__(self, name, kind, dtype, folder):
        context = multiprocessing.get_context("spawn")
        self.name, self.kind, self.times, self.batch = name, kind, [], None
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, kind, folder, dtype), daemon=True)
        self.process.start()
        theirs.close()
        if wrong := self.pipe.recv():
            raise RuntimeError(wrong)

    def __call__(self, sentences, batch=None):
        self.pipe.send((sentences, batch or self.batch))
        return self.pipe.recv()

    def tune(self, sentences):
        self(sentences[:50], self.kind.batches[0])
        self.batch = min(self.kind.batches, key=lambda batch: self(sentences, batch)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, default in (("--count", 10000), ("--rounds", 5), ("--tune", 1000)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--only", nargs="+", choices=[name for name, *_ in IMPLEMENTATIONS], help="and attend")
    asked = parser.parse_args()
    sentences = corpus(asked.count)
    served = []
    for name, kind, dtype in IMPLEMENTATIONS:
        if asked.only and name not in ("attend", *asked.only):
            continue
        try:
            served.append(Served(name, kind, dtype, asked.model))
        except (RuntimeError, EOFError) as error:
            print(f"left out: {name}: {error}")
            continue
        served[-1].tune(sentences[:asked.tune])
    expected = None
    for number in range(asked.rounds):
        for each in served if number % 2 == 0 else reversed(served):
            seconds, vectors = each(sentences)
            each.times.append(seconds)
            expected = vectors if expected is None else expected
            far = np.abs(vectors - expected).max()
            if far > (3e-2 if "bf16" in each.name else 1e-4):
                print(f"{each.name} is {far} from attend's f32")
    print("| | batch | seconds | lowest to highest | of attend's |\n|---|---|---|---|---|")
    for each in served:
        own = next((other for other in served if other.kind is Attend and ("bf16" in other.name) == ("bf16" in each.name)), served[0])
        print(f"| {each.name} | {each.batch or ''} | {np.median(each.times):.2f} | {min(each.times):.2f} to {max(each.times):.2f} | "
              f"{np.median(np.divide(each.times, own.times)):.2f} |")


if __name__ == "__main__":
    main()
