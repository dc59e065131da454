"""Random calls of attention() and scaled_dot_product_attention(), held against PyTorch in double.

    python -m pytest tests/pytorch/test_fuzz.py --fuzz-cases 5000     # so many cases (300 unless given: always the same)
    python -m pytest tests/pytorch/test_fuzz.py --fuzz                # until one fails

A case that fails is printed as a line of Python that repeats it where tests/pytorch is on the path; its arguments are
the whole case, to be made smaller by hand. Where the call crashes, the line is in pytest's folder for the test.
"""

import collections
import functools
import itertools
import math
import random

import ml_dtypes
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import attend

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11, "float64": 2.0**-53}
LIBRARIES = ("numpy", "torch")
# How an array may lie in memory. The last two exist in NumPy alone.
LAYOUTS = ("packed", "transposed", "stepped", "shifted", "broadcast", "reversed", "misaligned")


# A case's arrays.

def laid_out(x, layout):
    """The values of a NumPy array in other places in memory; "broadcast": those of its first item, for all."""
    if not x.ndim:
        return x
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "stepped":
        around = np.full([3 * size for size in x.shape], np.nan).astype(x.dtype)
        inside = around[tuple(slice(1, None, 3) for _ in x.shape)]
        inside[...] = x
        return inside
    if layout in ("shifted", "misaligned"):  # by an element, so that no vector is aligned; by a byte
        by = x.itemsize if layout == "shifted" else 1
        memory = np.zeros(x.nbytes + by, np.uint8)[by:].view(x.dtype).reshape(x.shape)
        memory[...] = x
        return memory
    if layout == "reversed":
        backwards = tuple(slice(None, None, -1) for _ in x.shape)
        return np.ascontiguousarray(x[backwards])[backwards]
    if layout == "broadcast" and x.size:
        axis = max(range(x.ndim), key=lambda axis: (x.shape[axis] > 1, -axis))  # the first that has several
        strides = [0 if each == axis else stride for each, stride in enumerate(x.strides)]
        return np.lib.stride_tricks.as_strided(x, x.shape, strides)
    return x


def to_torch(x):
    """The same memory, where PyTorch can have it, else a copy; PyTorch does not know the bfloat16 of ml_dtypes."""
    if any(stride < 0 for stride in x.strides) or not x.flags.aligned:
        x = x.copy()
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


class Arrays:
    """Makes the arrays of a case: each as what the library gets, and as a tensor with the same values."""

    def __init__(self, seed, library):
        self.values = np.random.default_rng(seed)
        self.library = library

    def make(self, x, dtype, layout="packed"):
        x = laid_out(np.asarray(x).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype), layout)
        tensor = to_torch(x)
        return (x if self.library == "numpy" else tensor), tensor

    def normal(self, shape, dtype, layout="packed", poison=None):
        """poison: (how many of the rows in the last axis, with what) are no numbers in one place."""
        x = np.asarray(self.values.standard_normal(shape))
        if poison and x.ndim and x.size:
            rows = x.reshape(-1, shape[-1])
            rows[self.values.integers(len(rows), size=poison[0]), self.values.integers(shape[-1])] = poison[1]
        return self.make(x, dtype, layout)

    def mask(self, shape, layout, visible=0.7):
        return self.make(self.values.random(shape) < visible, "bool", layout)


# What to expect.

def in_order(a, b):
    """a @ b, term after term. BLAS sums in several places at once, which is more precise."""
    product = a.new_zeros(*a.shape[:-1], b.shape[-1])
    for i in range(a.shape[-1]):
        product.addcmul_(a[..., :, i, None], b[..., None, i, :])
    return product


