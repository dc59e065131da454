"""From the numbers of a run to its page and its picture. `report.py RESULT.json` writes them again."""

import html
import json
import math
import pathlib
import statistics
import sys

import cases

PEERS = list(cases.PEERS)
# Of nn.MultiheadAttention: (must, aim), the same where no more is aimed at.
LAYERS = {("512x768, 12 heads", "f32"): (1.4, 1.4), ("512x768, 12 heads", "bf16"): (1.15, 1.3),
          ("2048x1024, 16 heads", "f32"): (1.9, 1.9)}


class Run:
    """The numbers of a run, by group and entry."""

    def __init__(self, result):
        self.result = result
        self.groups = {group["name"]: group for group in result["groups"]}

    def entry(self, group, key):
        return self.groups.get(group, {}).get("entries", {}).get(key)

    def seconds(self, group, key):
        entry = self.entry(group, key)
        return statistics.median(entry["rounds"]) if entry else None

    def faster(self, group, key, other):
        """How many times as fast `key` is as `other`: the median over the rounds of the ratio within a round."""
        a, b = self.entry(group, key), self.entry(group, other)
        return statistics.median(y / x for x, y in zip(a["rounds"], b["rounds"])) if a and b else None

    def work_ratio(self, group, key, other):
        """The same for work done in a second, where the two do different work."""
        ratio = self.faster(group, key, other)
        return ratio and ratio * self.entry(group, key)["flops"] / self.entry(group, other)["flops"]

    def of_roof(self, group, key, roof, unit="flops"):
        a, b = self.entry(group, key), self.entry(group, roof)
        return statistics.median(a[unit] / x / y for x, y in zip(a["rounds"], b["rounds"])) if a and b else None

    def rate(self, group, key, unit="flops"):
        """GFLOP/s or GB/s: median, lowest and highest round."""
        entry = self.entry(group, key)
        rates = [entry[unit] / x * 1e-9 for x in entry["rounds"]] if entry else None
        return (statistics.median(rates), min(rates), max(rates)) if entry else None

    def fastest_peer(self, group, dtype):
        """Its name, and how many times as fast attend is."""
        found = [(self.seconds(group, f"{peer} {dtype}"), peer) for peer in PEERS if self.entry(group, f"{peer} {dtype}")]
        if not found:
            return None
        peer = min(found)[1]
        return peer, self.faster(group, f"attend {dtype}", f"{peer} {dtype}")

    def geometric_mean(self, names, dtype):
        ratios = [self.faster(name, f"attend {dtype}", f"PyTorch {dtype}") for name in names]
        ratios = [ratio for ratio in ratios if ratio]
        return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


# ---- what must hold ----

ROOF_DEMANDS = {  # case: of the f32 roof (must, aim), of the bf16 roof (must, aim)
    "128, 96 heads": ((0.74, 0.82), (0.68, 0.75)),
    "512": ((0.86, 0.90), (0.80, 0.84)),
    "1024 causal": ((0.82, 0.87), (0.74, 0.80)),
    "2048x128 causal": ((0.88, 0.92), (0.84, 0.88)),
    "8192 causal": ((0.90, 0.93), (0.84, 0.88)),
    "8192x128": ((0.89, 0.93), (0.86, 0.90)),
    "image x text": ((0.68, 0.75), (0.56, 0.65)),
}
# Of a visible pair's time without the option: f32 (must, aim), bf16 (must, aim).
OPTION_DEMANDS = dict.fromkeys(cases.OPTIONS, ((1.2, 1.1), (1.2, 1.1))) | {
    "bias": ((1.18, 1.1), (1.28, 1.15)),
    "window 256 causal": ((1.2, 1.1), (1.3, 1.15)),
}
WHOLE_TABLE = [*cases.TABLE, "decode 4096", *cases.TOKENS]


