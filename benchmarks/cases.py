"""What is measured: the cases, their useful work, and their inputs."""

import dataclasses
import pathlib
import re

import numpy as np


@dataclasses.dataclass(frozen=True)
class Attention:
    B: int
    H: int
    Tq: int
    Tk: int
    D: int
    dtype: str = "f32"
    Hkv: int = 0  # 0: H
    causal: bool = False
    window: tuple = ()  # (left, right)
    offset: int | None = None
    mask: str = ""  # "causal", or "sprinkled": one pair in 16 hidden at random; [1,1,Tq,Tk]
    bias: bool = False  # [1,H,Tq,Tk]
    alibi: bool = False
    softcap: float = 0
    sinks: bool = False
    lengths: bool = False  # key_lengths, all Tk
    documents: tuple = ()  # lengths of the sequences that Tq and Tk hold one after another
    arrays: str = ""  # from Python: "numpy" or "torch"
    backward: bool = False  # the gradients of q, k and v, given out and lse
    flex: bool = False  # PyTorch's worker takes FlexAttention
    summary: bool = False  # attention_summary() with top 8 and a map of 256 x 256, given lse

    kind = "attention"

    def spec(self):
        """As the workers read it."""
        spec = {"kind": self.kind, "B": self.B, "H": self.H, "Hkv": self.Hkv or self.H, "Tq": self.Tq, "Tk": self.Tk,
                "D": self.D, "dtype": self.dtype, "causal": self.causal, "softcap": self.softcap, "backward": self.backward,
                "flex": self.flex, "summary": self.summary}
        if self.window:
            spec["window"] = list(self.window)
        if self.documents:
            spec["documents"] = list(self.documents)
        if self.offset is not None:
            spec["offset"] = self.offset
        if self.arrays:
            spec["arrays"] = self.arrays
        return spec

    def visible_pairs(self, inputs=None):
        """Pairs of a query and a key that it sees, exactly: T (T + 1) / 2 for a causal square."""
        if self.mask:
            return self.B * self.H * int(np.count_nonzero(inputs["mask"]))
        if self.documents:
            return self.B * self.H * sum(length**2 for length in self.documents)
        i = np.arange(self.Tq) + (self.offset or 0)
        low, high = np.zeros_like(i), np.full_like(i, self.Tk - 1)
        if self.window and self.window[0] >= 0:
            low = np.maximum(low, i - self.window[0])
        if self.window and self.window[1] >= 0:
            high = np.minimum(high, i + self.window[1])
        if self.causal:
            high = np.minimum(high, i)
        return self.B * self.H * int(np.maximum(high - low + 1, 0).sum())

    def work(self, inputs=None):
        """Useful FLOPs (two products forward, five backward, one for a summary), and the bytes of keys and values, which a
        decode step must read."""
        return {"flops": (10 if self.backward else 2 if self.summary else 4) * self.D * self.visible_pairs(inputs),
                "bytes": 2 * self.B * (self.Hkv or self.H) * self.Tk * self.D * (4 if self.dtype == "f32" else 2)}

    def inputs(self):
        random, normal = draws(self.dtype)
        Hkv = self.Hkv or self.H
        made = {"q": normal(self.B, self.H, self.Tq, self.D), "k": normal(self.B, Hkv, self.Tk, self.D),
                "v": normal(self.B, Hkv, self.Tk, self.D)}
        if self.backward:
            made["dout"] = normal(self.B, self.H, self.Tq, self.D)
        if self.mask == "causal":
            made["mask"] = np.tri(self.Tq, self.Tk, dtype=bool)[None, None]
        if self.mask == "sprinkled":
            made["mask"] = random.integers(16, size=(1, 1, self.Tq, self.Tk), dtype=np.uint8) > 0
        if self.bias:
            made["bias"] = random.standard_normal((1, self.H, self.Tq, self.Tk), dtype=np.float32)
        if self.alibi:
            made["alibi_slopes"] = (2.0 ** (-8 * np.arange(1, self.H + 1) / self.H)).astype(np.float32)
        if self.sinks:
            made["sinks"] = np.zeros(self.H, dtype=np.float32)
        if self.lengths:
            made["key_lengths"] = np.full(self.B, self.Tk, dtype=np.int64)
        if self.documents:
            made["query_starts"] = made["key_starts"] = np.cumsum((0, *self.documents), dtype=np.int64)
        return made


