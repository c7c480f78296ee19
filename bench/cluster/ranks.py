"""Runs on each rank of the recovery benchmark in pods: ``python -m bench.cluster.ranks plain|trainer``.

As ``bench.recovery.ranks``, but each process has a folder of its own: process ids are not unique there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.recovery.ranks import LOOPS, Record

FOLDER = Path("/snapshots/record")

if __name__ == "__main__":
    os.environ["NODE"] = os.environ["KIT_NODE_INDEX"]
    own = FOLDER / f"{os.environ['NODE']}-{time.monotonic_ns()}"
    own.mkdir(parents=True)
    LOOPS[sys.argv[1]](FOLDER, Record(own))
