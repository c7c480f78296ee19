"""What a step of a tiny model costs in each loop besides bare DDP: processor time, and operations that launch work.

A tiny model shows what a large one hides; on a GPU, a launched operation costs about five microseconds each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench.measure import ROOT, Result, interval, save

Row = tuple[str, ...]

RANKS = 2
LAUNCHES = 5
LAUNCHES_TOGETHER = 3  # they take longer
LOOPS: Final = ("bare", "fit", "run")
REASONS: Final = {
    "aten::where": "makes the message of loss and flags",
    "aten::mul": "DDP divides `fit()`'s message by the number of ranks, like a gradient",
    "aten::copy_": "bare DDP copies gradients back from its buckets: in `fit()` they are views; messages of `Run`",
    "aten::cat": "stacks the samples of a batch",
    "aten::index_select": "`fit()` takes a batch of a `TensorDataset` at once",
    "aten::fill_": "the seed of a backward pass, which `fit()` keeps; the number of samples in `Run`'s message",
    "c10d::allreduce_": "`Run` sums up its message by itself, as the script's own DDP cannot carry it",
}


def main() -> None:
    """Measure, and write the table."""
    alone = [measure(ranks=1)["seconds"] for _ in range(LAUNCHES)]
    together = [measure(ranks=RANKS)["seconds"] for _ in range(LAUNCHES_TOGETHER)]
    operations = measure(ranks=RANKS, BENCH_BLOCKS="0")["operations"]
    save(
        "step",
        Result(
            note="A model of two small layers, 8 samples a rank and step, on gloo. `Run`'s loop is the bare one, with "
            f"`Run` around it. Time: of one rank, and of one of {RANKS}, without waiting; the loops take turns in "
            f"one process, in blocks of steps; {LAUNCHES} and {LAUNCHES_TOGETHER} launches, of each the quarter of "
            "blocks that took least, as a busy machine only adds; medians over the launches, with 95 % intervals. "
            f"Operations: of {RANKS} ranks; those that launch work, as torch's profiler counts them in a step: views "
            "and allocations are left out, and what contains others. Those that differ are listed.",
            columns=("per step", "bare DDP", "`fit()`", "`Run`", "why"),
            rows=[*time_rows("one rank", alone), *time_rows(f"{RANKS} ranks", together), *operation_rows(operations)],
            raw={
                f"{loop}, {ranks}": [_microseconds(one[loop]) for one in launches]
                for ranks, launches in ((1, alone), (RANKS, together))
                for loop in LOOPS
            },
        ),
    )


def time_rows(ranks: str, launches: list[dict[str, list[float]]]) -> Iterator[Row]:
    """Microseconds of a step, and how many more than bare DDP's: medians over the launches."""
    totals = (interval([_microseconds(one[loop]) for one in launches]) for loop in LOOPS)
    yield f"processor time, {ranks}, us", *(f"{one.median:.0f}" for one in totals), "all threads of a rank"
    more = (interval([_microseconds(one[loop]) - _microseconds(one["bare"]) for one in launches]) for loop in LOOPS[1:])
    texts = (f"{one.median:+.0f} ({one.low:+.0f} to {one.high:+.0f})" for one in more)
    yield "more than bare DDP, us", "", *texts, "goal: at most 60"


def _microseconds(blocks: Sequence[float]) -> float:
    return 1e6 * statistics.quantiles(blocks, n=4)[0]


def operation_rows(counts: dict[str, dict[str, float]]) -> Iterator[Row]:
    """How many operations launch work in a step, and those of which the loops have different numbers."""
    totals = (f"{sum(counts[loop].values()):.1f}" for loop in LOOPS)
    yield "operations", *totals, "goal: at most 12 more"
    for name in sorted({name for loop in LOOPS for name in counts[loop]}):
        numbers = [counts[loop].get(name, 0.0) for loop in LOOPS]
        if len(set(numbers)) > 1:
            yield f"`{name}`", *(f"{number:.1f}" for number in numbers), REASONS.get(name, "")


def measure(*, ranks: int, **env: str) -> dict[str, Any]:
    """Rank 0's processor seconds of a step by loop and block, and its operations by loop and name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "step.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        own = {"OMP_NUM_THREADS": "1", "KIT_BACKEND": "gloo", "KIT_PROGRESS_FILE": str(Path(folder) / "progress.json")}
        subprocess.run(
            [*launch, "-m", "bench.steps.step_ranks", str(out)],
            check=True,
            cwd=ROOT,
            env={**os.environ, **own, **env},
            stdout=subprocess.DEVNULL,
        )
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()
