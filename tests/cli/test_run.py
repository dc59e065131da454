"""attend run, against attention in NumPy's float64."""

import os
import pathlib
import resource
import subprocess
import tempfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file


def plain_attention(q, k, v, *, visible=None, bias=0.0, scale=None, softcap=0.0):
    """q [..., Tq, D], k [..., Tk, D], v [..., Tk, Dv] -> out, lse; every row of `visible` has a key."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ v, (top + np.log(total))[..., 0]


def tensors(queries=5, keys=7, dtype=np.float32):
    generator = np.random.default_rng(20)
    return [generator.standard_normal((2, 3, t, d)).astype(dtype) for t, d in [(queries, 8), (keys, 8), (keys, 6)]]


@pytest.fixture
def run(command, tmp_path):
    def attend(q, k, v, *options, status=0, out="out.npy"):
        for name, tensor in zip("qkv", (q, k, v)):
            np.save(tmp_path / f"{name}.npy", tensor)
        result = subprocess.run([command, "run", "q.npy", "k.npy", "v.npy", "-o", out, *options], cwd=tmp_path,
                                capture_output=True, text=True)
        assert result.returncode == status, result.stderr
        assert result.stdout == ""
        if status != 0:
            return result.stderr
        names = dict.fromkeys([out, *options[options.index("--lse") + 1:][:1]] if "--lse" in options else [out])
        assert result.stderr == "".join(f"attend: wrote {name}\n" for name in names)
        return np.load(tmp_path / out) if out.endswith(".npy") else tmp_path / out

    return attend


I, J = np.arange(5)[:, None], np.arange(7)


@pytest.mark.parametrize(
    "options, expected",
    [
        ([], {}),
        (["--causal", "--offset", "top_left"], {"visible": J <= I}),
        (["--causal", "--offset", "bottom_right"], {"visible": J <= I + 2}),
        (["--causal", "--offset", "1"], {"visible": J <= I + 1}),
        (["--window", "1,2", "--offset", "1"], {"visible": (J >= I + 1 - 1) & (J <= I + 1 + 2)}),
        (["--window", "-1,0", "--offset", "top_left"], {"visible": J <= I}),
        (["--window=2,-1", "--offset=bottom_right"], {"visible": J >= I + 2 - 2}),
        (["--scale", "0.5"], {"scale": 0.5}),
        (["--scale", "-1e-1"], {"scale": -0.1}),
        (["--softcap", "1.5"], {"softcap": 1.5}),
    ],
)
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-14)])
def test_options(run, options, expected, dtype, tolerance):
    q, k, v = tensors(dtype=dtype)
    out = run(q, k, v, *options)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, plain_attention(q, k, v, **expected)[0], rtol=0, atol=tolerance * np.abs(v).max())


def test_mask_and_bias(run, tmp_path):
    q, k, v = tensors()
    generator = np.random.default_rng(21)
    mask = generator.random((2, 1, 5, 7)) < 0.6
    mask[..., 0] = True
    bias = generator.standard_normal((3, 1, 7)).astype(np.float32)
    np.save(tmp_path / "m.npy", mask)
    np.save(tmp_path / "b.npy", bias)
    out = run(q, k, v, "--mask", "m.npy", "--bias", "b.npy")
    expected, _ = plain_attention(q, k, v, visible=mask, bias=bias.astype(np.float64))
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


def test_alibi_sinks_and_key_lengths(run, tmp_path):
    q, k, v = tensors()
    slopes, sinks, lengths = np.float32([0.5, 0.25, 0.125]), np.float32([0.3, -1, 2]), np.int64([4, 7])
    for name, tensor in {"a": slopes, "s": sinks, "n": lengths}.items():
        np.save(tmp_path / f"{name}.npy", tensor)
    files = ["--alibi-slopes", "a.npy", "--sinks", "s.npy", "--key-lengths", "n.npy", "--offset", "2"]
    out = run(q, k, v, *files)
    # A sink is a key whose score is the sink and whose value is 0: here a last key, with a bias in place of a score.
    bias = np.empty((2, 3, 5, 8))
    bias[..., :7] = -slopes[:, None, None] * np.abs(I + 2 - J)
    bias[..., 7] = sinks[:, None]
    visible = np.append(np.broadcast_to(J < lengths[:, None, None, None], (2, 1, 1, 7)), np.ones((2, 1, 1, 1), bool), -1)
    with_sink = [np.append(x, np.zeros_like(x[..., :1, :]), axis=-2) for x in (k, v)]
    expected, _ = plain_attention(q, *with_sink, visible=visible, bias=bias)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)


def test_sequences_one_after_another(run, tmp_path):
    q, k, v = (x[:1] for x in tensors())
    np.save(tmp_path / "qs.npy", np.int64([0, 2, 2, 5]))
    np.save(tmp_path / "ks.npy", np.int64([0, 4, 5, 7]))
    starts = ["--query-starts", "qs.npy", "--key-starts", "ks.npy"]
    out = run(q, k, v, *starts, "--causal", "--offset", "bottom_right")
    parts = [plain_attention(q[:, :, i:j], k[:, :, m:n], v[:, :, m:n],
                             visible=np.arange(n - m) <= np.arange(j - i)[:, None] + (n - m) - (j - i))[0]
             for i, j, m, n in [(0, 2, 0, 4), (3, 5, 5, 7)]]
    np.testing.assert_allclose(out[:, :, :2], parts[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(out[:, :, 3:], parts[1], rtol=0, atol=1e-5)
    # 3 queries and 2 keys, the last of each level: the first query sees nothing.
    assert not out[:, :, 2].any()
    assert "query_starts is given without key_starts" in run(q, k, v, "--query-starts", "qs.npy", status=1)


def test_dropout(run):
    q, k, v = tensors()
    plain, dropped, again, other = (run(q, k, v, *options) for options in [
        [], ["--dropout", "0.5", "--seed", "7"], ["--dropout=0.5", "--seed=7"], ["--dropout", "0.5"]])
    assert (dropped == again).all() and (dropped != other).any() and (dropped != plain).any()
    # With values of 1, a row's result is the sum of its weights that stay, each counted twice.
    kept = run(q, k, np.ones_like(v), "--dropout", "0.5")
    assert 0 <= kept.min() and kept.max() <= 2 + 1e-5 and (abs(kept - 1) > 1e-3).any()
    assert (run(q, k, v, "--dropout", "0") == plain).all()
    assert "dropout" in run(q, k, v, "--dropout", "1", status=1)
    assert "--seed: nothing is drawn without --dropout" in run(q, k, v, "--seed", "1", status=2)


def test_an_idle_offset_is_refused(run):
    q, k, v = tensors()
    for options in [[], ["--window=-1,-1"]]:
        assert "--offset: nothing uses it without" in run(q, k, v, "--offset", "5", *options, status=2)


def test_two_axes(run):
    q, k, v = (x[0, 0] for x in tensors())
    out = run(q, k, v)
    assert out.shape == (5, 6)
    np.testing.assert_allclose(out, plain_attention(q, k, v)[0], rtol=0, atol=1e-5)


def test_lse_in_a_file_of_its_own(run, tmp_path):
    q, k, v = tensors()
    out = run(q, k, v, "--lse", "lse.npy")
    expected, lse = plain_attention(q, k, v)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.load(tmp_path / "lse.npy"), lse, rtol=0, atol=1e-5)


def test_out_and_lse_in_one_file(run):
    q, k, v = tensors()
    expected, lse = plain_attention(q, k, v)
    for name, load in [("o.npz", np.load), ("o.safetensors", load_file)]:
        both = load(run(q, k, v, "--lse", name, out=name))
        assert sorted(both) == ["lse", "out"]
        np.testing.assert_allclose(both["out"], expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(both["lse"], lse, rtol=0, atol=1e-5)
        assert sorted(load(run(q, k, v, out=name))) == ["out"]


def test_tensors_by_name(command, tmp_path):
    q, k, v = tensors()
    np.savez(tmp_path / "qkv.npz", q=q, k=k)
    save_file({"value": v}, tmp_path / "v:1.safetensors")

    def attend(*inputs):
        return subprocess.run([command, "run", *inputs, "-o", "out.npy"], cwd=tmp_path, capture_output=True, text=True)

    for value in ["v:1.safetensors", "v:1.safetensors:value"]:
        result = attend("qkv.npz:q", "qkv.npz:k", value)
        assert (result.returncode, result.stderr) == (0, "attend: wrote out.npy\n")
        np.testing.assert_allclose(np.load(tmp_path / "out.npy"), plain_attention(q, k, v)[0], rtol=0, atol=1e-5)

    result = attend("qkv.npz", "qkv.npz:k", "v:1.safetensors")
    assert result.returncode == 2
    assert result.stderr.startswith("attend: qkv.npz holds 2 tensors (k, q): name one, as in qkv.npz:k\n")
    result = attend("qkv.npz:q", "qkv.npz:k", "v:1.safetensors:valve")
    assert result.returncode == 2
    assert result.stderr.startswith("attend: v:1.safetensors holds no tensor 'valve'; did you mean 'value'?\n")


def test_failures(run, tmp_path):
    q, k, v = tensors()
    message = run(q, k[..., :4], v, status=1)
    assert message.startswith("attend: attention: ") and message.count("\n") == 1
    assert not (tmp_path / "out.npy").exists()
    assert "offset" in run(q, k, v, "--causal", status=1)
    assert "nowhere/out.npy" in run(q, k, v, out="nowhere/out.npy", status=1)
    assert "no.npy" in run(q, k, v, "--mask", "no.npy", status=3)


def test_where_no_thread_can_be_made_the_calling_one_works(command):
    def no_more_threads():
        if os.getuid() == 0:  # whom no limit of processes binds
            os.setgid(54321)
            os.setuid(54321)
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    generator = np.random.default_rng(21)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o777)
        for tensor in "qkv":
            np.save(folder / f"{tensor}.npy", generator.standard_normal((1, 4, 512, 64), np.float32))
        arguments = [command, "run", "q.npy", "k.npy", "v.npy", "-o"]
        subprocess.run([*arguments, "many.npy"], cwd=folder, check=True, capture_output=True)
        try:
            result = subprocess.run([*arguments, "one.npy"], cwd=folder, preexec_fn=no_more_threads, capture_output=True,
                                    text=True)
        except PermissionError:
            pytest.skip("another user may not run the command where it lies")
        assert result.returncode == 0, result.stderr
        assert (folder / "one.npy").read_bytes() == (folder / "many.npy").read_bytes()
