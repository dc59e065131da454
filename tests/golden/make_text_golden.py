"""Makes the golden data of the text tests: words.json, widths.json and tensor_strings.jsonl here.

    python tests/golden/make_text_golden.py

needs Python 3.11, whose white space and sorting are the truth of words.json and whose Unicode database is that of
widths.json, and torch 2.13, whose str() of a tensor is that of tensor_strings.jsonl.
"""

import itertools
import json
import pathlib
import random
import unicodedata

import torch

HERE = pathlib.Path(__file__).parent

WORD_TEXTS = [
    "",
    ",",
    " , ,, \t,\n",
    "   ",
    "one",
    "Life is short, eat dessert first",
    "Hello, my name is Elisa",
    "a,b c,,d ,e, f,",
    "1,000,000 is,a number",
    "the cat sat on the mat the end",
    "Zebra apple Apple zebra _x ~y 9 10 1",
    "tabs\tand\nlines\r\nand\vall\ffour",
    "no\u00a0break\u202fspaces\u2007here",
    "\u3000全角\u3000スペース\u3000です\u3000",
    "注意力，就是 一切 你 所需 的，东西、吗",  # the full-width comma is no comma
    "注意 すべて 주의 внимание προσοχή תשומת انتباه ध्यान ความสนใจ ትኩረት ყურადღება",
    "ä a\u0308 a b z ß ss ẞ Å A\u030a",  # composed and combining forms are different words
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 👍 ❤️ ❤ e\u0301 é",
    "zero\u200bwidth word\u2060joiner byte\ufefforder soft\u00adhyphen mongolian\u180eseparator",  # none splits
    "\ufb01 \uffff \U00010000 \U0001f600 \U0010ffff \ue000 \ud7ff z \u0080 \u07ff \u0800 \x7f",
    "nul\x00inside \x00 unit\x1fsep file\x1csep group\x1dsep record\x1esep \x1b[0m",
    "next\u0085line ogham\u1680space para\u2029graph line\u2028sep math\u205fspace",
    "، arabic،comma ⸲ turned ﹐small ，wide ‚low",
    " ".join(chr(c) for c in range(0x1FF0, 0x2070)),
    "x".join(chr(c) for c in range(0x180)),
]


def words_golden():
    cases = []
    for text in WORD_TEXTS:
        tokens = text.replace(",", "").split()
        cases.append({"text": text, "tokens": tokens, "vocabulary": sorted(set(tokens))})
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    order = random.Random(7).sample(chars, 600)
    tokens = [c for c in order if not c.isspace() and c != ","]
    cases.append({"text": " ".join(order), "tokens": tokens, "vocabulary": sorted(set(tokens))})
    white = [ord(c) for c in chars if c.isspace()]
    return {"cases": cases, "white_space": white}


def widths_golden():
    """For each assigned character its columns in a terminal: runs of [first, last, columns]."""
    runs = []
    for c in range(0x110000):
        category, east_asian = unicodedata.category(chr(c)), unicodedata.east_asian_width(chr(c))
        if category in ("Cn", "Cs"):
            continue
        columns = 2 if east_asian in ("W", "F") else 1
        if category in ("Mn", "Me", "Cf", "Zl", "Zp") and c != 0xAD:
            columns = 0
        if 0x1160 <= c <= 0x11FF:  # Hangul Jamo: vowels and final consonants join the letter before them
            columns = 0
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == columns:
            runs[-1][1] = c
        else:
            runs.append([c, c, columns])
    return {"unicode": unicodedata.unidata_version, "runs": runs}


DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "u8": torch.uint8,
    "bool": torch.bool,
}
FLOATS = ["f32", "f64", "bf16", "f16"]
NAN, INF = float("nan"), float("inf")


