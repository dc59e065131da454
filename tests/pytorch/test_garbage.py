"""Garbage into everything public: what comes out is a result, or an exception that the documents name.

    python -m pytest tests/pytorch/test_garbage.py --fuzz     # until something else comes out, or the process dies

The calls are made in a process of their own, which prints each finding as the line that repeats it; where it died, the
line is the last one of the file that the message names. In tests/pytorch:

    python test_garbage.py FIRST_SEED CALLS FILE
"""

import array
import ctypes
import decimal
import enum
import fractions
import inspect
import itertools
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import types
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # also where it is a program of its own

import tiny

CALLS = 3000  # some 10 seconds
MODEL_FOLDER = tempfile.TemporaryDirectory()
GGUF_FILE = str(pathlib.Path(__file__).parents[1] / "golden/gguf/sentencepiece.gguf")
TOKENIZER_FILE = str(pathlib.Path(__file__).parents[1] / "fuzz/corpus/tokenizer/wordpiece")


class Strange(Exception):
    """What an argument raises. It may come out again."""


# Arguments that lie.

class Text(str):
    pass


class Colour(enum.IntEnum):
    RED = 1


class Raises:
    """Whatever is asked of it, it raises."""

    def __getattr__(self, name):
        raise Strange(name)

    def __index__(self):
        raise Strange

    __len__ = __iter__ = __bool__ = __float__ = __fspath__ = __str__ = __repr__ = __index__


class Says:
    """Something with attributes that say what they like."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise Strange

    def __index__(self):
        return 10**30

    def __fspath__(self):
        return 5


def exports(capsule, device=(1, 0)):
    """An object of a new type, with nothing but DLPack."""
    def give(value):
        return lambda self, **options: value() if callable(value) else value
    return type("Exports", (), {"__dlpack__": give(capsule), "__dlpack_device__": give(device)})()


def raise_strange():
    raise Strange


def lying_arrays(dice, np, torch):
    """Arrays whose libraries say something else of them than is so, or that fall silent in the middle."""
    x = np.ones((1, 2, 3, 4), np.float32)

    class Subclass(np.ndarray):
        shape = property(lambda self: (7, 7))
        dtype = property(lambda self: "float32")

    class Silent(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *arguments):
            raise Strange

    interface = dict(x.__array_interface__, shape=(1, 2, 3, 4000))
    used = x.__dlpack__()
    np.from_dlpack(exports(lambda: used))
    with_api = type("WithApi", (), {"__dlpack_c_exchange_api__": dice.choice([5, None, used, "x"])})()
    return [
        x.view(Subclass), torch.ones(1, 2, 3, 4).as_subclass(Silent), Says(__array_interface__=interface), with_api,
        exports(used), exports(5), exports(None), exports(raise_strange), exports(x.__dlpack__, raise_strange),
        exports(x.__dlpack__, (2, 0)), exports(x.__dlpack__, "cpu"), exports(lambda: torch.ones(2, 3, 4).__dlpack__()),
        Says(shape=(1, 2, 3, 4), dtype="float32"), Says(shape=Raises(), tolist=raise_strange), Says(shape=5, dtype=Raises()),
        Says(tolist=lambda: [1, 2]), Says(tolist=5), (ctypes.c_float * 4 * 3)(), (ctypes.c_float * 0)(),
    ]


def some_array(dice, np, torch):
    shape = [dice.choice((0, 1, 1, 2, 3, 4)) for _ in range(dice.choice((0, 1, 2, 3, 4, 4, 4, 5, 9)))]
    dtype = dice.choice(["f4", "f4", "f4", "f2", "f8", "i1", "i4", "i8", "u2", "?", "c8", "g", "U3", "O", "M8[s]", "V5", ">f4",
                         [("a", "f4"), ("b", "i1")]])
    x = np.zeros(shape, dtype)
    if dtype in ("f4", "f2", "f8"):
        x[...] = dice.choice((0.5, 1e300, np.nan, np.inf, -np.inf)) if dtype == "f8" else dice.choice((0.5, np.nan, -np.inf))
    change = dice.choice([
        lambda: x, lambda: x.T, lambda: x[::-1] if x.ndim else x, lambda: np.broadcast_to(x, (2, *x.shape)),
        lambda: np.ma.masked_array(x), lambda: memoryview(x), lambda: x.tobytes(), lambda: bytearray(x.tobytes()),
        lambda: x.tolist(), lambda: x[None], lambda: x.view(np.uint8), lambda: np.frombuffer(b"\1" * 17, np.uint8)[1:].view("f4"),
        lambda: torch.from_numpy(x), lambda: torch.from_numpy(x).requires_grad_(), lambda: torch.from_numpy(x).to("meta"),
        lambda: torch.from_numpy(x).to_sparse(), lambda: torch.from_numpy(x).bfloat16(), lambda: torch.from_numpy(x).conj(),
        lambda: array.array("f", [1.0, 2.0]), lambda: torch.nn.Parameter(torch.from_numpy(x)),
        lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)]),
        lambda: torch.quantize_per_tensor(torch.from_numpy(x), 0.1, 0, torch.qint8),
    ])
    try:
        return change()
    except (RuntimeError, TypeError, ValueError, BufferError):  # of NumPy and PyTorch: there is no such array
        return x


def scalars(dice):
    numbers = [0, 1, 2, 3, -1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -2**63, -2**63 - 1, 2**64, 10**30, True, 0.0, -0.0, 0.5,
               float("nan"), float("inf"), 1e308, 1e-320, 1j, decimal.Decimal("0.5"), fractions.Fraction(1, 3), Colour.RED]
    texts = ["", "x", "bottom_right", "float32", "bfloat16", "bthd", "\0", "a\0b", "\udcff", "é\u202e", "x" * 3000, Text("float32"),
             Text("the cat sat"), b"", b"x.png", b"\xff\0", b"\xff.png", pathlib.Path("x"), "cat.html", "no/such/cat.png", "cat.nothing",
             b"no/such/\xff.png", "/dev/full/x.svg", ".png"]
    others = [None, ..., NotImplemented, object(), int, len, Raises, Raises(), Says(), lambda: None, range(3), range(2**62), {}, set(),
              {"a": 1}, [], (), [[]], [1, 2], (0, 1, 2), (0, 5), [0, 2, 2**70], (None, None), (-1, 3), (0.5, 7), (0.1, -1), (2.0, 1),
              (0.1, 10**30), ("a", "b"), [None], [float("nan")], ([[[[[]]]]],), iter([1, 2]), (i for i in (0, 1)), b"ab",
              (2**31, 2**31), (2**62, 4), [2**33, 2**33], (0, -5), [-1], (1,) * 9, (1,) * 100, types.SimpleNamespace(shape=(1, 2))]
    return dice.choice(dice.choice([numbers, texts, others]))


def garbage(dice, np, torch):
    kind = dice.randrange(4)
    if kind == 0:
        return dice.choice(lying_arrays(dice, np, torch))
    return some_array(dice, np, torch) if kind == 1 else scalars(dice)


# What is public, and calls of it that are right.

def public_names():
    """Each function, constructor and method that attend's modules have in __all__."""
    import attend
    import attend.torch
    import attend.transformers
    import attend.widget
    for module in attend, attend.onnx, attend.torch, attend.transformers, attend.widget:
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            yield f"{module.__name__}.{name}"
            if inspect.isclass(thing):
                yield from (f"{module.__name__}.{name}.{method}" for method, value in vars(thing).items() if callable(value) and (
                    not method.startswith("_") or method in ("__len__", "__str__", "__repr__", "_repr_html_")))


