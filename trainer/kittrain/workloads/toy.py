"""Fits a linear regression to random numbers, to try out launches and for tests.

    python -m kittrain.workloads.toy 5 1
    torchrun --nproc-per-node 2 -m kittrain.workloads.toy 5 1 --batch_size 64

Further options are for tests: they slow it down, make it fail, and record the samples that were used.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from kittrain import Data, Step, Training, World, join

POLL = 0.05  # seconds between two looks for a file
SLOW = 2.0  # seconds after a step of --slow-from


def main(argv: Sequence[str] | None = None) -> None:
    """Train."""
    args = options().parse_args(argv)
    with join(seed=args.seed) as world:
        model = nn.Linear(20, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        data = Data(random_samples(args.samples), batch=args.batch_size, seed=args.seed)
        record = Record(args.record, world)
        Training(
            world,
            model,
            optimizer,
            slow_loss(args.step_time, record),
            data,
            epochs=args.total_epochs,
            snapshot_every=args.save_every and args.save_every * data.order.steps_per_epoch,
            on_step=observer(args, world, record),
        ).fit()


def random_samples(count: int) -> TensorDataset:
    """Inputs (count, 20), targets (count, 1) and sample ids (count,), always the same ones."""
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (torch.rand(count, width, generator=generator) for width in (20, 1))
    return TensorDataset(inputs, targets, torch.arange(count))


class Record:
    """Records each step of a rank, with the sample ids that its loss function received.

    Args:
        folder: for one file per rank; None writes nothing.
        world: of this rank.
    """

    def __init__(self, folder: Path | None, world: World) -> None:
        self._path = folder and folder / f"rank-{world.rank}-pid-{os.getpid()}.jsonl"
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        self._batches: deque[list[int]] = deque()

    def add_batch(self, ids: Tensor) -> None:
        """Add the ids of a batch."""
        self._batches.append(ids.tolist())

    def write(self, step: Step) -> None:
        """Write a step, whose loss is known only after the next step has begun."""
        ids = self._batches.popleft()
        if not step.ids:  # a rank without samples loads one of weight 0
            ids = []
        while ids != step.ids[: len(ids)] and self._batches:  # of a step that the loss of other ranks has cut short
            ids = self._batches.popleft()
        while len(ids) < len(step.ids):  # one batch per virtual rank
            ids += self._batches.popleft()
        facts = {"generation": step.generation, "step": step.number, "ids": ids, "loss": step.loss}
        if self._path:
            with self._path.open("a") as lines:
                lines.write(json.dumps(facts) + "\n")


def slow_loss(seconds: float, record: Record) -> Callable[[nn.Module, list[Tensor]], Tensor]:
    """Mean squared error, after a sleep."""

    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        time.sleep(seconds)
        inputs, targets, ids = batch
        record.add_batch(ids)
        return functional.mse_loss(model(inputs), targets)

    return loss


def observer(args: argparse.Namespace, world: World, record: Record) -> Callable[[Step], None]:
    """The callback that handles ``--record``, ``--wait-at``, ``--slow-from`` and ``--fail-at``."""

    def observe(step: Step) -> None:
        record.write(step)
        for number, path in args.wait_at:
            while step.number == int(number) and not Path(path).exists():
                time.sleep(POLL)
        for number, path in args.slow_from:
            if step.number >= int(number) and not Path(path).exists():
                time.sleep(SLOW)
        if step.number == args.fail_at and world.rank == args.fail_rank:
            raise ValueError(f"failing at step {step.number}, as --fail-at asked")

    return observe


def options() -> argparse.ArgumentParser:
    """The command line; its first three arguments are those of PyTorch's DDP tutorials."""
    parser = argparse.ArgumentParser("toy", description="Fit a line to random numbers.")
    parser.add_argument("total_epochs", type=int, help="epochs to train")
    parser.add_argument("save_every", type=int, nargs="?", help="epochs between snapshots")
    parser.add_argument("--batch_size", "--batch-size", type=int, default=32, help="samples per step, over all ranks")
    parser.add_argument("--samples", type=int, default=2048, help="size of the data set")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the data order")
    parser.add_argument("--step-time", type=float, default=0.0, metavar="SECONDS", help="sleep before each step")
    parser.add_argument("--record", type=Path, metavar="DIR", help="write each rank's steps here")
    parser.add_argument(
        "--wait-at",
        nargs=2,
        metavar=("STEP", "FILE"),
        action="append",
        default=[],
        help="wait at this step until FILE is there",
    )
    parser.add_argument(
        "--slow-from",
        nargs=2,
        metavar=("STEP", "FILE"),
        action="append",
        default=[],
        help=f"from this step on, take {SLOW:g} s for each until FILE is there",
    )
    parser.add_argument("--fail-at", type=int, metavar="STEP", help="raise a ValueError at this step")
    parser.add_argument("--fail-rank", type=int, default=0, metavar="RANK", help="on this rank")
    return parser


if __name__ == "__main__":
    main()