def cycled(values, dtype, shape):
    """A tensor of that shape, filled with the values over and over, and the golden case for it."""
    period = torch.as_tensor(values).to(DTYPES[dtype]).reshape(-1)
    count = torch.Size(shape).numel()
    repeats = -(-count // max(1, period.numel()))
    tensor = period.repeat(repeats)[:count].reshape(shape)
    stored = period.view(torch.int16) if dtype in ("bf16", "f16") else period
    return {"dtype": dtype, "shape": list(shape), "bits": stored.numpy().tobytes().hex(), "text": str(tensor)}


def tensor_cases():
    torch.manual_seed(2)
    normal = torch.randn(97, dtype=torch.float64)
    shapes = [(), (1,), (6,), (9,), (40,), (2, 3), (6, 16), (3, 28), (1, 1), (2, 2, 3), (2, 1, 2, 9), (2, 1, 2, 1, 2)]
    for dtype, shape in itertools.product(FLOATS, shapes):
        yield normal, dtype, shape
    for shape in [(1000,), (1001,), (7, 143), (6, 167), (2000, 2), (40, 40), (7, 7, 21), (2, 3, 200), (8, 2, 3, 21)]:
        yield normal, "f32", shape
        yield torch.arange(101) - 50, "i64", shape
    # The summary decides alone: what it leaves out does not widen the numbers.
    yield [1.0, 2.0, 3.0] + [1e-9, 0.5, 1e9] * 500 + [4.0, 5.0, 6.0], "f32", (1506,)
    for scale in [1e-5, 1e-3, 0.1, 30, 999, 5e3, 1e6, 1e9, 1e30]:
        yield normal[:7] * scale, "f32", (7,)
        yield normal[:7] * scale, "f64", (7,)
    for values in [
        [0.0], [-0.0], [0.0, -0.0, 0.0], [1.0, 2.0, 3.0], [-1.0, 20.0, 300.0], [1.0, 1000.0], [1.0, 1001.0], [1e8, 1e6],
        [1.00000001e8, 1e6], [1e-4, 1e-3], [0.99e-4, 1e-3], [0.5, 499.0], [0.5, 500.0], [0.5, 501.0], [NAN],
        [INF, -INF], [NAN, 1.0, -INF], [NAN, 0.5, INF, -2.25], [INF, -INF, NAN, 1e-7, 3.0], [0.0, 1e-7],
        [1.0, 0.0, -0.0, NAN, -INF], [0.5, -0.0], [0.00005, 0.00015, 0.00025], [0.03125, 0.09375, 0.15625, 2.5],
        [0.12345, 0.33335, 0.99995, 0.999949, 9.99995], [123456.0, 2345.5], [1.5, 65504.0], [2.0, 4096.0, 65504.0],
        [1e-45, 1e-40], [3.4e38, 1.0], [8388608.5, 8388609.0], [99999999.0, 1.0e6], [16777217.0] * 30,
        [-1.0, 0.0, 1.0] * 20, [1e-6, 1.0] * 25,
    ]:
        yield values, "f32", (len(values),)
        yield values, "f64", (len(values),)
        yield values, "f16", (len(values),)
        yield values, "bf16", (1, len(values))
    for values in [[5e-324, 1.0], [1e308, 1e-308], [1e308, 5e307], [1e100], [1e15 + 0.5, 1e15]]:
        yield values, "f64", (len(values),)
    big = 2**63 - 1
    for values in [[0], [7, -7], [big, -big - 1, 2**53 + 1], list(range(30)), [10**k for k in range(18)]]:
        yield values, "i64", (len(values),)
        yield values, "i64", (2, 3)
    for shape in [(), (5,), (30,), (3, 4), (20, 70)]:
        yield [0, 255, 7, 31, 100], "u8", shape
        yield [True, False, False], "bool", shape
    for dtype, shape in itertools.product(DTYPES, [(0,), (2, 0), (0, 3, 4)]):
        yield [], dtype, shape
    for columns in range(1, 26):  # where the dtype's suffix moves to a line of its own
        yield normal.abs(), "f64", (columns,)


def write(name, data):
    (HERE / name).write_text(json.dumps(data, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    write("words.json", words_golden())
    write("widths.json", widths_golden())
    lines = [json.dumps(cycled(*case), separators=(",", ":")) for case in tensor_cases()]
    (HERE / "tensor_strings.jsonl").write_text("\n".join(lines) + "\n")
