"""Measures attend, its peers and the machine's roofs, side by side: see README.md. `make bench` runs it."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import against
import cases
import report
from worker import Worker, WorkerError, wait_until_idle

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = "attend in Python"  # the worker that calls attend from there
OWN = {PYTHON: "python.py", "attend.Model": "model.py"}
PEER_FILES = {"PyTorch": "pytorch.py", "ONNX Runtime": "ort.py", "OpenVINO": "ov.py"}
# Of the largest number in the output. The workers' inputs are the same but for rounding to the dtype: 2^-11 and 2^-8.
TOLERANCE = {"f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}


def published(spec):
    """A case as results have it: of its weights' folder the name, as nobody else has it at that place."""
    return spec | {"folder": pathlib.Path(spec["folder"]).name} if spec.get("folder") else spec


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", metavar="REGEX", help="only the cases whose name this finds (--list)")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    parser.add_argument("--rounds", type=int, help="rounds of each case (default 7; 15 with --against)")
    parser.add_argument("--seconds", type=float, default=0.2, help="least time of one batch of calls (default 0.2)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all")
    parser.add_argument("--quick", action="store_true", help="tiny cases, two rounds: tests this program, measures nothing")
    parser.add_argument("--no-peers", action="store_true", help="attend and the roofs alone")
    parser.add_argument("--against", type=against.worker_in, metavar="DIR",
                        help="measure another build of attend instead of peers: its build folder or its attend_bench")
    parser.add_argument("--smollm2", type=pathlib.Path, default="build/smollm2", metavar="DIR",
                        help="SmolLM2-135M's folder, or one with the folders f32 and bf16 (default build/smollm2; README.md says whence)")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results (default: results beside this file)")
    parser.add_argument("--worker", default="build/release/attend_bench", help="attend's worker")
    chosen = parser.parse_args()
    if chosen.rounds is None:
        chosen.rounds = 15 if chosen.against else 7
    if chosen.quick:
        chosen.rounds, chosen.seconds = 2, 0.002
    if chosen.out is None:
        chosen.out = pathlib.Path("build/bench-quick") if chosen.quick else HERE / "results"
    return chosen