def plain(x, compute, rounded, product=in_order):
    """(out, lse, logits) as anyone would write it, in the dtype `compute`. It rounds where PyTorch's kernel for the CPU
    does: the weights before they meet the values, after their sum is taken, and the result."""
    q, k, v = (x[name].to(compute).nan_to_num(0, 0, 0) for name in "qkv")
    logits = product(q, k.transpose(-1, -2)) * x["scale"]
    if x["softcap"]:
        logits = x["softcap"] * torch.tanh(logits / x["softcap"])
    if x["bias"] is not None:
        logits = logits + x["bias"].to(compute)
    if x["slopes"] is not None:
        logits = logits - x["slopes"].to(compute)[:, None, None] * x["distance"].to(compute)
    logits = logits.masked_fill(~x["visible"], -math.inf)
    sinks = logits.new_tensor(-math.inf) if x["sinks"] is None else x["sinks"].to(compute)[:, None, None]
    every = torch.cat([logits, sinks.expand(*logits.shape[:-1], 1)], -1)
    largest = every.amax(-1, keepdim=True)
    largest = largest.masked_fill(torch.isneginf(largest), 0)
    total = (every - largest).exp().sum(-1, keepdim=True)
    weights = (logits - largest).exp().to(rounded).to(compute)
    out = product(weights, v) / total.masked_fill(total == 0, 1)
    return out.to(rounded), (largest + total.log()).squeeze(-1), logits


def reached(visible, x, what):
    """Which elements of the output see such an element of k (all of a row) or v (those of its column)."""
    rows = visible.double() @ what(x["k"]).any(-1, keepdim=True).double() > 0
    return rows, rows | (visible.double() @ what(x["v"]).double() > 0)


def compare(name, got, near, truth, nan, unknown, floor):
    """The house rule (docs/numerics.md): off by at most twice what the plain computation is off by, plus a floor."""
    got, near = got.double(), near.double()
    assert got.shape == truth.shape, f"{name} has shape {tuple(got.shape)}, expected {tuple(truth.shape)}"
    wrong = (got.isnan() != nan) & ~unknown
    assert not wrong.any(), f"{name}: NaN, or no NaN, against what was expected at {wrong.nonzero()[0].tolist()}"
    known = ~(nan | unknown)
    finite = known & truth.isfinite()
    assert torch.equal(got[known & ~finite], truth[known & ~finite]), f"{name} differs in what is infinite"
    got, near, truth = got[finite], near[finite], truth[finite]
    if got.numel():
        off, allowed = (got - truth).abs().max(), 2 * (near - truth).abs().max() + floor(truth.abs().max())
        assert off <= allowed, f"{name} is off by {off:.3g}, expected at most {allowed:.3g}"


def check(x, dtype, out, lse=None, truth=None):
    """x: tensors and numbers by name. truth: of out, where it is not the plain computation in double."""
    visible = x["visible"]
    true_out, true_lse, logits = plain(x, torch.float64, torch.float64, torch.matmul)
    near, near_lse, _ = plain(x, torch.float64 if dtype == "float64" else torch.float32, DTYPES[dtype])
    u = ROUNDING["float64" if dtype == "float64" else "float32"]
    largest = logits[logits.isfinite()].abs().max().item() if logits.isfinite().any() else 0
    # Where an output has few numbers, the plain ones may all be near by chance. A score is a sum of D roundings of 0.4 u,
    # on the way from 0 to it: sqrt(D) * score * u is four times their standard deviation.
    of_scores = (8 + (2 + x["k"].shape[-1]**0.5) * largest) * u
    if dtype == "float64":  # the truth is no better: a rounding for each term of its sums
        of_scores += (x["k"].shape[-1] + x["k"].shape[-2]) * u
    of_result = 2 * ROUNDING[dtype] if dtype in ("bfloat16", "float16") else 0
    of_exponential = 3e-6 if dtype == "bfloat16" else 0
    nan, unknown = reached(visible, x, torch.isnan), reached(visible, x, torch.isinf)
    compare("out", out, near, true_out if truth is None else truth, nan[1], unknown[1],
            lambda size: (of_result + of_scores) * size)
    if lse is not None:
        compare("lse", lse, near_lse, true_lse, nan[0][..., 0], unknown[0][..., 0],
                lambda size: of_exponential + of_scores)


