"""From `kill -9` of a node's whole process group to the next optimizer step of the job, on three local nodes."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from bench.measure import Result, interval, save
from tools.localjob import POLL_SECONDS, LocalJob, kitctl

NODES = 3
KILLS = (0, 1, 2, 0, 1, 2, 0)  # node 0 hosts the rendezvous store
STEPS_BETWEEN = 30
STEP_SECONDS = 0.05
LIMIT_SECONDS = 300.0


def main() -> None:
    """Measure, and write the table."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(Path(folder))
    hosts = [value for node, value in seconds if node == 0]
    others = [value for node, value in seconds if node != 0]
    save(
        "recovery",
        Result(
            note=f"One job of {NODES} local nodes, `kill -9` of a node's whole process group {len(KILLS)} times in a "
            f"row, each some {STEPS_BETWEEN} steps after the job trained again. Seconds from the kill to the "
            "first optimizer step of the new group: noticing the loss, starting the node, importing torch in "
            "its agent and in every rank, forming a group and loading the snapshot. Medians with 95 % "
            "intervals.",
            columns=("killed", "times", "median s", "interval s"),
            rows=[row("node 0", hosts), row("another node", others), row("all", hosts + others)],
            raw=seconds,
        ),
    )


def row(name: str, seconds: list[float]) -> tuple[str, ...]:
    """One line of the table."""
    found = interval(seconds)
    return name, str(len(seconds)), f"{found.median:.1f}", f"{found.low:.1f} to {found.high:.1f}"


def measure(folder: Path) -> list[tuple[int, float]]:
    """Each kill's node, and how long it took."""
    training = ("-m", "trainer.workloads.toy", "100000", "--step-time", str(STEP_SECONDS), "--record", str(folder))
    job = LocalJob.submit("--nodes", str(NODES), "--snapshot-every", "10", *training)
    try:
        return [(node, recovery(job, folder, node)) for node in KILLS]
    finally:
        kitctl("delete", job.name, "--target", "local", "--snapshots", "-y")


def recovery(job: LocalJob, folder: Path, node: int) -> float:
    """Kill a node that has trained for a while; seconds to the next step."""
    generation = await_steps(folder, generation=newest(folder)[0], steps=STEPS_BETWEEN)
    killed = time.monotonic()
    job.kill(node)
    await_steps(folder, generation=generation + 1, steps=1)
    return time.monotonic() - killed


def await_steps(folder: Path, *, generation: int, steps: int) -> int:
    """Wait until a generation of ranks, or a later one, has taken some steps; gives the generation."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        found, taken = newest(folder)
        if found >= generation and taken >= steps:
            return found
        assert time.monotonic() < deadline, f"no {steps} steps of generation {generation} in {LIMIT_SECONDS:.0f} s"
        time.sleep(POLL_SECONDS)


def newest(folder: Path) -> tuple[int, int]:
    """The newest generation of ranks that has recorded a step, and how many steps its fastest rank has recorded."""
    found = (0, 0)
    for record in folder.glob("rank-*.jsonl"):
        lines = record.read_bytes().splitlines()
        if lines:
            found = max(found, (json.loads(lines[0])["generation"], len(lines)))
    return found


if __name__ == "__main__":
    main()