def demands(run):
    """(what, measured, must, aim, unit, whether more is better, the case that decides)"""
    yield from roof_demands(run)
    yield from peer_demands(run)
    yield lowest("f16 against our f32, every case", 0.85, 0.95,
                 {name: run.faster(name, "attend f16", "attend f32") for name in cases.TABLE})
    for dtype in ("f32", "bf16"):
        yield demand(f"decode, 32768 keys, {dtype}, of the read roof", 0.80, 0.92,
                     run.of_roof("decode 32768", f"attend {dtype}", "roof read", "bytes"))
    yield from cache_demands(run)
    tokens = run.seconds("6 tokens", "attend f32")
    yield demand("6 tokens", 2.0, 1.2, tokens and tokens * 1e6, "us", False)
    for arrays, must, aim in (("numpy", 3.5, 2.5), ("torch", 4.5, 3.5)):
        seconds = run.seconds("6 tokens", f"attend from {arrays}")
        yield demand(f"6 tokens, from Python on {arrays}", must, aim, seconds and seconds * 1e6, "us", False)
    yield from own_demands(run)
    yield from backward_demands(run)
    yield from summary_demands(run)
    yield from recording_demands(run)
    beyond = {name: found.get("bytes") for name, found in run.result["memory"].items()}
    most = {name: bytes_ / 2**20 for name, bytes_ in beyond.items() if bytes_ is not None}
    yield demand("memory beyond tensors and gradients, backward, 65536 tokens", 256, None,
                 most.pop(f"memory: {cases.BACKWARD_MEMORY}", None), "MiB", False)
    yield demand("memory beyond tensors and results, summary, 131072 tokens", 4, None,
                 most.pop(f"memory: {cases.SUMMARY_MEMORY}", None), "MiB", False)
    yield lowest("memory beyond the tensors, 131072 keys, any option", 64, 8, most, "MiB", False)


def demand(what, must, aim, value, unit="", more=True, decides=""):
    return {"what": what, "value": value, "must": must, "aim": aim, "unit": unit, "more": more, "decides": decides}


def lowest(what, must, aim, values, unit="", more=True):
    """A demand on every one of them: the worst one decides."""
    values = {name: value for name, value in values.items() if value is not None}
    if not values:
        return demand(what, must, aim, None, unit, more)
    name = (min if more else max)(values, key=values.get)
    return demand(what, must, aim, values[name], unit, more, name)


def roof_demands(run):
    for i, (dtype, roof) in enumerate((("f32", "roof fma"), ("bf16", "roof bf16"))):
        for name, numbers in ROOF_DEMANDS.items():
            yield demand(f"{name}, {dtype}, of the roof", *numbers[i], run.of_roof(name, f"attend {dtype}", roof))


def peer_demands(run):
    for dtype, must in (("f32", 1.08), ("bf16", 1.0)):
        peers = {name: run.fastest_peer(name, dtype) for name in [*cases.TABLE, *cases.DECODE, *cases.TOKENS]}
        found = {f"{name}: {peer[0]}": peer[1] for name, peer in peers.items() if peer}
        yield lowest(f"against the fastest peer, every case, {dtype}", must, 1.15, found, "x")
    for dtype, must, aim in (("f32", 1.6, 1.9), ("bf16", 2.5, 3.5)):
        yield demand(f"197 tokens against PyTorch, {dtype}", must, aim,
                     run.faster("197 tokens", f"attend {dtype}", f"PyTorch {dtype}"), "x")
    for dtype, must, aim in (("f32", 1.4, 1.7), ("bf16", 2.3, 3.0)):
        yield demand(f"against PyTorch, geometric mean over the table, {dtype}", must, aim, run.geometric_mean(WHOLE_TABLE, dtype), "x")
        yield demand(f"the same without decode and 6 tokens, {dtype}", must, aim, run.geometric_mean(cases.TABLE, dtype), "x")


def backward_demands(run):
    for name in ("backward 2048x128 causal", "backward 8192 causal"):
        yield demand(f"{name}, f32, of the roof", 0.72, 0.82, run.of_roof(name, "attend f32", "roof fma"))
    for dtype, must, aim in (("f32", 1.3, 1.6), ("bf16", 1.9, 2.1)):
        yield lowest(f"backward against PyTorch, every case, {dtype}", must, aim,
                     {name: run.faster(name, f"attend {dtype}", f"PyTorch {dtype}") for name in cases.BACKWARD}, "x")


