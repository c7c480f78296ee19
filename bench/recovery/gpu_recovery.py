"""Time from the kill of a node's only rank to the next optimizer step: kitctl and tuned torchrun, in turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.measure import ROOT
from bench.recovery.jobs import GROUP_TIMEOUT, POLL_SECONDS, Rank, alive, ranks
from bench.recovery.ranks import SNAPSHOT_EVERY

TRIALS = 10
STEADY = 20  # steps before each kill
LIMIT = 240.0  # seconds


def measure(device: str) -> tuple[list[float], list[float]]:
    """Seconds of each recovery, of kitctl and of tuned torchrun."""
    with ExitStack() as stack:
        ours, theirs = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        stack.enter_context(running(*agent(ours, device), ours))
        stack.enter_context(running(*torchrun(theirs, device), theirs))
        both = [(recovered(ours), recovered(theirs)) for _ in range(TRIALS)]
    return [own for own, _ in both], [their for _, their in both]


def agent(folder: Path, device: str) -> tuple[Sequence[str], Mapping[str, str]]:
    """Command and environment of this project's agent."""
    (folder / "snapshots").mkdir()
    env = {
        "KIT_SNAPSHOT_DIR": str(folder / "snapshots"),
        "KIT_SNAPSHOTS_EVERY_STEPS": str(SNAPSHOT_EVERY),
        "PET_RDZV_ENDPOINT": "127.0.0.1:29411",
        "PET_MAX_RESTARTS": "1000",
        "KIT_GPUS_PER_NODE": "1" if device == "cuda" else "0",
    }
    return [sys.executable, "-P", "-m", "kittrain.agent", "--", *ranks("trainer", folder)], env


def torchrun(folder: Path, device: str) -> tuple[Sequence[str], Mapping[str, str]]:
    """Command and environment of torchrun, with the options that make it recover fastest."""
    options = ("--standalone", "--nproc-per-node=1", "--max-restarts=1000", "--monitor-interval=0.1")
    env = {"BENCH_DEVICE": device, "GROUP_TIMEOUT": str(GROUP_TIMEOUT), "TORCH_ELASTIC_WORKER_IDENTICAL": "1"}
    return [sys.executable, "-m", "torch.distributed.run", *options, *ranks("plain", folder)], env


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Run a node; kill it and its ranks on exit."""
    search = os.pathsep.join([str(ROOT), str(ROOT / "trainer")])  # this interpreter may have no kittrain installed
    own = {"OMP_NUM_THREADS": "1", "NODE": "0", "PYTHONPATH": search, **env}
    with (folder / "log").open("ab") as log:
        node = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
    finally:
        os.killpg(node.pid, signal.SIGKILL)
        node.wait()
        for rank in (Rank(file=path) for path in folder.glob("*.jsonl")):
            if alive(rank.pid):
                os.kill(rank.pid, signal.SIGKILL)


def recovered(folder: Path) -> float:
    """Kill the training rank; returns the seconds until the next one has taken a step."""
    rank = training(folder, steps=STEADY)
    killed = time.monotonic()
    os.kill(rank.pid, signal.SIGKILL)
    return training(folder, steps=1, other_than=rank.pid).steps[0] - killed


def training(folder: Path, *, steps: int, other_than: int = 0) -> Rank:
    """Wait for a live rank to take some steps."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        for rank in (Rank(file=path) for path in folder.glob("*.jsonl")):
            rank.read_on()
            if rank.pid != other_than and len(rank.steps) >= steps and alive(rank.pid):
                return rank
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"no rank is training: {(folder / 'log').read_text(encoding='utf-8')[-2000:]}")


if __name__ == "__main__":
    print(measure(sys.argv[1]))
