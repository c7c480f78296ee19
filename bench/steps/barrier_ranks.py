"""Runs on each rank of the barriers' benchmark.

python -m bench.steps.barrier_ranks FOLDER RANK RANKS REPLICA CORE
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from kittrain.rank.world.step_barrier import CollectiveBarrier, barrier_of
from kittrain.system.host_barrier import HostBarrier

BLOCK: Final = 20  # steps
SECONDS: Final = 25.0
PARTS: Final = 4  # milliseconds of work before ranks arrive; one more is between that and the wait
WIDTH: Final = 96


class NoBarrier:
    """The ranks do not wait for each other."""

    def arrive(self) -> None:
        """Nothing."""

    wait = arrive


class Loop:
    """Steps of equal work."""

    def __init__(self) -> None:
        self._matrix, self._sum = torch.rand(WIDTH, WIDTH), torch.zeros(1)
        self._times = 1
        begin = time.perf_counter()
        self._work(2000)
        times = torch.tensor(int(2.0 / (time.perf_counter() - begin)))
        dist.all_reduce(times, dist.ReduceOp.MAX)
        self._times = int(times)  # in a millisecond

    def _work(self, parts: int) -> None:
        for _ in range(parts * self._times):
            torch.mm(self._matrix, self._matrix)

    def step(self, barrier: Any) -> float:
        """The seconds that a step takes."""
        begin = time.perf_counter()
        self._work(PARTS // 2)
        dist.all_reduce(self._sum)
        self._work(PARTS // 2)
        barrier.arrive()
        self._work(1)
        barrier.wait()
        return time.perf_counter() - begin

    def block(self, barrier: Any) -> dict[str, float]:
        """What a step of some takes: seconds, those of other threads' processor time, and context switches."""
        dist.barrier()
        before = _used()
        times = [self.step(barrier) for _ in range(BLOCK)]
        others, switches = ((now - then) / BLOCK for now, then in zip(_used(), before, strict=True))
        return {"step": statistics.median(times), "others": others, "switches": switches}


def _used() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.process_time() - time.thread_time(), used.ru_nvcsw + used.ru_nivcsw


def main(folder: Path, rank: int, ranks: int, replica: int) -> None:
    """Take steps; rank 0 writes what they took."""
    store = dist.FileStore(str(folder / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    group = [dist.new_group(list(range(first, first + replica))) for first in range(0, ranks, replica)][rank // replica]
    assert isinstance(group, dist.ProcessGroup)
    sockets = barrier_of(group, timeout=60.0)
    assert isinstance(sockets, HostBarrier)
    ways = {"none": NoBarrier(), "collective": CollectiveBarrier(group), "sockets": sockets}
    loop = Loop()
    blocks: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    end, on = time.monotonic() + SECONDS, torch.ones(1)
    while on:
        for way, barrier in ways.items():
            blocks[way].append(loop.block(barrier))
        on.fill_(time.monotonic() < end)
        dist.broadcast(on, 0)
    if rank == 0:
        (folder / "blocks").write_text(json.dumps(blocks))
    dist.barrier()
    os._exit(0)  # another rank may still be in the barrier


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[5])})
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
