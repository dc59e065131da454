"""Two builds of attend measured against each other, in one run: `bench.py --against DIR`."""

import dataclasses
import math
import pathlib
import re
import statistics
import subprocess

import cases
import report

OTHER = "other build"
# What two builds are compared in. The rest needs Python, which holds one build at a time, or is of attend's own cases again.
SECTIONS = ("table", "backward", "decode", "caches", "tokens", "options", "linear", "layer")
# A change that should cost nothing is one that stays above these.
LEAST_MEAN, LEAST_CASE = 0.995, 0.98


def worker_in(given):
    """The other build's worker: the path itself, or attend_bench in that build folder."""
    path = pathlib.Path(given)
    worker = path / "attend_bench" if path.is_dir() else path
    if not worker.is_file():
        raise SystemExit(f"bench.py: --against: no {worker}; in the other tree: cmake -DATTEND_BUILD_BENCHMARKS=ON and "
                         "cmake --build FOLDER --target attend_bench")
    return str(worker.resolve())


def commit_of(worker):
    """The commit of the tree that a build folder was made from; "" where it doesn't say."""
    cache = pathlib.Path(worker).parent / "CMakeCache.txt"
    tree = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    git = lambda *words: subprocess.run(["git", "-C", tree[1], *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else "") if tree else ""


def groups(chosen):
    """Of the chosen groups each case of attend's as a group of its own: this build and the other, one right after the other."""
    found = []
    for group in chosen:
        for entry in group.entries if group.section in SECTIONS else ():
            if entry.worker != "attend" or entry.case is None or entry.one_thread:
                continue
            pair = (dataclasses.replace(entry, key="attend"), dataclasses.replace(entry, key=OTHER, worker=OTHER))
            which = entry.key.removeprefix("attend").strip()
            found.append(cases.Group(f"{group.name}, {which}" if which else group.name, group.section, pair, OTHER))
    return found


def interval(values):
    """The shortest pair of order statistics that holds the median with a chance of at least 95 %, and that chance.

    It assumes nothing of how times are spread. Fewer than six values reach less than 95 %: then it is all of them."""
    values, n = sorted(values), len(values)
    outside = lambda k: sum(math.comb(n, i) for i in range(k + 1)) / 2 ** (n - 1)  # both sides, k values cut off each
    cut = max((k for k in range((n - 1) // 2 + 1) if outside(k) <= 0.05), default=0)
    return values[cut], values[n - 1 - cut], 1 - outside(cut)


def ratios(group):
    """How many times as fast as the other build, round by round."""
    mine, others = (group["entries"][key]["rounds"] for key in ("attend", OTHER))
    return [other / own for own, other in zip(mine, others)]


def compared(result):
    """Each case's ratio and interval, their geometric mean, and what is slower beyond doubt."""
    found, rounds = {}, []
    for group in result["groups"]:
        if len(group["entries"]) == 2:
            rounds.append(ratios(group))
            low, high, chance = interval(rounds[-1])
            found[group["name"]] = {"ratio": statistics.median(rounds[-1]), "low": low, "high": high, "chance": chance,
                                    "differs": group["entries"]["attend"]["differs"]}
    mean = lambda values: math.exp(statistics.fmean(map(math.log, values)))
    low, high, chance = interval([mean(each) for each in zip(*rounds)]) if rounds else (None, None, None)
    return {"cases": found, "slower": [name for name, each in found.items() if each["high"] < LEAST_CASE],
            "mean": {"ratio": mean([each["ratio"] for each in found.values()]) if found else None, "low": low, "high": high,
                     "chance": chance}}


def page(result):
    found, machine, other = result["against"], result["machine"], result["other"]
    lines = [f"# attend at {machine['commit']} against {other['commit'] or 'another build'}\n"]
    if result["quick"]:
        lines.append("- **A run with --quick: tiny cases under the names of the real ones. It tests the harness and measures nothing.**")
    lines += [f"- {result['date']}, {machine['processor']}, {machine['threads']} threads, {machine['system']}",
              f"- compiler {machine['compiler']}; of the other build {other['compiler']}",
              f"- {result['rounds']} rounds in {result['minutes']:.0f} minutes. In a round one build runs right after the other, each in a "
              "new process, the order changing from round to round; a ratio is the median of the rounds' (above 1: faster than the other "
              "build), with the [interval](../README.md#against-another-build) that holds it with a chance of 95 % or more"]
    if "disturbance" in result:
        lines.append("- while it ran, other programs used {others:.1%} of the processor, and the machine's host took {stolen:.1%}".format(
            **result["disturbance"]))
    bounds = lambda each: f"{each['low']:.3f} to {each['high']:.3f}"
    if found["cases"]:
        mean = found["mean"]
        lines += ["", f"Geometric mean: **{mean['ratio']:.3f}** ({bounds(mean)}); {LEAST_MEAN} is what a change that should cost "
                  "nothing must reach.",
                  f"Wholly below {LEAST_CASE}: {', '.join(found['slower']) or 'no case'}.", ""]
    run = report.Run(result)

    def milliseconds(name, key):
        seconds = run.seconds(name, key)
        return report.number(1e3 * seconds) if seconds >= 1e-3 else f"{1e3 * seconds:.4f}"

    rows = [[name, milliseconds(name, "attend"), milliseconds(name, OTHER), f"{each['ratio']:.3f}", bounds(each),
             "the same" if each["differs"] == 0 else f"{each['differs']:.0e} off"] for name, each in found["cases"].items()]
    lines.append(report.table(["case", "ms", "other build's ms", "times as fast", "interval", "results"], rows))
    return "\n".join(lines) + report.left_out(run)


def write(result, path):
    path.with_suffix(".md").write_text(page(result).rstrip() + "\n")
