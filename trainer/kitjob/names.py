"""Exit codes, defaults and keys on which kitctl and kittrain agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from kitjob import __version__

Outcome = Literal["done", "drained", "retryable", "fatal"]

# -- an agent's exit codes, read by what restarts it; kinds whose controllers need others define their own ------------
EXIT_CODES: Final[Mapping[str, int]] = {"done": 0, "drained": 75, "retryable": 76, "fatal": 78}

# -- what a job has if its file says nothing ------------------------------------------------------------------------
DEFAULT_IMAGE: Final = f"kitctl/trainer:{__version__}"
DEFAULT_COMMAND: Final = ("-m", "kittrain.workloads.digits")
RENDEZVOUS_PORT: Final = 29400  # torchrun's default
SNAPSHOT_PATH: Final = "/snapshots"

# -- objects and files that an agent reads or writes ------------------------------------------------------------------
SECRET_KEY: Final = "key"  # of the Secret's data
REPORT_KEY: Final = "report"  # of the status ConfigMap: the report as JSON; written by rank 0's agent
PREPARING_KEY: Final = "preparing-"  # and a node's index: what that node does before it joins
REQUIRE: Final = "require"  # value of a setting: the job fails without it