@dataclasses.dataclass(frozen=True)
class Cached:
    """One step of decoding: each sequence has a query for each head, and keys and values in a KvCache of its own."""

    H: int
    Hkv: int
    D: int
    lengths: tuple
    dtype: str = "f32"  # of the queries
    cache: str = ""  # the dtype of the caches; "": the same

    kind = "cached"

    def spec(self):
        return {"kind": self.kind, "dtype": self.dtype, "cache": self.cache or self.dtype, "lengths": list(self.lengths)}

    def work(self, inputs=None):
        element, scale = {"f32": (4, 0), "bf16": (2, 0), "i8": (1, 4)}[self.cache or self.dtype]
        keys = sum(self.lengths)
        return {"flops": 4 * self.D * self.H * keys, "bytes": 2 * self.Hkv * keys * (self.D * element + scale)}

    def inputs(self):
        _, normal = draws(self.dtype)
        keys = sum(self.lengths)
        return {"q": normal(len(self.lengths), self.H, 1, self.D), "k": normal(1, self.Hkv, keys, self.D),
                "v": normal(1, self.Hkv, keys, self.D)}


@dataclasses.dataclass(frozen=True)
class Linear:
    rows: int
    in_size: int
    out_size: int
    dtype: str = "f32"

    kind = "linear"

    def spec(self):
        return {"kind": self.kind, "dtype": self.dtype}

    def work(self, inputs=None):
        return {"flops": 2 * self.rows * self.in_size * self.out_size}

    def inputs(self):
        _, normal = draws(self.dtype)
        return {"x": normal(self.rows, self.in_size), "weight": normal(self.out_size, self.in_size),
                "bias": normal(self.out_size)}


@dataclasses.dataclass(frozen=True)
class MultiHead:
    """Self-attention of one sequence: four projections and attention."""

    T: int
    E: int
    heads: int
    dtype: str = "f32"

    kind = "layer"

    def spec(self):
        return {"kind": self.kind, "heads": self.heads, "dtype": self.dtype}

    def work(self, inputs=None):
        return {"flops": 8 * self.T * self.E**2 + 4 * self.T**2 * self.E}

    def inputs(self):
        random, normal = draws(self.dtype)
        uniform = lambda *shape: held_by(self.dtype, random.uniform(-1, 1, shape).astype(np.float32) * (3 / self.E) ** 0.5)
        return {"x": normal(1, self.T, self.E), "in_proj_weight": uniform(3 * self.E, self.E), "in_proj_bias": normal(3 * self.E),
                "out_proj.weight": uniform(self.E, self.E), "out_proj.bias": normal(self.E)}


@dataclasses.dataclass(frozen=True)
class Model:
    """A Hugging Face model, from Python. A call is the whole input, or its last `new` tokens one after the other; to
    train: forward and backward."""

    model: str  # "MiniLM" with its weights, or "Llama" with random ones
    phase: str  # "encode", "prefill", "decode", "train"
    B: int
    T: int
    new: int = 0
    width: int = 512
    layers: int = 8
    H: int = 8
    Hkv: int = 2
    dtype: str = "f32"
    attention: str = "attend"  # or "sdpa", "eager"
    recorded: bool = False  # by attend.transformers.record()

    kind = "model"

    def spec(self):
        return dataclasses.asdict(self) | {"kind": self.kind}

    def work(self, inputs=None):
        return {"tokens": self.B * (self.new or self.T)}

    def inputs(self):
        return {"ids": np.random.default_rng(1).integers(1000, size=(self.B, self.T))}


