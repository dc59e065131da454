"""What a head does, from its exact weights: the definitions of docs/inside.md in NumPy, without the library.

scores(weights, visible, tokens) -> {"sink": ..., "excess": {...}, "labels": [(name, value)], "without_sink": {...}}
"""

import numpy as np

KINDS = ("sink", "self", "previous", "duplicate", "induction", "local")
THRESHOLDS = {"sink": 0.3, "self": 0.3, "previous": 0.3, "duplicate": 0.3, "induction": 0.3, "local": 0.5}
# A recording's tensor `scores`, in the file's order.
SCORES = ("sink", "sink_key", "previous", "duplicate", "induction", "local", "entropy", "distance", "self", "rows", "keys_seen")


def _sink(w, seen):
    """(score, key, excess): of rows that see more than one key, and keys that at least half as many see as any."""
    rows = seen.sum(1) > 1
    w, seen = w[rows], seen[rows]
    by = seen.sum(0)
    if not by.any():
        return None, -1, None
    counts = (by > 0) & (2 * by >= by.max())
    mean = np.where(counts, np.where(seen, w, 0).sum(0) / np.maximum(by, 1), -1)
    u = np.where(counts, (seen / seen.sum(1, keepdims=True)).sum(0) / np.maximum(by, 1), 0).max()
    key = int(mean.argmax())
    return mean[key], key, (mean[key] - u) / (1 - u) if by[key] >= 8 and 1 - u >= 0.1 else None


def _excess(w, seen, of, rows):
    """rows: of how many rows s, u and m are means."""
    of = of & seen
    s, u, m = np.where(of, w, 0).sum(), (of / seen.sum(1, keepdims=True)).sum(), of.any(1).sum()
    return (s - u) / (m - u) if m >= 8 and (m - u) / rows >= 0.1 else None


def _kinds(shape, tokens, offset):
    level, key = np.arange(shape[0])[:, None] + offset, np.arange(shape[1])
    near = abs(level - key) <= 8
    of = {"self": key == level, "previous": key == level - 1, "near": near,
          "local": near & (key != level) & (key != level - 1)}
    if tokens is not None:
        own = np.asarray(tokens)[level]
        before = np.concatenate(([-1], tokens[:-1]))
        of |= {"duplicate": (key < level) & (tokens == own), "induction": (key > 0) & (key <= level) & (before == own)}
    return of


def _labels(excess, known, effective, seen):
    holds = {name: excess[name] for name in KINDS if excess.get(name) is not None and excess[name] > THRESHOLDS[name]}
    if "self" in holds or "previous" in holds:
        holds.pop("local", None)
    if holds or not known:
        return sorted(holds.items(), key=lambda x: -x[1])
    return [("broad" if 2 * effective > seen else "focused" if effective < 3 else "other", effective)]


def scores(weights, visible, tokens=None, offset=0, besides=True):
    """weights [Tq,Tk] of one head, visible likewise, bool; tokens [Tk]; offset None: no key is level with a query."""
    w, seen = np.asarray(weights, np.float64), np.asarray(visible, bool)
    rows = seen.any(1)
    of = {} if offset is None else _kinds(w.shape, tokens, offset)
    of = {name: (x & np.ones_like(seen))[rows] for name, x in of.items()}
    level = np.arange(w.shape[0])[rows] + (offset or 0)
    w, seen = w[rows], seen[rows]
    n = len(w)
    s = dict.fromkeys(("self", "previous", "duplicate", "induction", "local", "distance"))
    s |= {"rows": n, "entropy": -(w * np.log(np.where(w > 0, w, 1))).sum(1).mean() if n else 0,
          "keys_seen": np.exp(np.log(seen.sum(1)).mean()) if n else 1}
    s["effective_keys"] = np.exp(s["entropy"])
    s["sink"], s["sink_key"], sink = _sink(w, seen)
    excess = dict.fromkeys(KINDS) | {"sink": sink}
    if of and n:
        for name in ("self", "previous"):
            has = (of[name] & seen).any(1)
            s[name] = w[of[name] & seen].sum() / has.sum() if has.any() else None
            excess[name] = _excess(w, seen, of[name], max(1, has.sum()))
        for name in ("duplicate", "induction"):
            if name in of:
                s[name], excess[name] = w[of[name]].sum() / n, _excess(w, seen, of[name], n)
        s["local"], excess["local"] = w[of["near"]].sum() / n, _excess(w, seen, of["local"], n)
        s["distance"] = (w * abs(level[:, None] - np.arange(w.shape[1]))).sum() / n
    s["excess"], s["without_sink"] = excess, None
    s["labels"] = _labels(excess, sink is not None, s["effective_keys"], s["keys_seen"])
    if besides and "sink" in dict(s["labels"]):
        s["without_sink"] = _without(np.asarray(weights, np.float64), np.asarray(visible, bool), tokens, offset, s["sink_key"])
    return s


