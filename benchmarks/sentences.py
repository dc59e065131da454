#!/usr/bin/env python3
"""Times sentences to vectors, end to end with tokenising, beside sentence-transformers, ONNX Runtime and OpenVINO.

Usage: benchmarks/sentences.py MODEL [--count 10000] [--rounds 5] [--tune 1000] [--int8] [--only NAME ...] [--lines FILE ...] [--accuracy];
MODEL: a folder of all-MiniLM-L6-v2. The sentences are those of the docstrings of PyTorch, Transformers and NumPy: of real lengths, up to
several hundred tokens; with --lines the lines of files. Each peer sorts them by length, pads each batch to its longest, and has the batch
size that was fastest on --tune of them. Each is a process of its own, with all cores for its threads; a round has all in turns. It prints
a Markdown table: seconds, the lowest and the highest of the rounds, and the ratio in each round to attend's of the same dtype.

--int8 takes attend with rounded activations and the int8 models that sentence-transformers writes for OpenVINO and ONNX Runtime
(benchmarks/requirements-int8.txt). --accuracy times nothing: it says how near their vectors are to those of the same runtime in f32, by
the cosine of each sentence's two vectors and by the 10 nearest of all sentences to each of the first 1,000.
"""
import argparse
import ast
import importlib.util
import multiprocessing
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import numpy as np

os.environ["HF_HUB_OFFLINE"] = "1"
BATCHES = (8, 16, 32, 64, 128)
CALIBRATION = 128  # sentences, as many as Optimum takes


def docstrings():
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
    return list(found)


def lines_of(files):
    lines = dict.fromkeys(line.strip() for file in files for line in pathlib.Path(file).read_text().splitlines())
    return [line for line in lines if len(line) >= 15]


def corpus(count, files=()):
    chosen = lines_of(files) if files else docstrings()
    random.Random(1).shuffle(chosen)
    return chosen[:count]


class Attend:
    batches = (None,)

    def __init__(self, folder, dtype, calibration):
        import attend
        settings = {"activations": "int8"} if dtype == "int8" else {"dtype": dtype}
        self.model = attend.Model.load(folder, **settings)

    def __call__(self, sentences, batch):
        return self.model.embed(sentences)


class SentenceTransformers:
    batches = BATCHES

    def __init__(self, folder, dtype, calibration):
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

    def __init__(self, folder, dtype, calibration):
        import tokenizers
        self.tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        self.tokenizer.enable_truncation(256)
        self.tokenizer.no_padding()
        self.calibration = calibration
        self.open(folder, dtype)

    def __call__(self, sentences, batch):
        encodings = self.tokenizer.encode_batch_fast(sentences)
        order = sorted(range(len(sentences)), key=lambda n: -len(encodings[n]))
        vectors = []
        for begin in range(0, len(order), batch):
            chosen = order[begin:begin + batch]
            ids, mask = padded([encodings[n] for n in chosen], len(encodings[chosen[0]]))
            hidden = self.run(ids, mask)
            mean = np.einsum("bte,bt->be", hidden, mask.astype(np.float32))
            vectors.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
        return np.concatenate(vectors)[np.argsort(order)]


def padded(encodings, longest):
    ids, mask = (np.zeros((len(encodings), longest), np.int64) for _ in range(2))
    for row, encoding in enumerate(encodings):
        ids[row, :len(encoding)], mask[row, :len(encoding)] = encoding.ids, 1
    return ids, mask


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
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = os.cpu_count()
            self.session = onnxruntime.InferenceSession(self.written(path), options, providers=["CPUExecutionProvider"])

    def written(self, path):
        return path

    def run(self, ids, mask):
        return self.session.run(None, {"ids": ids, "mask": mask})[0]


class OnnxQint8(OnnxRuntime):
    """As sentence-transformers' export_dynamic_quantized_onnx_model(..., "avx512_vnni") has Optimum quantise: weights to 8 bits with a
    factor for each column, and what meets them, and attention's products too, to 8 bits with a factor for each batch."""

    def written(self, path):
        from onnxruntime.quantization import QuantType, quantize_dynamic
        quantized = f"{path}.qint8"
        quantize_dynamic(path, quantized, weight_type=QuantType.QInt8, per_channel=True, extra_options={"MatMulConstBOnly": False})
        return quantized


class OpenVino(Padded):
    def open(self, folder, dtype):
        import openvino
        model, inputs = wrapped(folder)
        made = openvino.convert_model(model, example_input=inputs)
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": os.cpu_count()}
        if dtype != "int8":
            settings["INFERENCE_PRECISION_HINT"] = {"float32": "f32", "bfloat16": "bf16"}[dtype]
        self.call = openvino.Core().compile_model(self.converted(made), "CPU", settings)

    def converted(self, model):
        return model

    def run(self, ids, mask):
        return self.call([ids, mask])[0]


class OpenVinoQint8(OpenVino):
    """As sentence-transformers' export_static_quantized_openvino_model() has Optimum quantise: by NNCF, with sentences that are padded to
    384 tokens. What is left in floats has the precision that OpenVINO chooses: bf16 where the processor has it."""

    def converted(self, model):
        import nncf
        samples = [[*padded([encoding], 384)] for encoding in self.tokenizer.encode_batch_fast(self.calibration)]
        advanced = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.DISABLE)
        return nncf.quantize(model, nncf.Dataset(samples), preset=nncf.QuantizationPreset.MIXED, subset_size=CALIBRATION,
                             fast_bias_correction=True, model_type=nncf.ModelType.TRANSFORMER, advanced_parameters=advanced)


