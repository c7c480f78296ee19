"""Ownership of objects, and the patches of a job's lifecycle."""

from __future__ import annotations

from typing import Any

import pytest

from kitctl.base import names
from kitctl.kinds import KINDS, of_object
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.read import job_facts, lifecycle

Object = dict[str, Any]
QUEUED = {names.LABEL_NAME: names.APP_NAME, names.LABEL_QUEUE: "research"}


def job(kind: str = "auto", *, uid: str = "new", **metadata: Any) -> Object:
    """A job as submit creates it and the API server returns it."""
    made = render.manifests(JobSpec(name="run", kind=kind, nodes="2:4"), suspended=True)[-1]
    return made | {"metadata": made["metadata"] | {"uid": uid} | metadata}


def child(kind: str, **metadata: Any) -> Object:
    labels = {names.LABEL_NAME: names.APP_NAME}
    return {"kind": kind, "metadata": {"name": "run", "labels": labels} | metadata}


def merged(thing: Object, patch: Object) -> Object:
    """Apply a JSON merge patch (RFC 7386)."""
    both = {
        key: merged(thing.get(key) or {}, value) if isinstance(value, dict) else value for key, value in patch.items()
    }
    return {key: value for key, value in (thing | both).items() if value is not None}


def suspended(thing: Object) -> bool:
    return of_object(thing).suspended(thing)


def owner(uid: str, name: str = "run") -> list[Object]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}]


def test_children_are_owned_and_claims_are_not() -> None:
    owned = lifecycle.with_owner_reference(child("Service"), job())
    assert owned["metadata"]["ownerReferences"] == owner("new")
    assert lifecycle.is_owned_by(owned, job())
    assert lifecycle.with_owner_reference(child("PersistentVolumeClaim"), job()) == child("PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("found", "belongs", "leaving"),
    [
        (child("Service", ownerReferences=owner("new")), True, False),
        (child("Service", ownerReferences=owner("old")), False, True),  # the garbage collector will delete it
        (child("Service", ownerReferences=owner("old", "other")), False, False),
        (child("Service", ownerReferences=owner("old"), labels={}), False, False),  # not kitctl's
        (child("Service"), False, False),
        (child("Service", labels={}), False, False),
        (child("Service", deletionTimestamp="2026-01-01T00:00:00Z", labels={}), False, True),
    ],
)
def test_terminating_and_owned_objects_are_recognized(found: Object, *, belongs: bool, leaving: bool) -> None:
    assert lifecycle.is_terminating(found, job()) is leaving
    if not leaving:
        assert lifecycle.is_owned_by(found, job()) is belongs


@pytest.mark.parametrize("kind", KINDS)
def test_a_submit_is_partial_until_the_job_is_released(kind: str) -> None:
    made = lifecycle.mark_pending(job(kind), "call", "me")
    digest = lifecycle.annotations_of(made)[names.ANNOTATION_SPEC_HASH]
    assert suspended(made)
    assert not lifecycle.is_partial_submit(job(kind), digest, "me"), "rendered by kitctl, but applied by another client"
    assert lifecycle.is_partial_submit(made, digest, "me")
    assert not lifecycle.is_partial_submit(made, digest, "you")
    assert not lifecycle.is_partial_submit(made, "another", "me")
    assert not lifecycle.is_partial_submit(job(kind, labels={}), digest, "me")
    released = merged(made, lifecycle.release(made, ""))
    assert not suspended(released)
    assert not lifecycle.is_partial_submit(released, digest, "me")
    held = lifecycle.outside_queue(made | {"metadata": made["metadata"] | {"labels": QUEUED}})
    assert held["metadata"]["labels"][names.LABEL_QUEUE] != "research", "Kueue would start it before its objects exist"
    assert lifecycle.outside_queue(made) == made
    queued = merged(held, lifecycle.release(made, "research"))
    assert queued["metadata"]["labels"] == QUEUED
    assert suspended(queued), "only Kueue releases it"
    assert not lifecycle.is_partial_submit(queued, digest, "me")


@pytest.mark.parametrize("kind", KINDS)
def test_suspend_cancel_and_undo_the_cancel(kind: str) -> None:
    made = job(kind)
    running = merged(made, lifecycle.release(made, ""))
    stopped = merged(running, of_object(made).suspend(suspended=True))
    assert suspended(stopped)
    cancelled = merged(stopped, lifecycle.cancelled("2026-01-01T00:00:00+00:00"))
    seen = cancelled | {"metadata": cancelled["metadata"] | {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    known = job_facts.from_objects(seen, [], None, target="here", now=0)
    assert (known.result, known.ended) == ("Cancelled", 1767225600.0)
    assert merged(cancelled, lifecycle.UNCANCELLED | of_object(made).suspend(suspended=False)) == running


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not kind.fixed_size])
def test_scale_changes_the_desired_nodes_but_not_the_submitted_ones(kind: str) -> None:
    made = job(kind)
    entry = of_object(made)
    scaled = merged(made, entry.scale(2))
    assert (entry.desired_nodes(made), entry.desired_nodes(scaled)) == (4, 2)
    assert entry.nodes(scaled) == "2:4"


def test_a_job_beside_another_one_gets_what_the_controller_has_chosen_for_that() -> None:
    def made(uid: str, name: str, image: str) -> Object:
        labels = {"team": "x", "controller-uid": uid, "batch.kubernetes.io/job-name": name}
        template = {"metadata": {"labels": labels}, "spec": {"image": image}}
        spec = {"selector": {"matchLabels": {"controller-uid": uid}}, "template": template}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}

    found = lifecycle.identified(made("2", "diff-1", "b"), made("1", "run", "a"))
    assert found["spec"] == made("1", "run", "b")["spec"]
    claim: Object = {"kind": "PersistentVolumeClaim", "spec": {}}
    assert lifecycle.identified(claim, claim) == claim
