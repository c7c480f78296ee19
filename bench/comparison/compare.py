"""One model trained in different ways: alone, DDP, FSDP2, DataParallel, on one node and on several.

python -m bench.comparison.compare [--device cuda]

Nodes are kitctl's agents, as in a pod. On a GPU there is one rank: what each way costs, not what it gains.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.comparison.ranks import BATCH
from bench.measure import ROOT, Result, interval, save

ROUNDS, STEPS, WARM_UP = 3, 14, 4
LIMIT = 600.0  # seconds until a job must have ended
PORT = 29431


class Way(NamedTuple):
    """How the model is parallelized, on how many nodes, with how many ranks each."""

    wrapper: str
    nodes: int
    ranks: int


CPU: Mapping[str, Way] = {
    "single process": Way("none", 1, 1),
    "DDP, 2 ranks": Way("ddp", 1, 2),
    "FSDP2, 2 ranks": Way("fsdp2", 1, 2),
    "DDP, 1 node of 4 ranks": Way("ddp", 1, 4),
    "DDP, 4 nodes of 1 rank": Way("ddp", 4, 1),
    "FSDP2, 1 node of 4 ranks": Way("fsdp2", 1, 4),
    "FSDP2, 4 nodes of 1 rank": Way("fsdp2", 4, 1),
}
GPU: Mapping[str, Way] = {
    "single process": Way("none", 1, 1),
    "DataParallel": Way("dp", 1, 1),
    "DDP": Way("ddp", 1, 1),
    "FSDP2": Way("fsdp2", 1, 1),
}


def main() -> None:
    """Measure, and write the table; ``bench.comparison.plots`` draws it."""
    parser = argparse.ArgumentParser("bench.comparison.compare", description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    ways = GPU if device == "cuda" else CPU
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            found[name].append(run(way, device))
            print(f"  {name}: {speed(found[name][-1]):.1f} windows/s", flush=True)
    alone = statistics.median(map(speed, found["single process"]))
    rows = [row(name, trials, alone) for name, trials in found.items()]
    columns = ("way", "windows/s", "interval", "/ single", "memory per rank", "loss after the last step")
    name = {"cpu": "compare", "cuda": "compare-gpu"}[device]
    save(name, Result(note=note(device, found), columns=columns, rows=rows, raw=found))


def run(way: Way, device: str) -> dict[str, Any]:
    """Train once; what rank 0 wrote."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        out, log = folder / "out.json", folder / "log"
        nodes = [start(way, node, device, out, log) for node in range(way.nodes)]
        try:
            codes = [node.wait(LIMIT) for node in nodes]
        finally:
            for node in nodes:
                node.kill()
        if any(codes):
            raise SystemExit(
                f"bench.comparison.compare: {way} ended with {codes}:\n{log.read_text(encoding='utf-8')[-3000:]}"
            )
        facts: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return facts


def start(way: Way, node: int, device: str, out: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a node's agent."""
    own = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "trainer")]),
        "OMP_NUM_THREADS": "1",
        "PET_NNODES": str(way.nodes),
        "PET_NPROC_PER_NODE": str(way.ranks),
        "PET_RDZV_ENDPOINT": f"127.0.0.1:{PORT}",
        "PET_RDZV_ID": "bench",
        "PET_MAX_RESTARTS": "0",
        "KIT_NODE_INDEX": str(node),
        "KIT_GPUS_PER_NODE": "1" if device == "cuda" else "0",
        "KIT_BACKEND": "nccl" if device == "cuda" else "gloo",
        "BENCH_DEVICE": device,
    }
    ranks = ("-m", "bench.comparison.ranks", way.wrapper, str(out), str(STEPS))
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kittrain.agent", "--", *ranks],
            cwd=ROOT,
            env={**os.environ, **own},
            stdout=stream,
            stderr=stream,
        )


def speed(trial: Mapping[str, Any]) -> float:
    """Windows per second over all ranks, after the warm-up."""
    steps: float = BATCH * (STEPS - WARM_UP) / (trial["seconds"][-1] - trial["seconds"][WARM_UP - 1])
    return steps


def row(name: str, trials: list[dict[str, Any]], alone: float) -> tuple[str, ...]:
    """A way's line of the table."""
    speeds = interval([speed(trial) for trial in trials])
    return (
        name,
        f"{speeds.median:.1f}",
        f"{speeds.low:.1f} to {speeds.high:.1f}",
        f"{speeds.median / alone:.2f}",
        f"{statistics.median(trial['memory'] for trial in trials) / 1e6:.0f} MB",
        f"{trials[-1]['losses'][-1]:.4f}",
    )


def note(device: str, found: Mapping[str, list[dict[str, Any]]]) -> str:
    """The table's note."""
    facts = found["single process"][0]
    where = f"{os.cpu_count()} cores, one thread a rank, gloo"
    if device == "cuda":
        import torch  # noqa: PLC0415 - only its name is needed here

        where = f"{torch.cuda.get_device_name()}, one rank, NCCL, bfloat16"
    return (
        f"The `lm` workload's model with {facts['parameters'] / 1e6:.1f} million parameters, on its text: {where}. A "
        f"step has {BATCH} windows, over all ranks, and every way takes the same ones in the same order. {ROUNDS} "
        f"rounds of all ways in turn, {STEPS} steps each, of which {WARM_UP} are not counted. Memory: the most that a "
        "rank took beyond what it had before the model was built."
    )


if __name__ == "__main__":
    main()
