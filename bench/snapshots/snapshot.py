"""Cost of a snapshot: the trainer's compared with torch's methods, on a fast and a slow disk."""

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
from bench.snapshots.methods import Method, Methods
from kitjob.job_keys import JobKeys
from kitjob.sections import Snapshots
from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.state.state import State

LAYERS, WIDTH = 25, 816
SIZE = LAYERS * (WIDTH + 1) * WIDTH * 4 * 3  # bytes: weights and Adam's two moments
BATCH = 32  # about 60 ms per step
SLOW = 50_000_000  # bytes per second
ROUNDS = {"this": 15, "slow": 10}
IDLE_STEPS = 5  # before, and as many after
POLL_SECONDS = 0.0005
CGROUP = Path("/sys/fs/cgroup/blkio/kitctl-bench")  # is not removed: it is empty


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One snapshot alone and one during training: seconds, and the relative slowdown of steps."""

    disk: str
    way: str
    stall: float
    total: float
    slower: float | None


def main() -> None:
    """Measure on both disks, each in a subprocess, and write the table."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        trials = [trial for disk in ROUNDS for trial in in_subprocess(disk, Path(folder))]
    save(
        "snapshot",
        Result(
            note=f"A state of {SIZE / 1e6:.0f} MB (a model and Adam's moments) in one process on one core of two, "
            f"all methods in turn in each of {ROUNDS['this']} rounds ({ROUNDS['slow']} on the slow disk, which the "
            f"kernel limits to {SLOW / 1e6:.0f} MB/s); medians. Stall: how long training waits. Slowdown: of steps "
            "while the snapshot is written, compared with those just before and after. On disk: time from the start, "
            "without training meanwhile. Throughput: after the stall, for methods that write in the background. The "
            "trainer also checksums and publishes its snapshots. A copy that a thread writes is the least that any "
            "asynchronous method needs. Goals: stall at most 1.2 of a memory copy, on both disks; slowdown at most "
            "5 %; throughput at least 0.9 of write + fsync.",
            columns=("disk", "method", "stall ms", "/ copy", "slowdown", "on disk ms", "GB/s", "/ write"),
            rows=[row(trials, disk, name) for disk in ROUNDS for name in dict.fromkeys(trial.way for trial in trials)],
            raw=[asdict(trial) for trial in trials],
        ),
    )


def in_subprocess(disk: str, folder: Path) -> list[Trial]:
    """Measure in a new process: DCP's writing process is throttled like its parent, and ends with it."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measured, disk, folder).result()


def measured(disk: str, folder: Path) -> list[Trial]:
    """Run all rounds on one disk."""
    (folder / disk).mkdir()
    env = RankEnv(job=JobKeys(snapshots=Snapshots(keep=1)), snapshot_dir=folder / disk)
    world = World(env=env, device=torch.device("cpu"))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with throttled(folder) if disk == "slow" else nullcontext():
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        optimizer = torch.optim.Adam(model.parameters())
        step = partial(train_step, model, optimizer)
        step()
        trials = list(rounds(disk, Methods(world, State(model=model, optimizer=optimizer), folder / disk), step))
    dist.destroy_process_group()
    return trials


def rounds(disk: str, methods: Methods, step: Callable[[], None]) -> Iterator[Trial]:
    """Measure all methods in turn, in several rounds; the first round is not counted."""
    named: dict[str, Method] = {
        "memory copy": methods.copy,
        "write + fsync": methods.write,
        "copy, write + fsync in a thread": methods.write_async,
        "torch.save + fsync + rename": methods.save,
        "DCP": methods.dcp_save,
        "DCP async, thread": partial(methods.dcp_async, AsyncCheckpointerType.THREAD),
        "DCP async, process": partial(methods.dcp_async, AsyncCheckpointerType.PROCESS),
        "the trainer": methods.ours,
    }
    for number in range(ROUNDS[disk] + 1):
        for name, method in named.items():
            prepare = methods.free_pages if disk == "this" else methods.clear  # the slow disk needs none
            prepare()
            stall, total = measure_alone(method)
            prepare()
            slower = measure_slowdown(method, step)
            methods.clear()
            if number:
                yield Trial(disk=disk, way=name, stall=stall, total=total, slower=slower)


def measure_alone(method: Method) -> tuple[float, float]:
    """Seconds until training can continue, and until the snapshot is on disk."""
    start = time.perf_counter()
    done = method()
    stall = time.perf_counter() - start
    while not done():
        time.sleep(POLL_SECONDS)
    return stall, time.perf_counter() - start


def measure_slowdown(method: Method, step: Callable[[], None]) -> float | None:
    """Relative slowdown of steps while a snapshot is written; None if it is written during the stall."""
    before = timed(step, lambda count: count == IDLE_STEPS)
    done = method()
    if done():
        return None
    during = timed(step, lambda _: done())
    after = timed(step, lambda count: count == IDLE_STEPS)
    return 2 * during / (before + after) - 1


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
    """Limit this process's writes to SLOW by cgroups (version 1; needs root)."""
    device = folder.stat().st_dev
    CGROUP.mkdir(exist_ok=True)
    (CGROUP / "blkio.throttle.write_bps_device").write_text(f"{os.major(device)}:{os.minor(device)} {SLOW}")
    (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (CGROUP.parent / "cgroup.procs").write_text(str(os.getpid()))


def row(trials: Sequence[Trial], disk: str, method: str) -> tuple[str, ...]:
    """Medians, also relative to those of the memory copy and of the plain write."""
    stall, total = medians(trials, disk, method)
    copied, _ = medians(trials, disk, "memory copy")
    _, written = medians(trials, disk, "write + fsync")
    slower = [one.slower for one in trials if (one.disk, one.way) == (disk, method) and one.slower is not None]
    writing = total - stall if slower else total
    writes = method != "memory copy"
    return (
        disk,
        method,
        f"{1000 * stall:.0f}",
        f"{stall / copied:.2f}",
        f"{100 * statistics.median(slower):+.1f} %" if slower else "-",
        f"{1000 * total:.0f}" if writes else "-",
        f"{SIZE / writing / 1e9:.2f}" if writes else "-",
        f"{written / writing:.2f}" if writes else "-",
    )


def medians(trials: Sequence[Trial], disk: str, method: str) -> tuple[float, float]:
    """Median stall and total time, in seconds."""
    chosen = [one for one in trials if (one.disk, one.way) == (disk, method)]
    return statistics.median(one.stall for one in chosen), statistics.median(one.total for one in chosen)


if __name__ == "__main__":
    main()
