"""Trains with losses of known size outside of its steps: before them, in snapshots, while it is restored, at its end.

``outside_steps.py RECORDS STEPS EVERY [HANG]``: each rank writes a line ``<what> <begin> <seconds>`` for each loss and
each step that it begins, to a file for each of its starts. In a first start rank 1 never ends its step HANG.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from kittrain import Data, Training, join
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.training.session import Session

SAMPLES, BATCH = 640, 8
LOSSES = (  # what is lost in a method, and how many seconds it takes longer
    ("save", SnapshotManager, "begin", 4.0),
    ("save", SnapshotManager, "prepare", 0.0),
    ("save", SnapshotManager, "finish", 0.0),
    ("save", Session, "commit", 0.0),
    ("restore", SnapshotManager, "restore", 4.0),
)
records, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
hangs_at = int(sys.argv[4]) if len(sys.argv) > 4 else 0


def main() -> None:
    begun, taken, within = time.time(), 0, 0
    time.sleep(4.0)  # as imports
    with join(seed=1) as world:
        first = not any(records.glob(f"rank-{world.rank}-*"))
        with (records / f"rank-{world.rank}-{int(begun * 1e9)}").open("a") as file:

            def record(what: str, begin: float) -> None:
                file.write(f"{what} {begin} {time.time() - begin}\n")
                file.flush()

            def slow(what: str, method: Callable[..., Any], seconds: float) -> Callable[..., Any]:
                def slower(*args: Any, **kwargs: Any) -> Any:
                    nonlocal within
                    begin, within = time.time(), within + 1
                    time.sleep(seconds)
                    try:
                        return method(*args, **kwargs)
                    finally:
                        within -= 1
                        if not within:  # else it is a part of another one
                            record(what, begin)

                return slower

            def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
                nonlocal taken
                taken += 1
                record("step", time.time())
                if first and world.rank == 1 and taken == hangs_at:
                    time.sleep(600)
                time.sleep(0.02)
                mean: Tensor = model(batch[0]).mean()
                return mean

            for what, owner, name, seconds in LOSSES:
                setattr(owner, name, slow(what, getattr(owner, name), seconds))
            model = nn.Linear(4, 1)
            Training(
                world,
                model,
                torch.optim.SGD(model.parameters(), lr=0.0),
                loss,
                Data(TensorDataset(torch.ones(SAMPLES, 4)), batch=BATCH),
                epochs=steps * BATCH // SAMPLES,
                snapshot_every=every,
            ).fit()
            begin = time.time()
            time.sleep(8.0 * world.rank)  # as a last evaluation
            record("tail", begin)


main()
