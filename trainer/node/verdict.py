"""What the failure of a round means, in words: torch's records in, the ending of the round out."""

from __future__ import annotations

from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from trainer.outcome.failures import Budget, Failure
from trainer.outcome.termination import Ending


def verdict(cause: Failure, *, restart: bool, budget: Budget) -> Ending:
    """How the round ended whose first failure this was; ``restart`` is what the budget allows."""
    if cause.kind == "drained":
        return Ending(outcome="retryable", reason="the ranks were drained by another node")
    if cause.kind == "peer":
        what = f"rank {cause.rank} lost its peers ({cause.brief})"
        after = f"after {budget.peer} such losses without a new snapshot"
        return Ending(outcome="retryable", reason=what if restart else f"{what} {after}", failure=cause)
    what = cause.error if cause.kind == "hang" else f"rank {cause.rank} failed ({cause.brief})"
    if restart:
        return Ending(
            outcome="retryable", reason=f"{what}, restart {budget.own} of {budget.max_restarts}", failure=cause
        )
    return Ending(outcome="fatal", reason=f"{what}, no restart left of {budget.max_restarts}", failure=cause)


def failure_of(rank: int, failure: ProcessFailure) -> Failure:
    """Torch's record of a failed process: the error file's content where the rank could write one."""
    told: Any = failure.message
    traceback = ""
    if isinstance(told, dict):
        error, traceback = told["message"], told["extraInfo"]["py_callstack"]
    elif failure.exitcode < 0:
        error = f"killed by {failure.signal_name()}"
    else:
        error = f"exit code {failure.exitcode}"
    return Failure(rank=rank, exit_code=failure.exitcode, error=error, traceback=traceback, time=failure.timestamp)
