"""When a job waited in its queue, told by Kueue's objects as Kueue 0.15 writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kitctl.base import names
from kitctl.state.history import QueueWait
from kitctl.targets.cluster.queue import admissions

Object = dict[str, Any]


def at(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def job(*, suspend: bool = False, **status: Any) -> Object:
    where = {"name": "run", "uid": "one", "labels": {names.LABEL_QUEUE: "team"}, "creationTimestamp": at(100)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": where, "spec": {"suspend": suspend}, "status": status}


def workload(*conditions: str, created: int = 101, active: bool = True, evicted: int = 0, ran: int = 0) -> Object:
    """A Workload with conditions such as ``Requeued=True 120 Preempted``, that has been admitted for so long before."""
    found = []
    for condition in conditions:
        state, second, *reason = condition.split()
        kind, _, value = state.partition("=")
        found.append({"type": kind, "status": value, "lastTransitionTime": at(int(second)), "reason": "".join(reason)})
    where = {"name": f"job-{created}", "labels": {names.LABEL_JOB_UID: "one"}, "creationTimestamp": at(created)}
    stats = {"schedulingStats": {"evictions": [{"reason": "Preempted", "count": evicted}]}} if evicted else {}
    status = {"conditions": found, "accumulatedPastExecutionTimeSeconds": ran} | stats
    return {"metadata": where, "spec": {"active": active}, "status": status}


def event(reason: str, waited: int, first: int, last: int | None = None) -> Object:
    what = {"QuotaReserved": "Quota reserved in", "Admitted": "Admitted by"}[reason]
    since = {"QuotaReserved": "queued", "Admitted": "reservation"}[reason]
    message = f"{what} ClusterQueue team, wait time since {since} was {waited}s"
    return {"reason": reason, "message": message, "firstTimestamp": at(first), "lastTimestamp": at(last or first)}


def found(given: Object, workloads: list[Object], *events: Object) -> list[tuple[float, float | None]]:
    return [(one.since, one.until) for one in admissions.waits(given, workloads, events)]


@pytest.mark.parametrize(
    ("given", "known", "waits"),
    [
        (job(suspend=True), [], [(100, None)]),  # Kueue has made none yet
        (job(), [], []),  # this user may not read it
        (job(suspend=True), [workload("QuotaReserved=False 101")], [(100, None)]),
        (job(), [workload("Admitted=True 110")], [(100, 110)]),
        (job(), [workload("Admitted=False 150", "Finished=True 150", ran=40)], [(100, 110)]),
        # stopped by its user while it waited, and after it ran
        (job(suspend=True), [workload("Evicted=True 110", evicted=1, active=False)], [(100, 110)]),
        (job(suspend=True), [workload("Evicted=True 150", evicted=1, ran=30, active=False)], [(100, 120)]),
        # preempted: it waits again, runs again, has ended
        (
            job(suspend=True),
            [workload("Admitted=False 150", "Evicted=True 149", "Requeued=True 150 Preempted", evicted=1, ran=29)],
            [(100, 120), (150, None)],
        ),
        (
            job(),
            [workload("Admitted=True 170", "Evicted=False 170", "Requeued=True 150 Preempted", evicted=1, ran=30)],
            [(100, 120), (150, 170)],
        ),
        (
            job(startTime=at(170)),
            [workload("Finished=True 190", "Requeued=True 150 Preempted", evicted=1, ran=30 + 20)],
            [(100, 120), (150, 170)],
        ),
        (job(), [workload("Finished=True 190", "Requeued=True 150 Preempted", evicted=1, ran=50)], []),
        # more often than its conditions can tell: the last wait; resumed by its user: the one that followed
        (job(), [workload("Admitted=True 170", "Requeued=True 150 Preempted", evicted=2, ran=30)], [(150, 170)]),
        (job(), [workload("Admitted=True 171", "Requeued=True 170 Reactivated", evicted=1, ran=30)], [(170, 171)]),
        # of a Workload that was made anew when the job was resumed
        (job(), [workload("Admitted=True 410", created=400)], [(400, 410)]),
    ],
)
def test_what_conditions_and_sums_tell(
    given: Object, known: list[Object], waits: list[tuple[float, float | None]]
) -> None:
    assert found(given, known) == waits


def test_events_tell_each_wait_once_also_where_equal_ones_are_one() -> None:
    last = workload("Admitted=True 300", "Requeued=True 299 Reactivated", evicted=3, ran=90)
    told = [event("QuotaReserved", 20, 121), event("QuotaReserved", 13, 180), event("QuotaReserved", 1, 240, 270)]
    waits = [(100, 121), (167, 180), (239, 240), (269, 270), (299, 300)]
    assert found(job(), [last], *told, event("Admitted", 0, 121, 300)) == waits
    assert found(job(), [last], *told[2:]) == waits[2:], "the others are an hour old"


def test_a_wait_ends_with_the_last_admission_check() -> None:
    told = [event("QuotaReserved", 20, 121), event("Admitted", 9, 130)]
    later = workload("Admitted=True 171", "Requeued=True 170 Reactivated", evicted=1)
    assert found(job(), [later], *told) == [(100, 130), (170, 171)]


def test_other_words_of_another_kueue_are_no_wait() -> None:
    told = event("QuotaReserved", 20, 121) | {"message": "Quota reserved"}
    assert found(job(), [workload("Admitted=True 150", "Requeued=True 140 Preempted", evicted=2)], told) == [(140, 150)]


def test_for_a_growth_nobody_waits() -> None:
    first = workload("Finished=True 220", "Admitted=False 220", ran=110)
    second = workload("Admitted=True 220", created=200)
    told = [event("QuotaReserved", 9, 110), event("QuotaReserved", 20, 220)]
    assert admissions.waits(job(), [first, second], told) == (QueueWait(since=100, until=110),)
