"""attend run --summary and --weights, against NumPy's softmax in float64."""

import re
import signal
import subprocess

import head_oracle
import numpy as np
import pytest
from faults import with_racing_clock
from safetensors.numpy import load_file
from terminal import run_in_terminal

B, H, GROUP, TQ, TK, D = 2, 4, 2, 11, 13, 8
OFFSET = TK - TQ
I, J = np.arange(TQ)[:, None], np.arange(TK)
CAUSAL = ["--causal", "--offset", "bottom_right"]


def softmax(q, k, visible=None, sinks=None):
    """[B,H,Tq,Tk] in float64, and what the sinks take of each row."""
    logits = q.astype(np.float64) @ np.swapaxes(np.repeat(k.astype(np.float64), GROUP, 1), -1, -2) / np.sqrt(q.shape[-1])
    if visible is not None:
        logits = np.where(visible, logits, -np.inf)
    if sinks is not None:
        logits = np.append(logits, np.broadcast_to(sinks.astype(np.float64)[:, None, None], (*logits.shape[:-1], 1)), -1)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights, None) if sinks is None else (weights[..., :-1], weights[..., -1])


def summary(weights, visible, top=8, map=None):
    """What docs/inside.md defines, of whole matrices."""
    order = np.argsort(-weights, axis=-1, kind="stable")[..., :top]
    safe = np.where(weights > 0, weights, 1)
    uniform = np.where(visible, 1 / visible.sum(-1, keepdims=True), 0).sum(0)
    found = {"top_keys": order, "top_weights": np.take_along_axis(weights, order, -1), "entropy": -(weights * np.log(safe)).sum(-1),
             "distance": (weights * abs(I + OFFSET - J)).sum(-1), "received": weights.sum(-2), "lift": weights.sum(-2) / uniform}
    hidden = found["top_weights"] == 0
    found["top_keys"] = np.where(hidden, -1, order)
    if map:
        rows, columns = np.arange(TQ) * map[0] // TQ, np.arange(TK) * map[1] // TK
        blocks = [[weights[..., rows == r, :][..., columns == c] for c in range(map[1])] for r in range(map[0])]
        found["map"] = np.moveaxis(np.array([[b.sum(-1).mean(-1) for b in row] for row in blocks]), (0, 1), (-2, -1))
        found["map_max"] = np.moveaxis(np.array([[b.max((-1, -2)) for b in row] for row in blocks]), (0, 1), (-2, -1))
    return found


def agree(found, expected):
    """f32 logits of magnitude 4 are off by some 1e-6, and sums of 13 weights no more; a lift is at most 13 of them."""
    assert sorted(found) == sorted(expected)
    for name, numbers in expected.items():
        assert found[name].shape == numbers.shape, name
        np.testing.assert_allclose(found[name], numbers, rtol=0, atol=0 if name == "top_keys" else 2e-5, err_msg=name)


