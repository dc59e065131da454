"""The command where the system fails or a signal comes: the file has its old contents or its new ones, and nothing else is left."""

import resource
import signal
import subprocess

import numpy as np
import pytest
from faults import with_fault

SENTENCE = "the cat sat on the mat"
OLD = b"what was there before"


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(3)
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", generator.standard_normal((1, 8, 256, 64), np.float32))
    return tmp_path


def commands(command):
    """Of each kind of file that is written: its name, and the arguments before it."""
    run = [command, "run", "q.npy", "k.npy", "v.npy", "-o"]
    explain = [command, "explain", SENTENCE, "-o"]
    return [("out.npy", run), ("out.npz", run), ("out.safetensors", run), *((f"out.{kind}", explain) for kind in
            ("json", "html", "svg", "png", "npz"))]


def state(folder, name):
    """What is in the file; that there is nothing else but the inputs."""
    assert {path.name for path in folder.iterdir()} <= {name, "q.npy", "k.npy", "v.npy"}
    return (folder / name).read_bytes()


CALLS = ["write", "fsync", "linkat", "rename"]  # linkat: only where the file system has files without a name


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_loses_nothing(command, folder, call):
    """Each time that it is made, in turn."""
    failed = 0
    for name, arguments in commands(command):
        subprocess.run([*arguments, name], cwd=folder, check=True, capture_output=True)
        new = state(folder, name)
        for n in range(100):
            (folder / name).write_bytes(OLD)
            done = subprocess.run([*arguments, name], cwd=folder, capture_output=True, text=True,
                                  env=with_fault(command, call, n))
            if done.returncode == 0:
                assert state(folder, name) == new
                break
            failed += 1
            assert done.returncode == 1 and state(folder, name) == OLD
            assert done.stderr.startswith("attend") and name in done.stderr and done.stderr.count("\n") == 1, done.stderr
        (folder / name).unlink()
    assert failed > 0 or call == "linkat"


def test_no_thread_is_needed(command, folder):
    arguments = [command, "run", "q.npy", "k.npy", "v.npy", "-o"]
    subprocess.run([*arguments, "expected.npy"], cwd=folder, check=True, capture_output=True)
    for n in range(4):
        subprocess.run([*arguments, "out.npy"], cwd=folder, check=True, capture_output=True,
                       env=with_fault(command, "pthread_create", n))
        assert (folder / "out.npy").read_bytes() == (folder / "expected.npy").read_bytes()


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_a_call_leaves_the_old_file_or_the_new_one(command, folder, which):
    """At each call that writes the file, in turn, and from the first file that is opened to the last one that is closed."""
    arguments = [command, "run", "q.npy", "k.npy", "v.npy", "-o", "out.npz"]
    subprocess.run(arguments, cwd=folder, check=True, capture_output=True)
    new = state(folder, "out.npz")
    for call in (*CALLS, "open", "close"):
        for n in range(100):
            (folder / "out.npz").write_bytes(OLD)
            done = subprocess.run(arguments, cwd=folder, capture_output=True, env=with_fault(command, call, n, which),
                                  preexec_fn=lambda: signal.signal(which, signal.SIG_DFL))  # nohup ignores SIGINT
            if done.returncode == 0:
                assert state(folder, "out.npz") == new
                break
            assert done.returncode == -which and state(folder, "out.npz") in (OLD, new)
        assert n > 0 or call == "linkat"


def test_a_signal_between_a_files_two_names_waits(command, folder):
    for name, arguments in commands(command):
        subprocess.run([*arguments, name], cwd=folder, check=True, capture_output=True)
        new = state(folder, name)
        (folder / name).write_bytes(OLD)
        done = subprocess.run([*arguments, name], cwd=folder, capture_output=True,
                              env=with_fault(command, "rename", 0, signal.SIGTERM))
        assert done.returncode == -signal.SIGTERM and state(folder, name) == new
        (folder / name).unlink()


@pytest.mark.parametrize("what, most, outcomes", [
    ("RLIMIT_FSIZE", 1000, {-signal.SIGXFSZ, 1}),
    ("RLIMIT_AS", 40_000_000, {1, 3}),
])
def test_a_limit_loses_nothing(command, folder, what, most, outcomes):
    def limited():
        resource.setrlimit(getattr(resource, what), (most, most))

    for name, arguments in commands(command):
        (folder / name).write_bytes(OLD)
        done = subprocess.run([*arguments, name], cwd=folder, capture_output=True, text=True, preexec_fn=limited)
        assert state(folder, name) == OLD if done.returncode else state(folder, name) != OLD
        assert done.returncode in outcomes | {0}, (name, done.returncode, done.stderr)
        (folder / name).unlink()