class Bench:
    def __init__(self, options, folder, groups):
        self.options, self.folder = options, folder
        self.commands = {"attend": [options.worker]} | ({against.OTHER: [options.against]} if options.against else {})
        wanted = {entry.worker for group in groups for entry in group.entries}
        files = OWN | ({} if options.no_peers else PEER_FILES)
        for name in files.keys() & wanted:
            self.commands[name] = [sys.executable, str(HERE / "peers" / files[name]), str(options.threads)]
        self.workers = {name: Worker(command) for name, command in self.commands.items()}
        self.longest_wait = dict.fromkeys(self.workers, 0.0)
        self.last = "attend"
        self.ended_seconds = 0.0  # processor time of the workers that renew() ended

    def close(self):
        for worker in self.workers.values():
            worker.close()

    def cpu_seconds(self):
        return self.ended_seconds + sum(worker.cpu_seconds() or 0 for worker in self.workers.values())

    def renew(self, ready, written):
        """Each worker as a new process with its cases: where a process's tensors lie decides a few percent of a time."""
        self.ended_seconds = self.cpu_seconds()
        self.close()
        self.workers = {name: Worker(command) for name, command in self.commands.items()}
        for entry in ready:
            self.ask_to_prepare(entry, written)
            self.run_once(entry)

    def write_inputs(self, case, name):
        """Paths of the case's input files, and its useful work."""
        paths, inputs = {}, case.inputs()
        for part, array in inputs.items():
            paths[part] = str(self.folder / f"{name}.{part}.npy")
            np.save(paths[part], array)
        return paths, case.work(inputs)

    def ask_to_prepare(self, entry, written):
        return self.workers[entry.worker].ask(do="prepare", id=entry.key, case=entry.case.spec(), inputs=written[entry.case][0])["how"]

    def run_once(self, entry):
        self.workers[entry.worker].ask(do="run", id=entry.key, threads=self.options.threads, seconds=0, least=1)

    def prepare(self, group, written):
        """Gives each worker its cases. What is ready, what can't be done and why, and how each one does it.

        written: the files of each case's inputs and its useful work, from here on."""
        ready, cannot, facts = [], {}, {}
        for entry in group.entries:
            if entry.worker not in self.workers:
                continue
            facts[entry.key] = {}
            if entry.case is not None:
                if entry.case not in written:
                    written[entry.case] = self.write_inputs(entry.case, f"input{len(written)}")
                try:
                    how = self.ask_to_prepare(entry, written)
                except WorkerError as error:
                    if (entry.worker == "attend" or entry.worker in OWN) and not str(error).startswith("CannotDo"):
                        raise
                    cannot[entry.key] = str(error)
                    del facts[entry.key]
                    continue
                facts[entry.key] = {"how": how, "case": published(entry.case.spec())} | written[entry.case][1]
            ready.append(entry)
        return ready, cannot, facts

    def measure(self, entry):
        """Seconds of one call (the median of a batch), or what a roof gives in a second."""
        waited = wait_until_idle(self.workers.values())
        self.longest_wait[self.last] = max(self.longest_wait[self.last], waited)
        self.last = entry.worker
        worker, options = self.workers[entry.worker], self.options
        threads = 1 if entry.one_thread else options.threads
        if entry.roof:
            size = (4 if options.quick else 512) << 20
            return worker.ask(do="roof", roof=entry.roof, threads=threads, seconds=options.seconds, bytes=size)["per_second"]
        least = 1 if entry.case.kind in ("model", "pretrained") else 3  # a model's call is many calls of attention
        answer = worker.ask(do="run", id=entry.key, threads=threads, seconds=options.seconds, least=least)
        if "attention" in answer:
            self.shares.setdefault(entry.key, []).append(answer["attention"])
        return statistics.median(answer["seconds"])

    def check(self, group, ready, cannot):
        """How far each output is from the reference's, of its largest number; those too far off are not compared."""
        found, outputs = {}, {}
        for entry in ready if group.reference else ():
            if entry.case is None or entry.one_thread:
                continue
            path = self.folder / "output.npy"
            self.workers[entry.worker].ask(do="output", id=entry.key, path=str(path))
            outputs[entry.key] = np.load(path)
        for entry in [entry for entry in ready if entry.key in outputs and group.reference in outputs]:
            wanted, got = outputs[group.reference], outputs[entry.key]
            far = float(np.abs(got - wanted).max() / np.abs(wanted).max()) if got.shape == wanted.shape else float("inf")
            found[entry.key] = far
            if not far <= TOLERANCE[entry.case.dtype]:  # NaN is too far as well
                cannot[entry.key] = f"its output differs by {far:.1e} of the largest number"
                ready.remove(entry)
        return found

    def run_group(self, group):
        written = {}
        ready, cannot, facts = self.prepare(group, written)
        for entry in ready:
            if entry.case is not None:
                self.run_once(entry)
        prepared = [entry for entry in ready if entry.case is not None]
        differs = self.check(group, ready, cannot)
        rounds, self.shares = {entry.key: [] for entry in ready}, {}
        for number in range(self.options.rounds):
            if self.options.against and number > 0:
                self.renew(ready, written)
            shift = number * len(ready) // self.options.rounds
            order = ready[shift:] + ready[:shift]
            for entry in order if number % 2 == 0 else reversed(order):  # so that nobody always runs after the same one
                rounds[entry.key].append(self.measure(entry))
        for entry in prepared:
            self.workers[entry.worker].ask(do="drop", id=entry.key)
        for path in [path for paths, _ in written.values() for path in paths.values()]:
            os.unlink(path)
        entries = {key: facts[key] | {"rounds": values} for key, values in rounds.items()}
        for key, far in differs.items():
            if key in entries:
                entries[key]["differs"] = far
        for key, shares in self.shares.items():
            entries[key]["attention"] = shares
        return {"name": group.name, "section": group.section, "entries": entries, "cannot": cannot}

    def roofs(self):
        """Each roof with all threads and with one, and the instructions that measured it."""
        found, size = {}, (4 if self.options.quick else 512) << 20
        for roof in ("fma", "bf16", "read"):
            for threads in sorted({1, self.options.threads}):
                wait_until_idle(self.workers.values())
                answer = self.workers["attend"].ask(do="roof", roof=roof, threads=threads, bytes=size,
                                                    seconds=0.01 if self.options.quick else 1.0)
                found[f"{roof}, {threads} thread{'s' * (threads > 1)}"] = answer
        return found

    def memory(self, case):
        """What one call needs beyond its tensors, in a process of its own."""
        paths, _ = self.write_inputs(case, "memory")
        worker = Worker([self.options.worker])
        try:
            worker.ask(do="prepare", id="case", case=case.spec(), inputs=paths)
            return worker.ask(do="memory", id="case")
        except WorkerError as error:
            return {"error": str(error)}
        finally:
            worker.close()
            for path in paths.values():
                os.unlink(path)