def with_pandas(call, library="pandas"):
    """The call where the library is there; without, the ImportError that is promised is all that it may give."""
    def made(*arguments, **keywords):
        try:
            return repr(call(*arguments, **keywords))
        except ImportError as error:
            assert error.name == library
            return ""
    return made


def task_calls(attend):
    """Of a model for each task, written once."""
    import dataclasses
    import pathlib
    import tempfile

    import numpy as np
    from tiny_models import CASES, written
    from tiny_tokenizers import tokenizer_of
    models = {}
    for task in "SequenceClassification", "TokenClassification", "MaskedLM":
        folder = pathlib.Path(tempfile.mkdtemp())
        case = CASES["bert"]
        written(folder, dataclasses.replace(case, name=f"BertFor{task}", config=case.config | {"num_labels": 1}))
        tokenizer_of("bert").save_pretrained(folder)
        models[task] = attend.Model.load(folder)
    reranker, tagger, filler = models.values()
    keywords = {"max_tokens": 9, "progress": lambda share: None}
    found = attend.Classification(("a",), [[0.0]], np.zeros((1, 1)), "softmax", 0)
    return {"Model.classify": (reranker.classify, (["a", ("the cat", "a mat")], "none"), keywords | {"truncate": True}),
            "Model.rank": (reranker.rank, ("a cat", ["the cat", "a"], 1, "none", "the "), keywords),
            "Model.tag": (tagger.tag, (["the cat", "a"], "first", ("O",)), keywords | {"truncate": True}),
            "Model.fill": (filler.fill, ("the [MASK]", 3), {}),
            "Model.task_logits": (reranker.task_logits, ([5, 6, 7],), {"starts": [0, 1, 3], "types": [0, 1, 1], "edits": []}),
            **{f"{type(made).__name__}.__repr__": (made.__repr__, (), {}) for made in (
                found, attend.Ranked(0, 0.5, "a"), attend.Tag("a", 0.5, 0, 1, "a"), attend.Tagged([], None, None, (), False),
                attend.Filling("a", 0.5, 1, "a"))},
            "Classification": (attend.Classification, (("a",), None, None, "none", 0), {}),
            "Classification.best": (found.best, (), {}), "Classification.top": (found.top, (1,), {}),
            "Ranked": (attend.Ranked, (0, 0.5, "a"), {}), "Tag": (attend.Tag, ("a", 0.5, 0, 1, "a"), {}),
            "Tagged": (attend.Tagged, ([], None, None, (), False), {}), "Filling": (attend.Filling, ("a", 0.5, 1, "a"), {})}


def vector_calls(attend, np):
    """Vectors of tokens, and weights of words, of tiny models and of arrays."""
    from test_token_vectors import FOLDERS, fill_folder
    folder = pathlib.Path(tempfile.mkdtemp())
    FOLDERS["fixed"](folder / "tokens")
    fill_folder(folder / "words")
    tokens, words = attend.Model.load(folder / "tokens"), attend.Model.load(folder / "words")
    attend.TokenVectorFile.write(folder / "v.npy", [np.eye(2, 4, dtype=np.float32)] * 3)
    file = attend.TokenVectorFile(folder / "v.npy")
    eye = np.eye(2, 4, dtype=np.float32)
    one = attend.TokenVectors(eye, np.array([1, 2]), ("a", "b"), ((0, 1), (2, 3)), False)
    match, sparse = one.match(one), attend.SparseVector(np.array([1, 2]), np.array([0.5, 2], np.float32), ("a", "b"))
    how = {"prompt": "the ", "truncate": True, "progress": lambda share: None}
    return {"Model.embed_tokens": (tokens.embed_tokens, (["the cat", "a"], "query"), how | {"max_tokens": 9}),
            "Model.embed_sparse": (words.embed_sparse, (["the cat", "a"],), how), "max_sim": (attend.max_sim, (eye, eye), {}),
            "TokenVectors": (attend.TokenVectors, (eye, None, ("a", "b"), (), False), {}), "TokenVectors.match": (one.match, (one,), {}),
            "TokenMatch": (attend.TokenMatch, tuple(match), {}), "TokenMatch.words": (match.words, (), {}),
            "TokenMatch.picture": (match.picture, ("x",), {}), "TokenMatch._repr_html_": (match._repr_html_, (), {}),
            "NearText": (attend.NearText, (1, 0.5), {}), "SparseVector": (attend.SparseVector, tuple(sparse), {}),
            "SparseVector.top": (sparse.top, (1,), {}), "SparseVector.dot": (sparse.dot, (sparse,), {}),
            "TokenVectorFile": (attend.TokenVectorFile, (folder / "v.npy",), {}),
            "TokenVectorFile.write": (attend.TokenVectorFile.write, (folder / "w.npy", [one, eye]), {}),
            "TokenVectorFile.nearest": (file.nearest, (one, 2), {}),
            **{f"TokenVectorFile.{name}": (getattr(file, name), (), {}) for name in ("__len__", "__repr__")},
            **{f"{type(made).__name__}.__repr__": (made.__repr__, (), {}) for made in (one, match, sparse, attend.NearText(1, 0.5))}}


