"""What ring_bench.cpp does, by attend.torch and gloo: benchmarks/ring.py drives it, under torchrun where there are several ranks. Usage:
ring_torch.py HEADS TOKENS D CAUSAL(0|1) THREADS TIMES. The backward is autograd's, from out to the gradients of q, k and v."""
import os
import resource
import sys
import time

import torch
import torch.distributed as dist

import attend.torch


def most(number):
    of_all = torch.tensor([number], dtype=torch.float64)
    dist.all_reduce(of_all, dist.ReduceOp.MAX)
    return of_all.item()


def timed(body):
    """What it makes, and the milliseconds of the slowest rank."""
    dist.barrier()
    begin = time.perf_counter()
    made = body()
    return made, most(1000 * (time.perf_counter() - begin))


def checksum(*tensors):
    """Of the bits: the shares' sums add up to the whole's."""
    total = sum(x.contiguous().view(torch.int32).to(torch.int64).sum() for x in tensors)
    dist.all_reduce(total)
    return total.item()


def measure(heads, tokens, size, causal, times):
    options = {"causal": causal, "sharding": "zigzag" if causal else "contiguous"}
    generator = torch.Generator().manual_seed(1)
    whole = (torch.randn(1, heads, tokens, size, generator=generator) for _ in range(4))
    q, k, v, dout = (attend.torch.ring_shard(x, 2, sharding=options["sharding"]).clone() for x in whole)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    attention = attend.torch.ring_attention
    if dist.get_world_size() == 1:
        attention = attend.torch.attention
        del options["sharding"]
    for _ in range(times):
        out, forward = timed(lambda: attention(*inputs, **options))
        gradients, backward = timed(lambda out=out: torch.autograd.grad(out, inputs, dout))
        yield f"{forward:.2f} {backward:.2f} {checksum(out.detach(), *gradients):x}"
    yield f"peak {most(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss):.0f} KiB"


def main():
    *shape, causal, threads, times = map(int, sys.argv[1:])
    attend.set_num_threads(threads)
    torch.set_num_threads(threads)
    alone = {} if "WORLD_SIZE" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **alone)
    for line in measure(*shape, bool(causal), times):
        if dist.get_rank() == 0:
            print(line)
    dist.destroy_process_group()


main()
