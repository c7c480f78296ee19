"""What an API server says no with becomes an error with its fix; the bodies are what a real one sent."""

from __future__ import annotations

import json

import pytest

from kitctl.errors import ConflictError, Forbidden, KitError, NotFound, TargetError, UnsupportedError, UsageError
from kitctl.targets.cluster.refusals import refusal

# fmt: off
ANSWERS = [
    (401, "Unauthorized", TargetError, "log in"),
    (403, 'jobs.batch "a" is forbidden: exceeded quota: none, requested: pods=1', UsageError, "larger quota"),
    (403, 'services "a" is forbidden: unable to create new content in namespace x because it is being terminated',
          UsageError, "namespace is being deleted"),
    (403, 'jobs.batch "a" is forbidden: User "u" cannot get resource "jobs" in API group "batch" in the namespace "x"',
          Forbidden, "where you have it"),
    (404, 'namespaces "x" not found', NotFound, "kubectl create namespace"),
    (404, 'jobs.batch "a" not found', NotFound, "kitctl list"),
    (409, 'Apply failed with 1 conflict: conflict with "kubectl" using v1: .data.x', ConflictError, "managed-fields"),
    (409, 'Operation cannot be fulfilled on jobs.batch "a": the object has been modified', ConflictError, "try again"),
    (422, 'Job.batch "a" is invalid: spec.template: Invalid value: {}: field is immutable', UsageError, "--replace"),
    (422, 'Job.batch "a" is invalid: spec.completions: Invalid value: 0', UsageError, ""),
    (429, "Too many requests, please try again later.", TargetError, "overloaded"),
    (500, "Internal error occurred", TargetError, "the API server's log"),
]
# fmt: on


@pytest.mark.parametrize(("status", "message", "error", "fix"), ANSWERS, ids=lambda value: str(value)[:30])
def test_each_answer_has_its_error_and_its_fix(status: int, message: str, error: type[KitError], fix: str) -> None:
    told = refusal(status, json.dumps({"kind": "Status", "message": message}).encode(), "Job")
    assert type(told) is error
    assert told.message.startswith("Job: ")
    assert message in told.message
    assert fix in told.fix
    assert bool(fix) == bool(told.fix)


def test_a_kind_that_the_server_does_not_know_is_answered_in_plain_text() -> None:
    told = refusal(404, b"404 page not found\n", "PyTorchJob")
    assert type(told) is UnsupportedError
    assert told.message == "PyTorchJob: 404 page not found"
    assert "--kind IndexedJob" in told.fix


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"[]", b"\xff"])
def test_what_a_proxy_says_instead_is_shown(body: bytes) -> None:
    assert body.decode(errors="replace") in refusal(502, body, "Job").message
