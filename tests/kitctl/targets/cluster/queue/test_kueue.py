"""Kueue's Workloads: which one counts, its reason, and when a job may be scaled."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base import names
from kitctl.state.facts import QueuePosition
from kitctl.targets.cluster.queue import kueue

Object = dict[str, Any]
FULL = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed"


def job(*, queue: str = "research", suspend: bool = True, **template: Any) -> Object:
    where = {"name": "run", "uid": "one", "labels": {names.LABEL_QUEUE: queue}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": where,
        "spec": {"suspend": suspend, "template": {"spec": template}},
    }


def workload(*conditions: str, created: int = 0, uid: str = "one", active: bool = True, **status: Any) -> Object:
    """A Workload with conditions such as ``QuotaReserved=False: the message``."""
    found = []
    for condition in conditions:
        state, _, message = condition.partition(": ")
        kind, _, value = state.partition("=")
        found.append({"type": kind, "status": value, "message": message, "reason": status.pop("reason", "")})
    where = {"name": f"job-{created}", "labels": {names.LABEL_JOB_UID: uid}}
    where |= {"creationTimestamp": f"2026-01-01T00:00:{created:02}Z"}
    return {"metadata": where, "spec": {"active": active}, "status": {"conditions": found} | status}


def test_a_job_without_a_queue_is_in_none() -> None:
    assert kueue.facts(job(queue=""), None) is None


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (workload(), "Waiting", ""),
        (workload(f"QuotaReserved=False: {FULL}"), "Waiting", FULL),
        (workload(f"QuotaReserved=False: LocalQueue {names.QUEUE_OF_UNRELEASED} doesn't exist"), "Waiting", ""),
        (workload("QuotaReserved=True", "Admitted=True"), "Admitted", ""),
        (
            workload("Evicted=True: by x", f"QuotaReserved=False: {FULL}", reason="Preempted"),
            "Waiting",
            f"preempted; {FULL}",
        ),
        (workload("QuotaReserved=False: Preempted to accommodate"), "Waiting", "Preempted to accommodate"),
        (
            workload("QuotaReserved=True", admissionChecks=[{"name": "nodes", "state": "Pending", "message": "soon"}]),
            "Waiting",
            "admission check nodes: soon",
        ),
        (workload(f"Evicted=True: {kueue.BY_USER}", active=False, reason="Deactivated"), "Stopped", ""),
        (
            workload(f"Evicted=True: {kueue.BY_USER} due to retries", active=False, reason="Deactivated"),
            "Stopped",
            f"{kueue.BY_USER} due to retries",
        ),
        (workload("Evicted=True: Preempted before", active=False, reason="Preempted"), "Stopped", ""),
        (workload("QuotaReserved=False: Workload has finished", "Finished=True: done"), "Finished", ""),
        (
            workload("Finished=True: conflict", reason="FailedToStart"),
            "Stopped",
            "Kueue could not start it, kitctl restart does: conflict",
        ),
    ],
)
def test_kueues_own_reason_is_shown(found: Object, state: Any, reason: str) -> None:
    assert kueue.facts(job(), found) == QueuePosition(name="research", state=state, reason=reason)


def test_without_the_right_to_read_workloads_the_job_itself_shows_whether_it_waits() -> None:
    states = [kueue.facts(job(suspend=suspend), None) for suspend in (True, False)]
    assert [one.state for one in states if one] == ["Waiting", "Admitted"]


def test_a_job_that_waits_without_a_workload_says_for_how_long() -> None:
    waits, admitted = (kueue.facts(job(suspend=suspend), None, unmade=40.2) for suspend in (True, False))
    assert [one.reason for one in (waits, admitted) if one] == ["Kueue has made no Workload of the Job for 40 s", ""]


def test_the_position_counts_from_one_and_only_while_it_waits() -> None:
    waits, admitted = workload("QuotaReserved=False: full"), workload("Admitted=True")
    pending = [{"metadata": {"name": name}, "positionInClusterQueue": n} for n, name in ((0, "x"), (3, "job-0"))]
    before = kueue.position_of(waits, pending)
    assert before == 3
    found = [kueue.facts(job(), one, before) for one in (waits, admitted)]
    assert [one.position for one in found if one] == [4, None]
    assert kueue.position_of(waits, []) is None


def test_the_admitted_workload_counts_until_its_replacement_is() -> None:
    old, new = workload("Admitted=True", created=1), workload(created=2)
    other = workload("Admitted=True", created=3, uid="another")
    assert kueue.workload_of(job(), [new, old, other]) == old
    replaced = workload("Admitted=True", "Finished=True", created=1)
    assert kueue.workload_of(job(), [replaced, new]) == new
    assert kueue.workload_of(job(), [replaced]) == replaced
    assert kueue.workload_of(job(), [other]) is None


def test_a_job_is_scaled_only_where_kueue_has_gated_its_pods() -> None:
    assert kueue.is_scalable(job(schedulingGates=[{"name": names.GATE_ELASTIC}]))
    assert not kueue.is_scalable(job())
