"""Who owns what, and the patches of a job's life."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from kitctl import names, render
from kitctl.spec import JobSpec
from kitctl.targets.cluster import facts, lifecycle

KINDS: dict[str, Literal["IndexedJob", "PyTorchJob"]] = {"Job": "IndexedJob", "PyTorchJob": "PyTorchJob"}
Object = dict[str, Any]


def job(kind: str = "Job", *, uid: str = "new", **metadata: Any) -> Object:
    """A job as submit creates it, as the API server would answer."""
    made = render.manifests(JobSpec(name="run", kind=KINDS[kind], nodes="2:4"), suspended=True)[-1]
    return made | {"metadata": made["metadata"] | {"uid": uid} | metadata}


def child(kind: str, **metadata: Any) -> Object:
    labels = {names.LABEL_NAME: names.APP_NAME}
    return {"kind": kind, "metadata": {"name": "run", "labels": labels} | metadata}


def merged(thing: Object, patch: Object) -> Object:
    """JSON merge patch, as RFC 7386 has it."""
    both = {
        key: merged(thing.get(key) or {}, value) if isinstance(value, dict) else value for key, value in patch.items()
    }
    return {key: value for key, value in (thing | both).items() if value is not None}


def owner(uid: str, name: str = "run") -> list[Object]:
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}]


def test_children_are_owned_and_claims_are_not() -> None:
    owned = lifecycle.owned(child("Service"), job())
    assert owned["metadata"]["ownerReferences"] == owner("new")
    assert lifecycle.belongs(owned, job())
    assert lifecycle.owned(child("PersistentVolumeClaim"), job()) == child("PersistentVolumeClaim")


@pytest.mark.parametrize(
    ("found", "belongs", "leaving"),
    [
        (child("Service", ownerReferences=owner("new")), True, False),
        (child("Service", ownerReferences=owner("old")), False, True),  # the garbage collector is about to come
        (child("Service", ownerReferences=owner("old", "other")), False, False),
        (child("Service", ownerReferences=owner("old"), labels={}), False, False),  # not ours
        (child("Service"), False, False),
        (child("Service", labels={}), False, False),
        (child("Service", deletionTimestamp="2026-01-01T00:00:00Z", labels={}), False, True),
    ],
)
def test_what_is_there_already_is_this_jobs_or_leaving_or_somebody_elses(
    found: Object, *, belongs: bool, leaving: bool
) -> None:
    assert lifecycle.leaving(found, job()) is leaving
    if not leaving:
        assert lifecycle.belongs(found, job()) is belongs


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_half_submitted_until_it_is_released(kind: str) -> None:
    made = lifecycle.unreleased(job(kind), "call", "me")
    digest = lifecycle.noted(made)[names.ANNOTATION_SPEC_HASH]
    assert facts.suspended(made)
    assert not lifecycle.half_submitted(job(kind), digest, "me"), "rendered, and applied by somebody else"
    assert lifecycle.half_submitted(made, digest, "me")
    assert not lifecycle.half_submitted(made, digest, "you")
    assert not lifecycle.half_submitted(made, "another", "me")
    assert not lifecycle.half_submitted(job(kind, labels={}), digest, "me")
    released = merged(made, lifecycle.release(kind, queued=False))
    assert not facts.suspended(released)
    assert not lifecycle.half_submitted(released, digest, "me")
    queued = merged(made, lifecycle.release(kind, queued=True))
    assert facts.suspended(queued), "that is Kueue's to end"
    assert not lifecycle.half_submitted(queued, digest, "me")


@pytest.mark.parametrize("kind", KINDS)
def test_suspend_cancel_and_reopen(kind: str) -> None:
    running = merged(job(kind), lifecycle.release(kind, queued=False))
    assert facts.suspended(merged(running, lifecycle.suspend(kind, wanted=True)))
    cancelled = merged(running, lifecycle.cancel(kind, "2026-01-01T00:00:00+00:00"))
    assert facts.suspended(cancelled)
    seen = cancelled | {"metadata": cancelled["metadata"] | {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    told = facts.job_facts(seen, [], None, target="here", now=0)
    assert (told.result, told.ended) == ("Cancelled", 1767225600.0)
    assert merged(cancelled, lifecycle.reopen(kind)) == running


@pytest.mark.parametrize("kind", KINDS)
def test_scale_changes_what_is_wanted_and_not_what_was_submitted(kind: str) -> None:
    scaled = merged(job(kind), lifecycle.scale(kind, 2))
    assert (facts.wanted(job(kind)), facts.wanted(scaled)) == (4, 2)
    assert facts.size(scaled) == "2:4"


def test_an_indexed_job_is_scaled_by_both_numbers_or_kubernetes_refuses() -> None:
    assert lifecycle.scale("Job", 3) == {"spec": {"parallelism": 3, "completions": 3}}