IMPLEMENTATIONS = [("attend", Attend, "float32"), ("sentence-transformers", SentenceTransformers, "float32"),
                   ("ONNX Runtime", OnnxRuntime, "float32"), ("OpenVINO", OpenVino, "float32"),
                   ("attend, bf16", Attend, "bfloat16"), ("sentence-transformers, bf16", SentenceTransformers, "bfloat16"),
                   ("OpenVINO, bf16", OpenVino, "bfloat16"), ("attend, int8", Attend, "int8"),
                   ("openvino-qint8", OpenVinoQint8, "int8"), ("onnx-qint8", OnnxQint8, "int8")]
EXACT = {"attend, int8": "attend", "openvino-qint8": "OpenVINO", "onnx-qint8": "ONNX Runtime"}  # the same runtime in f32
FAR = {"float32": 1e-4, "bfloat16": 3e-2, "int8": 0.1}  # from attend's f32, a number of a vector of length 1


def serve(pipe, kind, folder, dtype, calibration):
    sys.stdout = sys.stderr  # where exporters say what they do; the table is alone
    try:
        model = kind(folder, dtype, calibration)
        pipe.send(None)
    except Exception as error:
        pipe.send(repr(error)[:300])
        return
    while (asked := pipe.recv()) is not None:
        begin = time.perf_counter()
        vectors = model(*asked)
        pipe.send((time.perf_counter() - begin, vectors))


class Served:
    def __init__(self, name, kind, dtype, folder, calibration):
        context = multiprocessing.get_context("spawn")
        self.name, self.kind, self.dtype, self.times, self.batch = name, kind, dtype, [], 32  # as sentence-transformers has it
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, kind, folder, dtype, calibration), daemon=True)
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

    def stop(self):
        self.pipe.send(None)
        self.process.join()


def started(names, folder, calibration):
    for name, kind, dtype in IMPLEMENTATIONS:
        if name not in names:
            continue
        try:
            yield Served(name, kind, dtype, folder, calibration)
        except (RuntimeError, EOFError) as error:
            print(f"left out: {name}: {error}")


def print_times(served, sentences, rounds):
    expected = None
    for number in range(rounds):
        for each in served if number % 2 == 0 else reversed(served):
            seconds, vectors = each(sentences)
            each.times.append(seconds)
            expected = vectors if expected is None else expected
            far = np.abs(vectors - expected).max()
            if far > FAR[each.dtype]:
                print(f"{each.name} is {far} from attend's f32")
    print("| | batch | seconds | lowest to highest | of attend's |\n|---|---|---|---|---|")
    for each in served:
        own = next((other for other in served if other.kind is Attend and other.dtype == each.dtype), served[0])
        print(f"| {each.name} | {each.batch or ''} | {np.median(each.times):.2f} | {min(each.times):.2f} to {max(each.times):.2f} | "
              f"{np.median(np.divide(each.times, own.times)):.2f} |")


def nearest(vectors, queries, count=10):
    """Of each of the first vectors, so many queries, the nearest others by cosine."""
    cosines = vectors[:queries] @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argpartition(-cosines, count, axis=1)[:, :count]


def likeness(exact, rounded, queries=1000):
    """The mean and the least cosine of each sentence's two vectors, and the share of its 10 nearest that both have."""
    cosines = np.einsum("nv,nv->n", exact, rounded)
    both = [np.intersect1d(*each).size / 10 for each in zip(nearest(exact, queries), nearest(rounded, queries))]
    return cosines.mean(), cosines.min(), np.mean(both)


def print_likeness(served, sentences):
    vectors = {}
    for each in served:
        vectors[each.name] = each(sentences)[1]
        each.stop()
    print("| | beside | mean cosine | least | the same among 10 nearest |\n|---|---|---|---|---|")
    for name, exact in EXACT.items():
        if name in vectors and exact in vectors:
            mean, least, same = likeness(vectors[exact], vectors[name])
            print(f"| {name} | {exact}, f32 | {mean:.5f} | {least:.4f} | {100 * same:.1f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, default in (("--count", 10000), ("--rounds", 5), ("--tune", 1000)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--only", nargs="+", choices=[name for name, *_ in IMPLEMENTATIONS], default=[], help="and attend")
    parser.add_argument("--int8", action="store_true", help="attend, those of int8, and what --only names")
    parser.add_argument("--accuracy", action="store_true", help="how near those of int8 are to f32, in place of times")
    parser.add_argument("--lines", nargs="+", metavar="FILE", default=[], help="their distinct lines, in place of docstrings")
    asked = parser.parse_args()
    chosen = corpus(asked.count + CALIBRATION, asked.lines)
    sentences, calibration = chosen[:-CALIBRATION], chosen[-CALIBRATION:]
    if asked.accuracy:
        return print_likeness(started({*EXACT, *EXACT.values()}, asked.model, calibration), sentences)
    names = {"attend", *asked.only, *(EXACT if asked.int8 else ())}
    if len(names) == 1:
        names = {name for name, *_ in IMPLEMENTATIONS if name not in EXACT}
    served = list(started(names, asked.model, calibration))
    for each in served:
        each.tune(sentences[:asked.tune])
    print_times(served, sentences, asked.rounds)
    for each in served:
        each.stop()


if __name__ == "__main__":
    main()
