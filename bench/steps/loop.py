"""Overhead of the trainer's loop over a bare DDP loop of the same model: two ranks, alternating blocks of steps."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import ROOT, Result, interval, save
from bench.steps import step

RANKS = 2
RUNS = 8
WARM_UP = 5  # pairs that are not counted
Pair = dict[str, list[float]]


def main() -> None:
    """Measure, and write the table."""
    runs = [_medians(measure()[WARM_UP:]) for _ in range(RUNS)]
    overhead = interval([statistics.median(_overhead(run)) for run in runs])
    bare, own = (statistics.median(statistics.median(run[name]) for run in runs) for name in ("bare", "trainer"))
    save(
        "loop",
        Result(
            note=f"A ConvNet (28x28 images, 16 and 32 channels, 5x5 kernels, batch normalization), {RANKS} ranks on "
            f"gloo, one core each, with the same weights throughout. {RUNS} launches, each with "
            f"{len(runs[0]['bare'])} pairs of blocks: a few steps of the trainer's loop (with reports, progress file "
            "and an exchange of stop requests at each step, but no snapshots) and as many of a bare DDP loop, in the "
            "same processes. A pair's overhead in throughput is computed from the median steps of its blocks. The "
            "table has the median over the launches of the median over their pairs, with a 95 % interval: launches "
            "differ by more than pairs, as the memory layout differs. Goal: at most 2 %.",
            columns=("bare DDP, ms per step", "trainer, ms per step", "overhead in throughput", "interval"),
            rows=[
                (
                    f"{1000 * bare:.1f}",
                    f"{1000 * own:.1f}",
                    f"{overhead.median:+.2f} %",
                    f"{overhead.low:+.2f} % to {overhead.high:+.2f} %",
                )
            ],
            raw={"bare": [run["bare"] for run in runs], "trainer": [run["trainer"] for run in runs]},
        ),
    )
    step.main()  # what a large model hides


def _medians(pairs: list[Pair]) -> Pair:
    """The median step of each block; the first step is not counted."""
    return {name: [statistics.median(pair[name][1:]) for pair in pairs] for name in ("bare", "trainer")}


def _overhead(run: Pair) -> list[float]:
    """The overhead in throughput of each pair, in percent."""
    return [100 * (1 - bare / own) for bare, own in zip(run["bare"], run["trainer"], strict=True)]


def measure(ranks: int = RANKS, **env: str) -> list[Pair]:
    """Seconds of every step, by block.

    Args:
        ranks: number of ranks; they use gloo unless ``env`` sets another backend.
        env: of the ranks.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pairs.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        own = {"OMP_NUM_THREADS": "1", "KIT_BACKEND": "gloo", "KIT_PROGRESS_FILE": str(Path(folder) / "progress.json")}
        environ = {**os.environ, **own, **env}
        command = [*launch, "-m", "bench.steps.loop_ranks", str(out)]
        subprocess.run(command, check=True, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
        pairs: list[Pair] = json.loads(out.read_text(encoding="utf-8"))
    return pairs


if __name__ == "__main__":
    main()
