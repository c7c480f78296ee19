"""Runs on each rank of the recovery benchmark: the same model, with one of four loops.

``plain`` saves snapshots by hand; ``trainer`` is the trainer's loop; ``run`` is the script's own, with a run around it;
``torchft`` is the one of torchft's documentation.

python -m bench.recovery.ranks plain|run|trainer|torchft FOLDER

Each process writes ``FOLDER/<pid>.jsonl``: when it was started, had imported, had joined, and took each step, all in
seconds of the monotonic clock.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer
from torch.utils.data import TensorDataset

STEP_SECONDS = 0.05
SNAPSHOT_EVERY = 10  # steps
BATCH = 32
GROUP_SECONDS = 5  # of torchft, for a collective whose peer does not answer
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")
IMPORTED = time.monotonic()


class Record:
    """A rank's file."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"{os.getpid()}.jsonl").open("w", encoding="utf-8", buffering=1)
        self._first: int | None = None
        self._in_step = False

    def joined(self, world: int) -> None:
        """The process group was initialized."""
        identity = {"node": int(os.environ["NODE"]), "world": world}
        self._write({"started": started(), "imported": IMPORTED, "joined": time.monotonic(), **identity})

    def watch(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Record the time of each optimizer step after a forward pass: a restore also calls ``step()``, without one."""
        model.register_forward_hook(lambda *_: self._start_step())
        optimizer.register_step_post_hook(lambda *_: self._end_step())

    def number(self, step: int) -> None:
        """Record the number of the first step."""
        if self._first is None:
            self._first = step
            self._write({"first": step})

    def _start_step(self) -> None:
        self._in_step = True

    def _end_step(self) -> None:
        if self._in_step:
            self._write({"stepped": time.monotonic()})
        self._in_step = False

    def _write(self, facts: dict[str, float]) -> None:
        self._file.write(json.dumps(facts) + "\n")


def started() -> float:
    """When this process was started, from ``/proc`` (see proc(5)), with a resolution of 10 ms."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def train_with_trainer(_folder: Path, record: Record) -> None:
    """Train by the trainer's loop; the environment has the folder of its snapshots."""
    from kittrain import Data, Step, Training, join  # noqa: PLC0415  not needed by the plain loop

    with join() as world:
        record.joined(world.size)
        model, optimizer = build()
        record.watch(model, optimizer)
        data = Data(TensorDataset(torch.rand(2048, 20), torch.rand(2048, 1)), batch=BATCH)

        def on_step(step: Step) -> None:
            record.number(step.number)

        Training(world, model, optimizer, slow_loss, data, epochs=1 << 20, on_step=on_step).fit()


def train_with_run(_folder: Path, record: Record) -> None:
    """Train by a loop of the script's own, with a run around it."""
    from kittrain import Run, join  # noqa: PLC0415  as above

    with join() as world:
        record.joined(world.size)
        model, optimizer = build()
        record.watch(model, optimizer)
        parallel, size = DistributedDataParallel(model), BATCH // world.size
        with Run(world, model=parallel, optimizer=optimizer) as run:
            for done in run.steps(1 << 20):
                optimizer.zero_grad()
                loss = slow_loss(parallel, [torch.rand(size, 20), torch.rand(size, 1)])
                loss.backward()
                optimizer.step()
                record.number(done + 1)
                run.step(loss)


def train_plainly(folder: Path, record: Record) -> None:
    """Train by a loop as in tutorials, with snapshots that are written atomically."""
    timeout = os.environ.get("GROUP_TIMEOUT")
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=int(timeout)) if timeout else None)
    record.joined(dist.get_world_size())
    model, optimizer = build()
    record.watch(model, optimizer)
    snapshot, step = folder / "snapshot.pt", 0
    if snapshot.exists():
        state = torch.load(snapshot, weights_only=True)  # noqa: TID251  this benchmark's own file
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    parallel = DistributedDataParallel(model)
    size = BATCH // dist.get_world_size()
    while True:
        step += 1
        optimizer.zero_grad()
        slow_loss(parallel, [torch.rand(size, 20, device=DEVICE), torch.rand(size, 1, device=DEVICE)]).backward()
        optimizer.step()
        record.number(step)
        if step % SNAPSHOT_EVERY == 0 and dist.get_rank() == 0:
            scratch = snapshot.with_suffix(".scratch")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, scratch)
            scratch.replace(snapshot)


def train_with_torchft(_folder: Path, record: Record) -> None:
    """Train by torchft's loop: this rank is a replica group of its own, and nothing is saved."""
    address = os.environ["MASTER_ADDR"]
    socket.gethostname = lambda: address  # which torchft tells others: a namespace has its machine's name
    from torchft import DistributedDataParallel as Replica  # noqa: PLC0415  installed for this benchmark only
    from torchft import Manager, ProcessGroupGloo  # noqa: PLC0415
    from torchft import Optimizer as Committing  # noqa: PLC0415

    model, optimizer = build()
    record.watch(model, optimizer)
    both: dict[str, Any] = {"model": model, "optimizer": optimizer}
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=GROUP_SECONDS)),
        load_state_dict=lambda state: [part.load_state_dict(state[name]) for name, part in both.items()],
        state_dict=lambda: {name: part.state_dict() for name, part in both.items()},
        min_replica_size=2,
        timeout=timedelta(seconds=GROUP_SECONDS),
        replica_id=os.environ["NODE"],
    )
    parallel, committing = Replica(manager, model), Committing(manager, optimizer)
    record.joined(int(os.environ["REPLICAS"]))
    while True:
        committing.zero_grad()
        size = BATCH // int(os.environ["REPLICAS"])
        slow_loss(parallel, [torch.rand(size, 20), torch.rand(size, 1)]).backward()
        committing.step()
        record.number(manager.current_step())


def build() -> tuple[nn.Module, Optimizer]:
    """The model and its optimizer."""
    model = nn.Linear(20, 1).to(DEVICE)
    return model, SGD(model.parameters(), lr=1e-2, momentum=0.9)


def slow_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Mean squared error, after a sleep that simulates computation."""
    time.sleep(STEP_SECONDS)
    inputs, targets = batch
    return mse_loss(model(inputs), targets)


LOOPS = {"plain": train_plainly, "run": train_with_run, "trainer": train_with_trainer, "torchft": train_with_torchft}

if __name__ == "__main__":
    loop, folder = LOOPS[sys.argv[1]], Path(sys.argv[2])
    loop(folder, Record(folder))
