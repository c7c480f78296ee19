"""Interprets the exit codes of a node's ranks during a drain. Pure: no clocks, no processes.

Why: decision 27.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kitjob.report import Progress
from kittrain.job.env import WORKER_DRAINED
from kittrain.outcome.failures import SIGKILL_EXIT, SIGTERM_EXIT, Failure

STOPPED: Final = (SIGTERM_EXIT, 128 - SIGTERM_EXIT)  # scripts that do nothing at SIGTERM, or exit as shells do
HEEDED: Final = 2  # steps after the signal: the one under way, and one in which the ranks agree to stop
Codes = Sequence[int | None]  # exit codes by local rank; None while running


class DrainOutcome:
    """The drain of one round after the other. ``now`` is in seconds of any monotonic clock.

    Args:
        timeout: seconds for the other ranks to save and exit after the first one has.
    """

    def __init__(self, *, timeout: float) -> None:
        self._timeout = timeout
        self._deadline: float | None = None
        self._ended_before: list[bool] = []  # by rank: exited with 0 before the drain request

    def begin(self, ranks: int) -> None:
        """Reset for a new round with this number of ranks."""
        self._deadline = None
        self._ended_before = [False] * ranks

    def observe(self, codes: Codes, *, draining: bool) -> None:
        """Record the ranks' exit codes; ``draining``: whether a drain was requested before they were read."""
        if not draining:
            self._ended_before = [code == 0 for code in codes]

    def unfinished(self, codes: Codes) -> bool:
        """Whether all ranks have exited with 0, but some of them only after the drain request."""
        return not any(code != 0 for code in codes) and not all(self._ended_before)

    def pending(self, codes: Codes, *, draining: bool) -> bool:
        """Whether some ranks may still be saving while others have saved and exited."""
        if not {None, 0, WORKER_DRAINED}.issuperset(codes):
            return False  # one failed, so the ranks cannot agree on a snapshot
        return None in codes and (draining or WORKER_DRAINED in codes)

    def timed_out(self, now: float) -> bool:
        """Whether the remaining ranks have taken too long; the timeout starts with the first call."""
        self._deadline = self._deadline or now + self._timeout
        return now > self._deadline


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a node's ranks have made of SIGTERM, until they were killed.

    Attributes:
        ignoring: ranks that had told the kernel to ignore it, when it was sent.
        steps: optimizer steps that they have taken since, in a loop of the script's own.
        seconds: since then.
    """

    ignoring: Sequence[int] = ()
    steps: int = 0
    seconds: float = 0.0

    def unheeded(self, rank: int, *, grace: float, lost: str) -> str:
        """That a killed rank has not heeded it, and the fix; empty if it may have been about to save and end."""
        if rank in self.ignoring:
            how, fix = "ignores", "leave out what ignores it (signal.SIG_IGN), and save and exit at it"
        elif self.steps > HEEDED:
            how = f"took {self.steps} more steps after"
            fix = "look in each step whether its handler was called, and save and exit then"
        else:
            return ""
        within = f"within policy.gracePeriod ({grace:.0f}s); kittrain.Training and Run do so"
        return f"rank {rank} {how} SIGTERM, and was killed after {self.seconds:.0f} s{lost}; fix: {fix}, {within}"


def drained_reason(
    progress: Progress, *, why: str, grace: float, late: bool, failure: Failure | None, asked: Asked = Asked()
) -> str:
    """Why a drained node has ended, and what is lost if its ranks did not save.

    Args:
        progress: as rank 0 has written it last; empty on nodes without it.
        why: it was drained.
        grace: the job's grace period, in seconds.
        late: whether most of that period was over when the ranks ended.
        failure: of this node's ranks, the one that explains the others; None: all of them ended with 0.
        asked: what they have made of the signal.
    """
    if failure is None or failure.kind == "drained" or failure.exit_code in STOPPED:
        return why
    step, saved = progress.step or 0, progress.snapshot_step
    lost = f", and at least steps {saved + 1} to {step} are lost" if saved is not None and step > saved else ""
    # Where another node's ranks were killed first, these fail because they lose their peers; it is the same cause.
    if late and (failure.exit_code == SIGKILL_EXIT or failure.kind == "peer"):
        killed = failure.exit_code == SIGKILL_EXIT
        if unheeded := asked.unheeded(failure.rank, grace=grace, lost=lost) if killed else "":
            return f"{why}; {unheeded}"
        fix = f"fix: a policy.gracePeriod of more than {grace:.0f}s"
        return f"{why}; its ranks were killed before they had saved and ended{lost}; {fix}"
    if failure.kind == "peer":  # one that had stopped
        return why
    return f"{why}; rank {failure.rank} failed while it stopped ({failure.brief}){lost}"