def summary_demands(run):
    for dtype, must, aim in (("f32", 1.1, 0.8), ("bf16", 1.4, 1.0)):
        yield lowest(f"summary, of the forward's time, {dtype}", must, aim,
                     {name: run.faster(name, f"forward {dtype}", f"attend {dtype}") for name in cases.SUMMARIES}, "x", False)
        yield demand(f"summary of 4096 tokens against PyTorch's of the matrix, {dtype}", 8, None,
                     run.faster("summary 4096 causal", f"attend {dtype}", f"PyTorch {dtype}"), "x")


def recording_demands(run):
    for name, must in (("MiniLM, 8 x 128 tokens", 1.2), ("Llama, prefill 2048", 1.4)):
        for dtype in ("f32", "bf16"):
            yield demand(f"{name}, recorded, of its time unrecorded, {dtype}", must, None,
                         run.faster(f"{name}, {dtype}", "attend", "recorded"), "x", False)


def own_demands(run):
    for dtype in ("f32", "bf16"):
        sizes = {f"{D} against {base}": run.work_ratio(f"head sizes {dtype}", f"attend D {D}", f"attend D {base}")
                 for D, base in cases.HEAD_SIZES.items()}
        yield lowest(f"every head size, {dtype}", 0.8, 0.95, sizes)
    for i, dtype in enumerate(("f32", "bf16")):
        for name, numbers in OPTION_DEMANDS.items():
            yield demand(f"{name} at 4096, time per visible pair, {dtype}", *numbers[i], cost(run, dtype, name), "x", False)
    for dtype in ("f32", "bf16"):
        gains = {name: run.faster(name, f"attend {dtype}", f"attend {dtype}, 1 thread") for name in cases.ONE_THREAD}
        yield lowest(f"{run.result['machine']['threads']} threads against one, every big case, {dtype}", 1.9, 1.97, gains, "x")
    for name in cases.LINEAR:
        for dtype in ("f32", "bf16"):
            yield demand(f"Linear {name}, {dtype}, against oneDNN", 0.9, 1.0,
                         run.faster(f"linear {name} {dtype}", "attend", "PyTorch"), "x")
    for (name, dtype), (must, aim) in LAYERS.items():
        yield demand(f"MultiHeadAttention {name}, {dtype}, against nn.MultiheadAttention", must, aim,
                     run.faster(f"layer {name} {dtype}", "attend", "PyTorch"), "x")


def cost(run, dtype, option):
    ratio = run.work_ratio(f"options {dtype}", f"attend {option}", "attend unmasked")
    return ratio and 1 / ratio


def verdict(demand):
    reaches = lambda limit: demand["value"] >= limit if demand["more"] else demand["value"] <= limit
    return "aim" if demand["aim"] and reaches(demand["aim"]) else "pass" if reaches(demand["must"]) else "**short**"


# ---- the page ----


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(rate):
    return f"{number(rate[0])} ({number(rate[1])} to {number(rate[2])})" if rate else ""


def times(ratio):
    return f"{ratio:.2f}x" if ratio else ""


def table(head, rows):
    rows = [row for row in rows if any(row[1:])]
    if not rows:
        return ""
    align = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, align, *rows]) + "\n"


def title(case):
    size = lambda a, b: f"{a}" if a == b else f"{a} ({b} kv)"
    words = [f"{case.B}", size(case.H, case.Hkv or case.H), f"{case.Tq}", f"{case.Tk}", f"{case.D}"]
    return ", ".join(words) + (" causal" if case.causal else "")


def throughput(run, dtype, roof):
    rows = []
    for name, case in cases.TABLE.items():
        peers = [number((run.rate(name, f"{peer} {dtype}") or [None])[0]) for peer in PEERS]
        best, share = run.fastest_peer(name, dtype), run.of_roof(name, f"attend {dtype}", roof)
        rows.append([f"{name}: {title(case)}", spread(run.rate(name, f"attend {dtype}")), f"{share:.2f}" if share else "",
                     *peers, times(best and best[1])])
    return table([f"{dtype}, GFLOP/s: B, H, Tq, Tk, D", "attend", "of the roof", *PEERS, "against the fastest"], rows)


