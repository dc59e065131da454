"""attend plan: what is said about a call, before it is made."""

import json
import os
import subprocess

import pytest


def attend(command, *arguments, status=0, target=None):
    environment = os.environ | ({"ATTEND_TARGET": target} if target else {})
    result = subprocess.run([command, "plan", *arguments], capture_output=True, text=True, env=environment)
    assert result.returncode == status, result.stderr
    assert (result.stderr == "") == (status == 0)
    return result.stderr if status else result.stdout


@pytest.fixture
def plan(command):
    return lambda *arguments, **options: json.loads(attend(command, *arguments, "--json", **options))


def test_text(command):
    # The target that every x86-64 processor runs, and too little work for a second thread: the same everywhere.
    try:
        text = attend(command, "1,2,100,16", "--causal", target="baseline")
    except AssertionError:
        pytest.skip("no x86-64 processor")
    lines = text.splitlines()
    assert lines[0] == "q [1,2,100,16]  k [1,2,100,16]  v [1,2,100,16]  f32"
    assert lines[1] == "  path        fused"
    assert lines[2].startswith("  why         more than 8 query rows share a key head")
    assert lines[3] == "  target      baseline"
    assert lines[4] == "  work items  2 of up to 100 query rows, 64 keys at a time"
    assert lines[5] == "  threads     1"
    assert lines[6].startswith("  scratch     ") and lines[6].endswith(" KiB")
    # 2 heads, 5050 visible pairs, 2 * (16 + 16) each.
    assert lines[7] == "  work        646 kFLOP; 50.5 % of all pairs of query and key are visible"
    assert len(lines) == 8


def test_ranges_of_keys_are_shown(command):
    text = attend(command, "1,32,1,128", "--kv", "1,8,32768,128", "--dtype", "bf16")
    assert "  path        decode\n" in text
    assert "  work items  128 of up to 4 query rows, 64 keys at a time; 16 ranges of keys a head\n" in text
    assert text.endswith("  work        537 MFLOP\n")


def test_json(plan):
    said = plan("[1,8,300,40]", "--kv", "1,2,77,40", "--v-head-size", "24", "--dtype", "f16")
    assert said["schema_version"] == 1
    assert (said["q"], said["k"], said["v"]) == ([1, 8, 300, 40], [1, 2, 77, 40], [1, 2, 77, 24])
    assert (said["dtype"], said["path"], said["key_ranges"], said["tile_keys"]) == ("f16", "fused", 1, 64)
    assert said["flops"] == 8 * 300 * 77 * 2 * (40 + 24)
    assert said["scratch_bytes"] > 0 and said["work_items"] > 0 and said["threads"] >= 1
    assert said["tile_queries"] % 4 == 0 and said["reason"]


def test_f64_uses_no_kernels(plan, command):
    said = plan("3,5,8", "--dtype", "f64")
    assert (said["path"], said["target"]) == ("reference", None)
    assert "target" not in attend(command, "3,5,8", "--dtype", "f64")


@pytest.mark.parametrize(
    "options, pairs",
    [
        (["--causal", "--offset", "bottom_right"], sum(range(91, 101))),
        (["--causal", "--offset", "top_left"], sum(range(1, 11))),
        (["--window", "3,0", "--offset", "50"], 10 * 4),
        (["--key-lengths", "60"], 600),
        (["--query-starts", "0,4,10", "--key-starts", "0,30,100"], 4 * 30 + 6 * 70),
    ],
)
def test_visible_pairs(plan, options, pairs):
    assert plan("1,1,10,8", "--kv", "1,1,100,8", *options)["flops"] == pairs * 2 * 16


def test_bias_and_slopes_take_scratch(plan):
    without = plan("1,4,200,32")["scratch_bytes"]
    bias = plan("1,4,200,32", "--bias")["scratch_bytes"]
    assert bias > without
    assert without < plan("1,4,200,32", "--alibi-slopes")["scratch_bytes"] < bias
    assert plan("1,4,200,32", "--sinks", "--mask")["flops"] == plan("1,4,200,32")["flops"]
    assert plan("4,200,32", "--alibi-slopes")["scratch_bytes"] == plan("1,4,200,32", "--alibi-slopes")["scratch_bytes"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["12"], "Q: expected a shape of 2 to 4 axes, such as 1,12,512,64, got '12'"),
        (["1,12,x,64"], "Q: expected a shape of 2 to 4 axes, such as 1,12,512,64, got '1,12,x,64'"),
        (["1,12,-1,64"], "Q: expected a shape of 2 to 4 axes, such as 1,12,512,64, got '1,12,-1,64'"),
        (["1,1,8,8", "--kv", "1,1,8,"], "--kv: expected a shape of 2 to 4 axes, such as 1,12,512,64, got '1,1,8,'"),
        (["1,1,8,8", "--key-lengths", "4;5"],
         "--key-lengths: expected whole numbers with commas between, such as 0,5,12, got '4;5'"),
        (["1,1,8,8", "--dtype", "bf61"], "--dtype: expected f32, bf16, f16 or f64, got 'bf61'; did you mean 'bf16'?"),
        (["1,1,8,8", "--window", "3"],
         "--window: expected LEFT,RIGHT, two whole numbers such as 128,0 (-1 is open), got '3'"),
        (["1,1,8,8", "--offset", "3"], "--offset: nothing uses it without --causal, --window, --distance-bias or --alibi-slopes"),
    ],
)
def test_usage_errors(command, arguments, message):
    assert attend(command, *arguments, status=2) == f"attend: {message}\ntry: attend plan --help\n"


