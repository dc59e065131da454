#!/usr/bin/env python3
"""Times the nearest of 100,000 vectors of 384 numbers to a query, exactly, beside NumPy, faiss and usearch.

Usage: benchmarks/search.py [--count 100000] [--size 384] [--k 10] [--rounds 15] [--batch 32]; faiss-cpu and usearch are those of
tests/requirements-search.txt. The vectors are random, of length 1, in a file in the page cache; all have as many threads as there are
cores. A round has all in turns. attend reads the file where it lies and sums in double; NumPy multiplies in f32 what it has in memory,
`rows @ query`, and sorts what argpartition leaves; faiss is IndexFlatIP, usearch search(exact=True) by cosine. The rows that they find
must be the same, but for those whose cosines are equal in f32. It prints a Markdown table of milliseconds: the median of the rounds,
the lowest and the highest, for one query and for a batch.
"""
import argparse
import os
import pathlib
import tempfile
import time

import numpy as np


def attend_search(path, rows, k):
    import attend
    file = attend.VectorFile(path)
    return lambda queries: [[near.row for near in each] for each in file.nearest_each(queries, k)]


def numpy_search(path, rows, k):
    def search(queries):
        scores = queries @ rows.T if len(queries) > 1 else (rows @ queries[0])[None]
        found = np.argpartition(-scores, k, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, found, 1), axis=1)
        return np.take_along_axis(found, order, 1)

    return search


def faiss_search(path, rows, k):
    import faiss
    faiss.omp_set_num_threads(os.cpu_count())
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return lambda queries: index.search(queries, k)[1]


def usearch_search(path, rows, k):
    from usearch.index import MetricKind, search
    return lambda queries: search(rows, queries, k, MetricKind.Cos, exact=True, threads=os.cpu_count()).keys.reshape(len(queries), k)


SEARCHES = {"attend": attend_search, "NumPy": numpy_search, "faiss, IndexFlatIP": faiss_search, "usearch, exact": usearch_search}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--count", 100_000), ("--size", 384), ("--k", 10), ("--rounds", 15), ("--batch", 32)):
        parser.add_argument(name, type=int, default=default)
    asked = parser.parse_args()
    random = np.random.default_rng(1)
    rows = random.standard_normal((asked.count, asked.size), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries = random.standard_normal((asked.batch, asked.size), np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    exact = queries.astype(np.float64) @ rows.T.astype(np.float64)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vectors.npy"
        np.save(path, rows)
        searches = {}
        for name, make in SEARCHES.items():
            try:
                searches[name] = make(path, rows, asked.k)
            except ImportError as error:
                print(f"left out: {name}: {error}")
        times = {(name, count): [] for name in searches for count in (1, asked.batch)}
        for number in range(asked.rounds + 1):  # the first is not counted
            for name in searches if number % 2 == 0 else reversed(searches):
                for count in (1, asked.batch):
                    begin = time.perf_counter()
                    found = searches[name](queries[:count])
                    times[name, count].append(1000 * (time.perf_counter() - begin))
                    best = -np.sort(-exact[:count], axis=1)[:, :asked.k]
                    np.testing.assert_allclose(np.take_along_axis(exact[:count], np.int64(found), 1), best, atol=1e-6, err_msg=name)
    print(f"| ms | one query | lowest to highest | {asked.batch} queries | lowest to highest |\n|---|---|---|---|---|")
    for name in searches:
        cells = [f"{np.median(each):.1f} | {min(each):.1f} to {max(each):.1f}" for each in
                 (times[name, count][1:] for count in (1, asked.batch))]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
