"""The benchmark's harness, on tiny cases: it runs, counts right, refuses wrong results and judges rightly. Never a timed test."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import types
import xml.etree.ElementTree

import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import against  # noqa: E402
import bench  # noqa: E402
import cases  # noqa: E402
import report  # noqa: E402
from worker import Worker, WorkerError  # noqa: E402


@pytest.fixture(scope="module")
def worker_path(command):
    return str(pathlib.Path(command).with_name("attend_bench"))


def test_a_run_without_a_drawn_case_has_no_picture(tmp_path):
    result = {"date": "2026-01-01", "quick": True, "rounds": 2, "minutes": 0, "groups": [], "memory": {}, "roofs": {
        f"{roof}, 1 thread": {"per_second": 1e9, "loop": "a loop"} for roof in ("fma", "bf16", "read")},
        "machine": {"processor": "p", "system": "s", "threads": 1, "commit": "c", "compiler": "c", "versions": {"attend": "0"}}}
    report.write(result, tmp_path / "run")
    assert not (tmp_path / "run.svg").exists() and "![" not in (tmp_path / "run.md").read_text()


@pytest.mark.parametrize("file", sorted((REPOSITORY / "benchmarks/results").glob("*.svg")), ids=lambda file: file.stem)
def test_committed_pictures_are_of_their_numbers(file, tmp_path):
    report.write(json.loads(file.with_suffix(".json").read_text()), tmp_path / "run")
    picture = xml.etree.ElementTree.parse(file)
    made = xml.etree.ElementTree.parse(tmp_path / "run.svg")
    assert [text.text for text in picture.iter("{*}text")] == [text.text for text in made.iter("{*}text")]


OPTIONS = [{}, {"causal": True}, {"causal": True, "offset": 3}, {"window": (2, 1)}, {"window": (2, -1), "offset": -4},
           {"window": (3, 0), "causal": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_visible_pairs_are_counted_exactly(options):
    case = cases.Attention(2, 3, 7, 9, 8, **options)
    offset, window = options.get("offset", 0), options.get("window", (-1, -1))
    visible = 0
    for i in range(7):
        for j in range(9):
            seen = not options.get("causal") or j <= i + offset
            seen &= window[0] < 0 or j >= i + offset - window[0]
            seen &= window[1] < 0 or j <= i + offset + window[1]
            visible += seen
    assert case.visible_pairs() == 2 * 3 * visible
    assert case.work()["flops"] == 4 * 8 * 2 * 3 * visible
    assert dataclasses.replace(case, backward=True).work()["flops"] == 10 * 8 * 2 * 3 * visible


def test_visible_pairs_of_a_mask():
    case = cases.Attention(1, 3, 7, 7, 8, mask="causal")
    assert case.visible_pairs(case.inputs()) == 3 * 28


def test_bf16_inputs_are_rounded_to_nearest_even():
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1.5], dtype=np.float32)
    assert cases.held_by("bf16", x).tolist() == [1, 1 + 2**-6, 1 + 2**-7, -1.5]


PEER = """
import sys
sys.path.insert(0, {peers!r})
import numpy as np, protocol
NAME, VERSION = "peer", "1"
set_threads = lambda threads: None
def ways(case, inputs):
    if case["causal"]:
        raise protocol.CannotDo("causal")
    scores = inputs["q"] @ inputs["k"].swapaxes(-1, -2) / inputs["q"].shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return [("NumPy", lambda: weights @ inputs["v"] {wrong}, lambda out: out)]