def backward(run):
    pages = []
    for dtype, roof in (("f32", "roof fma"), ("bf16", "roof bf16")):
        rows = []
        for name, case in cases.BACKWARD.items():
            share = run.of_roof(name, f"attend {dtype}", roof)
            rows.append([f"{name}: {title(case)}", spread(run.rate(name, f"attend {dtype}")), f"{share:.2f}" if share else "",
                         spread(run.rate(name, f"PyTorch {dtype}")), times(run.faster(name, f"attend {dtype}", f"PyTorch {dtype}"))])
        pages.append(table([f"{dtype}, GFLOP/s: B, H, Tq, Tk, D", "attend", "of the roof", "PyTorch", "against PyTorch"], rows))
    return "\n".join(filter(None, pages))


def f16(run):
    rows = [[name, spread(run.rate(name, "attend f16")), times(run.faster(name, "attend f16", "attend f32"))] for name in cases.TABLE]
    return table(["f16, GFLOP/s", "attend", "against our f32"], rows)


def short(run):
    """Decode steps and the six tokens: times, as no FLOPs bound them."""
    rows = []
    for name, case in (cases.DECODE | cases.TOKENS).items():
        for dtype in ("f32", "bf16", "f16"):
            key, unit = f"attend {dtype}", 1e6 if name in cases.TOKENS else 1e3
            seconds = [run.seconds(name, key)] + [run.seconds(name, f"{peer} {dtype}") for peer in PEERS]
            share = run.of_roof(name, key, "roof read", "bytes")
            rate = run.rate(name, key, "bytes") if name in cases.DECODE else None
            best = run.fastest_peer(name, dtype)
            rows.append([f"{name}, {dtype}, {'us' if unit == 1e6 else 'ms'}: {title(case)}", *(number(s and s * unit) for s in seconds),
                         spread(rate), f"{share:.2f}" if share else "", times(best and best[1])])
    return table(["time of a call", "attend", *PEERS, "GB/s of keys and values", "of the read roof", "against the fastest"], rows)


def cache_demands(run):
    for name, must, aim in (("one head", 0.62, 0.55), ("four heads", 0.80, 0.62)):
        group = f"cache of 32768 keys, {name} a key head"
        ratio = run.faster(group, "attend bf16", "attend i8, queries in bf16")
        yield demand(f"decode i8, 32768 keys, {name} a key head, of bf16's time", must, aim, ratio, "x", False)
    for dtype in ("f32", "bf16"):
        yield demand(f"16 sequences of 100 to 8000 keys, {dtype}, of the read roof", 0.75, None,
                     run.of_roof("16 caches", f"attend {dtype}", "roof read", "bytes"))
        yield demand(f"16 sequences of 100 to 8000 keys, {dtype}, against PyTorch, padded", 3, None,
                     run.faster("16 caches", f"attend {dtype}", f"PyTorch {dtype}"), "x")


def caches(run):
    """Decode steps over KvCaches."""
    rows = []
    for group in (g for g in cases.groups() if g.section == "caches"):
        for entry in group.entries:
            if entry.roof:
                continue
            seconds, share = run.seconds(group.name, entry.key), run.of_roof(group.name, entry.key, "roof read", "bytes")
            rows.append([f"{group.name}: {entry.key}", number(seconds and seconds * 1e3), spread(run.rate(group.name, entry.key, "bytes")),
                         f"{share:.2f}" if share else ""])
    return table(["decode over KvCaches, 32 or 8 heads, D 128", "ms", "GB/s of keys and values", "of the read roof"], rows)


def own(run):
    pages = []
    for dtype in ("f32", "bf16"):
        group, rows = f"head sizes {dtype}", []
        for D in sorted({*cases.HEAD_SIZES, *cases.HEAD_SIZES.values()}):
            base = cases.HEAD_SIZES.get(D)
            ratio = run.work_ratio(group, f"attend D {D}", f"attend D {base}")
            rows.append([str(D), spread(run.rate(group, f"attend D {D}")), f"{times(ratio)} of {base}" if ratio else ""])
        pages.append(table([f"head size: 1, 8, 1024, 1024, D, {dtype}", "GFLOP/s", "against 64 or 128"], rows))
    for dtype in ("f32", "bf16"):
        group = f"options {dtype}"
        rows = [[name, spread(run.rate(group, f"attend {name}")), times(cost(run, dtype, name)) if name != "unmasked" else ""]
                for name in ["unmasked", *cases.OPTIONS]]
        pages.append(table([f"option: 1, 4, 4096, 4096, 64, {dtype}", "GFLOP/s", "time per visible pair"], rows))
    rows = []
    for name in cases.ONE_THREAD:
        rows.append([name, *(times(run.faster(name, f"attend {dtype}", f"attend {dtype}, 1 thread")) for dtype in ("f32", "bf16"))])
    pages.append(table(["all threads against one", "f32", "bf16"], rows))
    return "\n".join(filter(None, pages))


