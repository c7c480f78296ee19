"""Whether a node's ranks are started again after a failed round. Pure, but for the folders that it looks into.

Why some failures are not tried again: decision 33.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kittrain.outcome.elsewhere import MISMATCH
from kittrain.outcome.failures import (
    Budget,
    Failure,
    is_hopeless,
    lacks_file,
    newest_snapshot,
    root_cause,
    script_round,
    waits_in_vain,
)
from kittrain.outcome.repeats import Place, Repeats


@dataclass(frozen=True, kw_only=True)
class EndedRound:
    """How far a node's ranks had come when their round ended.

    Attributes:
        world: ranks of the job.
        library_steps: finished steps of the library's loop, since the job began.
        script_steps: optimizer steps of a loop of the script's own, in this round.
        loaded: when the newest file that the script went on from was last changed, in nanoseconds; 0: none.
        hung_at: the library's step that was finished at a hang; None: the round has not hung.
        elsewhere: where another rank of this node was as it lost one, as ``where_lost`` says it; empty: unknown.
        before: where one of any node was in the round before.
    """

    world: int
    library_steps: int
    script_steps: int
    loaded: int
    hung_at: int | None = None
    elsewhere: str = ""
    before: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What follows from a failed round.

    Attributes:
        cause: the root cause.
        restart: whether the ranks are started again.
        hopeless: whether no restart can help.
        again: after what the error has come for a second time, if it is hopeless only because of that.
    """

    cause: Failure
    restart: bool
    hopeless: bool = False
    again: str = ""


class Judge:
    """Judges the failures of one node, in the order of its rounds.

    Args:
        budget: how often the node may restart its ranks; each failure is charged to it.
        sent: the folder that was sent with the job, in which no file appears by itself; None: none was.
    """

    def __init__(self, budget: Budget, sent: Path | None) -> None:
        self.budget = budget
        self._sent = sent
        self._repeats = Repeats()
        self._before: Failure | None = None  # the cause of the failed round before
        self._library_steps = 0  # at its end

    def judge(self, failures: Sequence[Failure], ended: EndedRound) -> Verdict:
        """Judge a round that this node's ranks have ended."""
        cause = root_cause(failures)
        took_steps = bool(ended.script_steps) or ended.library_steps != self._library_steps
        hopeless = is_hopeless(cause, self._before) or bool(self._sent and lacks_file(cause, self._sent))
        repeated = not hopeless and self._repeats.come_again(cause, lambda: self._place(ended))
        in_vain = not took_steps and waits_in_vain(cause, self._before)
        script = script_round(cause, steps=ended.script_steps, loaded=ended.loaded)
        within = self.budget.charge(cause.kind, step=ended.hung_at, script=script, in_vain=in_vain)
        self.note(failures, ended)
        if cause.cause.code == MISMATCH:
            again = self._before is not None and self._before.cause.code == MISMATCH
            cause = replace(cause, elsewhere=ended.elsewhere or (ended.before if again else ""))
        self._before, self._library_steps = cause, ended.library_steps
        return Verdict(
            cause=cause,
            restart=within and not (hopeless or repeated),
            hopeless=hopeless or repeated,
            again=("after as many steps" if took_steps else "without a step") if repeated else "",
        )

    def note(self, failures: Sequence[Failure], ended: EndedRound) -> None:
        """Remember the failures of a round, also of one that another node's ranks had ended a moment before."""
        self._repeats.note(failures, lambda: self._place(ended))

    def judge_departure(self, cause: Failure, *, script_steps: int, loaded: int) -> Verdict:
        """Judge a round that others have lost since a rank of this node left it with exit code 0."""
        script = script_round(cause, steps=script_steps, loaded=loaded)
        self._before = cause
        return Verdict(cause=cause, restart=self.budget.charge(cause.kind, script=script))

    def _place(self, ended: EndedRound) -> Place:
        return Place(
            world=ended.world,
            steps=ended.script_steps or ended.library_steps,
            loaded=ended.loaded,
            newest=newest_snapshot(self.budget.snapshot_dir),
        )
