"""Exit codes, defaults and keys on which kitctl and kittrain agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Outcome = Literal["done", "drained", "retryable", "fatal"]

# -- an agent's exit codes, read by what restarts it; kinds whose controllers need others define their own ------------
EXIT_CODES: Final[Mapping[str, int]] = {"done": 0, "drained": 75, "retryable": 76, "fatal": 78}

# -- what a job has if its file says nothing ------------------------------------------------------------------------
DEFAULT_IMAGE: Final = "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime"  # public, and of a torch that the tests use
AUTO: Final = "auto"  # value of a setting: what fits is chosen
DEFAULT_COMMAND: Final = ("-m", "kittrain.workloads.digits")
RENDEZVOUS_PORT: Final = 29400  # torchrun's default
METRICS_PORT: Final = 29401
LOST_AFTER: Final = (2, 3600)  # least and most seconds of `policy.lostAfter`
SNAPSHOT_PATH: Final = "/snapshots"

# -- objects and files that an agent reads or writes ------------------------------------------------------------------
SECRET_KEY: Final = "key"  # of the Secret's data
REPORT_KEY: Final = "report"  # of the status ConfigMap: the report as JSON; written by rank 0's agent
HISTORY_KEY: Final = "history"  # next to it: the end of the history of a run that has no volume for it
PREPARING_KEY: Final = "preparing-"  # and a node's index: what that node does before it joins
REQUIRE: Final = "require"  # value of a setting: the job fails without it
