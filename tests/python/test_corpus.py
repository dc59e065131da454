"""examples/corpus on a cluster of Ray's: two machines of one processor each, processes of this one, and a third that reads and writes.

Where ray is not installed (.ci/long installs it), none of this runs.
"""

import csv
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tiny

import attend

ray = pytest.importorskip("ray", reason="ray is not installed: tests/requirements-ray.txt")
pq = pytest.importorskip("pyarrow.parquet")
from ray.cluster_utils import Cluster  # noqa: E402, it imports ray's parts

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/corpus"
sys.path.insert(0, str(EXAMPLE))
import corpus  # noqa: E402

ray.cloudpickle.register_pickle_by_value(corpus)  # workers don't have the example in their path


@pytest.fixture(scope="module")
def cluster():
    """Two machines for workers; the first one has a processor for reading and writing."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"files": 1}})
    for _ in range(2):
        made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def texts(count):
    """Of 0 to 80 words (the model takes 64), half of them twice, so that there is something to look up."""
    draw = np.random.default_rng(7)
    for number in range(count):
        words = [f"word{n}" for n in draw.integers(4, 1000, draw.integers(0, 41))]
        yield " ".join(words * (1 + number % 2))


END = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "the", "type_id": 0}}],
       "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
       "special_tokens": {"the": {"id": "the", "ids": [1], "tokens": ["the"]}}}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """(a model's folder, a file of 443 lines): some are empty, and what ends lines elsewhere ends none of these.

    The tokenizer adds a token at the end: without one an empty line has no vector.
    """
    folder = tmp_path_factory.mktemp("corpus")
    lines = [*texts(400), *[""] * 40, "the cat\r", "the\x0ccat\u2028sat\x85", "no line end at the end"]
    assert "" in lines
    (folder / "lines.txt").write_bytes("\n".join(lines).encode())
    return tiny.write(folder / "tiny", tiny.TOKENIZER | {"post_processor": END}), str(folder / "lines.txt")


def lines_of(path):
    return [line.removesuffix("\r") for line in pathlib.Path(path).read_bytes().decode().split("\n")]


def read(folder):
    return pq.read_table(folder).sort_by([("file", "ascending"), ("line", "ascending")])


def vectors_in(folder):
    column = read(folder)["vector"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.fixture(scope="module")
def expected(given, command, tmp_path_factory):
    """What `attend embed` makes of the lines, in one process."""
    out = tmp_path_factory.mktemp("embed") / "vectors.npy"
    subprocess.run([command, "embed", *given, "-o", out], check=True, capture_output=True)
    return np.load(out)


@pytest.mark.parametrize("workers, block", [(1, 256), (1, 50), (2, 32)])
def test_vectors_are_those_of_one_process(cluster, given, expected, tmp_path, workers, block):
    model, lines = given
    corpus.over_lines(corpus.Vectors, lines, str(tmp_path / "out"), model, workers, 1, block)
    assert read(tmp_path / "out")["line"].to_pylist() == list(range(1, 444))
    assert same_bits(vectors_in(tmp_path / "out"), expected)
    assert same_bits(attend.Model.load(model).embed(lines_of(lines)), expected)


def test_the_two_workers_are_two_processes_on_two_machines(cluster, given, tmp_path):
    class Named(corpus.Vectors):
        def columns(self, lines):
            return {"where": [f"{ray.get_runtime_context().get_node_id()} {os.getpid()} {attend.num_threads()}"] * len(lines)}

    corpus.over_lines(Named, given[1], str(tmp_path / "out"), given[0], 2, 1, 16)
    where = {tuple(each.split()) for each in read(tmp_path / "out")["where"].to_pylist()}
    assert len({node for node, _, _ in where}) == len({process for _, process, _ in where}) == 2
    assert {threads for _, _, threads in where} == {"1"}


def test_a_worker_that_is_killed_loses_nothing(cluster, given, expected, tmp_path):
    class Killed(corpus.Vectors):
        """Dies in the middle of a block, once: by the signal that leaves no time for anything."""
        died = str(tmp_path / "died")

        def columns(self, lines):
            made = super().columns(lines)
            if "word900" in " ".join(lines) and not os.path.exists(self.died):
                pathlib.Path(self.died).write_text(str(os.getpid()))
                os.kill(os.getpid(), 9)
            return made

    corpus.over_lines(Killed, given[1], str(tmp_path / "out"), given[0], 2, 1, 16)
    assert pathlib.Path(Killed.died).exists()
    assert read(tmp_path / "out")["line"].to_pylist() == list(range(1, 444))
    assert same_bits(vectors_in(tmp_path / "out"), expected)


def test_a_machine_that_is_lost_loses_nothing(cluster, given, expected, tmp_path):
    class Marked(corpus.Vectors):
        """The first worker on a machine that can be lost says where it is when it has made three blocks (they are there, and some are
        perhaps not yet written), and stays in its fourth. The other one begins when that machine is gone."""
        machines = frozenset(node.node_id for node in cluster.worker_nodes)
        first, where, never, lost = (str(tmp_path / name) for name in ("first", "where", "never", "lost"))
        made = 0

        def columns(self, lines):
            self.made += 1
            if self.made == 1:
                self.is_first = self.take_the_role()
                self.is_first or os.read(os.open(self.lost, os.O_RDONLY), 1)
            if self.made == 4 and self.is_first:
                pathlib.Path(self.where).write_text(ray.get_runtime_context().get_node_id())
                pathlib.Path(self.never).read_text()
            return super().columns(lines)

        def take_the_role(self):
            if ray.get_runtime_context().get_node_id() not in self.machines:
                return False
            try:
                pathlib.Path(self.first).touch(exist_ok=False)
            except FileExistsError:
                return False
            return True

    for pipe in (Marked.where, Marked.never, Marked.lost):
        os.mkfifo(pipe)

    # Ray starts a machine from the main thread alone. What is written for the other worker stays for whoever takes its place.
    with ThreadPoolExecutor() as beside, open(Marked.lost, "r+b", buffering=0) as other:
        computing = beside.submit(corpus.over_lines, Marked, given[1], str(tmp_path / "out"), given[0], 2, 1, 16)
        where = pathlib.Path(Marked.where).read_text()
        cluster.remove_node(next(node for node in cluster.worker_nodes if node.node_id == where), allow_graceful=False)
        cluster.add_node(num_cpus=1)
        other.write(bytes(100))
        computing.result()
    assert read(tmp_path / "out")["line"].to_pylist() == list(range(1, 444))
    assert same_bits(vectors_in(tmp_path / "out"), expected)


def test_of_several_files_each_has_its_own_numbers(cluster, given, tmp_path):
    (tmp_path / "a").write_text("the cat\nsat\n")
    (tmp_path / "b").write_text("")
    (tmp_path / "c").write_text("\n")
    corpus.over_lines(corpus.Vectors, [str(tmp_path / name) for name in "cab"], str(tmp_path / "out"), given[0])
    table = read(tmp_path / "out")
    assert [(path[-1], line) for path, line in zip(table["file"].to_pylist(), table["line"].to_pylist())] == [("a", 1), ("a", 2), ("c", 1)]


def test_a_folder_that_is_there_is_not_added_to(cluster, given, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="exist"):
        corpus.over_lines(corpus.Vectors, given[1], str(tmp_path / "out"), given[0])


def bits(rows):
    return [{name: value.hex() if isinstance(value, float) else value for name, value in row.items()} for row in rows]


def test_the_table_of_heads_has_the_same_bits_for_any_number_of_workers(cluster, given, tmp_path):
    model, lines = tiny.write(tmp_path / "tiny"), given[1]  # without a token at the end: empty lines have none
    for workers, block in ((1, 100), (2, 16)):
        corpus.over_lines(corpus.Heads, lines, str(tmp_path / f"{workers}"), model, workers, 1, block)
    one, two = (read(tmp_path / name) for name in "12")
    assert one.equals(two) or [str(row) for row in one.to_pylist()] == [str(row) for row in two.to_pylist()]  # NaN is not NaN
    table = corpus.table_of(str(tmp_path / "1"))
    assert bits(table) == bits(corpus.table_of(str(tmp_path / "2")))

    # The same by NumPy, of recordings made here.
    loaded = attend.Model.load(model)
    ids = [loaded.tokenizer.encode(text).ids[:64] for text in lines_of(lines)]
    heads = [loaded.record(each).heads() for each in ids if len(each)]
    assert one["tokens"].to_pylist() == [len(each) for each in ids] and 0 in one["tokens"].to_pylist()
    assert [row["head"] for row in table] == [f"{layer}.{head}" for layer in range(2) for head in range(4)]
    for score in ("sink", "induction", "induction_excess", "local_excess", "effective_keys"):
        values = np.array([each[score] for each in heads])
        assert [row[f"{score}_texts"] for row in table] == list((~np.isnan(values)).sum(0))
        np.testing.assert_allclose([row[score] for row in table], np.nanmean(values, 0), rtol=1e-12)
        np.testing.assert_allclose([row[f"{score}_sd"] for row in table], np.nanstd(values, 0, ddof=1), rtol=1e-11)
    assert 0 < table[0]["induction_excess_texts"] < table[0]["texts"] < len(heads)  # short texts tell less
    labels = [each["labels"][0] for each in heads if each["labels"][0] != "unknown"]
    assert table[0]["texts"] == len(labels)
    for name in corpus.LABELS:
        told = [name in each["labels"][0] for each in heads if not np.isnan(each[f"{name}_excess"][0])]
        assert table[0][f"{name}_share"] == np.mean(told) if told else np.isnan(table[0][f"{name}_share"])
    assert sum(each.startswith(table[0]["label"]) for each in labels) == max(
        sum(each.startswith(name) for each in labels) for name in (*corpus.LABELS, "broad", "focused", "other"))


def run(*arguments):
    return subprocess.run([sys.executable, EXAMPLE / "corpus.py", *arguments], capture_output=True, text=True,
                          env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"})


def test_the_program(given, tmp_path):
    model, lines = given
    made = run("heads", lines, "-o", tmp_path / "heads", "--model", model, "--workers", "1", "--block", "100")
    assert made.returncode == 0, made.stderr
    shown = run("table", tmp_path / "heads", "-o", tmp_path / "heads.csv", "--by", "sink")
    assert shown.returncode == 0, shown.stderr
    lines = r"^ +head  mostly +sink in  excess\n( +[01]\.[0-3]  \w+ +\d+%  -?\d\.\d\d ± \d\.\d\d\n){8}"
    assert re.search(lines, shown.stdout, re.MULTILINE)
    with open(tmp_path / "heads.csv", newline="") as file:
        assert [row["head"] for row in csv.DictReader(file)] == [f"{layer}.{head}" for layer in range(2) for head in range(4)]


def test_workers_that_would_wait_for_ever_are_refused(cluster, given, tmp_path):
    made = run("vectors", given[1], "-o", tmp_path / "out", "--model", given[0], "--workers", "3", "--address", cluster.address)
    assert made.returncode == 2 and "3 workers of 1 threads, and reading and writing, need 4 processors; the cluster has 3" in made.stderr
