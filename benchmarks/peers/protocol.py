"""What the worker processes have in common: one JSON request a line on stdin, one JSON answer a line on stdout.

    {"do": "hello"}                                         -> {"name", "version"}
    {"do": "prepare", "id", "case", "inputs": {name: path}} -> {"how"}, or {"error"} where it can't do the case
    {"do": "run", "id", "threads", "seconds", "least"}      -> {"seconds": [of one call, ...]}, and for a model "attention":
                                                               the part of them that went into its attention
    {"do": "output", "id", "path"}                          -> {}: the last result, f32, written as .npy
    {"do": "drop", "id"}                                    -> {}

Inputs are .npy files. Those of a bf16 case hold f32 numbers that bf16 holds exactly.
A peer is a module with NAME, VERSION, set_threads(n) and ways(case, inputs): the ways it knows to do the case, as
(how, call, result) with result(what call returned) -> f32 array. The fastest way is taken.
"""

import json
import os
import sys
import time

import numpy as np


class CannotDo(Exception):
    """A case that this peer has nothing for."""


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fastest(ways):
    if len(ways) == 1:
        return ways[0]
    for _, call, _ in ways:
        call()
    return min(ways, key=lambda way: min(timed(way[1]) for _ in range(3)))


class Worker:
    def __init__(self, peer, threads):
        self.peer, self.cases = peer, {}
        self.threads = threads
        peer.set_threads(threads)

    def hello(self, request):
        return {"name": self.peer.NAME, "version": self.peer.VERSION}

    def prepare(self, request):
        inputs = {name: np.load(path) for name, path in request["inputs"].items()}
        way = fastest(list(self.peer.ways(request["case"], inputs)))
        self.cases[request["id"]] = way
        return {"how": way[0]}

    def run(self, request):
        if request["threads"] != self.threads:
            raise CannotDo(f"started for {self.threads} threads")
        call = self.cases[request["id"]][1]
        once = timed(call)  # not counted: wakes the threads and warms the caches
        calls = max(1, int(200e-6 / once))  # short calls many at a time, as attend's worker does
        clock = getattr(call, "clock", None)  # a model's, which counts the seconds in its attention
        in_attention = clock and clock.seconds
        seconds, begin = [], time.perf_counter()
        while len(seconds) < request["least"] or time.perf_counter() - begin < request["seconds"]:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            seconds.append((time.perf_counter() - start) / calls)
        if clock:
            return {"seconds": seconds, "attention": (clock.seconds - in_attention) / (sum(seconds) * calls)}
        return {"seconds": seconds}

    def output(self, request):
        _, call, result = self.cases[request["id"]]
        np.save(request["path"], np.ascontiguousarray(result(call()), dtype=np.float32))
        return {}

    def drop(self, request):
        self.cases.pop(request["id"], None)
        return {}


def serve(peer):
    """python PEER.py THREADS"""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    worker = Worker(peer, int(sys.argv[1]))
    requests = {name: getattr(worker, name) for name in ("hello", "prepare", "run", "output", "drop")}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = requests[request["do"]](request)
        except Exception as error:  # whatever a peer throws means that it can't do this; the driver says so
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(json.dumps(answer), file=answers, flush=True)