def chat_calls(attend):
    folder = pathlib.Path(tempfile.mkdtemp())
    model = attend.Model.load(tiny.write_chat(folder / "chat"))
    chat = attend.Chat(model)
    return {"Chat": (attend.Chat, (model, "ab"), {}), "Chat.clear": (chat.clear, (), {}), "Chat.__repr__": (chat.__repr__, (), {}),
            "Chat.say": (chat.say, ("ab", 3), {
                "seed": 2, "end": [3], "on_token": lambda id: True, "on_text": lambda more: True, "num_beams": 2, "length_penalty": 0.5,
                "early_stopping": "never", "stop_strings": ["a"]})}


def steering_calls(attend, model):
    steering = model.steering([("the cat", "the mat")])
    steering.save("x.gguf")
    return {"Steering": (attend.Steering, (), {}),
            "Model.steering": (model.steering, ([("a", "b")], "mean", (1, 1)), {"progress": lambda share: None}),
            "Steering.edits": (steering.edits, (0.5,), {}), "Steering.save": (steering.save, ("x.gguf",), {}),
            "Steering.load": (attend.Steering.load, ("x.gguf",), {}), "Steering.__repr__": (steering.__repr__, (), {})}


def jacobian_calls(attend, model, np):
    lens = model.jacobian_lens([1, 2, 3], skip=1)
    lens.save("x.safetensors"), lens.to_torch("x.pt")
    return {"JacobianLens": (attend.JacobianLens, (lens.jacobians, 2), {}),
            "JacobianLens.merge": (lens.merge, (lens,), {}), "JacobianLens.save": (lens.save, ("x.safetensors",), {}),
            "JacobianLens.load": (attend.JacobianLens.load, ("x.safetensors",), {}),
            "JacobianLens.to_torch": (lens.to_torch, ("x.pt",), {}),
            "JacobianLens.from_torch": (attend.JacobianLens.from_torch, ("x.pt",), {}),
            "JacobianLens.__repr__": (lens.__repr__, (), {}),
            "Model.jacobian_lens": (model.jacobian_lens, ([1, 2, 3], 1, 4), {"progress": lambda share: None})}


def features_calls(attend, model, np):
    tiny.write_autoencoder("autoencoder")
    of = attend.SparseAutoencoder.load("autoencoder")
    found, x = model.features([1, 2], of), np.ones((2, 16), np.float32)
    return {"SparseAutoencoder": (attend.SparseAutoencoder, (), {}), "SparseAutoencoder.__repr__": (of.__repr__, (), {}),
            "SparseAutoencoder.load": (attend.SparseAutoencoder.load, ("autoencoder",), {
                "reads": ("mlp", 1), "writes": None, "centred": True}),
            "SparseAutoencoder.encode": (of.encode, (x,), {}), "SparseAutoencoder.decode": (of.decode, (found.activations, x), {}),
            "SparseAutoencoder.direction": (of.direction, (1,), {}), "SparseAutoencoder.add": (of.add, (1, 2.0), {}),
            "SparseAutoencoder.edit": (of.edit, (found, 1), {"scale": 2.0, "set": 1.0}),
            "Features": (attend.Features, tuple(found), {}), "Features.__repr__": (found.__repr__, (), {}),
            "Features.top": (found.top, (1, 2), {}),
            "Model.features": (model.features, ([1, 2], of), {
                "starts": [0, 1, 2], "types": None, "caches": None, "edits": [of.add(1, 2.0)],
                "decoder_ids": None, "decoder_starts": None})}


def circuit_calls(attend, decoder, np):
    edges = decoder.edges([1, 2, 3], [1, 4, 3], 7, 8)
    circuit, path = decoder.circuit(edges, keep=9), decoder.path_patch([1, 2, 3], [1, 4, 3], 7, 8, ["embedding"], ["output"])
    trace, value = decoder.trace([1, 2, 3], 7), decoder.explain_value([1, 2, 3], "0.1", 1, 7)
    return {"Model.edges": (decoder.edges, ([1, 2, 3], [1, 4, 3], 7, 8), {
                "method": "eap-ig", "steps": 2, "at": "clean", "position": 1, "progress": float}),
            "Edges": (attend.Edges, tuple(edges), {}), "Edges.__repr__": (edges.__repr__, (), {}),
            "Edges.top": (edges.top, (3,), {}), "Edges.to_pandas": (with_pandas(edges.to_pandas), (), {}),
            "Model.circuit": (decoder.circuit, (edges,), {"keep": 3, "faithfulness": None, "only": None, "progress": float}),
            "Circuit": (attend.Circuit, tuple(circuit), {}), "Circuit.__repr__": (circuit.__repr__, (), {}),
            "Circuit.to_pandas": (with_pandas(circuit.to_pandas), (), {}),
            "Circuit.to_networkx": (with_pandas(lambda: list(circuit.to_networkx().edges(data=True)), "networkx"), (), {}),
            "Circuit.picture": (circuit.picture, (), {"most": 3, "title": "x"}),
            "Edges._repr_html_": (edges._repr_html_, (), {}), "AnswerTrace._repr_html_": (trace._repr_html_, (), {}),
            "Circuit._repr_html_": (circuit._repr_html_, (), {}),
            "Model.path_patch": (decoder.path_patch, ([1, 2, 3], [1, 4, 3], 7, 8, ["embedding"], ["output"]), {"position": -1}),
            "PathPatching": (attend.PathPatching, tuple(path), {}), "PathPatching.__repr__": (path.__repr__, (), {}),
            "Model.trace": (decoder.trace, ([1, 2, 3],), {
                "token": 7, "against": 8, "position": 1, "heads": 2, "parts": 1, "measured": False, "decoder_ids": None,
                "progress": float}),
            "AnswerTrace": (attend.AnswerTrace, tuple(trace), {}), "AnswerTrace.__repr__": (trace.__repr__, (), {}),
            "AnswerTrace.to_pandas": (with_pandas(trace.to_pandas), (), {}),
            "TracedHead": (attend.TracedHead, tuple(trace.heads[0]), {}), "TracedHead.__repr__": (trace.heads[0].__repr__, (), {}),
            "TracedPart": (attend.TracedPart, ("mlp 0", 1.5, 0.5, None), {}),
            "TracedPart.__repr__": (attend.TracedPart("mlp 0", 1.5, 0.5, None).__repr__, (), {}),
            "Model.explain_value": (decoder.explain_value, ([1, 2, 3], "1.1", 1), {
                "token": 7, "against": 8, "position": 1, "direction": np.ones(16, np.float32), "decoder_ids": None, "by_token": ["0.0"]}),
            "ValueSplit": (attend.ValueSplit, tuple(value), {}), "ValueSplit.__repr__": (value.__repr__, (), {}),
            "ValueSplit.top": (value.top, (3,), {})}


