"""What a snapshot costs: the trainer's beside torch's own ways, on this disk and on a slow one."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from bench.measure import Result, save
from bench.snapshot_ways import Way, Ways
from kittrain import World
from kittrain.env import RankEnv
from kittrain.snapshots.state import State

LAYERS, WIDTH = 25, 816
SIZE = LAYERS * (WIDTH + 1) * WIDTH * 4 * 3  # bytes: weights and Adam's two moments
BATCH = 32  # some 60 ms a step
SLOW = 50_000_000  # bytes a second
ROUNDS = {"this": 15, "slow": 10}
IDLE_STEPS = 5  # before, and as many after
LOOK = 0.0005  # seconds between two looks at what is written meanwhile
CGROUP = Path("/sys/fs/cgroup/blkio/kitctl-bench")  # stays: it holds nothing


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One snapshot alone and one while training; seconds, and how much longer steps took meanwhile."""

    disk: str
    way: str
    stall: float
    total: float
    slower: float | None


def main() -> None:
    """Measure on both disks, each in a process of its own, and write the table."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        trials = [trial for disk in ROUNDS for trial in apart(disk, Path(folder))]
    save(
        "snapshot",
        Result(
            note=f"A state of {SIZE / 1e6:.0f} MB (a model and Adam's moments) in one process on one core of two, "
            f"all ways in turn within each of {ROUNDS['this']} rounds ({ROUNDS['slow']} on the slow disk, which the "
            f"kernel holds to {SLOW / 1e6:.0f} MB/s); medians. A way's stall is how long training waits; steps slower: "
            "while the snapshot is written, compared with steps just before and after; on the disk: from the start, "
            "without training beside it; throughput: of the part behind the stall, for those that write in the "
            "background. Ours is checksummed and published, too; a copy that a thread writes is the least that any way "
            "can do. Aims: stall at most 1.2 of a memory copy, on both disks; steps at most 5 % slower; throughput at "
            "least 0.9 of write + fsync.",
            columns=("disk", "way", "stall ms", "of a copy", "steps slower", "on the disk ms", "GB/s", "of write"),
            rows=[row(trials, disk, way) for disk in ROUNDS for way in dict.fromkeys(trial.way for trial in trials)],
            raw=[asdict(trial) for trial in trials],
        ),
    )


def apart(disk: str, folder: Path) -> list[Trial]:
    """In a process of its own: DCP's writing process lives as long as its parent, and is slowed down with it."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measured, disk, folder).result()


def measured(disk: str, folder: Path) -> list[Trial]:
    """All rounds on one disk."""
    (folder / disk).mkdir()
    env = RankEnv(snapshot_dir=folder / disk, snapshot_keep=1)
    world = World(env=env, device=torch.device("cpu"))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with throttled(folder) if disk == "slow" else nullcontext():
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        optimizer = torch.optim.Adam(model.parameters())
        step = partial(train_step, model, optimizer)
        step()
        trials = list(rounds(disk, Ways(world, State(model=model, optimizer=optimizer), folder / disk), step))
    dist.destroy_process_group()
    return trials


def rounds(disk: str, ways: Ways, step: Callable[[], None]) -> Iterator[Trial]:
    """Every way in turn, again and again; the first time does not count."""
    named: dict[str, Way] = {
        "memory copy": ways.copy,
        "write + fsync": ways.write,
        "copy, write + fsync in a thread": ways.write_behind,
        "torch.save + fsync + rename": ways.save,
        "DCP": ways.dcp_save,
        "DCP async, thread": partial(ways.dcp_async, AsyncCheckpointerType.THREAD),
        "DCP async, process": partial(ways.dcp_async, AsyncCheckpointerType.PROCESS),
        "the trainer": ways.ours,
    }
    for number in range(ROUNDS[disk] + 1):
        for name, way in named.items():
            ready = ways.make_room if disk == "this" else ways.clear  # on the slow one the disk decides
            ready()
            stall, total = alone(way)
            ready()
            slower = beside(way, step)
            ways.clear()
            if number:
                yield Trial(disk=disk, way=name, stall=stall, total=total, slower=slower)


def alone(way: Way) -> tuple[float, float]:
    """Seconds until training could go on, and until the snapshot is on the disk."""
    start = time.perf_counter()
    done = way()
    stall = time.perf_counter() - start
    while not done():
        time.sleep(LOOK)
    return stall, time.perf_counter() - start


def beside(way: Way, step: Callable[[], None]) -> float | None:
    """How much longer a step takes while a snapshot is written; None where nothing is written behind the stall."""
    before = timed(step, lambda count: count == IDLE_STEPS)
    done = way()
    if done():
        return None
    meanwhile = timed(step, lambda _: done())
    after = timed(step, lambda count: count == IDLE_STEPS)
    return 2 * meanwhile / (before + after) - 1


def timed(step: Callable[[], None], enough: Callable[[int], bool]) -> float:
    """Mean seconds of a step."""
    start, count = time.perf_counter(), 0
    while not count or not enough(count):
        step()
        count += 1
    return (time.perf_counter() - start) / count


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One optimizer step."""
    optimizer.zero_grad()
    model(torch.rand(BATCH, WIDTH)).square().mean().backward()
    optimizer.step()


@contextmanager
def throttled(folder: Path) -> Iterator[None]:
    """Hold this process's writes to SLOW; the kernel does it (cgroup version 1, as root)."""
    device = folder.stat().st_dev
    CGROUP.mkdir(exist_ok=True)
    (CGROUP / "blkio.throttle.write_bps_device").write_text(f"{os.major(device)}:{os.minor(device)} {SLOW}")
    (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (CGROUP.parent / "cgroup.procs").write_text(str(os.getpid()))


def row(trials: Sequence[Trial], disk: str, way: str) -> tuple[str, ...]:
    """Medians, beside those of the memory copy and of the plain write."""
    stall, total = typical(trials, disk, way)
    copied, _ = typical(trials, disk, "memory copy")
    _, written = typical(trials, disk, "write + fsync")
    slower = [one.slower for one in trials if (one.disk, one.way) == (disk, way) and one.slower is not None]
    behind = total - stall if slower else total
    writes = way != "memory copy"
    return (
        disk,
        way,
        f"{1000 * stall:.0f}",
        f"{stall / copied:.2f}",
        f"{100 * statistics.median(slower):+.1f} %" if slower else "-",
        f"{1000 * total:.0f}" if writes else "-",
        f"{SIZE / behind / 1e9:.2f}" if writes else "-",
        f"{written / behind:.2f}" if writes else "-",
    )


def typical(trials: Sequence[Trial], disk: str, way: str) -> tuple[float, float]:
    """Median stall and total seconds."""
    chosen = [one for one in trials if (one.disk, one.way) == (disk, way)]
    return statistics.median(one.stall for one in chosen), statistics.median(one.total for one in chosen)


if __name__ == "__main__":
    main()
