"""Runs on each rank of the comparison: the ``lm`` workload's model on its text, parallelized in one of several ways.

python -m bench.comparison.ranks none|ddp|fsdp2|dp OUT.json STEPS

Every way trains on the same windows in the same order: a step has BATCH of them, split evenly among the ranks.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from kittrain import World, join
from kittrain.workloads import lm

ON_GPU = os.environ.get("BENCH_DEVICE") == "cuda"
BATCH = 64 if ON_GPU else 16  # windows per step, over all ranks
SIZE = (
    ["--layers", "16", "--width", "1536", "--heads", "16", "--context", "512"]
    if ON_GPU
    else ["--layers", "6", "--width", "256", "--heads", "4", "--context", "128"]
)


def main(way: str, out: Path, steps: int) -> None:
    """Train; rank 0 writes what was measured."""
    args = lm.options().parse_args(SIZE)
    with join(seed=0) as world:
        windows = lm.text(args.context)[0].tensors[0]
        before = memory(world, peak=False)
        model = parallelized(way, lm.GPT(args).to(world.device))
        found = train(world, model, windows, steps)
        used = torch.tensor([memory(world, peak=True) - before])
        everyone = [used]
        if world.size > 1:
            everyone = [torch.zeros_like(used) for _ in range(world.size)]
            dist.all_gather_object(everyone, used)
        if world.is_main:
            parameters = sum(parameter.numel() for parameter in lm.GPT(args).parameters())
            facts = {"memory": max(int(one) for one in everyone), "ranks": world.size, "parameters": parameters}
            out.write_text(json.dumps({**found, **facts}), encoding="utf-8")


def parallelized(way: str, model: lm.GPT) -> nn.Module:
    """The model, wrapped for ``way``."""
    if way == "ddp":
        return DistributedDataParallel(model)
    if way == "fsdp2":
        lm.shard(model)
    return DataParallel(model) if way == "dp" else model


def train(world: World, model: nn.Module, windows: Tensor, steps: int) -> dict[str, Any]:
    """Train by a plain loop; returns the seconds since the first step's begin, and the loss, after each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))
    seconds, losses = [], []
    world.barrier()
    begin = time.perf_counter()
    for step in range(steps):
        mine = order[(step * BATCH + torch.arange(BATCH)) % len(order)][world.rank :: world.size]
        optimizer.zero_grad()
        loss = lm.losses(model, [windows[mine].to(world.device)]).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(world.sum(loss.detach()) / world.size))  # waits for the device
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds, "losses": losses}


def memory(world: World, *, peak: bool) -> int:
    """Bytes in use by this process, or the most so far: on its GPU if it has one."""
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
    if peak:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