def variant_calls(attend, decoder):
    found = decoder.vary("a1b", "a1b", words="a1b=a1b")
    return {"Model.vary": (decoder.vary, (["a1b", "b"], ["a1b", "b"]), {"target": None, "other": None, "progress": float}),
            "Variants": (attend.Variants, tuple(found), {}),
            "Variants.picture": (found.picture, ("1.0",), {"title": "x"}), "Variants.looks_at": (found.looks_at, ("1.0",), {}),
            "Variants.baselines": (found.baselines, (), {}), "Variants.to_csv": (found.to_csv, (), {}),
            "Variants.to_json": (found.to_json, (), {}), "Variants.to_pandas": (with_pandas(found.to_pandas), (), {})}


def gradient_calls(attend, decoder, np):
    found, saliency = decoder.gradient([1, 2, 3], 7), decoder.saliency([1, 2, 3], 7, 8, steps=5)
    split = decoder.explain_score([1, 2, 3], "0.1", 2, 1)
    passages = decoder.passages([1, 2, 3], [(0, 1), (1, 2)])
    return {"Gradient": (attend.Gradient, ({"z": np.ones((3, 16))}, 0.5), {}), "Gradient.__repr__": (found.__repr__, (), {}),
            "Gradient.__len__": (found.__len__, (), {}),
            "Model.gradient": (decoder.gradient, ([1, 2, 3], 7), {
                "against": 8, "position": 1, "of": "logit", "at": ["z"], "edits": [attend.Edit(0)], "types": None, "decoder_ids": None,
                "observe": lambda place, layer, values: None, "memory": 1000}),
            "Model.saliency": (decoder.saliency, ([1, 2, 3], 7), {
                "against": 8, "position": 1, "of": "logit", "method": "input", "baseline": np.ones(16, np.float32), "steps": 5,
                "types": None, "decoder_ids": None, "progress": float}),
            "Saliency": (attend.Saliency, tuple(saliency), {}), "Saliency.picture": (saliency.picture, (), {"title": "x"}),
            "Saliency.words": (saliency.words, (), {"encoder": False}),
            "Saliency.to_csv": (saliency.to_csv, (), {}), "Saliency.to_json": (saliency.to_json, (), {}),
            "Saliency.to_pandas": (with_pandas(saliency.to_pandas), (), {}),
            "Model.passages": (decoder.passages, ([1, 2, 3], [(0, 1), (1, 2)]), {
                "answer": [4], "token": None, "against": None, "position": -1, "of": None, "hide": 1, "types": None, "decoder_ids": None,
                "memory": 1000, "progress": float}),
            "Passages": (attend.Passages, tuple(passages), {}), "Passages.picture": (passages.picture, (), {"title": "x"}),
            "Passages.to_csv": (passages.to_csv, (), {}), "Passages.to_json": (passages.to_json, (), {}),
            "Passages.to_pandas": (with_pandas(passages.to_pandas), (), {}),
            "Model.explain_score": (decoder.explain_score, ([1, 2, 3], "1.1", 2, 1), {
                "against": "mean", "decoder_ids": None, "sides": "both", "by_token": ["0.0"]}),
            "ScoreSplit": (attend.ScoreSplit, tuple(split), {}), "ScoreSplit.__repr__": (split.__repr__, (), {}),
            "ScoreSplit.top": (split.top, ("pairs", 3), {}),
            **circuit_calls(attend, decoder, np),
            **variant_calls(attend, decoder),
            "Model.composition": (decoder.composition, (), {"encoder": False}),
            "Composition": (attend.Composition, tuple(decoder.composition()), {}),
            "Composition.__repr__": (decoder.composition().__repr__, (), {}),
            "Composition.top": (decoder.composition().top, ("k", 3), {}),
            "Model.gradient_bytes": (decoder.gradient_bytes, (3, 0), {})}


