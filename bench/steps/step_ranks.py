"""Runs on each rank of the step benchmark: three loops in turn, in the same process; counts what a step costs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from kittrain import Data, Run, Step, Training, World, join
from kittrain.job.env import rank_env
from kittrain.system import heartbeat

SAMPLES_PER_RANK: Final = 8
BLOCK: Final = 40  # steps of one loop before the next one continues
BLOCKS: Final = int(os.environ.get("BENCH_BLOCKS", "40"))
WARM_UP: Final = 4  # blocks, or steps, that are not counted
COUNTED: Final = 10  # steps whose operations are counted
# Neither launches work: views and allocations, and names of what contains others.
FREE: Final = frozenset(
    {
        *(
            "aten::alias",
            "aten::as_strided",
            "aten::detach",
            "aten::detach_",
            "aten::expand",
            "aten::flatten",
            "aten::t",
        ),
        *("aten::lift_fresh", "aten::permute", "aten::reshape", "aten::select", "aten::slice", "aten::squeeze"),
        *("aten::transpose", "aten::unbind", "aten::unsqueeze", "aten::view", "aten::view_as", "aten::_unsafe_view"),
        *("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"),
        *("aten::resize_", "aten::set_", "aten::resolve_conj", "aten::resolve_neg", "aten::is_same_size", "aten::to"),
        *("aten::item", "aten::_local_scalar_dense", "aten::result_type"),
    }
)


def tiny() -> nn.Module:
    """Two small layers."""
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))


def loss(model: nn.Module, batch: Any) -> Tensor:
    """The loss of all loops."""
    inputs, labels = batch
    return cross_entropy(model(inputs), labels)


def dataset(samples: int) -> TensorDataset:
    """Random inputs and labels."""
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(samples, 16, generator=generator), torch.randint(0, 10, (samples,)))


class OwnLoop:
    """A bare DDP loop, as in tutorials; with ``Run`` around it, or not. ``next`` takes a step."""

    def __init__(self, world: World, *, run: bool) -> None:
        self._world = world
        self._run = run
        self._steps = self._loop()

    def __call__(self) -> None:
        """Take a step."""
        next(self._steps)

    def _loop(self) -> Iterator[None]:
        model = tiny()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        parallel = DistributedDataParallel(model)
        data = dataset(2000 * SAMPLES_PER_RANK * self._world.size)
        loader = DataLoader(data, batch_size=SAMPLES_PER_RANK, sampler=DistributedSampler(data))

        def step(batch: Any) -> Tensor:
            optimizer.zero_grad()
            value = loss(parallel, batch)
            value.backward()
            optimizer.step()
            return value

        if not self._run:
            while True:
                for batch in loader:
                    step(batch)
                    yield
        with Run(self._world, model=model, optimizer=optimizer, snapshot_every=1 << 40) as run:
            for _ in run.epochs(1000):
                for batch in run.batches(loader):
                    run.step(step(batch))
                    yield


class Turns:
    """``fit()``'s callback: after each block of its steps, the other loops take as many."""

    def __init__(self, others: dict[str, Callable[[], None]]) -> None:
        self._others = others
        self._profile: Any = None
        self._done = 0
        self.seconds: dict[str, list[float]] = {"fit": [], **{name: [] for name in others}}
        self.operations: dict[str, dict[str, float]] = {}
        self._since = time.process_time()

    def __call__(self, _step: Step) -> None:
        """A step of ``fit()`` has ended."""
        self._done += 1
        if self._done == BLOCKS * BLOCK + 1:
            self._profile = profile(activities=[ProfilerActivity.CPU])
            self._profile.__enter__()
        elif self._done == BLOCKS * BLOCK + 1 + COUNTED:
            self._profile.__exit__(None, None, None)
            self.operations["fit"] = launches(self._profile)
            for name, step in self._others.items():
                for _ in range(WARM_UP):
                    step()
                with profile(activities=[ProfilerActivity.CPU]) as profiled:
                    for _ in range(COUNTED):
                        step()
                self.operations[name] = launches(profiled)
        elif self._done <= BLOCKS * BLOCK and self._done % BLOCK == 0:
            self._block()
        elif self._done % BLOCK == 1:
            self._since = time.process_time()  # this one had cold caches

    def _block(self) -> None:
        self.seconds["fit"].append((time.process_time() - self._since) / (BLOCK - 1))
        for name, step in self._others.items():
            step()  # with cold caches
            since = time.process_time()
            for _ in range(BLOCK):
                step()
            self.seconds[name].append((time.process_time() - since) / BLOCK)


def launches(profiled: Any) -> dict[str, float]:
    """The operations of a step that launch work, by name: those that contain no others."""
    counts: Counter[str] = Counter()
    for event in profiled.events():
        if _works(event.name) and not any(_works(child.name) for child in event.cpu_children):
            counts[event.name] += 1
    return {name: count / COUNTED for name, count in counts.items()}


def _works(name: str) -> bool:
    return name.startswith(("aten::", "c10d::")) and name not in FREE


def main(out: Path) -> None:
    """Run the loops; rank 0 writes its numbers."""
    file = heartbeat.prepare(out.with_suffix(f".rank-{rank_env().rank}"))
    with join(env=replace(rank_env(), heartbeat_file=file)) as world:  # it writes heartbeats as under an agent
        turns = Turns({"bare": OwnLoop(world, run=False), "run": OwnLoop(world, run=True)})
        model = tiny()
        steps = BLOCKS * BLOCK + COUNTED + 5
        data = Data(dataset(steps * SAMPLES_PER_RANK * world.size), batch=SAMPLES_PER_RANK * world.size)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        Training(world, model, optimizer, loss, data, epochs=1, snapshot_every=1 << 40, on_step=turns).fit()
        if world.is_main:
            seconds = {name: blocks[WARM_UP:] for name, blocks in turns.seconds.items()}
            out.write_text(json.dumps({"seconds": seconds, "operations": turns.operations}), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
