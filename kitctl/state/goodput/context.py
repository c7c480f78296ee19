"""What the lines of all nodes say together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from kitctl.state.goodput.waits import Waits
from kitctl.state.history import WriterLog
from kitjob.buckets import timed_out
from kitjob.timeline import Row

CARRIED: Final = 2.5  # seconds after a killed agent's last line in which it is taken to have gone on


class Context:
    """The faults of a run, its repeated steps, and who waited for whom."""

    def __init__(self, logs: Sequence[WriterLog]) -> None:
        self.logs = logs
        events = [event for log in logs for event in log.events]
        self.faults = sorted((one for one in events if one.what == "fault"), key=lambda one: one.time)
        # By group: how long a collective of it had waited when it timed out, and in which words.
        self.timeouts = {
            one.round: (waited, one.cause) for one in self.faults if (waited := timed_out(one.cause)) is not None
        }
        self.lost = {one.round: one.lost_steps for one in events if one.what == "recovered"}
        self.reached, self.repeated_steps = _reached(logs, self.lost)
        self.waits = Waits(logs)

    def cause(self, time: float, otherwise: str) -> str:
        """What ended a group about then, as other nodes saw it."""
        near = min(self.faults, key=lambda one: abs(one.time - time), default=None)
        return near.cause if near and abs(near.time - time) < CARRIED and near.cause else otherwise

    def repeated(self, row: Row) -> float:
        """The share of a row's steps that had been taken before."""
        if row.step is None:
            return 0.0
        limit = self.lost.get(row.round, 0) if row.of_own_loop else self.reached.get(row.round, 0)
        first = row.step - row.steps
        if row.step <= limit:
            return 1.0
        return (limit - first) / row.steps if row.steps and first < limit else 0.0


def _reached(logs: Sequence[WriterLog], lost: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """By group the last step of the groups before it, in the library's loop, and how many steps were taken again.

    The latter as the agents tell it, else as rows show: these are a second apart. The agents tell at once what the
    newest group will take again: of a job that runs, it may have yet to do so.
    """
    ran: dict[int, list[tuple[int, int, bool]]] = defaultdict(
        list
    )  # first step, last one, whether that is of another fit
    for log in logs:
        steps: dict[int, list[int]] = defaultdict(list)
        for row in log.rows:
            if row.step and not row.of_own_loop:
                steps[row.round].append(row.step)
        for number, found in steps.items():
            anew = max((index for index, (one, other) in enumerate(pairwise(found), 1) if other < one), default=0)
            ran[number].append((found[0], max(found[anew:]), anew > 0))
    reached: dict[int, int] = {}
    again, most = dict(lost), 0
    newest = max(lost, default=0)
    rows = [row for log in logs for row in log.rows if row.step and row.of_own_loop]
    current, taken = max(((row.round, row.step or 0) for row in rows), default=(0, 0))
    if current == newest in lost:
        again[newest] = min(lost[newest], taken)
    for number in sorted(ran):
        reached[number] = most
        first, last = min(one[0] for one in ran[number]), max(one[1] for one in ran[number])
        if number not in lost:
            again[number] = max(min(most, last) - first + 1, 0)
        most = last if any(one[2] for one in ran[number]) else max(most, last)
    return reached, sum(again.values())
