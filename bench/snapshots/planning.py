"""How long the ranks of a large world plan a snapshot, each simulated in turn in one process.

A simulated rank has real DTensors on a mesh of so many ranks, by torch's fake process group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore  # the only way to have a mesh of simulated ranks

from bench.measure import Result, save
from kitjob import typed
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.files.tree import Tensors
from kittrain.rank.snapshots.write import planning
from kittrain.rank.world.distributed import World

SIZES: Final = (64, 256)
KINDS: Final = ("DDP", "FSDP2", "HSDP")
TENSORS: Final = 500
ROWS: Final = 8192  # of each
SHARDS: Final = 8  # ranks that HSDP divides a replica among


@dataclass
class Exchange:
    """What all ranks sent, by the number of the call, and the CPU seconds of each rank."""

    sent: list[list[Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Simulated(World):
    """A rank whose collectives return what all ranks sent when they were simulated before, or else stop it."""

    exchange: Exchange
    calls: list[int] = field(default_factory=lambda: [0])

    def _exchanged(self, value: Any) -> list[Any]:
        number, self.calls[0] = self.calls[0], self.calls[0] + 1
        if len(self.exchange.sent) == number:
            self.exchange.sent.append([])
        known = self.exchange.sent[number]
        if len(known) < self.size:
            known.append(value)
            raise Waiting
        return known

    def all_gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """See the class."""
        return self._exchanged(list(numbers))

    def gather(self, value: Any, kind: Any) -> list[Any]:
        """See the class."""
        contents = self._exchanged(typed.dump(value))
        return [typed.load(kind, one) for one in contents] if self.is_main else []

    def scatter(self, values: Sequence[Any], kind: Any) -> Any:
        """See the class."""
        contents = self._exchanged([typed.dump(one) for one in values])
        return typed.load(kind, contents[0][self.rank])


class Waiting(Exception):
    """A rank waits for others."""


def state_of(rank: int, size: int, kind: str) -> Tensors:
    """A state as that rank holds it, without memory."""
    with torch.device("meta"):
        if kind == "DDP":
            return {f"model/layer.{number}.weight": torch.empty(ROWS, 8) for number in range(TENSORS)}
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
        mesh = init_device_mesh("cpu", (size,) if kind == "FSDP2" else (size // SHARDS, SHARDS))
        placements = [Shard(0)] if kind == "FSDP2" else [Replicate(), Shard(0)]
        local = torch.empty(ROWS // mesh.shape[-1], 8)
        return {
            f"model/layer.{number}.weight": DTensor.from_local(local, mesh, placements, run_check=False)
            for number in range(TENSORS)
        }


PLANS: Final[dict[str, Callable[[World, Tensors], object]]] = {
    "rank 0": lambda world, tensors: planning._planned_by_rank_0(  # noqa: SLF001  as before
        world, planning.local_pieces(tensors), main_only=False
    ),
    "each rank": lambda world, tensors: planning.plan(world, tensors, main_only=False),
}


def measure(plan: Callable[[World, Tensors], object], size: int, kind: str) -> list[float]:
    """CPU seconds by rank. A rank that waits starts again once the others have sent, and its last try counts."""
    exchange, seconds = Exchange(), [0.0] * size
    waiting = set(range(size))
    while waiting:
        for rank in sorted(waiting):
            tensors = state_of(rank, size, kind)
            world = Simulated(env=RankEnv(rank=rank, world_size=size), device=torch.device("cpu"), exchange=exchange)
            began = time.process_time()
            try:
                plan(world, tensors)
            except Waiting:
                continue
            seconds[rank] = time.process_time() - began
            waiting.discard(rank)
    return seconds


def main() -> None:
    """Measure, and write the table."""
    measured = {
        (size, kind, name): measure(plan, size, kind)
        for size in SIZES
        for kind in KINDS
        for name, plan in PLANS.items()
    }
    save(
        "planning",
        Result(
            note=f"Who writes which of {TENSORS} tensors of a state, planned once a start: by rank 0, which gathers "
            "what each rank holds (as before, and still for states that differ between ranks), or by each rank. "
            "Each rank is simulated in turn in one process: its DTensors are real, and what it sends is encoded and "
            "decoded, but not transferred. Goal: the busiest rank's time does not grow with the ranks.",
            columns=("ranks", "state", "planned by", "busiest rank, CPU s", "all ranks, CPU s"),
            rows=[
                (f"{size}", kind, name, f"{max(seconds):.3f}", f"{sum(seconds):.2f}")
                for (size, kind, name), seconds in measured.items()
            ],
            raw=[[*key, seconds] for key, seconds in measured.items()],
        ),
    )


if __name__ == "__main__":
    main()