# Numbers of SmolLM2-135M's weights, each of which a token reads (its embeddings are the output's weights too); and of a token's keys
# and values in all layers.
SMOLLM2_WEIGHTS, SMOLLM2_TOKEN = 134_515_008, 2 * 30 * 3 * 64


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model with its weights, as attend.Model, Transformers and the runtimes compute it."""

    model: str  # "MiniLM", "SmolLM2-135M"
    phase: str  # "encode", "prefill", "decode", "open" (and compute a few tokens)
    B: int
    T: int
    new: int = 0
    dtype: str = "f32"
    folder: str = ""  # of the weights; "": the package that has MiniLM's

    kind = "pretrained"

    def spec(self):
        return dataclasses.asdict(self) | {"kind": self.kind}

    def work(self, inputs=None):
        """Tokens, and the bytes that decoding must read: all weights once for each, and the keys and values before it."""
        keys = sum(range(self.T - self.new + 1, self.T + 1))
        numbers = self.new * SMOLLM2_WEIGHTS + keys * SMOLLM2_TOKEN
        return {"tokens": self.B * (self.new or self.T), "bytes": numbers * (4 if self.dtype == "f32" else 2)}

    def inputs(self):
        return {"ids": np.random.default_rng(1).integers(1000, size=(self.B, self.T))}


def draws(dtype):
    """A generator, the same every time, and what draws an array from N(0,1) with it, of numbers that the dtype holds."""
    random = np.random.default_rng(1)
    return random, lambda *shape: held_by(dtype, random.standard_normal(shape, dtype=np.float32))


def held_by(dtype, x):
    """The nearest numbers that the dtype holds, as f32."""
    if dtype == "f16":
        return x.astype(np.float16).astype(np.float32)
    if dtype == "bf16":  # round to nearest even in the upper half
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return x


@dataclasses.dataclass(frozen=True)
class Entry:
    """One thing that is timed in each round of its group: a case by a worker, or a roof."""

    key: str  # "attend f32", "PyTorch bf16", "attend f32, 1 thread", "roof fma"
    worker: str = "attend"
    case: Attention | Cached | Linear | MultiHead | Model | Pretrained | None = None
    roof: str = ""
    one_thread: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """Entries that are compared with each other, and so are measured in the same rounds."""

    name: str
    # "table", "decode", "caches", "tokens", "head sizes", "options", "flex", "linear", "layer", "models", "pretrained", "backward",
    # "summaries"
    section: str
    entries: tuple
    reference: str = ""  # the entry whose output the others must agree with; "": they compute different things


# The name of a case, and its shape.
TABLE = {
    "128, 96 heads": Attention(8, 12, 128, 128, 64),
    "197 tokens": Attention(16, 12, 197, 197, 64),
    "512": Attention(1, 12, 512, 512, 64),
    "1024 causal": Attention(1, 12, 1024, 1024, 64, causal=True),
    "2048x128 causal": Attention(1, 8, 2048, 2048, 128, causal=True),
    "8192 causal": Attention(1, 4, 8192, 8192, 64, causal=True),
    "8192": Attention(1, 4, 8192, 8192, 64),
    "8192x128": Attention(1, 2, 8192, 8192, 128),
    "image x text": Attention(1, 8, 4096, 77, 40),
}
DECODE = {
    "decode 4096": Attention(1, 32, 1, 4096, 128, Hkv=8),
    "decode 32768": Attention(1, 32, 1, 32768, 128, Hkv=8),
}
# Query heads for each key head.
GROUPS = {"one head": 1, "four heads": 4}
RAGGED = Cached(32, 8, 128, tuple(100 + 7900 * n * n // 225 for n in range(16)))  # 16 sequences of 100 to 8,000 keys
BACKWARD = {f"backward {name}": dataclasses.replace(TABLE[name], backward=True)
            for name in ("128, 96 heads", "512", "1024 causal", "2048x128 causal", "8192 causal", "8192")}
SUMMARIES = {"summary 4096 causal": Attention(1, 8, 4096, 4096, 64, causal=True),
             "summary 1024 causal": Attention(1, 12, 1024, 1024, 64, causal=True)}
TOKENS = {"6 tokens": Attention(1, 3, 6, 6, 24)}
BACKWARD_MEMORY = "backward, 65536 queries and keys"
SUMMARY_MEMORY = "summary, 131072 queries and keys"
# The big ones; the memory-bound and the short ones gain less from a second thread.
ONE_THREAD = ("512", "1024 causal", "2048x128 causal", "8192 causal", "8192", "8192x128")

HEAD_SIZES = {40: 64, 72: 64, 80: 64, 96: 128, 160: 128, 256: 128}  # each with the size that it is compared with
OPTIONS = {
    "mask: causal as bool": {"mask": "causal"},
    "mask: 1 in 16 hidden": {"mask": "sprinkled"},
    "bias": {"bias": True},
    "ALiBi": {"alibi": True},
    "softcap": {"softcap": 30.0},
    "window 256 causal": {"window": (256, 0), "causal": True},
}
# What FlexAttention compiles; of these, PyTorch's own function has causal alone.
FLEX = {
    "causal": {"causal": True},
    "window 256 causal": {"window": (256, 0), "causal": True},
    "ALiBi": {"alibi": True},
    "softcap": {"softcap": 30.0},
    "documents": {"documents": (1900, 100, 700, 396, 1000)},
}
LINEAR = {"512x768x768": Linear(512, 768, 768), "128x3072x768": Linear(128, 3072, 768)}
LAYERS = {"512x768, 12 heads": MultiHead(512, 768, 12), "2048x1024, 16 heads": MultiHead(2048, 1024, 16)}

MODELS = {
    "MiniLM, 8 x 128 tokens": Model("MiniLM", "encode", 8, 128),
    "Llama, prefill 2048": Model("Llama", "prefill", 1, 2048),
    "Llama, decode 128 after 2048": Model("Llama", "decode", 1, 2048 + 128, new=128),
    "Llama, train 2048": Model("Llama", "train", 1, 2048),
}
IMPLEMENTATIONS = ("attend", "sdpa", "eager")

PRETRAINED = {
    "attend.Model: MiniLM, 8 x 128 tokens": Pretrained("MiniLM", "encode", 8, 128),
    "attend.Model: MiniLM, opened": Pretrained("MiniLM", "open", 1, 8),
    "attend.Model: SmolLM2-135M, prefill 1024": Pretrained("SmolLM2-135M", "prefill", 1, 1024),
    "attend.Model: SmolLM2-135M, decode 32 after 1024": Pretrained("SmolLM2-135M", "decode", 1, 1024 + 32, new=32),
    "attend.Model: SmolLM2-135M, opened": Pretrained("SmolLM2-135M", "open", 1, 8),
}

PEERS = {"PyTorch": ("f32", "bf16"), "ONNX Runtime": ("f32",), "OpenVINO": ("f32", "bf16")}
RUNTIMES = ("ONNX Runtime", "OpenVINO")  # those that compute MiniLM from a file, too


def typed(case, dtype):
    return dataclasses.replace(case, dtype=dtype)


def shape_group(name, section, case, roofs):
    entries = [Entry(f"attend {dtype}", case=typed(case, dtype)) for dtype in ("f32", "bf16", "f16")]
    if name in ONE_THREAD:
        entries += [Entry(f"attend {dtype}, 1 thread", case=typed(case, dtype), one_thread=True) for dtype in ("f32", "bf16")]
    if section == "tokens":
        entries += [Entry(f"attend from {arrays}", "attend in Python", dataclasses.replace(case, arrays=arrays))
                    for arrays in ("numpy", "torch")]
    for peer, dtypes in PEERS.items():
        entries += [Entry(f"{peer} {dtype}", peer, typed(case, dtype)) for dtype in dtypes]
    return Group(name, section, tuple(entries + [Entry(f"roof {roof}", roof=roof) for roof in roofs]), "attend f32")


def cache_group(name, heads):
    """A KvCache of 8 bits beside one of bf16."""
    case = Cached(8 * heads, 8, 128, (32768,), "bf16")
    entries = [Entry("attend bf16", case=case)]
    entries += [Entry(f"attend i8, queries in {dtype}", case=dataclasses.replace(case, dtype=dtype, cache="i8"))
                for dtype in ("bf16", "f32")]
    return Group(f"cache of 32768 keys, {name} a key head", "caches", (*entries, Entry("roof read", roof="read")))


def ragged_group():
    entries = [Entry(f"{who} {dtype}", who, typed(RAGGED, dtype)) for who in ("attend", "PyTorch") for dtype in ("f32", "bf16")]
    entries.insert(2, Entry("attend i8", case=dataclasses.replace(RAGGED, dtype="bf16", cache="i8")))
    return Group("16 caches", "caches", (*entries, Entry("roof read", roof="read")), "attend f32")


def backward_group(name, case):
    entries = [Entry(f"{who} {dtype}", who, typed(case, dtype)) for who in ("attend", "PyTorch") for dtype in ("f32", "bf16")]
    return Group(name, "backward", tuple(entries + [Entry(f"roof {roof}", roof=roof) for roof in ("fma", "bf16")]), "attend f32")


def summary_group(name, case):
    """A summary beside the forward, and beside PyTorch's from the whole matrix of weights."""
    entries = [Entry(f"{what} {dtype}", worker, dataclasses.replace(case, dtype=dtype, summary=what != "forward"))
               for what, worker in (("forward", "attend"), ("attend", "attend"), ("PyTorch", "PyTorch")) for dtype in ("f32", "bf16")]
    return Group(name, "summaries", tuple(entries))


