"""When a job waited in its queue, from its Workloads and their events. Pure.

Kueue keeps the last change of each condition, and takes back that a job was admitted once it has ended. Its events tell
each wait, but Kubernetes keeps them for an hour. What remains is for how long a Workload was admitted in all: where one
end of that time is known, so is the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from kitctl.kinds import of_object
from kitctl.state.history import QueueWait
from kitctl.targets.cluster.read.job_facts import unix_seconds

Object: TypeAlias = dict[str, Any]
SAME: Final = 2.0  # seconds; Kueue's times are whole ones
MAKING: Final = 10.0  # seconds after a job's submission in which Kueue makes its Workload
_WAITED: Final = re.compile(r"wait time since (?:queued|reservation) was (\d+)s$")


def waits(job: Object, workloads: Sequence[Object], events: Sequence[Object]) -> tuple[QueueWait, ...]:
    """When a job in a queue waited, as far as that is known.

    Args:
        job: its object.
        workloads: its own; all but the first one are of growths, while which its nodes run.
        events: those of its Workloads that are still there.
    """
    growths = sorted(map(_created, workloads))[1:]
    known = [*_told(events), *(wait for one in workloads for wait in _kept(job, one))]
    if not workloads and of_object(job).suspended(job):
        known = [QueueWait(since=_created(job))]  # Kueue makes one soon, or is away
    return _joined(_created(job), (one for one in known if all(abs(one.since - grown) > SAME for grown in growths)))


def _joined(submitted: float, known: Iterable[QueueWait]) -> tuple[QueueWait, ...]:
    """Waits in order, each once; the first one begins with the submission."""
    found: list[QueueWait] = []
    for one in sorted(known, key=lambda one: one.since):
        last = found[-1] if found else None
        if last is None or (last.until is not None and one.since > last.until + SAME):
            early = last is None and one.since - submitted <= MAKING
            found.append(QueueWait(since=submitted if early else one.since, until=one.until))
        elif last.until is not None:
            until = None if one.until is None else max(last.until, one.until)
            found[-1] = QueueWait(since=last.since, until=until)
    return tuple(found)


def _told(events: Sequence[Object]) -> Iterator[QueueWait]:
    """Each wait that an event ended: with the quota, or later with the last admission check."""
    checked = {time - seconds: time for time, seconds in _ended(events, "Admitted")}
    for time, seconds in _ended(events, "QuotaReserved"):
        yield QueueWait(since=time - seconds, until=checked.get(time, time))


def _ended(events: Sequence[Object], reason: str) -> Iterator[tuple[float, float]]:
    """When something was waited for no longer, and after how many seconds; equal events are one, with two times."""
    for event in events:
        if event["reason"] == reason and (waited := _WAITED.search(event.get("message", ""))):
            for time in {event[key] for key in ("firstTimestamp", "lastTimestamp", "eventTime") if event.get(key)}:
                yield unix_seconds(time), float(waited[1])


def _kept(job: Object, workload: Object) -> Iterator[QueueWait]:
    """The waits that a Workload's conditions and sums tell."""
    made, ended = _created(workload), _when(workload, "Finished")
    stopped, queued = _when(workload, "Evicted"), _when(workload, "Requeued")
    admitted, before = _when(workload, "Admitted"), _admitted_seconds(workload)
    evictions = _evictions(workload)
    if ended is not None and evictions:
        started = job.get("status", {}).get("startTime")  # as of the last admission; not all kinds have it
        if started is None:
            return
        admitted = unix_seconds(started)
        before -= ended - admitted
    elif ended is not None:
        admitted = ended - before
    if not evictions:
        yield QueueWait(since=made, until=admitted)
        return
    if queued is not None:
        yield QueueWait(since=queued, until=admitted)
    end = stopped if stopped is not None else queued if _reason(workload, "Requeued") == "Preempted" else None
    if evictions == 1 and end is not None:
        yield QueueWait(since=made, until=end - before)


def _admitted_seconds(workload: Object) -> float:
    """For how long it was admitted, but for the time since the last admission of one that has not ended."""
    return float(workload.get("status", {}).get("accumulatedPastExecutionTimeSeconds") or 0)


def _evictions(workload: Object) -> int:
    stats = workload.get("status", {}).get("schedulingStats") or {}
    return sum(int(one["count"]) for one in stats.get("evictions") or ())


def _when(workload: Object, kind: str) -> float | None:
    """When a condition became true; None if it is not."""
    one = _condition(workload, kind)
    return unix_seconds(one["lastTransitionTime"]) if one.get("status") == "True" else None


def _reason(workload: Object, kind: str) -> str:
    return str(_condition(workload, kind).get("reason", ""))


def _condition(workload: Object, kind: str) -> Object:
    return next((one for one in workload.get("status", {}).get("conditions") or () if one["type"] == kind), {})


def _created(found: Object) -> float:
    return unix_seconds(found["metadata"]["creationTimestamp"])
