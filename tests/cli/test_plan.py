"""attend plan: what is said about a call, before it is made."""

import json
import os
import subprocess

import pytest


def attend(command, *arguments, status=0, target=None):
    environment = os.environ | ({"ATTEND_TARGET": target} if target else {})
    result = subprocess.run([command, "plan", *arguments], capture_output=True, text=True, timeout=60, env=environment)
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