def summaries(run):
    """Top 8, received, lift, entropy and distance, a map of 256 x 256, given lse."""
    rows = []
    for name, case in cases.SUMMARIES.items():
        for dtype in ("f32", "bf16"):
            times_of = {who: run.seconds(name, f"{who} {dtype}") for who in ("forward", "attend", "PyTorch")}
            share = run.faster(name, f"forward {dtype}", f"attend {dtype}")
            rows.append([f"{title(case)}, {dtype}", *(number(seconds and seconds * 1e3) for seconds in times_of.values()),
                         f"{share:.2f}" if share else "", times(run.faster(name, f"attend {dtype}", f"PyTorch {dtype}"))])
    return table(["attention_summary, ms", "forward", "summary", "PyTorch, of the matrix", "of the forward's time", "against PyTorch"],
                 rows)


def flex(run):
    rows = []
    for name in cases.FLEX:
        group = f"flex {name}"
        for dtype in ("f32", "bf16"):
            theirs = run.rate(group, f"FlexAttention {dtype}")
            rows.append([f"{name}, {dtype}", spread(run.rate(group, f"attend {dtype}")), number(theirs and theirs[0]),
                         times(run.faster(group, f"attend {dtype}", f"FlexAttention {dtype}"))])
    return table(["1, 4, 4096, 4096, 64: GFLOP/s of visible pairs", "attend", "FlexAttention", "against FlexAttention"], rows)


def layers(run, section, of, title, peer_name):
    rows = []
    for name in of:
        for dtype in ("f32", "bf16"):
            group = f"{section} {name} {dtype}"
            peer, share = run.rate(group, "PyTorch"), run.of_roof(group, "attend", "roof")
            rows.append([f"{name}, {dtype}", spread(run.rate(group, "attend")), f"{share:.2f}" if share else "", number(peer and peer[0]),
                         times(run.faster(group, "attend", "PyTorch"))])
    return table([f"{title}, GFLOP/s", "attend", "of the roof", peer_name, f"against {peer_name}"], rows)


def linear(run):
    return layers(run, "linear", cases.LINEAR, "Linear: rows x in x out", "oneDNN")


def multi_head(run):
    return layers(run, "layer", cases.LAYERS, "MultiHeadAttention: tokens x embedding", "nn.MultiheadAttention")


def calls(run):
    rows = []
    for name in cases.TOKENS:
        for who, key in {"attend, from C++": "attend f32", "attend, on NumPy's arrays": "attend from numpy",
                         "attend, on PyTorch's tensors": "attend from torch", "PyTorch": "PyTorch f32"}.items():
            entry = run.entry(name, key)
            microseconds = [seconds * 1e6 for seconds in entry["rounds"]] if entry else []
            rows.append([f"{name}: {who}",
                         spread((statistics.median(microseconds), min(microseconds), max(microseconds))) if entry else ""])
    return table(["time of a call, f32", "us"], rows)


def models(run):
    rows = []
    for name in cases.MODELS:
        for dtype in ("f32", "bf16"):
            group, row = f"{name}, {dtype}", []
            for who in cases.IMPLEMENTATIONS:
                rate, entry = run.rate(group, who, "tokens"), run.entry(group, who)
                share = statistics.median(entry["attention"]) if entry else 0
                row.append(f"{number(rate[0] * 1e9)}, {100 * share:.0f} %" if rate else "")
            rows.append([group, *row, *(times(run.faster(group, "attend", other)) for other in cases.IMPLEMENTATIONS[1:]),
                         times(run.faster(group, "attend", "recorded"))])
    heads = [f"{who}: tokens/s, of it attention" for who in cases.IMPLEMENTATIONS]
    return table(["Hugging Face model", *heads, "attend against sdpa", "against eager", "recorded, of its time"], rows)


