"""What a barrier of a replica's ranks costs a step: by sockets, by a collective, or without one."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.measure import ROOT, Result, interval, save
from bench.steps.barrier_ranks import BLOCK, PARTS, SECONDS

STEP: Final = 50.0  # ms, of which the goal is a share
CORES: Final = 2
WAYS: Final = {"collective": "of gloo", "sockets": "by sockets"}
CASES: Final = {  # ranks, and those of a replica
    "a core for each rank": (2, 2),
    "two ranks on a core, two replicas": (4, 2),
    "two ranks on a core, one replica": (4, 4),
}

Blocks = Mapping[str, Sequence[Mapping[str, float]]]


def main() -> None:
    """Measure, and write the table."""
    blocks = {words: _measure(*case) for words, case in CASES.items()}
    save(
        "barrier",
        Result(
            note=f"Steps of some {PARTS + 1} ms: matrices are multiplied on each rank, with one all-reduce in between; "
            f"after it the ranks of a replica arrive at a barrier, and wait for each other where the step ends. Each "
            f"rank is pinned to one of {CORES} cores. Blocks of {BLOCK} steps without a barrier, with a collective of "
            f"gloo, and with sockets, in turn, for {SECONDS:.0f} s. Rank 0's median step, and the median of the "
            "differences from the block without, with a 95 % interval; processor time of the rank's other threads, "
            f"likewise. Goal: at most 0.5 % of a step of {STEP:.0f} ms, 250 us.",
            columns=("ranks", "cores", "barrier", "without, ms", "more, us", "other threads, us", "switches more"),
            rows=[
                (str(ranks), words, WAYS[way], *_row(blocks[words], way))
                for words, (ranks, _) in CASES.items()
                for way in WAYS
            ],
            raw=blocks,
        ),
    )


def _row(blocks: Blocks, way: str) -> tuple[str, ...]:
    pairs = list(zip(blocks[way], blocks["none"], strict=True))
    more, others = (
        interval([1e6 * (one[name] - without[name]) for one, without in pairs]) for name in ("step", "others")
    )
    switches = statistics.median(one["switches"] - without["switches"] for one, without in pairs)
    return (
        f"{1000 * statistics.median(without['step'] for _, without in pairs):.1f}",
        f"{more.median:+.0f} ({more.low:+.0f} to {more.high:+.0f})",
        f"{others.median:+.0f} ({others.low:+.0f} to {others.high:+.0f})",
        f"{switches:+.1f}",
    )


def _measure(ranks: int, replica: int) -> Any:
    """The blocks of rank 0, by the barrier in them."""
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-P", "-m", "bench.steps.barrier_ranks", folder)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        started = [
            subprocess.Popen([*command, *map(str, (rank, ranks, replica, rank % CORES))], cwd=ROOT, env=env)
            for rank in range(ranks)
        ]
        assert [one.wait() for one in started] == [0] * ranks
        return json.loads((Path(folder) / "blocks").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
