"""What virtual ranks cost: the same training on two ranks, as DDP does it and with more and more virtual ranks."""

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
STEPS = 8  # of each way in a round
WAYS = (0, 2, 4, 8, 16)  # virtual ranks; 0 is DDP


def main() -> None:
    """Measure, and write the table."""
    taken = measure()
    ddp = taken["0"]
    save(
        "virtual",
        Result(
            note=f"A ConvNet with batch normalization, {RANKS} ranks on gloo, one core each, 256 samples a step. "
            f"{ROUNDS} rounds of {STEPS} steps each way, in turn in the same processes; times DDP is the median of the "
            "rounds' own, with a 95 % interval.",
            columns=("virtual ranks", "ms a step", "times DDP", "interval"),
            rows=[_row(way, taken[str(way)], ddp) for way in WAYS],
            raw=taken,
        ),
    )


def _row(way: int, seconds: list[float], ddp: list[float]) -> tuple[str, ...]:
    times = interval([ours / theirs for ours, theirs in zip(seconds, ddp, strict=True)])
    milliseconds = f"{1000 * statistics.median(seconds) / STEPS:.1f}"
    if not way:
        return "none (DDP)", milliseconds, "1", "-"
    return str(way), milliseconds, f"{times.median:.2f}", f"{times.low:.2f} to {times.high:.2f}"


def measure() -> dict[str, list[float]]:
    """Seconds of each round, by way."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "seconds.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
        subprocess.run(
            [*launch, "-m", "bench.virtual_ranks", str(out)],
            check=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
        )
        seconds: dict[str, list[float]] = json.loads(out.read_text(encoding="utf-8"))
    return seconds


if __name__ == "__main__":
    main()
