"""Runs on each rank of the benchmark of copies: ``fit()``, with the stall of each snapshot next to a plain memory copy.

python -m bench.snapshots.copies_ranks FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from bench.snapshots.mirror_ranks import train
from bench.snapshots.snapshot import SIZE
from kittrain import Step, join
from kittrain.rank.snapshots.manager import SnapshotManager

BLOCK: Final = 30  # steps from one snapshot to the next
BATCH: Final = 24  # of all ranks


def main(folder: Path) -> None:
    """Train until the benchmark ends."""
    with join() as world, (folder / f"rank-{world.rank}").open("a", encoding="utf-8", buffering=1) as file:
        begin = SnapshotManager.begin
        source = torch.rand(SIZE // 4 // world.size)  # as many bytes as this rank's part of the state has
        target = torch.empty_like(source)

        def timed(manager: SnapshotManager, *words: Any, **named: Any) -> None:
            world.barrier()
            copy = _seconds(lambda: target.copy_(source))
            world.barrier()
            stall = _seconds(lambda: begin(manager, *words, **named))
            world.barrier()  # as after the copy: a rank that is first takes no processor from the others
            file.write(f"{json.dumps({'copy': copy, 'stall': stall})}\n")

        setattr(SnapshotManager, "begin", timed)  # noqa: B010  mypy does not let a method be assigned

        def on_step(_step: Step) -> None:
            if world.rank == 0:
                times.write(f"{time.monotonic()}\n")

        with (folder / "steps").open("a", encoding="utf-8", buffering=1) as times:
            train(world, on_step, batch=BATCH)


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    main(Path(sys.argv[1]))