def pretrained(run):
    rows, others = [], ("Transformers", *cases.RUNTIMES)
    for name, case in cases.PRETRAINED.items():
        for dtype in ("f32", "bf16"):
            group, row = f"{name}, {dtype}", []
            for who in ("attend", *others):
                seconds, rate = run.seconds(group, who), run.rate(group, who, "tokens")
                opened = f"{number(seconds * 1e3)} ms" if seconds else ""
                row.append(opened if case.phase == "open" else f"{spread([each * 1e9 for each in rate])} tokens/s" if rate else "")
                row += [times(run.faster(group, "attend", who))] if who in others else []
            share = run.of_roof(group, "attend", "roof read", "bytes")
            rows.append([group.removeprefix("attend.Model: "), *row, f"{share:.2f}" if share else ""])
    heads = [head for who in ("Transformers, sdpa", *cases.RUNTIMES) for head in (who, "against it")]
    return table(["attend.Model", "attend", *heads, "of the read roof"], rows)


def memory(run):
    rows = []
    for name, found in run.result["memory"].items():
        beyond = f"{found['bytes'] / 2**20:.1f}" if "bytes" in found else found["error"]
        rows.append([name.removeprefix("memory: "), beyond])
    return table(["memory beyond the tensors, D 64; 131072 keys where nothing else is said", "MiB"], rows)


def roofs(run):
    rows = []
    for name, found in run.result["roofs"].items():
        unit = "GB/s" if name.startswith("read") else "GFLOP/s"
        rows.append([name, f"{found['per_second'] * 1e-9:.1f} {unit}", found["loop"]])
    return table(["roof", "best", "by"], rows)


def left_out(run):
    lines = [f"- {group['name']}: {key}: {why}" for group in run.groups.values() for key, why in group["cannot"].items()]
    return "\n".join(lines) + "\n" if lines else ""


def ways(run):
    """How each peer did it; where it had a choice, which cases took which way."""
    found = {}
    for group in run.groups.values():
        for key, entry in group["entries"].items():
            if "how" in entry and not key.startswith("attend") and group["section"] != "models":
                found.setdefault((group["section"] in ("linear", "layer"), key), {}).setdefault(entry["how"], []).append(group["name"])
    lines = []
    for (_, key), hows in sorted(found.items()):
        lines += [f"- {key}: {how}" + (f" ({'; '.join(names)})" if len(hows) > 1 else "") for how, names in hows.items()]
    return "".join(f"{line}\n" for line in lines)


def introduction(run):
    result, machine = run.result, run.result["machine"]
    peers = [f"{name} {version}" for name, version in machine["versions"].items() if not name.startswith("attend")]
    python = machine["versions"].get("attend in Python")
    lines = [
        f"{machine['processor']}, {machine['threads']} threads, {machine['system']}",
        f"attend {machine['versions']['attend']} at {machine['commit']}, compiler {machine['compiler']}"
        + (f"; from Python: {python}" if python else ""),
        f"peers: {', '.join(peers) or 'none in this run'}",
        f"{result['rounds']} rounds in {result['minutes']:.0f} minutes. A number is the median of the rounds (lowest to highest), "
        "a ratio the median of the ratios within each round. [How it is measured](../README.md)",
    ]
    if "disturbance" in result:
        others, stolen = (100 * result["disturbance"][name] for name in ("others", "stolen"))
        lines.append(f"while it ran, other programs used {others:.1f} % of the processor, and the machine's host took {stolen:.1f} %")
    if result["quick"]:
        lines.insert(0, "**A run with --quick: tiny cases under the names of the real ones. It tests the harness and measures nothing.**")
    return "".join(f"- {line}\n" for line in lines)


