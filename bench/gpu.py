"""Overhead of the trainer on a GPU, compared with bare DDP, torchrun and torch's checkpoints: one GPU, one rank.

python -m bench.gpu

Needs only a CUDA build of torch. ``--device cpu`` tests the benchmark itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from bench.measure import Result, interval, save
from bench.recovery import gpu_recovery
from bench.snapshots.methods import Done, Method, Methods
from bench.snapshots.snapshot import measure_alone, measure_slowdown
from bench.steps import hooks, loop
from kitjob.job_keys import JobKeys
from kitjob.sections import Snapshots
from kittrain import World
from kittrain.job.env import RankEnv
from kittrain.rank.snapshots.state.state import State

Row = tuple[str, ...]

BATCHES = (128, 4096)  # images per step: one that is bound by kernel launches, and one that is bound by the GPU
LAYERS, WIDTH = 10, 4096
ROUNDS = 3  # of snapshots, after one that is not counted
OURS = "the trainer"
COLUMNS = ("operation", "baseline", "of the baseline", "of kitctl", "kitctl against the baseline")


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser("bench.gpu", description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--layers", type=int, default=LAYERS, help=f"of {WIDTH} x {WIDTH}, in the snapshot's state")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"bench.gpu: no GPU for torch {torch.__version__} on this machine")
    rows: list[Row] = []
    for part in (throughput, hooked, recovery, partial(snapshots, layers=args.layers)):
        rows += part(args.device)
        save("gpu", Result(note=note(args.device, args.layers), columns=COLUMNS, rows=rows, raw=rows))


def note(device: str, layers: int) -> str:
    """The table's note: the method and the device."""
    gpu = torch.cuda.get_device_name() if device == "cuda" else "a CPU"
    size = layers * (WIDTH + 1) * WIDTH * 4 * 3 / 1e9
    return (
        f"On {gpu}, one rank, NCCL. Throughput: as in the loop benchmark above. Recovery: {gpu_recovery.TRIALS} kills "
        f"of the rank, from SIGKILL to the end of the next optimizer step. Snapshots: a state of {size:.1f} GB on the "
        f"device, all methods in turn in each of {ROUNDS} rounds; stall of training, time until written to disk, and "
        "slowdown of steps meanwhile. Medians."
    )


def throughput(device: str) -> Iterator[Row]:
    """One row per batch size."""
    backend = {"cuda": "nccl", "cpu": "gloo"}[device]
    for batch in BATCHES:
        pairs = loop.measure(ranks=1, KIT_BACKEND=backend, BENCH_BATCH=str(batch))[loop.WARM_UP :]
        bare, own = ([statistics.median(pair[name][1:]) for pair in pairs] for name in ("bare", "trainer"))
        overhead = interval([100 * (1 - theirs / ours) for ours, theirs in zip(own, bare, strict=True)])
        yield (
            f"step of {batch} images",
            "bare DDP",
            f"{1000 * statistics.median(bare):.2f} ms",
            f"{1000 * statistics.median(own):.2f} ms",
            f"{overhead.median:.2f} % lower throughput ({overhead.low:.2f} to {overhead.high:.2f})",
        )


def hooked(device: str) -> Iterator[Row]:
    """One row: the smallest step of a plain script, without and with the hooks in its rank."""
    without, own = hooks.measure(device, rounds=5)
    added = interval([b - a for a, b in zip(without, own, strict=True)])
    yield (
        "small step of a plain script",
        "without hooks",
        f"{statistics.median(without):.0f} us",
        f"{statistics.median(own):.0f} us",
        f"{added.median:+.1f} us a step ({added.low:+.1f} to {added.high:+.1f})",
    )


def recovery(device: str) -> Iterator[Row]:
    """One row."""
    ours, theirs = gpu_recovery.measure(device)
    ratio = statistics.median(ours) / statistics.median(theirs)
    yield (
        "recovery of a killed rank",
        "tuned torchrun",
        f"{statistics.median(theirs):.2f} s ({min(theirs):.2f} to {max(theirs):.2f})",
        f"{statistics.median(ours):.2f} s ({min(ours):.2f} to {max(ours):.2f})",
        f"{ratio:.2f} of the time",
    )


def snapshots(device: str, layers: int) -> list[Row]:
    """One row per baseline; measured in a subprocess, with which DCP's writing process ends."""
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool,
    ):
        trials = pool.submit(snapshot_trials, device, layers, Path(folder)).result()
    stall, total, slower = medians(trials[OURS])
    rows: list[Row] = []
    for name in (name for name in trials if name != OURS):
        their_stall, their_total, their_slower = medians(trials[name])
        rows.append(
            (
                "snapshot: stall, on disk, slowdown",
                name,
                f"{1000 * their_stall:.0f} ms, {their_total:.1f} s, {their_slower:+.0f} %",
                f"{1000 * stall:.0f} ms, {total:.1f} s, {slower:+.0f} %",
                f"{stall / their_stall:.2f} of the stall",
            )
        )
    return rows


Trial = tuple[float, float, float]  # stall and total in seconds, slowdown of steps in percent


def snapshot_trials(device: str, layers: int, folder: Path) -> dict[str, list[Trial]]:
    """Measure all methods in turn, in several rounds; the first round is not counted."""
    world = World(
        env=RankEnv(job=JobKeys(snapshots=Snapshots(keep=1)), snapshot_dir=folder), device=torch.device(device)
    )
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers))).to(device)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.rand(256, WIDTH, device=device)).square().mean().backward()
        optimizer.step()
        synchronize(device)

    step()
    methods = Methods(world, State(model=model, optimizer=optimizer), folder)
    named: dict[str, Method] = {
        "DCP async, thread": partial(methods.dcp_async, AsyncCheckpointerType.THREAD),
        "DCP async, process": partial(methods.dcp_async, AsyncCheckpointerType.PROCESS),
        OURS: methods.ours,
    }
    trials: dict[str, list[Trial]] = {name: [] for name in named}
    for number in range(ROUNDS + 1):
        for name, method in named.items():
            trial = measured(partial(synchronized, method, device), step)
            methods.clear()
            if number:
                trials[name].append(trial)
    dist.destroy_process_group()
    return trials


def measured(method: Method, step: Callable[[], None]) -> Trial:
    """Measure one snapshot alone, and one during training."""
    stall, total = measure_alone(method)
    return stall, total, 100 * (measure_slowdown(method, step) or 0.0)


def synchronized(method: Method, device: str) -> Done:
    """Begin a snapshot after the GPU has finished earlier work."""
    synchronize(device)
    return method()


def synchronize(device: str) -> None:
    """Wait for the GPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def medians(trials: Sequence[Trial]) -> Trial:
    """The median of each value."""
    stall, total, slower = (statistics.median(figures) for figures in zip(*trials, strict=True))
    return stall, total, slower


if __name__ == "__main__":
    main()
