"""What copies on other nodes cost: in one job of three, the processes that make them are stopped and go on in turn."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.measure import ROOT, Result, interval, save
from bench.snapshots.copies_ranks import BLOCK
from bench.snapshots.mirror import helper_of, steps_taken
from bench.snapshots.snapshot import SIZE

NODES: Final = 3
PAIRS: Final = 18
WARM_UP: Final = 2  # pairs that are not counted
PUBLISHED: Final = 5  # steps after which a snapshot is: before, there would still be the one that was not copied
MEMORY: Final = Path("/dev/shm")
KEEPER: Final = "kittrain.rank.snapshots.peers"
Stalls = Sequence[Mapping[str, float]]  # of one rank's snapshots: the stall, and a memory copy of as many bytes


def main() -> None:
    """Measure, and write the table."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        steps, stalls, used = _measure(Path(folder))
    publish([statistics.mean(steps[at : at + BLOCK]) for at in range(0, len(steps), BLOCK)], stalls, used)


def publish(blocks: Sequence[float], stalls: Sequence[Stalls], used: float) -> None:
    """Write the table.

    Args:
        blocks: seconds of a step in each block; in every other one nothing is copied.
        stalls: of each rank.
        used: processor time of all three processes for the copies of one snapshot, in seconds.
    """
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))[WARM_UP:]
    more = interval([BLOCK * (on - off) for on, off in pairs])
    off, on = (statistics.median(values) for values in (blocks[2 * WARM_UP + 1 :: 2], blocks[2 * WARM_UP :: 2]))
    taken = [one for rank in stalls for one in rank[2 * WARM_UP :]]
    stall, copy = (1000 * statistics.median(one[name] for one in taken) for name in ("stall", "copy"))
    ratio = interval([one["stall"] / one["copy"] for one in taken])
    save(
        "copies",
        Result(
            note=f"{NODES} nodes with a rank each on two cores (gloo), which train a model with {SIZE / 1e6:.0f} MB of "
            f"state, replicated, and take a snapshot every {BLOCK} steps: each writes a third to a folder of its own "
            f"in memory, and copies another node's. {len(pairs)} pairs of blocks of {BLOCK} steps in one job: in one "
            "block the processes that copy work, in the other they are stopped; what they have not copied then is "
            "replaced by the next one. A mean step of each, and the median of the pairs' differences with a 95 % "
            "interval. Stall: how long training waits, compared with a plain copy of as many bytes in the same step, "
            "by all ranks at once, both between barriers. Goals: a stall of at most 1.2 memory copies, steps at most "
            "3 % slower.",
            columns=(
                "stopped, ms per step",
                "copies, ms per step",
                "a snapshot's copies cost, s",
                f"one every {BLOCK} steps",
                "one a minute",
                "their processor time, s",
                "stall, ms",
                "memory copy, ms",
                "ratio",
            ),
            rows=[
                (
                    f"{1000 * off:.1f}",
                    f"{1000 * on:.1f}",
                    f"{more.median:+.2f} ({more.low:+.2f} to {more.high:+.2f})",
                    _share(more.median, more.low, more.high, of=BLOCK * off),
                    _share(more.median, more.low, more.high, of=60),
                    f"{used:.2f}",
                    f"{stall:.0f}",
                    f"{copy:.0f}",
                    f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
                )
            ],
            raw={"blocks": blocks, "stalls": stalls, "used": used},
        ),
    )


def _share(*seconds: float, of: float) -> str:
    median, low, high = (100 * one / of for one in seconds)
    return f"{median:+.2f} % ({low:+.2f} to {high:+.2f})"


def _measure(folder: Path) -> tuple[list[float], list[Stalls], float]:
    """Seconds of each step, the first block with copies; each rank's stalls; processor time for a snapshot's copies."""
    agents = [_start(folder, index) for index in range(NODES)]
    try:
        used = _alternate(agents, folder / "steps")
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
    assert used is not None, "\n".join((folder / f"log-{index}").read_text() for index in range(NODES))
    moments = [json.loads(line) for line in (folder / "steps").read_text(encoding="utf-8").splitlines()]
    steps = [after - before for before, after in pairwise(moments)][: 2 * PAIRS * BLOCK]
    return steps, [_lines(folder / f"rank-{rank}") for rank in range(NODES)], used / PAIRS


def _start(folder: Path, index: int) -> subprocess.Popen[bytes]:
    env = {
        "PET_NNODES": str(NODES),
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_ENDPOINT": "127.0.0.1:29572",
        "PET_RDZV_ID": "bench",
        "KIT_NODE_INDEX": str(index),
        "KIT_SNAPSHOT_DIR": str(folder / f"node-{index}"),
        "KIT_SNAPSHOTS_STORAGE": "perNode",
        "KIT_SNAPSHOTS_EVERY_STEPS": str(BLOCK),
        "KIT_SNAPSHOTS_KEEP": "1",
        "KIT_BACKEND": "gloo",
        "OMP_NUM_THREADS": "1",
    }
    (folder / f"node-{index}").mkdir()
    command = (sys.executable, "-P", "-m", "kittrain.agent", "--", "-m", "bench.snapshots.copies_ranks", str(folder))
    with (folder / f"log-{index}").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=log, stderr=log)


def _alternate(agents: Sequence[subprocess.Popen[bytes]], times: Path) -> float | None:
    """Let the processes copy in every other block; their processor time, or None if the job has ended early."""
    keepers: list[int] = []
    for taken in steps_taken(agents[0], times):
        keepers = keepers or [pid for agent in agents if (pid := helper_of(agent.pid, KEEPER))]
        if taken > 2 * PAIRS * BLOCK:
            return sum(map(_processor_time, keepers))
        go_on = not taken // BLOCK % 2 and taken % BLOCK >= PUBLISHED
        for pid in keepers:
            os.kill(pid, signal.SIGCONT if go_on else signal.SIGSTOP)
    return None


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lines(path: Path) -> Stalls:
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):  # the last may be cut
            found.append(json.loads(line))
    return found


if __name__ == "__main__":
    main()
