#!/usr/bin/env python3
"""Times ring_attention() over MPI, or over gloo, beside attention() in one process with as many threads, forward and backward, in turns.

Usage: benchmarks/ring.py build/release/attend_ring_bench [--ranks 2] [--heads 4] [--tokens 16384] [--size 64] [--full] [--rounds 7]; over
gloo: benchmarks/ring.py benchmarks/ring_torch.py, by a Python that has attend and PyTorch.
Each round starts both, which compute three times; the first is left out. It prints medians, the spread, and the ratios of the rounds;
both must give the same bits.
"""
import argparse
import os
import statistics
import subprocess
import sys


def run(command, shape, threads):
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [*command, *shape, str(threads), "3"]
    lines = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    times = [line.split() for line in lines if not line.startswith("peak")]
    peak = next(int(line.split()[1]) for line in lines if line.startswith("peak"))
    best = min(times[1:], key=lambda line: float(line[0]) + float(line[1]))
    return float(best[0]), float(best[1]), times[0][2], peak / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("worker")
    for name, default in ("ranks", 2), ("heads", 4), ("tokens", 16384), ("size", 64), ("rounds", 7):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--full", action="store_true", help="not causal")
    given = parser.parse_args()
    shape = [str(given.heads), str(given.tokens), str(given.size), str(int(not given.full))]
    one, several = [given.worker], ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(given.ranks), given.worker]
    if given.worker.endswith(".py"):
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(given.ranks)]
        one, several = [sys.executable, *one], [sys.executable, "-m", *torchrun, given.worker]
    rounds = []
    for _ in range(given.rounds):
        rounds.append((run(one, shape, given.ranks), run(several, shape, 1)))
        bits = {side[2] for side in rounds[-1]}
        if len(bits) > 1:
            sys.exit(f"the bits differ: {', '.join(bits)}")
    print(f"1,{given.heads},{given.tokens},{given.size} f32{'' if given.full else ' causal'}, {given.rounds} rounds, same bits")
    print(f"| | one process, {given.ranks} threads, ms | {given.ranks} ranks, ms | ratio, median (spread) |\n|---|---|---|---|")
    for name, of in (("forward", lambda x: x[0]), ("backward", lambda x: x[1]), ("both", lambda x: x[0] + x[1])):
        ratios = sorted(of(one) / of(several) for one, several in rounds)
        medians = [statistics.median(of(each[side]) for each in rounds) for side in (0, 1)]
        print(f"| {name} | {medians[0]:.0f} | {medians[1]:.0f} | {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) |")
    print(f"peak memory: {max(one[3] for one, _ in rounds):.0f} MiB; of a rank {max(several[3] for _, several in rounds):.0f} MiB")


if __name__ == "__main__":
    main()
