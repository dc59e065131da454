"""Writes random_sizes.txt and random_sequences.txt: what PyTorch's CPU generator draws.

Run with torch 2.13.0, on an x86-64 machine with AVX2 and FMA:

    python tests/golden/make_random_golden.py

Each file is a log of calls, to be repeated in order on one generator:

    seed SEED
    CALL DTYPE SHAPE A B CHECKSUM [VALUE ...]

SHAPE is sizes joined by x; A and B are the numbers that uniform (low, high) and normal (mean, std) take, 0 elsewhere;
CHECKSUM is the 64-bit FNV-1a of the values' little-endian bytes; the values, where stored, are their bits in hexadecimal.
"""

import math
from pathlib import Path

import torch

HERE = Path(__file__).parent
SEEDS = [0, 123, 42, 2**63 + 5]
DTYPES = {"f32": (torch.float32, torch.int32, 8), "f64": (torch.float64, torch.int64, 16)}


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


class Log:
    def __init__(self):
        self.lines = []

    def seed(self, seed):
        torch.manual_seed(seed)
        self.lines.append(f"seed {seed}")

    def add(self, call, tensor, a=0.0, b=0.0, store=True):
        tensor = tensor.detach().contiguous()
        dtype = {torch.float32: "f32", torch.float64: "f64"}[tensor.dtype]
        _, integer, digits = DTYPES[dtype]
        shape = "x".join(str(size) for size in tensor.shape)
        bits = tensor.view(integer).flatten().tolist()
        words = [f"{word % 16**digits:0{digits}x}" for word in bits] if store else []
        checksum = fnv1a(tensor.numpy().tobytes())
        self.lines.append(" ".join([call, dtype, shape, repr(a), repr(b), f"{checksum:016x}", *words]))

    def rand(self, dtype, *shape, store=True):
        self.add("rand", torch.rand(shape, dtype=DTYPES[dtype][0]), store=store)

    def randn(self, dtype, *shape, store=True):
        self.add("randn", torch.randn(shape, dtype=DTYPES[dtype][0]), store=store)

    def uniform(self, dtype, low, high, *shape):
        self.add("uniform", torch.empty(shape, dtype=DTYPES[dtype][0]).uniform_(low, high), low, high)

    def normal(self, dtype, mean, std, *shape):
        self.add("normal", torch.empty(shape, dtype=DTYPES[dtype][0]).normal_(mean, std), mean, std)

    def linear(self, layer):
        self.add("kaiming_uniform", layer.weight)
        if layer.bias is not None:
            bound = 1 / math.sqrt(layer.in_features)
            self.add("uniform", layer.bias, -bound, bound)

    def write(self, name):
        head = "# made by make_random_golden.py, which says what the columns are; torch " + torch.__version__.split("+")[0]
        (HERE / name).write_text("\n".join([head, *self.lines]) + "\n")


def sizes():
    log = Log()
    for seed in SEEDS:
        for dtype in DTYPES:
            for size in [*range(1, 41), 96, 1000]:
                store = seed in (123, 2**63 + 5) and (size <= 40 or (size == 1000 and dtype == "f32" and seed == 123))
                log.seed(seed)
                log.rand(dtype, size, store=store)
                log.seed(seed)
                log.randn(dtype, size, store=store)
    log.write("random_sizes.txt")


def sequences():
    log = Log()

    # A kept normal value outlives uniform draws and blocks of 16, serves both dtypes, and is forgotten by seed.
    log.seed(7)
    for dtype in ["f32", "f64"]:
        log.randn(dtype, 3)
        log.rand(dtype, 5)
        log.randn(dtype, 20)
        log.randn(dtype, 1)
    log.randn("f32", 1)
    log.randn("f64", 1)
    log.seed(7)
    log.randn("f32", 1)
    log.seed(7)
    log.randn("f32", 2, 3)
    log.randn("f64", 2, 2, 5)
    log.rand("f64", 3, 1)
    log.rand("f32", 0)
    log.randn("f32", 0)
    log.rand("f32", 2, 2)

    # More than one regeneration of the 624 words, at an odd place.
    log.seed(2**32 - 1)
    log.rand("f32", 1301, store=False)
    log.rand("f64", 11)

    log.seed(2**64 - 1)
    for dtype in ["f32", "f64"]:
        for low, high in [(-1.0, 1.0), (0.1, 0.7), (-0.3, 2.5), (5.0, 5.0), (1e-3, 1e3), (-1e30, 1e30)]:
            log.uniform(dtype, low, high, 33)
        for mean, std in [(0.0, 1.0), (0.1, 0.7), (-3.3, 0.02), (1e3, 1e-3), (2.5, 0.0)]:
            log.normal(dtype, mean, std, 7)
            log.normal(dtype, mean, std, 33)

    log.seed(123)
    for inputs, outputs, bias in [(3, 2, True), (8, 8, False), (24, 6, True), (768, 3, True), (1, 1, True), (5, 7, True)]:
        log.linear(torch.nn.Linear(inputs, outputs, bias=bias))
    log.add("normal", torch.nn.Embedding(6, 24).weight, 0.0, 1.0)
    log.rand("f32", 3)
    log.add("normal", torch.nn.Embedding(3, 5).weight, 0.0, 1.0)
    log.rand("f32", 3)

    # MultiheadAttention fills its output projection first, then in_proj, bias_k and bias_v.
    log.seed(42)
    attention = torch.nn.MultiheadAttention(12, 3, add_bias_kv=True)
    weight = attention.out_proj.weight
    log.add("kaiming_uniform", weight)
    bound = 1 / math.sqrt(weight.shape[1])
    torch.manual_seed(42)
    linear = torch.nn.Linear(12, 12)
    assert torch.equal(linear.weight, weight)
    log.add("uniform", linear.bias, -bound, bound)  # drawn, then set to zero by MultiheadAttention
    log.add("xavier_uniform", attention.in_proj_weight)
    log.add("xavier_normal", attention.bias_k)
    log.add("xavier_normal", attention.bias_v)

    # Other ranks and both paths of the normal draw.
    log.seed(9)
    for shape in [(3, 2), (4, 5), (2, 3, 4), (3, 2, 2, 2), (1, 1, 24)]:
        log.add("kaiming_uniform", torch.nn.init.kaiming_uniform_(torch.empty(shape), a=math.sqrt(5)))
        log.add("xavier_uniform", torch.nn.init.xavier_uniform_(torch.empty(shape)))
        log.add("xavier_normal", torch.nn.init.xavier_normal_(torch.empty(shape)))
    log.write("random_sequences.txt")


if __name__ == "__main__":
    sizes()
    sequences()
