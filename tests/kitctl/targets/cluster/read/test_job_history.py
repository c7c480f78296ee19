"""What the API server's objects say of the starts of a job's nodes, also of pods that are gone."""

from __future__ import annotations

from typing import Any

from kitctl.targets.cluster.read import events, job_history
from kitctl.targets.cluster.read.job_facts import unix_seconds
from tests.kitctl.targets.cluster.apiserver import ApiServer
from tests.kitctl.targets.cluster.clients import Kit
from tests.kitctl.targets.cluster.recorded import recorded

RUNNING = recorded("running")
SUBMITTED = unix_seconds("2026-11-21T14:19:42Z")


def said(reason: str, time: str, pod: str = "leaves-1-x2x2x", uid: str = "gone", field: str = "") -> dict[str, Any]:
    about = {"kind": "Pod", "name": pod, "uid": uid} | ({"fieldPath": field} if field else {})
    when = {"eventTime": time} if reason == "Scheduled" else {"firstTimestamp": time, "lastTimestamp": time}
    return {"reason": reason, "involvedObject": about, "metadata": {"creationTimestamp": time}, **when}


def attempts(*starts: dict[str, Any]) -> list[tuple[int, float | None, float | None]]:
    known = job_history.history(RUNNING.job, RUNNING.pods, b"", starts=starts, run="", waits=(), now=SUBMITTED + 90)
    times = [(one.node, one.scheduled, one.started) for one in known.attempts]
    return [(node, at and at - SUBMITTED, start and start - SUBMITTED) for node, at, start in times]


def test_a_pod_that_is_gone_was_scheduled_and_started_when_its_events_say_so() -> None:
    here = attempts()
    assert [node for node, *_ in here] == [0, 1]
    gone = [said("Scheduled", "2026-11-21T14:19:43.500000Z"), said("Started", "2026-11-21T14:19:46Z")]
    assert attempts(*gone) == [here[0], (1, 1.5, 4.0), here[1]]
    assert attempts(gone[0]) == here, "it never started"


def test_events_of_pods_that_are_there_or_of_other_jobs_are_no_further_starts() -> None:
    there = RUNNING.pods[0]["metadata"]
    other = [
        {"pod": there["name"], "uid": there["uid"]},
        {"pod": "leaves-2-1-x2x2x"},  # of the job leaves-2
        {"pod": "other-1-x2x2x"},
    ]
    times = ("Scheduled", "2026-11-21T14:19:43Z"), ("Started", "2026-11-21T14:19:46Z")
    assert attempts(*(said(*one, **pod) for pod in other for one in times)) == attempts()
    earlier = said("Scheduled", "2026-11-21T14:10:00Z"), said("Started", "2026-11-21T14:10:02Z")
    assert attempts(*earlier) == attempts(), "of an earlier job of its name"


def test_of_a_pods_containers_the_ranks_counts(server: ApiServer, kit: Kit) -> None:
    for name, field in (("a", "spec.initContainers{warm}"), ("b", "spec.containers{pytorch}")):
        one = said("Started", "2026-11-21T14:19:46Z", field=field)
        server.put("events", name, **{key: one[key] for key in one if key != "metadata"})
    found = events.starts(kit.target().api, "default")
    assert {one["involvedObject"]["fieldPath"] for one in found} == {"spec.containers{pytorch}"}
    server.plan("GET .*/events$", answer=(403, {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}))
    assert events.starts(kit.target().api, "default") == [], "this user may not read events"