def analysis_calls(attend, decoder, cache, np):
    mean = attend.Edit(1, at="mlp", rows=[1], set=np.ones((1, 16), np.float32))
    attribution, lens = decoder.attribute([1, 2, 3]), decoder.lens([1, 2, 3])
    ablation, patching = decoder.ablate([1, 2, 3]), decoder.patch([1, 2, 3], [1, 4, 3], 7, 8)
    part, several = attribution.top(1)[0], decoder.attribute([[1, 2, 3], [4, 5]])
    return {
        "Edit": (attend.Edit, (1, 0, "z", [0, 2], "mean"), {}),
        "Knockout": (attend.Knockout, ([0, 2], [1], 1, 0, "self"), {}),
        "Edit.__repr__": (mean.__repr__, (), {}), "Knockout.__repr__": (attend.Knockout([0]).__repr__, (), {}),
        **steering_calls(attend, decoder),
        **jacobian_calls(attend, decoder, np),
        **features_calls(attend, decoder, np),
        **gradient_calls(attend, decoder, np),
        "Attribution": (attend.Attribution, (), {}),
        "Attribution.top": (attribution.top, (3,), {}),
        "Attribution.picture": (attribution.picture, (), {"title": "x"}),
        "Attribution._repr_html_": (attribution._repr_html_, (), {}),
        "Attribution.to_csv": (attribution.to_csv, (), {}),
        "Attribution.to_json": (attribution.to_json, (), {}),
        "Attribution.to_pandas": (with_pandas(attribution.to_pandas), (), {}),
        "Attribution.__repr__": (attribution.__repr__, (), {}),
        "Part": (attend.Part, ("head", 0, 1, 2, 0.5), {}),
        "Part.__repr__": (part.__repr__, (), {}),
        "Lens": (attend.Lens, tuple(lens), {}),
        "Lens.to_pandas": (with_pandas(lens.to_pandas), (), {}),
        "Lens.picture": (lens.picture, (), {"most": 2, "title": "x"}),
        "Lens.to_csv": (lens.to_csv, (), {}),
        "Lens.to_json": (lens.to_json, (), {}),
        "Ablation": (attend.Ablation, tuple(ablation), {}),
        "Ablation.to_pandas": (with_pandas(ablation.to_pandas), (), {}),
        "Ablation.picture": (ablation.picture, (), {"change": "kl", "title": "x"}),
        "Ablation.to_csv": (ablation.to_csv, (), {}),
        "Ablation.to_json": (ablation.to_json, (), {}),
        "Patching": (attend.Patching, tuple(patching), {}),
        "Patching.to_pandas": (with_pandas(patching.to_pandas), (), {}),
        "Patching.picture": (patching.picture, (), {"title": "x"}),
        "Patching.to_csv": (patching.to_csv, (), {}),
        "Patching.to_json": (patching.to_json, (), {}),
        "Model.attribute": (decoder.attribute, ([1, 2, 3],), {
            "token": 7, "against": 8, "position": 1, "cache": cache, "decoder_ids": None, "features": None, "of": "logit", "types": None}),
        "Results": (attend.Results, ([ablation],), {}),
        "Results.average": (several.average, ({"a": (0, 2)},), {}),
        "Average": (attend.Average, (0.5, 0.5, 3), {}),
        "Average.__repr__": (several.average().__repr__, (), {}),
        "Model.lens": (decoder.lens, ([1, 2, 3],), {"positions": [0, 2], "top": 4, "decoder_ids": None}),
        "Model.ablate": (decoder.ablate, ([1, 2, 3],), {
            "token": 7, "against": 8, "rows": [1, 2], "heads": [(0, 1), (1, 0)], "set": "mean", "progress": float,
            "attention": "self", "decoder_ids": None, "first_row": 1, "cache": cache, "of": "logit", "types": None}),
        "Model.patch": (decoder.patch, ([1, 2, 3], [1, 4, 3], 7, 8), {
            "what": "residual", "position": 1, "progress": float, "attention": "self", "decoder_ids": None, "spans": {"a": (1, 2)},
            "first_row": 1, "clean_cache": cache, "corrupt_cache": None, "estimate": False}),
    }


