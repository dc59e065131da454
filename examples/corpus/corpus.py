"""Many texts over many machines, on Ray Data: each line of text files becomes a vector, or a row of what every head did in it.

    python examples/corpus/corpus.py vectors LINES.txt... -o vectors --model minilm
    python examples/corpus/corpus.py heads LINES.txt... -o heads --model smollm2
    python examples/corpus/corpus.py table heads --by induction -o heads.csv
"""
import argparse
import collections
import csv
import os
import re

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before Ray is imported: else it tells its makers how it is used

import numpy as np
import pyarrow as pa
import ray

import attend

LABELS = ("sink", "self", "previous", "duplicate", "induction", "local")


def numbered(files):
    """The lines of files and their numbers, from 1: what `attend embed` takes for lines. A file is read by one task, so that
    nothing which Ray decides, or how fast a worker is, can be in the numbers."""
    for path, content in zip(files["path"], files["bytes"]):
        lines = [line.removesuffix(b"\r").decode() for line in content.split(b"\n")]
        if not lines[-1]:
            lines.pop()  # what the last line's end begins is no line
        for begin in range(0, len(lines), 4096):
            texts = lines[begin:begin + 4096]
            yield {"file": [path] * len(texts), "line": np.arange(begin + 1, begin + 1 + len(texts)), "text": texts}


class Worker:
    """A process that holds the model, and computes with as many threads as Ray has set aside processors for it."""

    def __init__(self, model, threads):
        attend.set_num_threads(threads)
        self.model = attend.Model.load(model)

    def __call__(self, lines):
        return pa.table({"file": lines["file"], "line": lines["line"], **self.columns(lines["text"].to_pylist())})


class Vectors(Worker):
    def columns(self, texts):
        vectors = self.model.embed(texts)
        return {"vector": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1])}


class Heads(Worker):
    """Columns are Recording.heads()'s fields, a list of all heads in each row. What is longer than the model takes is cut."""

    def __init__(self, model, threads):
        super().__init__(model, threads)
        scores = [name for name in self.heads([0])[1].dtype.names if name not in ("layer", "head", "labels")]
        self.kinds = {"tokens": pa.int64(), "head": pa.list_(pa.string()), "labels": pa.list_(pa.string()),
                      **{name: pa.list_(pa.float64()) for name in scores}}

    def heads(self, ids):
        recording = self.model.record(ids, top=1, map=(1, 1))
        heads = recording.heads()
        return [recording[head["layer"]].head_name(head["head"]) for head in heads], heads

    def row(self, ids):
        if len(ids) == 0:
            return {"tokens": 0}
        names, heads = self.heads(ids)
        return {name: heads[name] for name in heads.dtype.names} | {"tokens": len(ids), "head": names}

    def columns(self, texts):
        rows = [self.row(self.model.tokenizer.encode(text).ids[:self.model.info.longest]) for text in texts]
        return {name: pa.array([row.get(name) for row in rows], kind) for name, kind in self.kinds.items()}


def over_lines(worker, files, out, model, workers=2, threads=1, block=256):
    """What `worker` makes of each line, as Parquet files in the folder `out`. A block of lines is what a worker is given at once,
    and what another one computes again where it dies: Ray Data does so by itself."""
    lines = ray.data.read_binary_files(files, include_paths=True).map_batches(numbered, batch_size=1)
    made = lines.repartition(target_num_rows_per_block=block).map_batches(
        worker, fn_constructor_args=(model, threads), num_cpus=threads, compute=ray.data.ActorPoolStrategy(size=workers),
        batch_size=block, batch_format="pyarrow")
    made.write_parquet(out, mode="error", min_rows_per_file=16 * block)


