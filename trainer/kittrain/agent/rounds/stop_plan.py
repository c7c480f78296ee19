"""How the ranks of a node are stopped when their round ends: how long each has, and which of them live on. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

LOST_STOP_TIMEOUT: Final = 1.0  # seconds from SIGTERM to SIGKILL if a rank has failed: others may have errors to tell
# The same if another node is lost, of the library's loop: its ranks hang in a collective, and publish nothing any more.
LOST_LOOP_TIMEOUT: Final = 0.25

LivesOn = Literal["none", "at once", "after a step"]


class StopPlan(NamedTuple):
    """How ranks are stopped.

    Attributes:
        timeout: seconds from SIGTERM to SIGKILL.
        lives_on: which ranks go on in the next round, of those that can: none, those that leave this round at once, or
            those that leave it together, after a step that all ranks of the round agree on.
    """

    timeout: float
    lives_on: LivesOn


FAILED: Final = StopPlan(LOST_STOP_TIMEOUT, "at once")
AGREED: Final = StopPlan(LOST_STOP_TIMEOUT, "none")  # they have saved, or are done
HUNG: Final = StopPlan(LOST_STOP_TIMEOUT, "none")


def of_failed(*, agreed: bool, drained: bool) -> StopPlan:
    """The plan where a rank of this node has ended the round; ``agreed``: not by a failure."""
    return AGREED if agreed or drained else FAILED


def of_ended(
    *, drained: bool, lost: bool, waiting: bool, goes_on: bool, of_library: bool, time_left: float
) -> StopPlan:
    """The plan where the round has ended otherwise.

    Args:
        drained: this node is, or its ranks have ended for a drain.
        lost: ranks of the round are; those that are left may hang in a collective with them.
        waiting: ranks of this node have taken the round's last step, and wait for the next round.
        goes_on: this agent does.
        of_library: these ranks run the library's training loop.
        time_left: seconds that ranks have to save, of the grace period.
    """
    if drained:
        return StopPlan(time_left, "none")
    if lost:
        return StopPlan(LOST_LOOP_TIMEOUT if of_library else LOST_STOP_TIMEOUT, "at once")
    if waiting:
        return StopPlan(time_left, "at once")
    return StopPlan(time_left, "after a step" if goes_on else "none")