def test_shapes_that_do_not_fit_are_refused_as_attention_refuses_them(command):
    assert attend(command, "2,8,5,80", "--kv", "2,8,7,64", status=1) == (
        "attend: plan: k has head size 64, q has 80 (q [2,8,5,80], k [2,8,7,64], v [2,8,7,64])\n")
    assert "top_left" in attend(command, "1,1,5,8", "--kv", "1,1,7,8", "--causal", status=1)
    assert "query_starts" in attend(command, "1,1,5,8", "--query-starts", "0,5", status=1)


def test_ranks(plan):
    """Shares cover the sequence; what is sent is received; a causal zigzag has all compute as much, an uneven one does not."""
    said = plan("1,4,16384,64", "--causal", "--ranks", "4")
    assert said["sharding"] == "zigzag" and not said["backward"] and len(said["ranks"]) == 4
    for what in ("queries", "keys"):
        runs = sorted(run for rank in said["ranks"] for run in rank[what])
        assert [run[0] for run in runs] == [0, *(run[1] for run in runs[:-1])] and runs[-1][1] == 16384
    assert sum(rank["sent_bytes"] for rank in said["ranks"]) == sum(rank["received_bytes"] for rank in said["ranks"]) > 0
    pairs = 16384 * 16385 / 2
    assert sum(rank["flops"] for rank in said["ranks"]) == 2 * (64 + 64) * 4 * pairs
    work = [rank["flops"] for rank in said["ranks"]]
    assert max(work) < 1.25 * min(work)
    uneven = plan("1,4,16384,64", "--causal", "--ranks", "4", "--sharding", "contiguous")
    assert uneven["ranks"][3]["flops"] > 5 * uneven["ranks"][0]["flops"]
    assert said["seconds"] >= sum(work) / 4 / said["rate"] and 0 < said["efficiency"] <= 1
    assert sum(rank["share_bytes"] for rank in said["ranks"]) == 4 * 16384 * (4 * 64 + 2) * 4  # q, k, v, out; lse, lse_low


def test_ranks_take_what_a_network_costs(plan):
    call = ["1,4,16384,64", "--ranks", "4"]
    fast, slow = plan(*call), plan(*call, "--bandwidth", "1e6")
    assert slow["seconds"] > 10 * fast["seconds"] and slow["bandwidth"] == 1e6
    assert plan(*call, "--latency", "1")["seconds"] > fast["seconds"] + 1
    assert plan(*call, "--rate", "2e11")["seconds"] < 0.75 * fast["seconds"]
    assert plan(*call, "--backward")["seconds"] > 2 * fast["seconds"]


def test_ranks_as_text(command):
    lines = attend(command, "1,4,16384,64", "--causal", "--ranks", "40", "--sharding", "contiguous").splitlines()
    assert lines[0] == "q [1,4,16384,64]  k [1,4,16384,64]  v [1,4,16384,64]  f32"
    assert lines[1].split() == ["ranks", "40,", "contiguous"] and lines[-1].strip() == "and 32 more, which --json has"
    assert lines[6].split()[:3] == ["rank", "queries", "share"]


@pytest.mark.parametrize("arguments, message", [
    (["--latency", "1"], "--latency: nothing uses it without --ranks"),
    (["--backward"], "--backward: nothing uses it without --ranks"),
    (["--ranks", "2", "--rate", "0"], "--rate: expected a number above 0, got '0'"),
    (["--ranks", "2", "--bandwidth", "fast"], "--bandwidth: expected a number, got 'fast'"),
    (["--ranks", "0"], "--ranks: expected a whole number from 1 to 65536, got '0'"),
    (["--ranks", "2", "--sharding", "even"], "--sharding: expected contiguous or zigzag, got 'even'"),
])
def test_ranks_that_can_not_be(command, arguments, message):
    assert attend(command, "1,4,1024,64", *arguments, status=2).splitlines()[0] == f"attend: {message}"
