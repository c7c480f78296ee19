"""Peak memory of snapshots, restores and model files, in addition to that of training."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.measure import Result, save
from kittrain import World, join
from kittrain.job.env import RankEnv, rank_env
from kittrain.rank.snapshots.manager import SnapshotManager
from kittrain.rank.snapshots.state.state import State
from kittrain.rank.world.order import Cursor, Order
from tests.trainer.nodes import free_port

LAYERS, WIDTH = 20, 2890
MODEL: Final = LAYERS * (WIDTH + 1) * WIDTH * 4  # bytes
STATE: Final = 3 * MODEL  # with Adam's two moments
ORDER: Final = Order(samples=1_000_000, batch=1)
EXPORTS: Final = ("pt", "safetensors")
WORLDS: Final = {"1 rank": (1, {}), "2 ranks, DDP": (2, {}), "1 rank, without a copy": (1, {"KIT_SNAPSHOTS_COPY": "0"})}
PARTS: Final = (
    "a snapshot begins",
    "it is written and published",
    "model.pt is written",
    "restored",
    *(f"exported as {kind}" for kind in EXPORTS),
)

Peaks = dict[str, int]  # bytes by operation


def main() -> None:
    """Measure each world, and write the table."""
    peaks = {name: measured(size, env) for name, (size, env) in WORLDS.items()}
    rows = [(part, *(f"{found[part] / STATE:+.2f}" for found in peaks.values())) for part in PARTS]
    save(
        "memory",
        Result(
            note=f"A state of {STATE / 1e9:.1f} GB (a model of {MODEL / 1e9:.1f} GB and Adam's moments) on CPUs. Peak "
            "resident memory in addition to that of training with its gradients, as a multiple of the state, on the "
            "rank that needs most. A restore runs in a new process, without gradients; an export runs in a process "
            "without a model, and is compared with the export of a tiny model. Two ranks each copy and write half of "
            "the replicated state. Goals: a snapshot needs one copy, and publishing nothing more; without a copy, and "
            "for a restore, at most the largest shard; for model.pt and exports, at most the largest tensor.",
            columns=("operation", *peaks),
            rows=rows,
            raw=peaks,
        ),
    )


def measured(size: int, env: Mapping[str, str]) -> Peaks:
    """Train, save and finish; restore in new processes; export."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        trained = in_world(train, size, env, Path(folder))
        restored = in_world(restore, size, env, Path(folder))
        steady = [one["steady"] for one in trained]
        found = {part: max(one[part] - one["steady"] for one in trained) for part in PARTS[:3]}
        found["restored"] = max(one["restored"] - before for one, before in zip(restored, steady, strict=True))
        return found | {f"exported as {kind}": exported(Path(folder), kind) for kind in EXPORTS}


def in_world(act: Callable[[Path], Peaks], size: int, env: Mapping[str, str], folder: Path) -> list[Peaks]:
    """The measurements of each rank, each of which runs in a new process."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size), **env}
    shared |= {"KIT_BACKEND": "gloo", "KIT_SNAPSHOT_DIR": str(folder), "LOCAL_WORLD_SIZE": str(size)}
    with ProcessPoolExecutor(max_workers=size, mp_context=get_context("spawn")) as pool:
        ranks = [pool.submit(as_rank, act, folder, shared | {"RANK": str(rank)}) for rank in range(size)]
        return [rank.result() for rank in ranks]


def as_rank(act: Callable[[Path], Peaks], folder: Path, env: Mapping[str, str]) -> Peaks:
    """Runs in the rank's process."""
    os.environ.update(env)
    torch.set_num_threads(1)
    return act(folder)


def train(_folder: Path) -> Peaks:
    """Steps, a snapshot with steps while it is written, and the end of the run."""
    with join(env=rank_env()) as world:
        state, step = learner(world)
        with SnapshotManager(world, state, ORDER) as manager:
            manager.restore()
            for _ in range(3):  # the first ones allocate what later ones reuse
                step()
            peaks = {"steady": peak(lambda: [step() for _ in range(2)])}
            peaks[PARTS[0]] = peak(lambda: begin(manager))
            peaks[PARTS[1]] = peak(lambda: written(manager, world, step))
            peaks[PARTS[2]] = peak(manager.finish)
            return peaks


def restore(_folder: Path) -> Peaks:
    """Restore in a new process."""
    with join(env=rank_env()) as world:
        state, _ = learner(world)
        with SnapshotManager(world, state, ORDER) as manager:
            return {"restored": peak(manager.restore)}


def learner(world: World) -> tuple[State, Callable[[], None]]:
    """A state, and a function that trains it for a step."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = torch.optim.Adam(model.parameters())
    trained = DistributedDataParallel(model, gradient_as_bucket_view=True) if world.size > 1 else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        trained(torch.rand(1, WIDTH)).square().mean().backward()
        optimizer.step()

    return State(model=model, optimizer=optimizer), step


def begin(manager: SnapshotManager) -> None:
    """Prepare and begin a snapshot, as the loop does."""
    manager.prepare()
    manager.begin(Cursor(0, 1), {})


def written(manager: SnapshotManager, world: World, step: Callable[[], None]) -> None:
    """Train until the snapshot is published."""
    done = 0.0
    while not done:
        step()
        done = world.sum(torch.tensor(float(manager.written))).item() // world.size
    manager.advance(written=True)
    while world.is_main and not manager.committed.step:
        pass
    world.barrier()


def peak(act: Callable[[], object]) -> int:
    """Peak resident memory of this process during a call, in bytes."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): reset the peak
    act()
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def exported(folder: Path, kind: str) -> int:
    """Peak memory of an export in bytes, minus that of the export of a tiny model."""
    with tempfile.TemporaryDirectory() as other:
        small = nn.Linear(1, 1)
        state = State(model=small, optimizer=torch.optim.SGD(small.parameters()))
        world = World(env=RankEnv(snapshot_dir=Path(other)), device=torch.device("cpu"))
        with SnapshotManager(world, state, ORDER) as manager:
            manager.restore()
            manager.commit(Cursor(0, 1), {})
        export = (sys.executable, "-P", "-m", "kittrain.rank.snapshots", "--folder")
        command = ("export", "--format", kind)
        return peak_of((*export, str(folder), *command)) - peak_of((*export, other, *command))


def peak_of(command: tuple[str, ...]) -> int:
    """Peak memory of a command in bytes; a new parent process each, as the kernel reports that of the largest child."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run((sys.executable, "-c", code, *command), check=True, capture_output=True)
    return int(done.stdout) * 1024


if __name__ == "__main__":
    main()