def head_size_group(dtype):
    sizes = sorted({*HEAD_SIZES, *HEAD_SIZES.values()})
    entries = [Entry(f"attend D {D}", case=Attention(1, 8, 1024, 1024, D, dtype)) for D in sizes]
    return Group(f"head sizes {dtype}", "head sizes", tuple(entries))


def option_group(dtype):
    plain = Attention(1, 4, 4096, 4096, 64, dtype)
    entries = [Entry("attend unmasked", case=plain)]
    entries += [Entry(f"attend {name}", case=dataclasses.replace(plain, **change)) for name, change in OPTIONS.items()]
    return Group(f"options {dtype}", "options", tuple(entries))


def flex_group(name, change):
    case = Attention(1, 4, 4096, 4096, 64, flex=True, **change)
    entries = [Entry(f"{who} {dtype}", worker, typed(case, dtype))
               for who, worker in (("attend", "attend"), ("FlexAttention", "PyTorch")) for dtype in ("f32", "bf16")]
    return Group(f"flex {name}", "flex", tuple(entries), "attend f32")


def layer_group(section, name, case, dtype):
    entries = (Entry("attend", case=typed(case, dtype)), Entry("PyTorch", "PyTorch", typed(case, dtype)),
               Entry("roof", roof="bf16" if dtype == "bf16" else "fma"))
    return Group(f"{section} {name} {dtype}", section, entries, "attend")


