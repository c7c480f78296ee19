"""What a mirror costs a step: the upload of a job of two ranks is stopped and goes on in turn, to a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.measure import ROOT, Result, interval, save
from bench.snapshots.mirror_ranks import BLOCK
from bench.snapshots.snapshot import SIZE
from tests.s3 import serving

RANKS: Final = 2
PAIRS: Final = 20
WARM_UP: Final = 2  # pairs that are not counted
BUCKET: Final = "snapshots"
POLL_SECONDS: Final = 0.005
UPLOADER: Final = "kittrain.rank.snapshots.mirror"
# The server is not a part of the job: what it takes is what nobody else wants.
BESIDE: Final = ("sh", "-c", 'echo 19 > /proc/self/autogroup; exec nice -n 19 "$@"', "sh")


def main() -> None:
    """Measure, and write the table."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, serving(Path(folder) / "s3", before=BESIDE) as server:
        server.bucket(BUCKET)
        steps = _measure(Path(folder), {"KIT_SNAPSHOTS_MIRROR": f"s3://{BUCKET}/job", **server.environ()})
    publish([statistics.mean(steps[at : at + BLOCK]) for at in range(0, len(steps), BLOCK)])


def publish(blocks: Sequence[float]) -> None:
    """Write the table; ``blocks``: seconds of a step in each, in every other one while nothing is uploaded."""
    pairs = list(zip(blocks[::2], blocks[1::2], strict=True))[WARM_UP:]
    more = interval([BLOCK * (on - off) for on, off in pairs])
    off, on = (statistics.median(values) for values in (blocks[2 * WARM_UP + 1 :: 2], blocks[2 * WARM_UP :: 2]))
    save(
        "mirror",
        Result(
            note=f"{RANKS} ranks on gloo, one core each of two, that train a model with {SIZE / 1e6:.0f} MB of state "
            f"and publish a snapshot every {BLOCK} steps. {len(pairs)} pairs of blocks of {BLOCK} steps in one job: in "
            "one block the process that uploads works, in the other it is stopped; what it has not uploaded then is "
            "left to the next one. A mean step of each, and the median of the pairs' differences with a 95 % interval. "
            "The S3 server (versitygw) is on the same cores, with the lowest priority. Goal: at most 2 %.",
            columns=("stopped, ms per step", "uploads, ms per step", "a snapshot costs, s", "interval", "one a minute"),
            rows=[
                (
                    f"{1000 * off:.1f}",
                    f"{1000 * on:.1f}",
                    f"{more.median:+.2f}",
                    f"{more.low:+.2f} to {more.high:+.2f}",
                    f"{100 * more.median / 60:+.2f} % ({100 * more.low / 60:+.2f} to {100 * more.high / 60:+.2f})",
                )
            ],
            raw={"blocks": blocks},
        ),
    )


def _measure(folder: Path, mirror: dict[str, str]) -> list[float]:
    """Seconds of each step, the first block with uploads."""
    env = {
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": str(RANKS),
        "PET_RDZV_ENDPOINT": "127.0.0.1:29571",
        "PET_RDZV_ID": "bench",
        "KIT_NODE_INDEX": "0",
        "KIT_SNAPSHOT_DIR": str(folder / "snapshots"),
        "KIT_SNAPSHOTS_EVERY_STEPS": str(BLOCK),
        "KIT_SNAPSHOTS_KEEP": "1",
        "KIT_BACKEND": "gloo",
        "OMP_NUM_THREADS": "1",
        **mirror,
    }
    times = folder / "steps"
    (folder / "snapshots").mkdir()
    command = (sys.executable, "-P", "-m", "kittrain.agent", "--", "-m", "bench.snapshots.mirror_ranks", str(times))
    with (folder / "log").open("wb") as log:
        agent = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=log, stderr=log)
        try:
            done = _alternate(agent, times)
        finally:
            agent.kill()
            agent.wait()
    assert done, (folder / "log").read_text()
    moments = [json.loads(line) for line in times.read_text(encoding="utf-8").splitlines()]
    return [after - before for before, after in pairwise(moments)][: 2 * PAIRS * BLOCK]


def _alternate(agent: subprocess.Popen[bytes], times: Path) -> bool:
    """Let the process that uploads work in every other block; returns whether the job has taken all steps."""
    uploader = 0
    for taken in steps_taken(agent, times):
        uploader = uploader or helper_of(agent.pid, UPLOADER)
        if taken > 2 * PAIRS * BLOCK:
            return True
        if uploader:
            os.kill(uploader, signal.SIGSTOP if taken // BLOCK % 2 else signal.SIGCONT)
    return False


def steps_taken(agent: subprocess.Popen[bytes], times: Path) -> Iterator[int]:
    """The number of steps, whenever it has grown, until the job ends."""
    last = 0
    while agent.poll() is None:
        with suppress(FileNotFoundError):
            if (taken := times.read_bytes().count(b"\n") - 1) > last:
                yield (last := taken)
        time.sleep(POLL_SECONDS)


def helper_of(agent: int, module: str) -> int:
    """The process of a module that an agent runs next to it; 0: there is none yet."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text(encoding="utf-8").split()
    found = [int(pid) for pid in children if module in _command(pid)]
    return found[0] if found else 0


def _command(pid: str) -> Sequence[str]:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")


if __name__ == "__main__":
    main()
