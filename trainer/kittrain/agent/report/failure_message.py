"""The outcome and the message of a round that failed."""

from __future__ import annotations

from kitjob.names import Outcome
from kitjob.report import AT_THE_SAME_LINE, NO_RESTART_HELPS
from kittrain.outcome.failures import Budget, Failure
from kittrain.outcome.judge import Verdict
from kittrain.outcome.termination import Ending


class GivenUpError(Exception):
    """No restart is left for the round that is being formed.

    Args:
        ending: how the job ends.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def failure_ending(verdict: Verdict, budget: Budget) -> Ending:
    """The ending of a round that has failed.

    Args:
        verdict: the cause, and what follows.
        budget: what the failures have used up of it.
    """
    cause, restart, hopeless = verdict.cause, verdict.restart, verdict.hopeless
    if cause.kind == "drained":
        return Ending(outcome="retryable", reason="the ranks were drained by another node")
    if cause.kind == "peer":
        what = f"rank {cause.rank} lost its peers ({cause.brief})"
        after = f"after {budget.peer} such losses without a new snapshot"
        if budget.waited > budget.max_restarts:
            after = f"{budget.waited + 1} times there without a step, no restart left of {budget.max_restarts}"
        outcome: Outcome = "retryable" if restart else "fatal"  # a new agent would begin to count anew
        return Ending(outcome=outcome, reason=what if restart else f"{what} {after}", failure=cause)
    if cause.kind == "storage":
        what = f"rank {cause.rank} cannot use its storage ({cause.error.partition(': ')[2]})"
        after = f", after {budget.storage} such failures without a new snapshot"
        return Ending(outcome="retryable", reason=what if restart else f"{what}{after}", failure=cause)
    if cause.kind == "hang":
        return _hung(cause, restart=restart, budget=budget, hopeless=hopeless)
    what = f"rank {cause.rank} " + (cause.brief if cause.kind == "left" else f"failed ({cause.brief})")
    if restart:
        return Ending(
            outcome="retryable", reason=f"{what}, restart {budget.own} of {budget.max_restarts}", failure=cause
        )
    why = NO_RESTART_HELPS if hopeless else f"no restart left of {budget.max_restarts}"
    twice = f", {AT_THE_SAME_LINE} {verdict.again}" if verdict.again else ""
    return Ending(outcome="fatal", reason=f"{what}{twice}, {why}", failure=cause)


def _hung(cause: Failure, *, restart: bool, budget: Budget, hopeless: bool) -> Ending:
    """The first hang at a step is not charged: the rank may only have been slow."""
    again = f"again at this step, restart {budget.repeated} of {budget.max_restarts}"
    if restart:
        what = again if budget.repeated else "started again"
        return Ending(outcome="retryable", reason=f"{cause.error}; {what}", failure=cause)
    why = NO_RESTART_HELPS if hopeless else f"no restart left of {budget.max_restarts} at this step"
    return Ending(outcome="fatal", reason=f"{cause.error}; {why}", failure=cause)