def model_group(name, case, dtype):
    entries = [Entry(each, "attend in Python", dataclasses.replace(case, dtype=dtype, attention=each)) for each in IMPLEMENTATIONS]
    if case.phase in ("encode", "prefill"):
        entries.append(Entry("recorded", "attend in Python", dataclasses.replace(case, dtype=dtype, recorded=True)))
    return Group(f"{name}, {dtype}", "models", tuple(entries), "eager")


def pretrained_group(name, case, dtype):
    case = typed(case, dtype)
    entries = [Entry("attend", "attend.Model", case), Entry("Transformers", "attend in Python", case)]
    if case.phase == "encode":
        entries += [Entry(peer, peer, case) for peer in RUNTIMES if dtype in PEERS[peer]]
    roofs = [Entry("roof read", roof="read")] if case.phase == "decode" else []
    return Group(f"{name}, {dtype}", "pretrained", (*entries, *roofs), "Transformers")


def groups():
    made = [shape_group(name, "table", case, ("fma", "bf16")) for name, case in TABLE.items()]
    made += [shape_group(name, "decode", case, ("read",)) for name, case in DECODE.items()]
    made += [*(cache_group(name, heads) for name, heads in GROUPS.items()), ragged_group()]
    made += [shape_group(name, "tokens", case, ()) for name, case in TOKENS.items()]
    made += [backward_group(name, case) for name, case in BACKWARD.items()]
    made += [summary_group(name, case) for name, case in SUMMARIES.items()]
    made += [head_size_group(dtype) for dtype in ("f32", "bf16")]
    made += [option_group(dtype) for dtype in ("f32", "bf16")]
    made += [flex_group(name, change) for name, change in FLEX.items()]
    for section, of in ("linear", LINEAR), ("layer", LAYERS):
        made += [layer_group(section, name, case, dtype) for name, case in of.items() for dtype in ("f32", "bf16")]
    made += [model_group(name, case, dtype) for name, case in MODELS.items() for dtype in ("f32", "bf16")]
    return made + [pretrained_group(name, case, dtype) for name, case in PRETRAINED.items() for dtype in ("f32", "bf16")]