def processor():
    """Its name, family and model, as /proc/cpuinfo has them."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.*)$", text, re.MULTILINE))
    if "model name" not in fields:
        return platform.machine()
    return f"{fields['model name']} (family {fields.get('cpu family')}, model {fields.get('model')})"


def commit():
    git = lambda *words: subprocess.run(["git", "-C", str(HERE), *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else "")


def busy_seconds():
    """CPU time that this machine has used, and what its host took away from it; None where it doesn't say."""
    try:
        ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return None
    return np.array([sum(ticks[:3]), ticks[7]]) / os.sysconf("SC_CLK_TCK")


def machine(bench, options):
    return {"processor": processor(), "system": f"{platform.system()} {platform.machine()}", "threads": options.threads,
            "commit": commit(), "compiler": bench.workers["attend"].compiler,
            "versions": {name: worker.version for name, worker in bench.workers.items()}}


def measure_all(bench, options, groups, memory):
    start, before = time.perf_counter(), busy_seconds()
    result = {"date": datetime.date.today().isoformat(), "quick": options.quick, "rounds": options.rounds,
              "seconds": options.seconds, "machine": machine(bench, options), "roofs": bench.roofs(), "groups": [], "memory": {}}
    for group in groups:
        print(f"{time.perf_counter() - start:6.0f} s  {group.name}", file=sys.stderr, flush=True)
        result["groups"].append(bench.run_group(group))
    own = bench.cpu_seconds()
    wall = time.perf_counter() - start
    if before is not None:
        others, stolen = busy_seconds() - before - [own + time.process_time(), 0]
        capacity = wall * os.cpu_count()
        result["disturbance"] = {"others": max(0.0, others / capacity), "stolen": stolen / capacity}
    for name, case in memory.items():
        print(f"{time.perf_counter() - start:6.0f} s  {name}", file=sys.stderr, flush=True)
        result["memory"][name] = bench.memory(case)
    return result | {"minutes": (time.perf_counter() - start) / 60, "longest_wait": bench.longest_wait}


def main():
    options = arguments()
    groups, memory = cases.chosen(options.cases, options.quick, options.smollm2)
    if options.against:
        groups, memory = against.groups(groups), {}
    if options.list:
        print(*(group.name for group in groups), *memory, sep="\n")
        return
    # Inputs pass through memory where there is such a folder, else through files.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="attend-bench-", dir=shared) as folder:
        bench = Bench(options, pathlib.Path(folder), groups)
        try:
            result = measure_all(bench, options, groups, memory)
        finally:
            bench.close()
    name = re.sub(r"[^a-z0-9]+", "-", result["machine"]["processor"].split("(family")[0].lower()).strip("-")
    if options.against:
        other = bench.workers[against.OTHER]
        result["other"] = {"commit": against.commit_of(options.against), "compiler": other.compiler}
        result["against"] = against.compared(result)
        name += f"-against-{result['other']['commit'].split(' ')[0] or 'another-build'}"
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{result['date']}-{name}"
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    (against if options.against else report).write(result, path)
    print(path.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