def right_calls(np, torch):
    """name -> (what is called, arguments, keywords)."""
    import tiny_models
    import transformers

    import attend
    import attend.torch
    import attend.transformers
    import attend.widget
    random_numbers = np.random.default_rng(0)
    q, k, v = (random_numbers.standard_normal((1, heads, 5, 4), np.float32) for heads in (4, 2, 2))
    packed = [x[0].swapaxes(0, 1) for x in (q, k, v)]
    slopes, table = np.ones(4, np.float32), np.ones((4, 5), np.float32)
    options = {"causal": True, "window": (3, None), "offset": 0, "softcap": 5.0, "scale": 0.5, "dropout": (0.1, 7),
               "mask": np.ones((5, 5), bool), "bias": np.ones((5, 5), np.float32), "distance_bias": table,
               "alibi_slopes": slopes, "sinks": slopes}
    lengths, starts, gradients = {"key_lengths": [5]}, [[0, 2, 5], [0, 3, 5]], dict.fromkeys(
        ("dbias", "ddistance_bias", "dalibi_slopes", "dsinks"), True)
    out, lse = attend.attention(q, k, v, return_lse=True, **options)
    flat_out, flat_lse = attend.attention_varlen(*packed, *starts, return_lse=True, **options)
    cache = attend.KvCache(1, 2, 4, 4)
    cache.append(k, v)
    generator, trace = attend.Generator(1), attend.explain("the cat sat", heads=2)
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    steps, plan = attend.attention_steps(q, q, q), attend.plan(q, k, v)
    backward = attend.attention_backward(out, q, k, v, out, lse, **options)
    summary, scores = attend.attention_summary(q, k), attend.head_scores(q, k)[0]
    words, drawn = list("abcde"), attend.picture(steps.weights)
    json = """{"version": "1.0", "pre_tokenizer": {"type": "Digits", "individual_digits": true}, "model": {"type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}"""
    tokenizer = attend.Tokenizer(json)
    encoding = tokenizer.encode("ab")
    folder = tiny.write(MODEL_FOLDER.name)
    pathlib.Path(folder, "tokenizer.json").write_text(json)
    template = pathlib.Path(__file__).parents[1] / "golden/chat/chatml.jinja"
    chats = pathlib.Path(folder, "chats")  # beside: embed() refuses sentences where there is a template
    chats.mkdir(exist_ok=True)
    pathlib.Path(chats, "tokenizer.json").write_text(json)
    pathlib.Path(chats, "chat_template.jinja").write_text(template.read_text())
    chatting = attend.Tokenizer.load(chats)
    decoder = attend.Model.load(folder)
    hidden, model_cache = decoder.forward([1, 2, 3]), decoder.cache()
    decoder.forward([1, 2, 3], caches=[model_cache])
    both = attend.Model.load(tiny_models.written(pathlib.Path(folder, "both"), tiny_models.BOTH["bart"]))
    pathlib.Path(folder, "both", "tokenizer.json").write_text(json)
    model = transformers.BertModel(transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=4, intermediate_size=16, vocab_size=9)).eval()
    ids = torch.tensor([[1, 2, 3, 1, 2]])

    def record(*arguments, **keywords):
        with attend.transformers.record(*arguments, **keywords) as made:
            model(ids)
        return made

    recording = record(model, keep="qk")
    layer, page = recording[0], recording.show()
    vectors_file = pathlib.Path(folder, "vectors.npy")
    np.save(vectors_file, np.eye(3, 4, dtype=np.float32))
    vectors = attend.VectorFile(vectors_file)
    one = {"shape": (2, 3)}
    sizes = np.ones((q.shape[0], q.shape[1], k.shape[2]), lse.dtype)
    calls = {
        "attention": (attend.attention, (q, k, v), options | lengths | {"layout": "bhtd", "return_lse": True, "out": out.copy()}),
        "attention_steps": (attend.attention_steps, (q, k, v), options | lengths),
        "attention_backward": (attend.attention_backward, (out, q, k, v, out, lse), options | lengths | gradients | {
            "dlse": lse, "layout": "bhtd"}),
        "attention_varlen": (attend.attention_varlen, (*packed, *starts), options | {"return_lse": True}),
        "attention_varlen_backward": (attend.attention_varlen_backward, (
            flat_out, *packed, flat_out, flat_lse, *starts), options | gradients | {"dlse": flat_lse}),
        "scaled_dot_product_attention": (attend.scaled_dot_product_attention, (q, k, v, options["mask"], 0.0, False), {
            "scale": 0.5, "enable_gqa": True}),
        "attention_summary": (attend.attention_summary, (q, k, lse), options | lengths | {
            "layout": "bhtd", "lse_low": np.zeros_like(lse), "top": 3, "map": (2, 2), "key_sizes": sizes}),
        "attention_summary_varlen": (attend.attention_summary_varlen, (*packed[:2], flat_lse, *starts), options | {
            "lse_low": np.zeros_like(flat_lse), "top": 3, "map": (2, 2), "key_sizes": None}),
        "attention_weights": (attend.attention_weights, (q, k, lse), options | lengths | {
            "layout": "bhtd", "lse_low": np.zeros_like(lse), "queries": (0, 2), "keys": (1, 4), "pairs": None,
            "key_sizes": sizes}),
        "attention_map": (attend.attention_map, (q, k, lse), options | lengths | {
            "layout": "bhtd", "lse_low": np.zeros_like(lse), "blocks": (2, 2), "queries": (0, 3), "keys": (1, 4),
            "key_sizes": sizes}),
        "head_scores": (attend.head_scores, (q, k, lse), options | lengths | {
            "layout": "bhtd", "lse_low": np.zeros_like(lse), "tokens": [1, 2, 3, 1, 2], "key_sizes": sizes}),
        "key_sizes": (attend.key_sizes, (v, np.ones((6, q.shape[1] * v.shape[3]), v.dtype)), {}),
        "plan_summary": (attend.plan_summary, (q, k, "float32"), options | lengths | {"top": 3, "map": (2, 2), "has_lse": True}),
        "merge": (attend.merge, (out, lse, out, lse), {}),
        "plan": (attend.plan, (q, k, v, "float32"), options | lengths),
        "plan_backward": (attend.plan_backward, (q, k, v, "float32"), options | lengths | gradients),
        "explain": (attend.explain, ("the cat sat", None), {
            "second_text": "le chat", "seed": 1, "embedding_size": 8, "d_k": 4, "d_v": 4, "heads": 2, "weights": "linear",
            "causal": False, "positions": True, "scale": True, "window": None}),
        "explain_presets": (attend.explain_presets, (), {}),
        "num_threads": (attend.num_threads, (), {}),
        "set_num_threads": (attend.set_num_threads, (2,), {}),
        "KvCache": (attend.KvCache, (1, 2, 4, 4, "float32"), {}),
        "KvCache.append": (lambda *a, **o: cache.fork(5).append(*a, **o), (k, v), {}),
        "KvCache.truncate": (lambda *a, **o: cache.fork(5).truncate(*a, **o), (2,), {}),
        "KvCache.fork": (cache.fork, (2,), {}),
        "KvCache.attention": (cache.attention, (q,), options | lengths | {"return_lse": True}),
        "KvCache.attention_weights": (cache.attention_weights, (q, lse), options | lengths | {
            "lse_low": np.zeros_like(lse), "queries": (0, 2), "keys": (1, 3), "key_sizes": None}),
        "KvCache.keys": (cache.keys, (), {}),
        "KvCache.values": (cache.values, (), {}),
        "KvCache.__len__": (cache.__len__, (), {}),
        "KvCache.__repr__": (cache.__repr__, (), {}),
        "Generator": (attend.Generator, (5,), {}),
        "Generator.seed": (generator.seed, (5,), {}),
        "Generator.rand": (generator.rand, ((2, 3), "float32"), {}),
        "Generator.randn": (generator.randn, ((2, 3), "float64"), {}),
        "Generator.uniform": (generator.uniform, ((2, 3), 0.0, 1.0, "float32"), {}),
        "Generator.normal": (generator.normal, ((2, 3), 0.0, 1.0, "float32"), {}),
        **{f"Generator.{name}": (getattr(generator, name), (), one)
           for name in ("kaiming_uniform", "xavier_uniform", "xavier_normal")},
        "Trace.to_text": (trace.to_text, (), {"width": 60, "colour": True, "focus": 1, "head": 1, "all": True}),
        "Trace.to_html": (trace.to_html, (), {"focus": 1, "head": 1, "all": True}),
        "Trace.to_svg": (trace.to_svg, (), {"head": 1}),
        "Trace.to_png": (trace.to_png, (), {"head": 1}),
        "Trace.save": (trace.save, ("cat.svg",), {}),
        **{f"Trace.{name}": (getattr(trace, name), (), {}) for name in ("to_json", "_repr_html_", "__str__", "__repr__")},
        "picture": (attend.picture, (steps.weights,), {
            "rows": words, "columns": words, "scale": "sqrt", "title": "x", "mask": options["mask"], "queries": (0, 5),
            "keys": (0, 5), "reduction": "x", "low": 0.0, "high": 1.0}),
        "token_strip": (attend.token_strip, (words, summary.lift[0, 0]), {
            "name": "lift", "title": "x", "scale": "log", "low": 0.0, "high": 1.0}),
        "head_grid": (attend.head_grid, (steps.weights,), {
            "rows": ["0"], "columns": list("0123"), "scale": "linear", "title": "x", "mask": options["mask"], "queries": (0, 5),
            "keys": (0, 5), "reduction": "x", "low": 0.0, "high": 1.0}),
        "token_links": (attend.token_links, (summary.top_keys[0, 0], summary.top_weights[0, 0]), {
            "rows": words, "columns": words, "scale": "linear", "title": "x", "low": 0.0, "high": 1.0}),
        "Picture.to_text": (drawn.to_text, (), {"width": 60, "colour": True}),
        "Picture.save": (drawn.save, ("cat.svg",), {}),
        **{f"Picture.{name}": (getattr(drawn, name), (), {}) for name in ("to_svg", "to_png", "__str__", "__repr__")},
        **{type(each).__name__: (type(each), (), {}) for each in (steps, plan, backward, trace, summary, scores, drawn)},
        "HeadScores.__repr__": (scores.__repr__, (), {}),
        "HeadScores.has_label": (scores.has_label, ("sink",), {}),
        "WithoutSink": (attend.WithoutSink, (), {}),
        "AttentionPlan.__repr__": (plan.__repr__, (), {}),
        "Tokenizer": (attend.Tokenizer, (json,), {}),
        "Tokenizer.load": (attend.Tokenizer.load, (TOKENIZER_FILE,), {}),
        "Tokenizer.encode": (tokenizer.encode, ("ab", "ba", True), {}),
        "Tokenizer.decode": (tokenizer.decode, ([0, 2], True), {}),
        "Tokenizer.chat": (chatting.chat, ([{"role": "user", "content": "Hi"}], True), {}),
        "Tokenizer.id": (tokenizer.id, ("ab",), {}),
        "Tokenizer.token": (tokenizer.token, (2,), {}),
        **{f"Tokenizer.{name}": (getattr(tokenizer, name), (), {}) for name in ("__len__", "__repr__")},
        "Encoding": (attend.Encoding, (), {}),
        **{f"Encoding.{name}": (getattr(encoding, name), (), {}) for name in ("__len__", "__repr__")},
        "Model": (attend.Model, (), {}),
        "Model.load": (attend.Model.load, (folder, "bfloat16"), {}),
        **analysis_calls(attend, decoder, model_cache, np),
        "quantize": (attend.quantize, (GGUF_FILE, "x.gguf", "q4_0"), {}),
        "Model.load_tokenizer": (attend.Model.load_tokenizer, (folder,), {}),
        "Model.forward": (decoder.forward, ([1, 2, 3, 4],), {"edits": [attend.Edit(0, 1), attend.Edit(1, at="mlp")],
            "starts": [0, 1, 4], "types": None, "caches": [decoder.cache(), decoder.cache()], "keep": ["mlp", ("z", 0)],
            "observe": lambda at, layer, values: None}),
        "Model.encoder_states": (both.encoder_states, ([1, 2, 3, 4],), {}),
        "Model.logits": (decoder.logits, (hidden,), {}),
        "Model.weights": (decoder.weights, (0, False), {}),
        "Model.means": (decoder.means, ([[1, 2, 3], [4]], ["z", ("mlp", 0)], True), {}),
        "Model.kept_bytes": (decoder.kept_bytes, (["z", ("mlp", 0)], 3), {}),
        "Model.weight": (decoder.weight, (decoder.weight_names[0],), {}),
        **task_calls(attend),
        **vector_calls(attend, np),
        **chat_calls(attend),
        "Model.embed": (decoder.embed, (["the cat", "sat"], "the ", True, True, True), {"progress": lambda share: None}),
        "Model.cache": (decoder.cache, ("int8",), {}),
        "Model.generate": (decoder.generate, ([[1, 2, 3], [4]],), {"max_new_tokens": 3, "temperature": 0.5, "top_k": 5, "top_p": 0.9,
            "seed": 7, "end": [2], "on_token": lambda prompt, id: True, "min_p": 0.1, "sequence_bias": {(1, 2): 0.5},
            "repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "bad_words_ids": [[5], [6, 7]], "min_length": 1, "min_new_tokens": 1,
            "suppress_tokens": [8], "begin_suppress_tokens": [9], "forced_bos_token_id": 3, "forced_eos_token_id": 4}),
        "Model.record": (decoder.record, ([1, 2, 3],), {
            "types": None, "max_new_tokens": 2, "top": 2, "map": (3, 3), "keep": "qk", "budget": 2**20}),
        "Model.show": (decoder.show, ("ab",), {
            "live": False, "second": None, "why": None, "against": None, "chat": False, "budget": 2**24, "strict": False}),
        "Model.__repr__": (decoder.__repr__, (), {}),
        "ModelCache": (attend.ModelCache, (), {}),
        "ModelCache.truncate": (lambda *a, **o: model_cache.fork().truncate(*a, **o), (2,), {}),
        **{f"ModelCache.{name}": (getattr(model_cache, name), (), {}) for name in ("fork", "__len__", "__repr__")},
        "ModelInfo": (attend.ModelInfo, (), {}),
        "ModelInfo.__repr__": (decoder.info.__repr__, (), {}),
        "Recording": (attend.Recording, (), {}),
        "Recording.heads": (recording.heads, (0,), {}),
        "Recording.picture": (recording.picture, (0, [0], "sqrt", "x"), {}),
        "Recording.telling_heads": (recording.telling_heads, (3, 0), {}),
        "Recording.to_csv": (recording.to_csv, (0,), {}),
        "Recording.to_json": (recording.to_json, (0,), {}),
        "Recording.save": (recording.save, ("x.attend",), {}),
        "VectorFile": (attend.VectorFile, (vectors_file,), {}),
        "VectorFile.nearest_each": (vectors.nearest_each, (np.ones((2, 4), np.float32), 2), {}),
        "VectorFile.nearest": (vectors.nearest, (np.ones(4, np.float32), 2), {}),
        **{f"VectorFile.{name}": (getattr(vectors, name), (), {}) for name in ("__len__", "__repr__")},
        "Near": (attend.Near, (1, 0.5), {}),
        "Near.__repr__": (attend.Near(1, 0.5).__repr__, (), {}),
        "Recording.show": (recording.show, ("0.1", 0, 2**24, False), {}),
        "Page": (attend.Page, (), {}),
        "Page.save": (page.save, ("x.html",), {}),
        **{f"Page.{name}": (getattr(page, name), (), {}) for name in ("_repr_html_", "__repr__")},
        **{f"Recording.{name}": (getattr(recording, name), (), {}) for name in ("__len__", "__repr__")},
        "RecordedLayer": (attend.RecordedLayer, (recording, 0), {}),
        "RecordedLayer.top": (layer.top, (0, 1, 0), {}),
        "RecordedLayer.weights": (layer.weights, (0,), {"queries": (0, 3), "keys": (1, 4), "item": 0}),
        "RecordedLayer.steps": (layer.steps, (0, 0), {"queries": (0, 3), "keys": (1, 4), "values": None}),
        "RecordedLayer.picture": (layer.picture, (0, (0, 3), (1, 4), 0, "log", "x"), {}),
        "RecordedLayer.head_name": (layer.head_name, (0,), {}),
        "RecordedLayer.strip": (layer.strip, (0, "lift", 0, "log", "x"), {}),
        "RecordedLayer.links": (layer.links, (0, (1, 3), 0, "log", "x"), {}),
        "RecordedLayer.__repr__": (layer.__repr__, (), {}),
        "onnx.attention": (attend.onnx.attention, (q, k, v, options["mask"], k, v, None), {
            "is_causal": 0, "kv_num_heads": 2, "left_window_size": -1, "q_num_heads": 4, "qk_matmul_output_mode": 2,
            "right_window_size": 3, "scale": 0.5, "softcap": 1.0, "softmax_precision": 1, "return_qk_matmul_output": True}),
        "torch.attention": (attend.torch.attention, tensors, {
            name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in options.items()}),
        "torch.scaled_dot_product_attention": (attend.torch.scaled_dot_product_attention, tensors, {
            "attn_mask": torch.ones(5, 5, dtype=torch.bool), "dropout_p": 0.0, "is_causal": False, "scale": 0.5, "enable_gqa": True}),
        "torch.replace_sdpa": (lambda *a: attend.torch.replace_sdpa(*a).__exit__(), (), {}),
        "torch.restore_sdpa": (attend.torch.restore_sdpa, (), {}),
        "torch.ring_attention": (attend.torch.ring_attention, tensors, {
            name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in options.items()} | lengths | {
                "group": None, "sharding": "zigzag", "return_lse": True}),
        "torch.ring_shard": (attend.torch.ring_shard, (tensors[0], 2), {"group": None, "sharding": [[(0, 3), (3, 5)]]}),
        "torch.ring_sum": (attend.torch.ring_sum, (torch.ones(3),), {"group": None}),
        "torch.ring_unshard": (attend.torch.ring_unshard, (tensors[0], 2), {"group": None, "sharding": [[(0, 3), (3, 5)]]}),
        "transformers.QuantizedCache": (attend.transformers.QuantizedCache, (transformers.LlamaConfig(num_hidden_layers=2),), {}),
        "transformers.record": (record, (model,), {
            "top": 2, "map": (3, 3), "keep": None, "layers": [0], "heads": [1, 2], "budget": "1 MiB"}),
        "transformers.register": (attend.transformers.register, (), {}),
        "widget.Widget": (lambda *a, **k: attend.widget.Widget(*a, **k).close(), (trace,), {"height": "30em"}),
    }
    return {f"attend.{name}": call for name, call in calls.items()}