def memory_cases():
    few = Attention(1, 1, 512, 131072, 64)
    last = few.Tk - few.Tq
    changes = {
        "plain": {}, "bf16": {"dtype": "bf16"}, "f16": {"dtype": "f16"},
        "causal": {"causal": True, "offset": last}, "window 256": {"window": (256, 256), "offset": last},
        "mask": {"mask": "sprinkled"}, "bias": {"bias": True}, "ALiBi": {"alibi": True, "offset": last},
        "softcap": {"softcap": 30.0}, "sinks": {"sinks": True}, "key lengths": {"lengths": True},
        "one query, 8 heads on 1": {"Tq": 1, "H": 8, "Hkv": 1},
        "131072 queries, window 256 causal": {"Tq": 131072, "window": (256, 0), "causal": True},
        "131072 queries, window 256 causal, bf16": {"Tq": 131072, "window": (256, 0), "causal": True, "dtype": "bf16"},
        BACKWARD_MEMORY: {"Tq": 65536, "Tk": 65536, "backward": True},
        SUMMARY_MEMORY: {"Tq": 131072, "causal": True, "summary": True},
    }
    return {f"memory: {name}": dataclasses.replace(few, **change) for name, change in changes.items()}


def small(case):
    """A case for --quick: the same options, next to no work."""
    if case.kind == "linear":
        return dataclasses.replace(case, rows=8, in_size=32, out_size=16)
    if case.kind == "layer":
        return dataclasses.replace(case, T=8, E=32, heads=2)
    if case.kind == "pretrained":
        return dataclasses.replace(case, B=1, T=12, new=min(case.new, 4))
    if case.kind == "model":
        return dataclasses.replace(case, B=1, T=12, new=min(case.new, 4), width=32, layers=2, H=4, Hkv=2)
    if case.kind == "cached":
        return dataclasses.replace(case, H=case.H // case.Hkv * 2, Hkv=2, D=16, lengths=tuple(min(n, 40) for n in case.lengths))
    if case.documents:
        case = dataclasses.replace(case, documents=(30, 1, 9))
    heads = {"H": 4, "Hkv": 1} if case.Hkv not in (0, case.H) else {"H": 2}
    short = dataclasses.replace(case, B=1, Tq=min(case.Tq, 40), Tk=min(case.Tk, 48 if case.Tq != case.Tk else 40), **heads)
    return dataclasses.replace(short, offset=short.Tk - short.Tq) if case.offset is not None else short


def small_group(group):
    shrunk = tuple(dataclasses.replace(e, case=small(e.case)) if e.case else e for e in group.entries)
    return dataclasses.replace(group, entries=shrunk)


def with_weights(group, smollm2):
    """SmolLM2's cases with the folder of their weights: that of their dtype, where it has one for each."""
    def at(case):
        if case is None or case.kind != "pretrained" or case.model == "MiniLM":
            return case
        own = pathlib.Path(smollm2, case.dtype)
        return dataclasses.replace(case, folder=str(own if own.is_dir() else smollm2))

    return dataclasses.replace(group, entries=tuple(dataclasses.replace(e, case=at(e.case)) for e in group.entries))


def chosen(pattern, quick, smollm2):
    """The groups and memory cases whose name the pattern finds."""
    found = [with_weights(g, smollm2) for g in groups() if re.search(pattern, g.name)]
    found = [small_group(g) for g in found] if quick else found
    memory = {name: small(case) if quick else case for name, case in memory_cases().items() if re.search(pattern, name)}
    return found, memory
