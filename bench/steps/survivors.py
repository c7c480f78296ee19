"""What ``policy.survivors: live`` costs a step without a fault: in one job, every other block does what it needs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.measure import ROOT, Result, interval, save
from bench.steps.survivors_ranks import BLOCK, LAYERS, PAIRS, SAMPLES, WIDTH

NODES: Final = 2
WARM_UP: Final = 5  # pairs that are not counted
STEP: Final = 50.0  # ms
KINDS: Final = {  # the ranks of a node by kind of model
    "DDP": ("replicated", 1),
    "FSDP2 in two parts, one replica": ("sharded", 1),
    "FSDP2 in two parts, two replicas": ("sharded", 2),
}


def main() -> None:
    """Measure, and write the table."""
    blocks = {words: _measure(kind, ranks) for words, (kind, ranks) in KINDS.items()}
    save(
        "survivors",
        Result(
            note=f"{LAYERS} layers of {WIDTH} x {WIDTH} with batch normalization, AdamW, {SAMPLES} samples a rank and "
            f"step, `fit()` on gloo; {NODES} nodes on two cores, on which four ranks wait for each other's turn. "
            f"{PAIRS - WARM_UP} pairs of blocks of {BLOCK} steps in one job: in one block each rank is ready to live "
            "on, in the other it is not. The median step of each, and the median of the pairs' differences with a 95 % "
            "interval. Only buffers are copied, so it does not grow with the parameters. Goal: at most 0.5 % of a step "
            f"of {STEP:.0f} ms.",
            columns=(
                "model",
                "ranks",
                "off, ms per step",
                "live, ms per step",
                "more, us",
                f"of a step of {STEP:.0f} ms",
            ),
            rows=[_row(words, NODES * ranks, blocks[words]) for words, (_, ranks) in KINDS.items()],
            raw=blocks,
        ),
    )


def _row(words: str, ranks: int, blocks: Sequence[float]) -> tuple[str, ...]:
    live, off = ([1000 * one for one in blocks[2 * WARM_UP + at :: 2]] for at in (0, 1))
    more, without = interval([on - without for on, without in zip(live, off, strict=True)]), statistics.median(off)
    return (
        words,
        str(ranks),
        f"{without:.1f}",
        f"{statistics.median(live):.1f}",
        f"{1000 * more.median:+.0f} ({1000 * more.low:+.0f} to {1000 * more.high:+.0f})",
        f"{100 * more.median / STEP:+.2f} %",
    )


def _measure(kind: str, ranks: int) -> list[float]:
    """The seconds of a step in each block; the first block is live."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        agents = [_start(folder, index, kind, ranks) for index in range(NODES)]
        codes = [agent.wait() for agent in agents]
        assert codes == [0] * NODES, "\n".join((folder / f"log-{index}").read_text() for index in range(NODES))
        found: list[float] = json.loads((folder / "blocks").read_text(encoding="utf-8"))
    return found


def _start(folder: Path, index: int, kind: str, ranks: int) -> subprocess.Popen[bytes]:
    env = {
        "PET_NNODES": str(NODES),
        "PET_NPROC_PER_NODE": str(ranks),
        "PET_RDZV_ENDPOINT": "127.0.0.1:29573",
        "PET_RDZV_ID": "bench",
        "KIT_NODE_INDEX": str(index),
        "KIT_SNAPSHOT_DIR": str(folder / "snapshots"),
        "KIT_SNAPSHOTS_EVERY_STEPS": str(1 << 40),
        "KIT_POLICY_SURVIVORS": "live",
        "KIT_BACKEND": "gloo",
        "OMP_NUM_THREADS": "1",
    }
    words = ("-m", "bench.steps.survivors_ranks", kind, str(folder / "blocks"))
    with (folder / f"log-{index}").open("wb") as log:
        command = (sys.executable, "-P", "-m", "kittrain.agent", "--", *words)
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=log, stderr=log)


if __name__ == "__main__":
    main()