def demand_table(run):
    rows = []
    for found in demands(run):
        if found["value"] is None:
            continue
        unit = found["unit"] if found["unit"] in ("", "x") else f" {found['unit']}"
        decides = f" ({found['decides'].removeprefix('memory: ')})" if found["decides"] else ""
        value = f"{found['value']:.3f}" if found["unit"] in ("", "x") else number(found["value"])  # 0.799 is not 0.80
        rows.append([found["what"], f"{value}{unit}{decides}", f"{found['must']:g}{unit}",
                     f"{found['aim']:g}{unit}" if found["aim"] else "", "" if run.result["quick"] else verdict(found)])
    return table(["what", "measured", "must", "aim", ""], rows)


def page(run, picture):
    parts = [("", introduction(run)), ("What must hold", demand_table(run)), ("Roofs", roofs(run)),
             ("Forward", "\n".join(filter(None, (throughput(run, "f32", "roof fma"), throughput(run, "bf16", "roof bf16"), f16(run))))),
             ("Backward", backward(run)), ("Decode and short inputs", short(run)), ("Caches", caches(run)),
             ("Head sizes, options, threads", own(run)),
             ("Summaries", summaries(run)),
             ("Beside FlexAttention", flex(run)),
             ("Layers", "\n".join(filter(None, (linear(run), multi_head(run))))),
             ("Pretrained models", pretrained(run)),
             ("From Python", "\n".join(filter(None, (calls(run), models(run))))), ("Memory", memory(run)),
             ("How the peers did it", ways(run)), ("What peers can't do", left_out(run))]
    text = f"# Benchmark of {run.result['date']}\n\n"
    for heading, body in parts:
        shown = f"![GFLOP/s of each case]({picture})\n\n" if picture else ""
        text += (f"## {heading}\n\n{body}\n" if heading else f"{body}\n{shown}") if body else ""
    return text.rstrip() + "\n"


# ---- the picture ----

COLOURS = {"attend": "#2563eb", "PyTorch": "#ee7f5f", "ONNX Runtime": "#8f9aa8", "OpenVINO": "#c3a6e8"}
WIDTH, LEFT, PLOT = 980, 56, 200


def nice_step(top):
    step = 10 ** math.floor(math.log10(top / 4))
    return next(step * k for k in (1, 2, 5, 10) if top / (step * k) <= 6)


def panel(y, heading, unit, groups, roof):
    """One row of bars: groups are (label, second line, {who: value}), roof (value, name) or None."""
    top = 1.12 * max([value for *_, bars in groups for value in bars.values()] + ([roof[0]] if roof else []))
    at = lambda value: y + PLOT - value / top * PLOT
    parts = [f'<text class="h" x="{LEFT}" y="{y - 14}">{heading} <tspan class="s">{unit}</tspan></text>']
    for i in range(int(top / nice_step(top)) + 1):
        value = i * nice_step(top)
        parts.append(f'<line class="g" x1="{LEFT}" x2="{WIDTH - 16}" y1="{at(value):.1f}" y2="{at(value):.1f}"/>'
                     f'<text class="s" text-anchor="end" x="{LEFT - 8}" y="{at(value) + 4:.1f}">{value:g}</text>')
    if roof:
        parts.append(f'<line class="r" x1="{LEFT}" x2="{WIDTH - 16}" y1="{at(roof[0]):.1f}" y2="{at(roof[0]):.1f}"/>'
                     f'<text class="s k" text-anchor="end" x="{WIDTH - 18}" y="{at(roof[0]) - 5:.1f}">{roof[1]} {number(roof[0])}</text>')
    slot = (WIDTH - 16 - LEFT) / len(groups)
    bar = min(24, slot * 0.8 / len(COLOURS))
    for i, (label, second, bars) in enumerate(groups):
        middle = LEFT + (i + 0.5) * slot
        for j, (who, value) in enumerate(bars.items()):
            x = middle + (j - len(bars) / 2) * bar
            parts.append(f'<rect fill="{COLOURS[who]}" x="{x:.1f}" y="{at(value):.1f}" width="{bar - 2:.1f}" '
                         f'height="{max(y + PLOT - at(value), 0.5):.1f}" rx="1.5"><title>{who}: {number(value)}</title></rect>')
            if who == "attend":
                parts.append(f'<text class="v" text-anchor="middle" x="{x + bar / 2 - 1:.1f}" y="{at(value) - 4:.1f}">'
                             f'{number(value)}</text>')
        parts.append(f'<text text-anchor="middle" x="{middle:.1f}" y="{y + PLOT + 17}">{html.escape(label)}</text>'
                     f'<text class="d" text-anchor="middle" x="{middle:.1f}" y="{y + PLOT + 31}">{html.escape(second)}</text>')
    parts.append(f'<line class="a" x1="{LEFT}" x2="{WIDTH - 16}" y1="{y + PLOT}" y2="{y + PLOT}"/>')
    return "\n".join(parts)