def allowed(name):
    """What may come out of it, by docs/python.md and its docstring."""
    kinds = [TypeError, ValueError, MemoryError, Strange]
    if name in ("attend.Tokenizer", "attend.Tokenizer.load", "attend.Model.load", "attend.Model.load_tokenizer", "attend.Trace.save",
                "attend.Picture.save", "attend.Page.save", "attend.Recording.save",
                "attend.Model.show", "attend.quantize", "attend.VectorFile", "attend.TokenVectorFile", "attend.TokenVectorFile.write",
                "attend.Steering.load", "attend.Steering.save",
                "attend.SparseAutoencoder.load", "attend.JacobianLens.load", "attend.JacobianLens.save", "attend.JacobianLens.from_torch",
                "attend.JacobianLens.to_torch"):
        kinds.append(OSError)
    if name == "attend.torch.scaled_dot_product_attention":  # PyTorch's errors where PyTorch computes
        kinds += [RuntimeError, IndexError, NotImplementedError]
    if name == "attend.Results":  # a list: what going through an object raises, as a memoryview of two axes does
        kinds += [NotImplementedError, RuntimeError]  # the latter of torch's nested tensors
    return tuple(kinds)


def spoiled(dice, arguments, keywords, np, torch):
    """The arguments with garbage in one place or some, or nothing but garbage."""
    arguments, keywords = list(arguments), {name: each for name, each in keywords.items() if dice.randrange(4) == 0}
    places = [*range(len(arguments)), *keywords]
    count = dice.choice((0, 1, 1, 1, 2, len(places)))
    for place in dice.sample(places, min(count, len(places))):
        (arguments if isinstance(place, int) else keywords)[place] = garbage(dice, np, torch)
    if dice.randrange(10) == 0:
        arguments.append(garbage(dice, np, torch))
    if dice.randrange(20) == 0:
        keywords[dice.choice(["nothing", "\udcff", "out", "dtype", "mask"])] = garbage(dice, np, torch)
    return arguments, keywords