def _without(w, seen, tokens, offset, sink):
    """The rows without that key, scaled by 1 / (1 - w(i, sink))."""
    kept = 1 - np.where(seen[:, sink], w[:, sink], 0)
    others = seen.copy()
    others[:, sink] = False
    out = others.any(1) & (kept < 0.01)
    others[out] = False
    s = scores(np.where(others, w / np.where(kept > 0, kept, 1)[:, None], 0), others, tokens, offset, besides=False)
    excess = s["excess"] | {"sink": None}
    known = s["rows"] >= 8
    if not s["rows"]:
        s |= {"effective_keys": 0, "keys_seen": 0}
    return {"excess": excess, "labels": _labels(excess, known, s["effective_keys"], s["keys_seen"]),
            "effective_keys": s["effective_keys"], "keys_seen": s["keys_seen"], "rows_left_out": int(out.sum())}


def text(s):
    """ "sink .81; besides: induction .69"."""
    def joined(labels):
        return ", ".join(name + (f" {value:.2f}".replace(" 0.", " .") if name in KINDS else "") for name, value in labels)

    if not s["labels"]:
        return "unknown"
    rest = s["without_sink"]
    return joined(s["labels"]) + (f"; besides: {joined(rest['labels'])}" if rest and rest["labels"] else "")


def file_row(s):
    """The numbers of a recording's tensor `scores`."""
    rest = s["without_sink"] or {"excess": dict.fromkeys(KINDS), "effective_keys": None, "keys_seen": None, "rows_left_out": -1}
    numbers = [s[name] for name in SCORES] + [s["excess"][name] for name in KINDS]
    numbers += [rest["excess"][name] for name in KINDS] + [rest["effective_keys"], rest["keys_seen"], rest["rows_left_out"]]
    return [np.nan if x is None else x for x in numbers]


def check(line, weights, visible, tokens=None, offset=0, tolerance=1e-5):
    """That a line of Recording.heads() is what those weights give; tolerance: how far a score may be off."""
    s = scores(weights, visible, tokens, offset)
    assert line["sink_key"] == s["sink_key"] or abs(weights[:, line["sink_key"]] - weights[:, s["sink_key"]]).max() < tolerance
    for name in ("sink", "self", "previous", "duplicate", "induction", "local", "entropy", "distance"):
        np.testing.assert_allclose(line[name], np.nan if s[name] is None else s[name], rtol=1e-4, atol=tolerance, err_msg=name)
    for name in KINDS:  # of a range of at least 0.1
        expected = s["excess"][name]
        np.testing.assert_allclose(line[f"{name}_excess"], np.nan if expected is None else expected, rtol=0, atol=20 * tolerance,
                                   err_msg=f"{name} excess")
    words = [part.split()[0] for half in line["labels"].split("; besides: ") for part in half.split(", ")]
    expected = [part.split()[0] for half in text(s).split("; besides: ") for part in half.split(", ")]
    assert words == expected or not _is_clear(s), (line["labels"], text(s))
    return s


def _is_clear(s):
    """Whether no excess lies on its threshold or beside another's, where rounding decides."""
    for of in (s, s["without_sink"]):
        if of is None:
            continue
        values = [x for x in of["excess"].values() if x is not None] + [0.3, 0.5]
        gaps = [abs(a - b) for n, a in enumerate(values) for b in values[:n]]
        gaps += [abs(2 * of["effective_keys"] / max(of["keys_seen"], 1e-9) - 1), abs(of["effective_keys"] - 3)]
        if min(gaps) < 1e-3:
            return False
    return True