@pytest.fixture
def inputs(tmp_path):
    generator = np.random.default_rng(15)
    shapes = {"q": (B, H, TQ, D), "k": (B, H // GROUP, TK, D), "v": (B, H // GROUP, TK, 5), "sinks": (H,)}
    tensors = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        np.save(tmp_path / f"{name}.npy", tensor)
    return tensors


@pytest.fixture
def attend(command, tmp_path):
    def run(*arguments, status=0):
        result = subprocess.run([command, "run", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == status, result.stderr
        assert status or re.fullmatch(r"(attend: wrote \S+\n)*", result.stderr)  # no progress
        return result.stderr if status else result.stdout

    return run


@pytest.mark.parametrize("values", [["v.npy"], []])
@pytest.mark.parametrize("name, load", [("s.npz", np.load), ("s.safetensors", load_file)])
def test_summary_in_a_file(attend, inputs, tmp_path, values, name, load):
    assert attend("q.npy", "k.npy", *values, *CAUSAL, "--summary", "-o", name) == ""
    found = dict(load(tmp_path / name))
    if values:
        attend("q.npy", "k.npy", "v.npy", *CAUSAL, "-o", "plain.npy")
        assert found.pop("out").tobytes() == np.load(tmp_path / "plain.npy").tobytes()
    visible = J <= I + OFFSET
    agree(found, summary(softmax(inputs["q"], inputs["k"], visible)[0], visible))
    assert found["top_keys"].dtype == np.int64


def test_summary_with_everything(attend, inputs, tmp_path):
    everything = ["--summary", "--top=3", "--map", "4,5", "--weights", "2:9,:7", "--lse", "s.npz", "--dropout=0.5"]
    attend("q.npy", "k.npy", "v.npy", "--sinks", "sinks.npy", "--offset", "bottom_right", *everything, "-o", "s.npz")
    found = dict(np.load(tmp_path / "s.npz"))
    visible = np.ones((TQ, TK), bool)
    weights, taken = softmax(inputs["q"], inputs["k"], sinks=inputs["sinks"])
    expected = summary(weights, visible, top=3, map=(4, 5)) | {"sink_weights": taken, "weights": weights[..., 2:9, :7]}
    assert found.pop("out").shape == (B, H, TQ, 5) and found.pop("lse").shape == (B, H, TQ)
    agree(found, expected)


def test_what_nobody_asked_for_or_knows_is_left_out(attend, inputs, tmp_path):
    attend("q.npy", "k.npy", "--summary", "--top=0", "-o", "s.npz")
    assert sorted(np.load(tmp_path / "s.npz")) == ["entropy", "lift", "received"]  # 11 queries, 13 keys, and no offset


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("part, rows, columns", [("0:3,9:13", slice(0, 3), slice(9, 13)), (":,5:", slice(None), slice(5, None)),
                                                 ("10:,:1", slice(10, None), slice(0, 1)), (":,:", slice(None), slice(None))])
def test_weights(attend, inputs, tmp_path, dtype, tolerance, part, rows, columns):
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", inputs[name].astype(dtype))
    visible = J <= I + OFFSET
    expected = softmax(inputs["q"], inputs["k"], visible)[0][..., rows, columns]
    attend("q.npy", "k.npy", *CAUSAL, "--weights", part, "-o", "w.npy")
    attend("q.npy", "k.npy", "v.npy", *CAUSAL, "--weights", part, "-o", "w.npz")
    both = np.load(tmp_path / "w.npz")
    assert sorted(both) == ["out", "weights"]
    for weights in np.load(tmp_path / "w.npy"), both["weights"]:
        assert weights.shape == expected.shape and weights.dtype == dtype
        np.testing.assert_allclose(weights, expected, rtol=0, atol=tolerance)


def rows_of(table):
    """Below the shapes and the names."""
    return [line.split() for line in table.splitlines()[2:]]


def test_table(attend, inputs):
    table = attend("q.npy", "k.npy", *CAUSAL, "--summary")
    assert table.splitlines()[0] == "q [2,4,11,8]  k [2,2,13,8]  f32"
    assert table.splitlines()[1].split() == ["batch", "head", "entropy", "keys", "distance", "sink", "at", "key", "lift", "at",
                                             "key", "labels"]
    visible = J <= I + OFFSET
    weights = softmax(inputs["q"], inputs["k"], visible)[0]
    expected = summary(weights, visible)
    # Every query sees two keys or more, and half of the queries, 6, see the keys up to 7.
    sink = np.where(visible.sum(0) >= 6, weights.sum(-2) / visible.sum(0), 0)
    # Uniform attention gives the last keys less than half of what it gives one on average.
    uniform = np.where(visible, 1 / visible.sum(-1, keepdims=True), 0).sum(0)
    lift = np.where(2 * uniform >= uniform.mean(), expected["lift"], 0)
    assert lift.argmax(-1).max() < expected["lift"].argmax(-1).max() == TK - 1
    rows = rows_of(table)
    assert [row[:2] for row in rows] == [[str(b), str(h)] for b in range(B) for h in range(H)]
    for row in rows:
        at = int(row[0]), int(row[1])
        entropy, distance = expected["entropy"][at].mean(), expected["distance"][at].mean()
        numbers = [entropy, np.exp(entropy), distance, sink[at].max(), sink[at].argmax(), lift[at].max(), lift[at].argmax()]
        # Half of the last digit, and what f32 rounds.
        errors = abs(np.array(row[2:9], float) - numbers)
        assert (errors <= [6e-4, 0.06, 0.06, 6e-4, 0, 6e-3, 0]).all(), (row, numbers)
        assert row[9:] == head_oracle.text(head_oracle.scores(weights[at], visible, offset=OFFSET)).split()


def test_table_of_heads_that_are_known(attend, tmp_path):
    """One looks at key 3, one at the key before, one nowhere in particular."""
    t = 64
    places = np.eye(t, dtype=np.float32)
    previous, ones = np.roll(places, 1, axis=1), np.ones((t, t), np.float32)
    np.save(tmp_path / "q.npy", np.stack([ones, places, np.zeros_like(places)]))
    np.save(tmp_path / "k.npy", 20 * np.stack([np.outer(np.arange(t) == 3, np.ones(t)).astype(np.float32), previous, places]))
    rows = rows_of(attend("q.npy", "k.npy", "--scale=1", "--offset=0", "--summary"))
    assert [(row[0], row[8:]) for row in rows] == [("0", ["sink", "1.00"]), ("1", ["previous", "1.00"]), ("2", ["broad"])]
    assert rows[0][4:8] == ["1.000", "3", "64.00", "3"]
    assert rows[2][1:3] == [f"{np.log(64):.3f}", "64.0"] and rows[2][4] == "0.016" and rows[2][6] == "1.00"


def test_table_of_what_is_not_known(attend, inputs, tmp_path):
    """No offset, and heads that see nothing: neither a distance nor a key."""
    np.save(tmp_path / "none.npy", np.int64([0, TK]))
    rows = rows_of(attend("q.npy", "k.npy", "--key-lengths", "none.npy", "--summary"))
    assert [row[2:] for row in rows[:H]] == [["0.000", "1.0", "-", "-", "-", "-", "-", "unknown"]] * H
    assert all(row[4] == "-" and row[6] != "-" and row[8] != "-" for row in rows[H:])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["-o", "w.npy"], "V is required without --summary or --weights"),
        (["v.npy"], "--output is required without --summary"),
        (["v.npy", "--summary"], "--output is required with V: --summary prints nothing of the result"),
        (["--weights", ":,:"], "--output is required without --summary"),
        (["--summary", "--weights", ":,:"], "--weights: --output is required, as --summary prints no such numbers"),
        (["--summary", "--top=3"], "--top: --output is required, as --summary prints no such numbers"),
        (["--summary", "--map=2,2"], "--map: --output is required, as --summary prints no such numbers"),
        (["--summary", "--query-starts", "s.npy", "--key-starts", "s.npy"],
         "--query-starts: --output is required, as --summary prints the heads of one sequence"),
        (["v.npy", "--top", "3", "-o", "w.npz"], "--top: nothing uses it without --summary"),
        (["--weights", ":,:", "--map", "3,3", "-o", "w.npz"], "--map: nothing uses it without --summary"),
        (["--summary", "-o", "w.npy"], "--summary and -o: .npy holds one tensor, use .npz or .safetensors"),
        (["v.npy", "--weights", ":,:", "-o", "w.npy"], "--weights and -o: .npy holds one tensor, use .npz or .safetensors"),
        (["--summary", "--lse", "l.npy"], "--lse: is written with the result, for which V is required"),
        (["--summary", "--dropout", "0.5"], "--dropout: nothing is dropped without V"),
        (["", "--summary"], "V: expected a file, got ''"),
        (["--weights", ":,:", "--offset=3", "-o", "w.npy"],
         "--offset: nothing uses it without --causal, --window, --distance-bias or --alibi-slopes"),
        (["--summary", "--top=-1", "-o", "w.npz"], "--top: expected a whole number of at least 0, got '-1'"),
        *[(["--summary", "--map", text, "-o", "w.npz"],
           f"--map: expected ROWS,COLUMNS, two whole numbers of at least 1 such as 64,64, got '{text}'")
          for text in ["0,3", "3", "3,3,3", "a,b", "-1,3"]],
        *[(["--weights", text, "-o", "w.npy"],
           "--weights: expected ROWS,COLUMNS, two ranges such as 0:10,90:100 or :,5: (counted from 0, without their ends), "
           f"got '{text}'") for text in ["3,4", "0:3", "0:3,", ":,:,:", "-3:,:", "0:1:2,:", "a:b,:"]],
        (["--weights", ":,7:7", "-o", "w.npy"], "--weights: 7:7 is empty: expected an end after the beginning"),
        (["--weights", "7:3,:", "-o", "w.npy"], "--weights: 7:3 is empty: expected an end after the beginning"),
        (["--weights", "0:12,:", "-o", "w.npy"], "--weights: 0:12 reaches beyond the 11 queries"),
        (["--weights", ":,13:", "-o", "w.npy"], "--weights: 13: reaches beyond the 13 keys"),
    ],
)
def test_mistakes_on_the_line(attend, inputs, tmp_path, arguments, message):
    assert attend("q.npy", "k.npy", *arguments, status=2) == f"attend: {message}\ntry: attend run --help\n"
    assert not [*tmp_path.glob("w.*")]


def test_what_does_not_fit_is_one_line(attend, inputs, tmp_path):
    huge = ["q.npy", "k.npy", "--summary", "--top", str(2**62), "-o", "w.npz"]
    assert attend(*huge, status=1) == f"attend: attention_summary: top is {2**62}, expected at most {2**31 - 1}\n"
    for arguments in [["q.npy", "sinks.npy", "--summary"], ["q.npy", "sinks.npy", "--weights", ":,:", "-o", "w.npy"],
                      ["q.npy", "k.npy", "--summary", "--causal"], ["q.npy", "k.npy", "--summary", "--mask", "q.npy"]]:
        message = attend(*arguments, status=1)
        assert message.startswith("attend: attention_") and message.count("\n") == 1, message


SUMMARY = ["q.npy", "k.npy", "--summary"]


def test_progress_on_a_terminal_alone(command, attend, inputs, tmp_path):
    status, text = run_in_terminal([command, "run", *SUMMARY], tmp_path, with_racing_clock(command))
    assert status == 0
    assert re.search(r"^(\rattend: +\d+ %)+\r +\rq \[2,4,11,8\]", text), text
    assert max(map(len, text.rpartition("\r")[2].splitlines())) <= 80
    assert text.rpartition("\r")[2] == attend(*SUMMARY)  # nothing else is written where there is no terminal


def test_ctrl_c_ends_it(command, inputs, tmp_path):
    (tmp_path / "s.npz").write_bytes(b"what was there before")
    status, text = run_in_terminal([command, "run", *SUMMARY, "-o", "s.npz"], tmp_path, with_racing_clock(command, 3, signal.SIGINT))
    assert status == -signal.SIGINT and re.fullmatch(r"(\rattend: +\d+ %)+", text)
    assert (tmp_path / "s.npz").read_bytes() == b"what was there before"
    assert {path.name for path in tmp_path.iterdir()} == {"q.npy", "k.npy", "v.npy", "sinks.npy", "s.npz"}
