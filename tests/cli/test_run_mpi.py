"""attend run where mpirun starts several of it: each computes its rows, and the files are those of one process."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from faults import fault
from safetensors.numpy import load_file, save_file

ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


@pytest.fixture(scope="session")
def mpirun(command):
    """The one of the MPI that attend-mpi was built with."""
    build = pathlib.Path(command).parent
    if not (build / "attend-mpi").exists():
        pytest.skip("no attend-mpi beside the command: make mpi")
    return re.search(r"^MPIEXEC_EXECUTABLE:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)[1]


def draw(folder, queries=1200, keys=1200, dtype=np.float32, heads=(4, 2)):
    generator = np.random.default_rng(5)
    shapes = {"q": (1, heads[0], queries, 16), "k": (1, heads[1], keys, 16), "v": (1, heads[1], keys, 8)}
    for name, shape in shapes.items():
        np.save(folder / f"{name}.npy", generator.standard_normal(shape).astype(dtype))
    return {name: np.load(folder / f"{name}.npy") for name in "qkv"}


@pytest.fixture
def ranks(command, mpirun, tmp_path):
    """A function that runs the command on so many ranks."""

    def run(count, *arguments, status=0, program=command, environment=ENVIRONMENT):
        done = subprocess.run([mpirun, "-n", str(count), program, "run", *arguments], cwd=tmp_path, capture_output=True, text=True,
                              env=environment)
        assert done.returncode == status, done.stderr
        assert not list(tmp_path.glob(".attend*")), "a temporary file"
        return done

    return run


def alone(command, folder, *arguments):
    subprocess.run([command, "run", *arguments], cwd=folder, check=True, capture_output=True)


def said(done):
    """The command's own lines, without mpirun's."""
    return [line for line in done.stderr.splitlines() if line.startswith(("attend: ", "try: "))]


@pytest.mark.parametrize("count, options", [
    (2, ["--causal"]), (3, ["--causal", "--sharding", "contiguous"]), (4, ["--window", "100,0"]), (8, ["--sharding", "zigzag"])])
def test_the_file_of_one_process(command, ranks, tmp_path, count, options):
    draw(tmp_path, 1600, 1600)
    done = ranks(count, "q.npy", "k.npy", "v.npy", *options, "-o", "out.npy", "--lse", "lse.npy")
    assert said(done) == ["attend: wrote out.npy", "attend: wrote lse.npy"]
    one = [option for option in options if option not in ("--sharding", "contiguous", "zigzag")]
    alone(command, tmp_path, "q.npy", "k.npy", "v.npy", *one, "-o", "one.npy", "--lse", "one_lse.npy")
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()
    assert (tmp_path / "lse.npy").read_bytes() == (tmp_path / "one_lse.npy").read_bytes()


def test_safetensors_with_masks_and_biases_of_rows(command, ranks, tmp_path):
    tensors = draw(tmp_path, 600, 900)
    generator = np.random.default_rng(6)
    mask = generator.random((600, 900)) < 0.7
    bias = generator.standard_normal((1, 4, 600, 900)).astype(np.float32)
    save_file({**tensors, "mask": mask, "bias": bias, "slopes": np.float32([0.1, 0.2, 0.3, 0.4])}, tmp_path / "in.safetensors")
    arguments = ["in.safetensors:q", "in.safetensors:k", "in.safetensors:v", "--mask", "in.safetensors:mask", "--bias",
                 "in.safetensors:bias", "--alibi-slopes", "in.safetensors:slopes", "--offset", "bottom_right"]
    ranks(3, *arguments, "--sharding", "zigzag", "-o", "out.safetensors", "--lse", "out.safetensors")
    alone(command, tmp_path, *arguments, "-o", "one.safetensors", "--lse", "one.safetensors")
    assert (tmp_path / "out.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()
    assert set(load_file(tmp_path / "out.safetensors")) == {"out", "lse"}


def test_it_replaces_a_file_as_one_process_does(ranks, tmp_path):
    draw(tmp_path, 400, 400)
    (tmp_path / "there.npy").write_bytes(b"old")
    (tmp_path / "there.npy").chmod(0o640)
    (tmp_path / "out.npy").symlink_to("there.npy")
    ranks(2, "q.npy", "k.npy", "v.npy", "-o", "out.npy")
    assert (tmp_path / "out.npy").is_symlink() and np.load(tmp_path / "there.npy").shape == (1, 4, 400, 8)
    assert (tmp_path / "there.npy").stat().st_mode & 0o777 == 0o640


def test_one_rank_is_one_process(command, ranks, tmp_path):
    draw(tmp_path, 100, 100)
    ranks(1, "q.npy", "k.npy", "v.npy", "-o", "out.npz")
    alone(command, tmp_path, "q.npy", "k.npy", "v.npy", "-o", "one.npz")
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()


def test_each_computes_all_of_it_where_mpi_is_not_wanted(ranks, tmp_path):
    draw(tmp_path, 100, 100)
    done = ranks(2, "q.npy", "k.npy", "v.npy", "--no-mpi", "-o", "out.npy")
    assert said(done) == ["attend: wrote out.npy"] * 2


@pytest.mark.parametrize("arguments, status, message", [
    (["q.npy", "k.npy", "v.npy", "-o", "out.npz"], 2,
     "-o: one process writes .npz; where mpirun starts several, use .npy or .safetensors"),
    (["q.npy", "k.npy", "v.npy", "-o", "out.safetensors", "--summary"], 2,
     "--summary: needs a single process: leave mpirun out, or say --no-mpi"),
    (["q.npy", "k.npy", "v.npy"], 2, "--output is required without --summary"),
    (["q.npy", "k.npy", "v.npy", "-o", "out.npy", "--sharding", "zagzig"], 2,
     "--sharding: expected contiguous or zigzag, got 'zagzig'; did you mean 'zigzag'?"),
    (["nowhere.npy", "k.npy", "v.npy", "-o", "out.npy"], 3,
     "TensorFile: 'nowhere.npy': can't be opened: No such file or directory"),
    (["q.npy", "k.npy", "v.npy", "-o", "nowhere/out.npy"], 1,
     "rank 0: write_npy: 'nowhere/out.npy': its folder can't be opened: No such file or directory"),
    (["q.npy", "v.npy", "v.npy", "-o", "out.npy"], 1, r"attention: k has head size 8, q has 16 .*"),
    (["q.npy", "k.npy", "v.npy", "-o", "/dev/null"], 2, r"--output: '/dev/null' should end in .*"),
])
def test_what_is_wrong_is_said_once(ranks, tmp_path, arguments, status, message):
    draw(tmp_path, 200, 200)
    done = ranks(3, *arguments, status=status)
    lines = [line for line in said(done) if line.startswith("attend: ")]
    assert len(lines) == 1, done.stderr
    assert lines[0] == f"attend: {message}" or re.fullmatch(f"attend: {message}", lines[0]), lines
    assert not list(tmp_path.glob("out*"))


def test_without_its_other_half_it_says_what_is_missing(command, ranks, tmp_path):
    draw(tmp_path, 100, 100)
    (tmp_path / "bin").mkdir()
    shutil.copy(command, tmp_path / "bin/attend")
    environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": str(pathlib.Path(command).parent)}
    done = ranks(2, "q.npy", "k.npy", "v.npy", "-o", "out.npy", program=tmp_path / "bin/attend", environment=environment, status=1)
    assert said(done) == ["attend: run: mpirun started 2 processes, but this attend was built without MPI: build it with `make mpi`, "
                          "install attend-mpi, or say --no-mpi, so that each process computes everything"]


def test_another_mpis_mpirun_is_refused(command, mpirun, tmp_path):
    """Under it each process would be alone in its own MPI, and compute all of it."""
    draw(tmp_path, 100, 100)
    environment = {**ENVIRONMENT, "PMI_SIZE": "2", "PMI_RANK": "0"}
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_FD"):
        environment.pop(name, None)
    is_open_mpi = "Open MPI" in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    if not is_open_mpi:
        environment = {**ENVIRONMENT, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}
    done = subprocess.run([command, "run", "q.npy", "k.npy", "v.npy", "-o", "out.npy"], cwd=tmp_path, capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 1 and "each sees 1: this mpirun belongs to another MPI than" in done.stderr, done.stderr
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("function, n, then", [("clock", 2, signal.SIGKILL), ("pwrite", 1, "exit")])
def test_a_rank_that_is_lost_ends_the_job(command, mpirun, tmp_path, rank, function, n, then):
    """While it computes (its third look at the clock is in the ring) and while it writes its rows: of four heads, after the first."""
    draw(tmp_path, 400, 400)
    line = [command, "run", "q.npy", "k.npy", "v.npy", "-o", "out.npy"]
    fate = [f"{name}={value}" for name, value in fault(command, function, n, then).items()]
    ranks = [["env", *fate, *line] if each == rank else line for each in range(2)]
    done = subprocess.run([mpirun, "-n", "1", *ranks[0], ":", "-n", "1", *ranks[1]], cwd=tmp_path, capture_output=True, text=True,
                          env=ENVIRONMENT)
    assert done.returncode != 0
    assert {path.name for path in tmp_path.iterdir()} == {"q.npy", "k.npy", "v.npy"}


def test_lines_that_disagree_are_named(command, mpirun, tmp_path):
    draw(tmp_path, 400, 400)
    line = [command, "run", "q.npy", "k.npy", "v.npy", "-o", "out.npy"]
    done = subprocess.run([mpirun, "-n", "1", *line, ":", "-n", "1", *line, "--causal"], cwd=tmp_path, capture_output=True, text=True,
                          env=ENVIRONMENT)
    assert done.returncode == 1, done.stderr
    lines = said(done)
    assert len(lines) == 1 and re.search(r"ranks disagree: .* on rank 0, .* on rank 1", lines[0]), done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"q.npy", "k.npy", "v.npy"}


def test_a_rank_holds_its_share(command, mpirun, tmp_path):
    """`attend plan --ranks 4` says 154 MiB: 48 of them are the rank's part of the files, which are mapped; the rest and the
    program, with a thread's stack of 1 MiB, must do with 150 MiB of data. All keys and values would be 96 MiB more. (The
    resident set would count what the system maps around the rank's part of a file, too.)"""
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.zeros((1, 8, 32768, 64), np.float32))
    within = ["sh", "-c", f'ulimit -s 1024 && ulimit -d {150 * 1024} && exec "$@"', "sh"]
    done = subprocess.run([mpirun, "-n", "4", *within, command, "run", "q.npy", "k.npy", "v.npy", "--window", "64,64", "-o", "out.npy"],
                          cwd=tmp_path, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr


def test_a_line_that_is_wrong_for_one_rank_is_said_by_it(command, mpirun, tmp_path):
    draw(tmp_path, 100, 100)
    line = [command, "run", "q.npy", "k.npy", "v.npy", "-o", "out.npy"]
    done = subprocess.run([mpirun, "-n", "1", *line, ":", "-n", "1", *line, "--seed", "x"], cwd=tmp_path, capture_output=True, text=True,
                          env=ENVIRONMENT)
    assert done.returncode == 2, done.stderr
    assert len([text for text in said(done) if "--seed" in text]) == 1