protocol.serve(sys.modules[__name__])
"""


@pytest.fixture
def run_with_peer(worker_path, tmp_path):
    """Runs one tiny case beside a peer of NumPy, whose result is changed by `wrong`."""

    def run(wrong="", causal=False):
        options = types.SimpleNamespace(worker=worker_path, against=None, no_peers=True, quick=True, rounds=2, seconds=0.001, threads=1)
        program = tmp_path / "peer.py"
        program.write_text(PEER.format(peers=str(REPOSITORY / "benchmarks/peers"), wrong=wrong))
        harness = bench.Bench(options, tmp_path, [])
        harness.workers["PyTorch"] = Worker([sys.executable, str(program), "1"])
        harness.longest_wait["PyTorch"] = 0.0
        case = cases.Attention(1, 2, 5, 7, 8, causal=causal, offset=2 if causal else None)
        entries = (cases.Entry("attend f32", case=case), cases.Entry("PyTorch f32", "PyTorch", case))
        try:
            return harness.run_group(cases.Group("case", "table", entries, "attend f32"))
        finally:
            harness.close()

    return run


def test_a_peer_that_agrees_is_measured(run_with_peer):
    group = run_with_peer()
    assert len(group["entries"]["PyTorch f32"]["rounds"]) == 2 and not group["cannot"]


@pytest.mark.parametrize("wrong", ["* 1.001", "* np.nan", "[..., 1:]"])
def test_a_peer_that_disagrees_is_left_out(run_with_peer, wrong):
    group = run_with_peer(wrong)
    assert "PyTorch f32" not in group["entries"] and "differs" in group["cannot"]["PyTorch f32"]


def test_a_peer_that_cannot_do_a_case_says_so(run_with_peer):
    group = run_with_peer(causal=True)
    assert list(group["entries"]) == ["attend f32"] and "causal" in group["cannot"]["PyTorch f32"]


def test_a_worker_reports_its_errors(worker_path):
    worker = Worker([worker_path])
    with pytest.raises(WorkerError, match="no request dance"):
        worker.ask(do="dance")
    worker.close()


def test_ratios_are_taken_within_a_round():
    entries = {"attend f32": {"rounds": [1, 2, 4]}, "PyTorch f32": {"rounds": [3, 4, 2]}, "OpenVINO f32": {"rounds": [2, 9, 9]}}
    run = report.Run({"groups": [{"name": "512", "entries": entries}], "memory": {}})
    assert run.faster("512", "attend f32", "PyTorch f32") == 2
    assert run.fastest_peer("512", "f32") == ("PyTorch", 2)
    assert run.geometric_mean(["512", "8192"], "f32") == 2


def test_runtimes_compute_minilm_in_the_dtypes_they_have():
    found = {group.name: [entry.key for entry in group.entries] for group in cases.groups() if group.section == "pretrained"}
    name = "attend.Model: MiniLM, 8 x 128 tokens"
    assert found[f"{name}, f32"] == ["attend", "Transformers", "ONNX Runtime", "OpenVINO"]
    assert found[f"{name}, bf16"] == ["attend", "Transformers", "OpenVINO"]
    assert found["attend.Model: SmolLM2-135M, prefill 1024, f32"] == ["attend", "Transformers"]


def test_each_runtime_stands_beside_its_ratio():
    times = {"attend": 1, "Transformers": 2, "OpenVINO": 4}
    entries = {who: {"rounds": [seconds], "tokens": 8} for who, seconds in times.items()}
    opened = {who: {"rounds": [seconds], "tokens": 8} for who, seconds in times.items() if who != "OpenVINO"}
    groups = [{"name": "attend.Model: MiniLM, 8 x 128 tokens, bf16", "entries": entries},
              {"name": "attend.Model: MiniLM, opened, f32", "entries": opened}]
    lines = report.pretrained(report.Run({"groups": groups, "memory": {}})).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len({len(row) for row in rows}) == 1
    rate = lambda tokens: f"{tokens} ({tokens} to {tokens}) tokens/s"
    assert dict(zip(rows[0], rows[2]))["ONNX Runtime"] == ""
    assert rows[2][:8] == ["MiniLM, 8 x 128 tokens, bf16", rate("8.00"), rate("4.00"), "2.00x", "", "", rate("2.00"), "4.00x"]
    assert rows[3][:4] == ["MiniLM, opened, f32", "1000 ms", "2000 ms", "2.00x"]


@pytest.mark.parametrize("value, more, wanted", [(0.91, True, "aim"), (0.9, True, "aim"), (0.85, True, "pass"), (0.79, True, "**short**"),
                                                 (0.79, False, "aim"), (0.95, False, "**short**")])
def test_verdicts(value, more, wanted):
    must, aim = (0.8, 0.9) if more else (0.9, 0.8)
    assert report.verdict(report.demand("", must, aim, value, more=more)) == wanted


def test_the_worst_case_decides():
    found = report.lowest("", 1, 1, {"a": 3, "b": 2, "c": None})
    assert (found["value"], found["decides"]) == (2, "b")
    found = report.lowest("", 1, 1, {"a": 3, "b": 2}, more=False)
    assert (found["value"], found["decides"]) == (3, "a")


def test_small_cases_keep_their_options():
    for name, case in cases.memory_cases().items():
        tiny = dataclasses.asdict(cases.small(case))
        kept = ("dtype", "causal", "window", "mask", "bias", "alibi", "softcap", "sinks", "lengths", "backward")
        assert [tiny[key] for key in kept] == [dataclasses.asdict(case)[key] for key in kept], name


@pytest.fixture(scope="module")
def compared(worker_path, tmp_path_factory):
    """This build against itself, in tiny cases: the result, and its page."""
    out = tmp_path_factory.mktemp("against")
    subprocess.run([sys.executable, REPOSITORY / "benchmarks/bench.py", "--quick", "--out", out, "--worker", worker_path, "--against",
                    pathlib.Path(worker_path).parent], check=True, capture_output=True)
    paths = {path.suffix: path for path in out.iterdir()}
    return json.loads(paths[".json"].read_text()), paths[".md"].read_text()


def test_another_build_runs_beside_this_one_in_every_case(compared):
    result, page = compared
    names = [f"{group.name}, {entry.key.removeprefix('attend ')}".removesuffix(", attend")
             for group in cases.groups() if group.section in against.SECTIONS
             for entry in group.entries if entry.worker == "attend" and entry.case and not entry.one_thread]
    some = {"512, bf16", "backward 512, f32", "decode 4096, f16", "6 tokens, f32", "options bf16, bias", "linear 512x768x768 f32"}
    assert some <= set(names)
    assert list(result["against"]["cases"]) == names
    assert all(list(group["entries"]) == ["attend", against.OTHER] for group in result["groups"])
    assert all(each["low"] <= each["ratio"] <= each["high"] and each["differs"] == 0 for each in result["against"]["cases"].values())
    assert "measures nothing" in page and "Geometric mean" in page and all(f"| {name} |" in page for name in names)


def made_up(**rounds):
    """A result of cases whose rounds took so long in this build, and 1 in the other."""
    entries = lambda times: {"attend": {"rounds": times, "differs": 0}, against.OTHER: {"rounds": [1] * len(times)}}
    return {"groups": [{"name": name, "entries": entries(times)} for name, times in rounds.items()]}


def test_what_is_slower_beyond_doubt_is_named():
    found = against.compared(made_up(same=[1, 1.1, 0.9, 1, 1, 1, 1, 1], slow=[1.1] * 8, once=[1, 1, 1, 1, 1, 1, 1, 2]))
    assert found["slower"] == ["slow"]
    assert found["cases"]["once"]["ratio"] == 1 and found["cases"]["slow"]["ratio"] == pytest.approx(1 / 1.1)
    assert found["mean"]["ratio"] == pytest.approx(1.1 ** (-1 / 3))


@pytest.mark.parametrize("count, cut", [(2, 0), (5, 0), (6, 0), (8, 0), (9, 1), (15, 3), (25, 7)])
def test_the_interval_holds_the_median_so_often(count, cut):
    low, high, chance = against.interval(range(count, 0, -1))
    assert (low, high) == (1 + cut, count - cut)
    # Of how many of `count` values lie below the median the interval fails where that is too few or too many: counted by drawing.
    below = np.random.default_rng(count).binomial(count, 0.5, 200_000)
    assert chance == pytest.approx(np.mean((below > cut) & (below < count - cut)), abs=0.01)
    assert chance >= 0.95 or count < 6


def test_another_build_that_is_not_there_is_said(tmp_path):
    done = subprocess.run([sys.executable, REPOSITORY / "benchmarks/bench.py", "--against", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and f"no {tmp_path / 'attend_bench'}" in done.stderr
