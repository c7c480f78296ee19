"""Overhead of virtual ranks: the same training on two ranks, by DDP and with 2 to 16 virtual ranks."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import ROOT, Result, interval, save

RANKS = 2
ROUNDS = 15
STEPS = 8  # of each configuration in a round
VIRTUAL_RANKS = (0, 2, 4, 8, 16)  # 0 is DDP


def main() -> None:
    """Measure, and write the table."""
    taken = measure()
    ddp = taken["0"]
    save(
        "virtual",
        Result(
            note=f"A ConvNet with batch normalization, {RANKS} ranks on gloo, one core each, 256 samples per step. "
            f"{ROUNDS} rounds of {STEPS} steps per configuration, in turn in the same processes; the ratio to DDP is "
            "the median of the ratios per round, with a 95 % interval.",
            columns=("virtual ranks", "ms per step", "/ DDP", "interval"),
            rows=[_row(count, taken[str(count)], ddp) for count in VIRTUAL_RANKS],
            raw=taken,
        ),
    )


def _row(count: int, seconds: list[float], ddp: list[float]) -> tuple[str, ...]:
    times = interval([ours / theirs for ours, theirs in zip(seconds, ddp, strict=True)])
    milliseconds = f"{1000 * statistics.median(seconds) / STEPS:.1f}"
    if not count:
        return "none (DDP)", milliseconds, "1", "-"
    return str(count), milliseconds, f"{times.median:.2f}", f"{times.low:.2f} to {times.high:.2f}"


def measure() -> dict[str, list[float]]:
    """Seconds of each round, by number of virtual ranks."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
        subprocess.run(
            [*launch, "-m", "bench.steps.virtual_ranks", str(out)],
            check=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        seconds: dict[str, list[float]] = json.loads(out.read_text(encoding="utf-8"))
    return seconds


if __name__ == "__main__":
    main()