class Table:
    """Mean and spread of each head's scores, each over the texts in which it is known. Texts are added one after another."""

    def __init__(self, heads, scores):
        self.heads, self.scores = heads, scores
        self.first, self.labelled = [collections.Counter() for _ in heads], [collections.Counter() for _ in heads]
        self.count, self.mean, self.squares = np.zeros((3, len(scores), len(heads)))

    def add(self, values, labels):  # Welford's sums
        known = ~np.isnan(values)
        self.count += known
        far = np.where(known, values - self.mean, 0)
        self.mean += far / np.maximum(self.count, 1)
        self.squares += far * np.where(known, values - self.mean, 0)
        tells = {name: known[self.scores.index(f"{name}_excess")] for name in LABELS}
        for at, text in enumerate(labels):
            names = re.findall("[a-z]+", text.replace("besides", ""))  # "sink .81, self .40; besides: induction .69"
            if names != ["unknown"]:
                self.first[at][names[0]] += 1
                self.labelled[at].update(name for name in LABELS if name in names and tells[name][at])

    def rows(self):
        """A head's commonest first label, and in how many texts labels are known; of each score the mean, the standard deviation
        and in how many texts it is known; and in what share of the texts where a label can be told it has it, besides its sink too."""
        mean = np.where(self.count > 0, self.mean, np.nan)
        spread = np.where(self.count > 1, np.sqrt(self.squares / np.maximum(self.count - 1, 1)), np.nan)
        for at, (head, first, labelled) in enumerate(zip(self.heads, self.first, self.labelled)):
            row = {"head": head, "label": min(first, key=lambda name: (-first[name], name), default="unknown"), "texts": first.total()}
            for n, score in enumerate(self.scores):
                row |= {score: mean[n, at].item(), f"{score}_sd": spread[n, at].item(), f"{score}_texts": int(self.count[n, at])}
            row |= {f"{name}_share": labelled[name] / (row[f"{name}_excess_texts"] or np.nan) for name in LABELS}
            yield row


def table_of(folder):
    """The table of what `heads` wrote. Texts count in the order of their file's name and their line: any number of workers
    gives the same bits."""
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    table = None
    for batch in ray.data.read_parquet(folder).sort(["file", "line"]).iter_batches(batch_size=256, batch_format="pyarrow"):
        known = batch.filter(pa.compute.field("tokens") > 0)
        if known.num_rows:
            scores = [name for name in known.column_names if name not in ("file", "line", "tokens", "head", "labels", "sink_key")]
            table = table or Table(known["head"][0].as_py(), scores)
            values = np.stack([known[name].combine_chunks().flatten().to_numpy().reshape(known.num_rows, -1) for name in scores], 1)
            for row, labels in zip(values, known["labels"].to_pylist()):
                table.add(row, labels)
    return list(table.rows()) if table else []


def show(rows, label, out):
    """The heads that have most of a label."""
    if out:
        with open(out, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    score = f"{label}_excess"
    print(f"{'head':>8}  {'mostly':<10} {label} in  excess")
    for row in sorted(rows, key=lambda row: -np.nan_to_num(row[score], nan=-np.inf))[:10]:
        share = f"{row[f'{label}_share']:.0%}"
        print(f"{row['head']:>8}  {row['label']:<10} {share:>{len(label) + 3}}  {row[score]:.2f} ± {row[score + '_sd']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("make", choices=["vectors", "heads", "table"])
    parser.add_argument("files", nargs="+", help="text files or folders of them; of table, what `heads` wrote")
    parser.add_argument("-o", dest="out", help="a folder, which is made; of table a CSV file")
    parser.add_argument("--model", help="a name or a folder, the same on every machine (minilm; smollm2)")
    parser.add_argument("--workers", type=int, default=2, help="how many processes hold the model")
    parser.add_argument("--threads", type=int, default=1, help="of each of them")
    parser.add_argument("--block", type=int, default=256, help="lines that a worker is given at once")
    parser.add_argument("--by", default="induction", choices=LABELS, help="of table: the heads with most of it are shown")
    parser.add_argument("--address", default="local", help="of a Ray cluster; auto: the one of this machine")
    asked = parser.parse_args()
    if asked.make != "table" and not asked.out:
        parser.error("-o: expected a folder to write to")

    # Of the processors that Ray counts, one is for reading and writing: without it the workers would wait for ever.
    needed = 1 + asked.workers * asked.threads
    ray.init(asked.address, **({"num_cpus": needed} if asked.address == "local" else {}))
    if ray.cluster_resources()["CPU"] < needed:
        parser.error(f"{asked.workers} workers of {asked.threads} threads, and reading and writing, need {needed} processors; "
                     f"the cluster has {ray.cluster_resources()['CPU']:g}")
    if asked.make == "table":
        rows = table_of(asked.files)
        if not rows:
            parser.error("there is no text with a token in it")
        show(rows, asked.by, asked.out)
    else:
        worker, model = {"vectors": (Vectors, "minilm"), "heads": (Heads, "smollm2")}[asked.make]
        over_lines(worker, asked.files, asked.out, asked.model or model, asked.workers, asked.threads, asked.block)


if __name__ == "__main__":
    main()