def bars(run, group, dtype, unit="flops"):
    found = {who: run.rate(group, f"{who} {dtype}", unit) for who in COLOURS}
    return {who: rate[0] for who, rate in found.items() if rate}


def panels(run):
    roof = lambda name: max((found["per_second"] * 1e-9 for key, found in run.result["roofs"].items() if key.startswith(name)))
    for dtype, key, name in (("f32", "fma", "FMA roof"), ("bf16", "bf16", "bf16 dot roof")):
        groups = [(case_name, f"{case.B}x{case.H}x{case.Tq}x{case.Tk}x{case.D}", bars(run, case_name, dtype))
                  for case_name, case in cases.TABLE.items()]
        yield f"Attention, {dtype}", "GFLOP/s, more is better", [g for g in groups if g[2]], (roof(key), name)
    for dtype, key, name in (("f32", "fma", "FMA roof"), ("bf16", "bf16", "bf16 dot roof")):
        groups = [(case_name.removeprefix("backward "), f"{case.B}x{case.H}x{case.Tq}x{case.Tk}x{case.D}", bars(run, case_name, dtype))
                  for case_name, case in cases.BACKWARD.items()]
        yield f"Backward, {dtype}", "GFLOP/s, more is better", [g for g in groups if g[2]], (roof(key), name)
    groups = [(f"{name}, {dtype}", f"{case.B}x{case.H} ({case.Hkv} kv)x{case.Tq}x{case.Tk}x{case.D}", bars(run, name, dtype, "bytes"))
              for name, case in cases.DECODE.items() for dtype in ("f32", "bf16")]
    yield "Decode step", "GB/s of keys and values, more is better", [g for g in groups if g[2]], (roof("read"), "memory read roof")


STYLE = """
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1f2937 } .h { font-size: 15px; font-weight: 600 }
.s { font-size: 10.5px; font-weight: 400; fill: #6b7280 } .d { font-size: 9.5px; fill: #6b7280 }
.v { font-size: 10.5px; font-weight: 600; fill: #2563eb } .k, .v { stroke: #fff; stroke-width: 3px; paint-order: stroke }
.g { stroke: #e5e7eb } .a { stroke: #9ca3af } .r { stroke: #1f2937; stroke-dasharray: 5 4 }
"""


def picture(run):
    shown = [each for each in panels(run) if each[2]]
    if not shown:
        return ""
    people = [who for who in COLOURS if any(who in bars_ for each in shown for *_, bars_ in each[2])]
    parts, x = [], LEFT
    for who in people:
        parts.append(f'<rect fill="{COLOURS[who]}" x="{x}" y="40" width="12" height="12" rx="2"/><text x="{x + 18}" y="50">{who}</text>')
        x += 38 + 7.5 * len(who)
    machine = f"{run.result['machine']['processor']}, {run.result['machine']['threads']} threads, {run.result['date']}"
    parts.append(f'<text class="s" x="{LEFT}" y="26">{html.escape(machine)}</text>')
    y = 104
    for each in shown:
        parts.append(panel(y, *each))
        y += PLOT + 84
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 40}" width="{WIDTH}" height="{y - 40}">\n'
            f'<style>{STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def write(result, path):
    """The page, and the picture where there is something to draw: beside path."""
    run = Run(result)
    drawn, svg = picture(run), path.with_suffix(".svg")
    if drawn:
        svg.write_text(drawn)
    path.with_suffix(".md").write_text(page(run, svg.name if drawn else ""))


if __name__ == "__main__":
    given = pathlib.Path(sys.argv[1])
    write(json.loads(given.read_text()), given.with_suffix(""))