def finding(seed, calls, running, np, torch):
    """What is wrong with the call of this seed; "" where nothing is."""
    dice = random.Random(seed)
    name = dice.choice(sorted(calls))
    function, arguments, keywords = calls[name]
    arguments, keywords = spoiled(dice, arguments, keywords, np, torch)
    running.seek(0)
    running.truncate()
    running.write(f"{seed} {name}")
    running.flush()
    try:
        function(*arguments, **keywords)
    except allowed(name) as error:
        if isinstance(error, UnicodeError):  # a decoder's or encoder's, which nobody asked for
            return f"{seed} {name}: {type(error).__name__}: {error}"
    except BaseException as error:
        return f"{seed} {name}: {type(error).__name__}: {error}"
    return ""


def main(first, count, running):
    """Calls of count seeds, or without end where it is 0."""
    import numpy as np
    import torch
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))  # what asks for more gets MemoryError
    calls = right_calls(np, torch)
    found = (finding(seed, calls, running, np, torch) for seed in (
        itertools.count(first) if count == 0 else range(first, first + count)))
    found = list(itertools.islice(filter(None, found), 1 if count == 0 else 20))
    print("\n".join(found))
    return 1 if found else 0


def test_everything_public_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import numpy as np
    import torch
    assert set(public_names()) == right_calls(np, torch).keys()
    torch.distributed.destroy_process_group()


def test_garbage_gives_documented_exceptions(request):
    endless = request.config.getoption("--fuzz")
    first = random.SystemRandom().randrange(2**48) if endless else 0
    with tempfile.TemporaryDirectory() as folder:
        running = pathlib.Path(folder) / "running"
        command = [sys.executable, __file__, str(first), str(0 if endless else CALLS), str(running)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}\nlast: {running.read_text()}\n{done.stderr[-2000:]}"


if __name__ == "__main__":
    with open(sys.argv[3], "w") as file:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), file))