def as_tensor(result):
    return result if isinstance(result, torch.Tensor) else to_torch(result)


# A case of attention().

def positions(Tq, Tk, offset, lengths):
    """i + offset - j [B,1,Tq,Tk]."""
    offsets = [{None: 0, "top_left": 0, "bottom_right": length - Tq}.get(offset, offset) for length in lengths]
    i, j = torch.arange(Tq)[:, None], torch.arange(Tk)
    distances = torch.tensor(offsets, dtype=torch.int64)[:, None, None] + i - j
    return distances[:, None]


def attention(*, seed, library, dtype, B=1, H=1, Hkv=1, Tq, Tk, D, Dv, axes=4, layout="bhtd", places={}, causal=False,
              window=None, offset=None, mask=None, bias=None, distances=None, alibi=False, sinks=False, softcap=0.0,
              scale=None, key_lengths=None, return_lse=False, out=False, poison=None):
    """One call, and what is wrong with it as an AssertionError. places: how arrays lie in memory, by name; mask: its
    shape; bias: shape, dtype; distances: R, dtype."""
    arrays = Arrays(seed, library)
    shape = functools.partial(shape_of, axes, layout, B)
    place = collections.defaultdict(lambda: "packed", places)
    ours, x = {}, {"distance": None, "softcap": softcap, "scale": D**-0.5 if scale is None else scale}
    ours["q"], x["q"] = arrays.normal(shape(H, Tq, D), dtype, place["q"])
    ours["k"], x["k"] = arrays.normal(shape(Hkv, Tk, D), dtype, place["k"], poison)
    ours["v"], x["v"] = arrays.normal(shape(Hkv, Tk, Dv), dtype, place["v"], poison)
    ours["mask"], x["mask"] = arrays.mask(mask, place["mask"]) if mask is not None else (None, None)
    ours["bias"], x["bias"] = arrays.normal(bias[0], bias[1], place["bias"], (5, -math.inf)) if bias else (None, None)
    if distances:
        reach, of = distances
        ours["distance_bias"], table = arrays.normal((H, 2 * reach + 1), of, place["bias"], (2, -math.inf))
    ours["alibi_slopes"], x["slopes"] = arrays.normal((H,), "float32") if alibi else (None, None)
    ours["sinks"], x["sinks"] = arrays.normal((H,), dtype) if sinks else (None, None)
    made = arrays.make(np.zeros(shape(H, Tq, Dv)), dtype, place["out"])[0] if out else None

    result = attend.attention(**ours, causal=causal, window=window, offset=offset, softcap=softcap, scale=scale,
                              key_lengths=key_lengths, layout=layout, return_lse=return_lse, out=made)
    result, lse = result if return_lse else (result, None)
    assert not out or result is made, "out is not what was returned"
    assert type(result) is type(ours["q"]) and result.dtype == ours["q"].dtype, f"the result is {type(result)}"

    x |= {name: heads_first(x[name], layout) for name in "qkv"}
    x |= {name: x[name].repeat_interleave(H // max(Hkv, 1), 1) for name in "kv"}
    lengths = [Tk] * B if key_lengths is None else key_lengths
    distance = positions(Tq, Tk, offset, lengths)
    if distances:
        entries = table.double()[:, (-distance[:, 0]).clamp(-reach, reach) + reach].transpose(0, 1)
        x["bias"] = entries if x["bias"] is None else x["bias"].double() + entries
    x |= {"distance": distance.abs(), "visible": visible_keys(x, distance, causal, window, lengths)}
    check(x, dtype, heads_first(as_tensor(result), layout), as_tensor(lse).reshape(B, H, Tq) if return_lse else None)


def shape_of(axes, layout, B, heads, T, size):
    """Two axes: no batch and no heads."""
    return (T, size) if axes == 2 else ((B, heads, T, size) if layout == "bhtd" else (B, T, heads, size))[4 - axes:]


def heads_first(x, layout):
    """As [B,heads,T,size]."""
    x = x.transpose(-3, -2) if layout == "bthd" and x.ndim > 2 else x
    return x[(None,) * (4 - x.ndim)]


def visible_keys(x, distance, causal, window, lengths):
    B, H, Tq = x["q"].shape[:3]
    Tk = x["k"].shape[2]
    left, right = (-1 if side is None else side for side in window or (-1, -1))
    seen = torch.arange(Tk) < torch.tensor(lengths, dtype=torch.int64)[:, None, None, None]
    if causal:
        seen = seen & (distance >= 0)
    if left >= 0:
        seen = seen & (distance <= left)
    if right >= 0:
        seen = seen & (-distance <= right)
    if x["mask"] is not None:
        seen = seen & x["mask"]
    if x["bias"] is not None:
        seen = seen & ~torch.isneginf(x["bias"])
    return seen.expand(B, H, Tq, Tk)


# A case of scaled_dot_product_attention(), held against PyTorch's own.

def scaled_dot_product_attention(*, seed, library, dtype, query, key, value, places={}, mask=None, is_causal=False,
                                 scale=None, enable_gqa=False):
    """query, key, value: shapes; mask: shape, dtype. Where PyTorch refuses, so must the library, with ValueError."""
    arrays = Arrays(seed, library)
    place = collections.defaultdict(lambda: "packed", places)
    shapes = {"query": query, "key": key, "value": value}
    both = {name: arrays.normal(shape, dtype, place[name]) for name, shape in shapes.items()}
    if mask:
        both["attn_mask"] = (arrays.mask(mask[0], place["mask"]) if mask[1] == "bool" else
                             arrays.normal(mask[0], dtype, place["mask"], (5, -math.inf)))
    ours, tensors = ({name: x[which] for name, x in both.items()} for which in (0, 1))
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    # With nothing in them, PyTorch returns zeros with query's axes before it checks or broadcasts anything.
    empty = 0 in (each.numel() for each in tensors.values())
    try:
        truth = torch_in_double(**tensors, **options)
    except (RuntimeError, IndexError) as error:
        try:
            result = attend.scaled_dot_product_attention(**ours, **options)
        except ValueError:
            return
        raise AssertionError(f"gives {tuple(result.shape)}, but PyTorch refuses: {error}") from None
    try:
        result = attend.scaled_dot_product_attention(**ours, **options)
    except ValueError:
        # PyTorch's text asks for as many key as value heads, which it does not check.
        if empty or (enable_gqa and key[-3] != value[-3]):
            return
        raise
    if empty:
        assert not torch.count_nonzero(as_tensor(result)), "is not 0"
        return
    assert type(result) is type(ours["query"]) and result.dtype == ours["query"].dtype, f"the result is {type(result)}"
    check(plain_arguments(tensors, is_causal, scale, enable_gqa), dtype, as_tensor(result), truth=truth)


def torch_in_double(query, key, value, attn_mask=None, **options):
    mask = attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else attn_mask.double()
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(query.double(), key.double(), value.double(), mask,
                                                                **options)


def plain_arguments(x, is_causal, scale, enable_gqa):
    """What plain() takes."""
    q, k, v, mask = x["query"], x["key"], x["value"], x.get("attn_mask")
    if enable_gqa:
        k, v = (each.repeat_interleave(q.shape[-3] // each.shape[-3], -3) for each in (k, v))
    Tq, Tk = q.shape[-2], k.shape[-2]
    seen = torch.ones(Tq, Tk).tril() > 0 if is_causal else torch.ones(Tq, Tk) > 0
    bias = mask if mask is not None and mask.dtype != torch.bool else None
    if mask is not None:
        seen = seen & (mask if bias is None else ~torch.isneginf(bias))
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    full = {name: each.expand(*lead, *each.shape[-2:]) for name, each in (("q", q), ("k", k), ("v", v))}
    return full | {"visible": seen.expand(*lead, Tq, Tk), "bias": bias, "softcap": 0, "slopes": None, "sinks": None,
                   "scale": q.shape[-1]**-0.5 if scale is None else scale}


# Drawing cases.

SIZES = (0, 1, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 63, 64, 65, 100, 127, 130, 200)
HEAD_SIZES = (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 40, 64, 64, 65, 80, 96, 128, 129, 256)
MOST_WORK = 2e6  # multiply-adds: 300 cases take 10 seconds


def one_in(dice, n):
    return dice.randrange(n) == 0


def some_broadcast(dice, shape):
    """A shape that broadcasts to it."""
    shape = [1 if one_in(dice, 3) else size for size in shape]
    return tuple(shape[dice.choice((0, 0, 0, 1, 2)):])


def draw_places(dice, library, names):
    known = LAYOUTS if library == "numpy" else LAYOUTS[:-2]
    return {name: dice.choice(known[1:]) for name in names if one_in(dice, 2)}


def draw_sizes(dice):
    while True:
        Hkv = dice.choice((1, 1, 2, 3)) if dice.randrange(40) else 0
        sizes = {"B": dice.choice((1, 1, 2, 3)) if dice.randrange(40) else 0,
                 "H": Hkv * dice.choice((1, 1, 2, 3, 4, 8, 9)), "Hkv": Hkv, "Tq": dice.choice(SIZES),
                 "Tk": dice.choice(SIZES), "D": dice.choice(HEAD_SIZES), "Dv": dice.choice(HEAD_SIZES)}
        if one_in(dice, 4):
            sizes["Dv"] = sizes["D"]
        if one_in(dice, 4):
            sizes["Tq"] = sizes["Tk"]
        if one_in(dice, 5):  # decoding, in one range of keys or several
            sizes |= {"Tq": dice.choice((1, 1, 2, 8)), "Tk": dice.randrange(1500)}
        if sizes["B"] * sizes["H"] * sizes["Tq"] * sizes["Tk"] * (sizes["D"] + sizes["Dv"]) <= MOST_WORK:
            return sizes


def draw_attention(dice):
    case = {"library": dice.choice(LIBRARIES), "dtype": dice.choice(tuple(DTYPES))} | draw_sizes(dice)
    case["axes"] = dice.choice((4, 4, 4, 3, 2))
    if case["axes"] < 4:
        case["B"] = 1
    if case["axes"] == 2:
        case["H"] = case["Hkv"] = 1
    pairs = [case[name] for name in ("B", "H", "Tq", "Tk")]
    if one_in(dice, 3):
        case["layout"] = "bthd"
    case["places"] = draw_places(dice, case["library"], ("q", "k", "v", "mask", "bias"))
    chances = {
        "causal": lambda: True,
        "window": lambda: tuple(dice.choice((None, -1, 0, 1, 5, dice.randrange(100))) for _ in range(2)),
        "mask": lambda: some_broadcast(dice, pairs),
        "bias": lambda: (some_broadcast(dice, pairs), dice.choice(tuple(DTYPES))),
        "distances": lambda: (dice.choice((0, 1, 5, 40)), dice.choice(tuple(DTYPES))),
        "alibi": lambda: True,
        "sinks": lambda: True,
        "softcap": lambda: dice.choice((0.5, 5.0, 30.0)),
        "scale": lambda: dice.choice((0.0, 0.1, 1.0, -0.5)),
        "key_lengths": lambda: [dice.randint(0, case["Tk"]) for _ in range(case["B"])],
        "return_lse": lambda: True,
        "out": lambda: True,
        "poison": lambda: (dice.randint(1, 6), dice.choice((math.nan, math.inf))),
    }
    case |= {name: value() for name, value in chances.items() if one_in(dice, 3)}
    if one_in(dice, 2) and case.get("out"):
        case["places"] |= {"out": dice.choice([each for each in LAYOUTS[1:5 if case["library"] == "torch" else 7]
                                               if each != "broadcast"])}
    if case["Tq"] != case["Tk"] or one_in(dice, 2):
        case["offset"] = dice.choice(("top_left", "bottom_right", dice.randint(-5, case["Tk"] + 3)))
    return case


def draw_scaled_dot_product_attention(dice):
    sizes = draw_sizes(dice)
    sizes["H"], sizes["Hkv"] = max(1, sizes["H"]), max(1, sizes["Hkv"])
    lead = [dice.choice((1, 2, 3)) for _ in range(dice.choice((0, 0, 1, 1, 2)))] if sizes["Tk"] < 100 else []
    grouped = one_in(dice, 3)
    lead = [*lead, sizes["B"]] if lead or one_in(dice, 2) else lead
    heads = [sizes["H"]] if lead or grouped or one_in(dice, 2) else []
    key_heads = [sizes["Hkv"]] if grouped else heads

    def shape(heads, *last):
        some = tuple(1 if one_in(dice, 8) else size for size in lead)
        return some[dice.choice((0, 0, 0, 0, 1)):] + tuple(heads) + last

    case = {"library": dice.choice(LIBRARIES), "dtype": dice.choice(tuple(DTYPES)),
            "query": shape(heads, sizes["Tq"], sizes["D"]), "key": shape(key_heads, sizes["Tk"], sizes["D"]),
            "value": shape(key_heads, sizes["Tk"], sizes["Dv"])}
    if grouped:
        case["enable_gqa"] = True
    case["places"] = draw_places(dice, case["library"], ("query", "key", "value", "mask"))
    if one_in(dice, 3):
        case["is_causal"] = True
    if one_in(dice, 3) and not (case.get("is_causal") and dice.randrange(10)):
        # PyTorch broadcasts a mask no further than to query's and key's axes; the library, to value's too.
        pairs = (*torch.broadcast_shapes(case["query"][:-3], case["key"][:-3]), *heads, sizes["Tq"], sizes["Tk"])
        case["mask"] = (some_broadcast(dice, pairs if dice.randrange(20) else (7, sizes["Tk"])),
                        dice.choice(("bool", "like query")))
    if one_in(dice, 20):  # a wrong size somewhere
        name = dice.choice(("query", "key", "value"))
        at = dice.randrange(len(case[name]))
        case[name] = (*case[name][:at], case[name][at] + 1, *case[name][at + 1:])
    if one_in(dice, 3):
        case["scale"] = dice.choice((0.0, 0.1, 1.0, -0.5))
    return case


def draw(seed):
    """(the function, its arguments)."""
    dice = random.Random(seed)
    function = dice.choice((attention, attention, scaled_dot_product_attention))
    drawn = draw_attention(dice) if function is attention else draw_scaled_dot_product_attention(dice)
    return function, {"seed": seed} | drawn


def line(function, case):
    return (f"from math import inf, nan; import test_fuzz; "
            f"test_fuzz.{function.__name__}({', '.join(f'{name}={value!r}' for name, value in case.items())})")


def failure(seed, running):
    """The line that repeats the case, and what is wrong; "" where nothing is. The file is for calls that crash."""
    function, case = draw(seed)
    running.write_text(line(function, case))
    try:
        function(**case)
    except Exception as error:
        return f"{line(function, case)}  # {type(error).__name__}: {error}"
    return ""


def test_random_calls_are_as_near_to_the_truth_as_plain_ones(request, tmp_path):
    endless = request.config.getoption("--fuzz")
    first = random.SystemRandom().randrange(2**48) if endless else 0
    seeds = itertools.count(first) if endless else range(request.config.getoption("--fuzz-cases"))
    failures = filter(None, (failure(seed, tmp_path / "running.py") for seed in seeds))
    found = list(itertools.islice(failures, 1 if endless else 10))
    assert not found, "\n".join(["to repeat, with tests/pytorch on the path:", *found])
