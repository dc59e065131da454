#!/usr/bin/env python3
"""Times a corpus' lines to vectors in Parquet: examples/corpus on Ray, workers of one thread, beside one process of as many threads.

Usage: benchmarks/corpus_on_ray.py MODEL [--lines FILE] [--count 20000] [--workers 2] [--block 256] [--rounds 3]. MODEL: a name or a folder;
FILE: else the sentences of 5 to 40 words of benchmarks/sentences.py. Each measurement is a process (and a Ray cluster) of its own; a
round has both. It prints a Markdown table: seconds on the clock of computing (from the first block's begin to the last one's end), of all
of it (Ray: with starting the workers), and of Ray's start besides; and in what share of the computing the workers had a block. Then the
ratios of each round. Both must give the same bits.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples/corpus"))


def direct(asked, out):
    """One process: the file is read, all of it embedded by one call, and written."""
    import attend
    attend.set_num_threads(asked.workers)
    model = attend.Model.load(asked.model)
    model.embed(["one to begin with"])
    begin = time.perf_counter()
    lines = pathlib.Path(asked.lines).read_text().split("\n")[:-1]
    vectors = model.embed(lines)
    computed = time.perf_counter()
    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1])
    out.mkdir()
    pq.write_table(pa.table({"line": np.arange(1, len(lines) + 1), "vector": column}), out / "all.parquet")
    return {"computing": computed - begin, "run": time.perf_counter() - begin, "start": 0, "busy": 1}


def over_ray(asked, out):
    begin = time.perf_counter()
    import corpus
    import ray

    class Timed(corpus.Vectors):
        def __call__(self, lines):
            begin = time.time()
            made = super().__call__(lines)
            for name, value in (("began", begin), ("ended", time.time())):
                made = made.append_column(name, pa.array(np.full(len(lines), value)))
            return made

    ray.cloudpickle.register_pickle_by_value(corpus)
    ray.init("local", num_cpus=1 + asked.workers)
    started = time.perf_counter()
    corpus.over_lines(Timed, asked.lines, str(out), asked.model, asked.workers, 1, asked.block)
    done = time.perf_counter()
    times = pq.read_table(out)
    blocks = {*zip(times["began"].to_pylist(), times["ended"].to_pylist())}
    computing = max(ended for _, ended in blocks) - min(began for began, _ in blocks)
    return {"computing": computing, "run": done - started, "start": started - begin,
            "busy": sum(ended - began for began, ended in blocks) / computing / asked.workers}


KINDS = {"one process": direct, "Ray": over_ray}


def vectors_of(folder):
    table = pq.read_table(folder).sort_by("line")
    return np.asarray(table["line"]), table["vector"].combine_chunks().flatten().to_numpy().view(np.uint32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--lines")
    for name, default in (("--count", 20000), ("--workers", 2), ("--block", 256), ("--rounds", 3)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--one", choices=list(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(KINDS[asked.one](asked, asked.out)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if not asked.lines:
            import sentences
            found = [line for line in sentences.corpus(10**9) if 5 <= len(line.split()) <= 40][:asked.count]
            asked.lines = f"{folder}/lines.txt"
            pathlib.Path(asked.lines).write_text("".join(line + "\n" for line in found))
        times = {name: [] for name in KINDS}
        for number in range(asked.rounds):
            made = {}
            for name in KINDS if number % 2 == 0 else reversed(KINDS):
                made[name] = pathlib.Path(folder) / f"{name} {number}"
                options = [f"--{key}={getattr(asked, key)}" for key in ("lines", "workers", "block")]
                command = [sys.executable, __file__, asked.model, *options, "--one", name, "--out", made[name]]
                times[name].append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE,
                                                             stderr=subprocess.DEVNULL, text=True).stdout.splitlines()[-1]))
                print(name, times[name][-1], file=sys.stderr)
            (lines, expected), (numbers, got) = (vectors_of(path) for path in (made["one process"], made["Ray"]))
            if not (np.array_equal(lines, numbers) and np.array_equal(expected, got)):
                sys.exit("the vectors differ")
    keys = ("computing", "run", "start", "busy")
    print("| | computing | all of it | Ray's start | busy |\n|---|---|---|---|---|")
    for name, rounds in times.items():
        columns = ([each[key] for each in rounds] for key in keys)
        cells = [f"{np.median(values):.4g} ({min(values):.4g} to {max(values):.4g})" for values in columns]
        print(f"| {name} | {' | '.join(cells)} |")
    for key in ("computing", "run"):
        ratios = [one[key] / ray[key] for one, ray in zip(*times.values())]
        print(f"\none process to Ray, {key}: {np.median(ratios):.3f} ({', '.join(f'{ratio:.3f}' for ratio in ratios)})")


if __name__ == "__main__":
    main()
