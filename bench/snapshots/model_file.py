"""What the model file of a sharded run costs at its end: written by rank 0 from the last snapshot, or by each rank.

The ranks are simulated one after the other in one process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from bench.measure import Result, save
from kittrain.rank.snapshots.files import file_part, shards
from kittrain.rank.snapshots.files.file_part import Part
from kittrain.rank.snapshots.files.layout import bytes_of
from kittrain.rank.snapshots.files.shards import Piece
from kittrain.rank.snapshots.folder import snapshot
from kittrain.rank.snapshots.state import model_file, weights
from kittrain.rank.snapshots.state.model_file import Frame
from kittrain.system import files
from tests.trainer import saved

SIZES: Final = (64, 256)
TENSORS: Final = 200
ROWS, COLUMNS = 4096, 64  # of each tensor: 1 MiB


def main() -> None:
    """Measure, and write the table."""
    rows, raw = [], []
    for size in SIZES:
        for name, measure in (("rank 0, from the last snapshot", by_rank_0), ("each rank", by_each_rank)):
            seconds = measure(size)
            rows.append((f"{size}", name, f"{max(seconds):.3f}", f"{sum(seconds):.2f}"))
            raw.append([size, name, seconds])
    save(
        "model-file",
        Result(
            note=f"The model file of a model of {TENSORS} MiB, whose {TENSORS} tensors FSDP2 has sharded. Each rank is "
            "simulated in turn in one process; what they send to each other is not transferred. Rank 0's time includes "
            "the file's frame. Goal: the busiest rank's time falls with the number of ranks.",
            columns=("ranks", "written by", "busiest rank, CPU s", "all ranks, CPU s"),
            rows=rows,
            raw=raw,
        ),
    )


def by_rank_0(size: int) -> list[float]:
    """CPU seconds by rank, as before."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tensors = model()
        scratch = folder / f"{snapshot.SCRATCH}shards"
        scratch.mkdir()
        written = []
        for rank in range(size):
            pieces, data = [], b""
            for piece, part in boxes(tensors, rank, size, prefix=snapshot.MODEL):
                start, data = len(data), data + bytes_of(part)
                pieces.append(Piece(**{**vars(piece), "start": start, "stop": len(data)}))
            written.append(shards.write(scratch / shards.name(rank), [memoryview(data)], pieces, {}))
        described = saved.manifest(1, shards=tuple(written))
        snapshot.write_manifest(scratch, described)
        snapshot.publish(scratch, folder / described.name)
        source = folder / described.name
        took = cpu_seconds(
            lambda: files.replace_parts(folder / "model.pt", model_file.stream(weights.of_snapshot(source)))
        )
    return [took] + [0.0] * (size - 1)


def by_each_rank(size: int) -> list[float]:
    """CPU seconds by rank, as now."""
    tensors = model()
    parts: list[Part] = []
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.pt"
        frames: list[Frame] = []

        def begin() -> None:
            frames.append(Frame.of(weights.of_model(tensors)))
            with path.open("wb") as file:
                file.truncate(frames[0].end)

        def complete() -> None:
            names = frames[0].starts
            sums = {name: reduce(xor, (part.checksums.get(name, 0) for part in parts)) for name in names}
            assert all(file_part.is_there(path, part.probe) for part in parts if part.probe)
            files.write_at(path, frames[0].parts(sums))

        seconds.append(cpu_seconds(begin))
        for rank in range(size):
            held = dict(boxes(tensors, rank, size))
            took = cpu_seconds(
                lambda: parts.append(
                    file_part.write(path, held, frames[0].starts, lambda piece: bytes_of(held[piece]))  # noqa: B023
                )
            )
            seconds.append(took)
        seconds.append(cpu_seconds(complete))
        assert torch.equal(torch.load(path, mmap=True)["99"], tensors["99"])  # noqa: TID251  made here
    begun, first, *others, completed = seconds
    return [begun + first + completed, *others]


def model() -> dict[str, Tensor]:
    """The whole tensors."""
    return {str(number): torch.full((ROWS, COLUMNS), float(number)) for number in range(TENSORS)}


def boxes(tensors: dict[str, Tensor], rank: int, size: int, prefix: str = "") -> list[tuple[Piece, Tensor]]:
    """A rank's rows of each tensor."""
    found = []
    for name, one in tensors.items():
        rows = ROWS // size
        part = one[rank * rows : (rank + 1) * rows]
        piece = Piece(
            tensor=prefix + name,
            dtype="float32",
            shape=(ROWS, COLUMNS),
            offsets=(rank * rows, 0),
            sizes=(rows, COLUMNS),
            start=0,
            stop=part.nbytes,
        )
        found.append((piece, part))
    return found


def cpu_seconds(act: Callable[[], object]) -> float:
    """Of this process, in user and kernel mode."""
    began = time.process_time()
    act()
    return time.process_time() - began


if __name__ == "__main__":
    main()
