"""What each rank of the recovery benchmark does: the same model and cadence by hand (``plain``) and by the trainer.

python -m bench.recovery_ranks plain|trainer FOLDER

Each process writes ``FOLDER/<pid>.jsonl``: when it was started, had imported, had joined, and took each step, all in
seconds of the machine's own clock.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

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
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")
IMPORTED = time.monotonic()


class Diary:
    """A rank's file."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"{os.getpid()}.jsonl").open("w", encoding="utf-8", buffering=1)
        self._first: int | None = None
        self._learning = False

    def joined(self, world: int) -> None:
        """The process group is there."""
        seat = {"node": int(os.environ["NODE"]), "world": world}
        self._write({"started": started(), "imported": IMPORTED, "joined": time.monotonic(), **seat})

    def watch(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Note the moment of each optimizer step behind a forward pass: torch restores with a step that is none."""
        model.register_forward_hook(lambda *_: self._learn())
        optimizer.register_step_post_hook(lambda *_: self._step())

    def number(self, step: int) -> None:
        """The number of a step; that of the first one is kept."""
        if self._first is None:
            self._first = step
            self._write({"first": step})

    def _learn(self) -> None:
        self._learning = True

    def _step(self) -> None:
        if self._learning:
            self._write({"stepped": time.monotonic()})
        self._learning = False

    def _write(self, facts: dict[str, float]) -> None:
        self._file.write(json.dumps(facts) + "\n")


def started() -> float:
    """When this process was made, from ``/proc`` (see proc(5)); a hundredth of a second is its resolution."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def train_by_the_trainer(_folder: Path, diary: Diary) -> None:
    """The loop of the trainer; the environment says where its snapshots go."""
    from kittrain import Data, Step, Training, join  # noqa: PLC0415  the plain loop must not pay for it

    with join() as world:
        diary.joined(world.size)
        model, optimizer = made()
        diary.watch(model, optimizer)
        data = Data(TensorDataset(torch.rand(2048, 20), torch.rand(2048, 1)), batch=BATCH)

        def tell(step: Step) -> None:
            diary.number(step.number)

        Training(world, model, optimizer, rested_loss, data, epochs=1 << 20, on_step=tell).fit()


def train_plainly(folder: Path, diary: Diary) -> None:
    """A loop as tutorials have it, with snapshots that are whole or absent."""
    patience = os.environ.get("GROUP_TIMEOUT")
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=int(patience)) if patience else None)
    diary.joined(dist.get_world_size())
    model, optimizer = made()
    diary.watch(model, optimizer)
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
        rested_loss(parallel, [torch.rand(size, 20, device=DEVICE), torch.rand(size, 1, device=DEVICE)]).backward()
        optimizer.step()
        diary.number(step)
        if step % SNAPSHOT_EVERY == 0 and dist.get_rank() == 0:
            scratch = snapshot.with_suffix(".scratch")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, scratch)
            scratch.replace(snapshot)


def made() -> tuple[nn.Module, Optimizer]:
    """The model and its optimizer."""
    model = nn.Linear(20, 1).to(DEVICE)
    return model, SGD(model.parameters(), lr=1e-2, momentum=0.9)


def rested_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Mean squared error, after a rest that stands for computing."""
    time.sleep(STEP_SECONDS)
    inputs, targets = batch
    return mse_loss(model(inputs), targets)


if __name__ == "__main__":
    loop, place = {"plain": train_plainly, "trainer": train_by_the_trainer}[sys.argv[1]], Path(sys.argv[2])
    loop(place, Diary(place))
