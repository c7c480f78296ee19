"""Error responses of an API server become errors with a fix. The bodies are those of a real server."""

from __future__ import annotations

import json

import pytest
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import LocationParseError, ProtocolError, ReadTimeoutError, SSLError

from kitctl.base.errors import (
    ConflictError,
    Forbidden,
    KitError,
    NotFound,
    TargetError,
    Unavailable,
    UnsupportedError,
    UsageError,
)
from kitctl.targets.cluster.connection.api_errors import error_from_status, unreachable

# fmt: off
ANSWERS = [
    (400, 'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.x"', UsageError,
          "check the spelling"),
    (401, "Unauthorized", TargetError, "log in"),
    (403, 'jobs.batch "a" is forbidden: exceeded quota: none, requested: pods=1', UsageError, "larger quota"),
    (403, 'services "a" is forbidden: unable to create new content in namespace x because it is being terminated',
          UsageError, "namespace is being deleted"),
    (403, 'jobs.batch "a" is forbidden: User "u" cannot get resource "jobs" in API group "batch" in the namespace "x"',
          Forbidden, "where you have it"),
    (403, 'jobs.batch is forbidden: User "system:anonymous" cannot list resource "jobs" in API group ""', Forbidden,
          "the kubeconfig's user has no credentials: log in"),
    (404, 'namespaces "x" not found', UsageError, "kubectl create namespace"),
    (404, 'jobs.batch "a" not found', NotFound, "kitctl list"),
    (409, 'Apply failed with 1 conflict: conflict with "kubectl" using v1: .data.x', ConflictError, "managed-fields"),
    (409, 'Operation cannot be fulfilled on jobs.batch "a": the object has been modified', ConflictError, "try again"),
    (422, 'Job.batch "a" is invalid: spec.template: Invalid value: {}: field is immutable', UsageError, "--replace"),
    (409, "the UID in the precondition (x) does not match the UID in record (y). The object might", ConflictError,
          "created again meanwhile"),
    (422, 'Job.batch "a" is invalid: metadata.uid: Invalid value: "x": field is immutable', ConflictError,
          "created again meanwhile"),
    (422, 'Pod "a" is invalid: Invalid value: "512Mi": must be less than or equal to memory limit of 256Mi', UsageError,
          "above its limit"),
    (422, 'Job.batch "a" is invalid: spec.completions: Invalid value: 0', UsageError, ""),
    (422, 'Job.batch "a" is invalid: spec.template.spec.containers[1].name: Duplicate value: "pytorch"', UsageError,
          "choose another name"),
    (422, "jobs.batch \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
          UsageError, "follow its message"),
    (403, 'pods "a" is forbidden: violates PodSecurity "baseline:latest": host namespaces', UsageError,
          "leave out what it names"),
    (429, "Too many requests, please try again later.", TargetError, "overloaded"),
    (500, "Internal error occurred", TargetError, "the API server's log"),
]
# fmt: on


@pytest.mark.parametrize(("status", "message", "error", "fix"), ANSWERS, ids=lambda value: str(value)[:30])
def test_each_response_has_its_error_and_its_fix(status: int, message: str, error: type[KitError], fix: str) -> None:
    found = error_from_status(status, json.dumps({"kind": "Status", "message": message}).encode(), "Job")
    assert type(found) is error
    assert found.message.startswith("Job: ")
    assert message.replace(": Invalid value: {}:", ":") in found.message  # which may be a whole pod template
    assert fix in found.fix
    assert bool(fix) == bool(found.fix)


def test_the_plain_text_404_for_an_unknown_kind_is_recognized() -> None:
    found = error_from_status(404, b"404 page not found\n", "PyTorchJob.kubeflow.org")
    assert type(found) is UnsupportedError
    assert found.message == "PyTorchJob.kubeflow.org: 404 page not found"
    assert "install Kubeflow's training operator, or use --kind IndexedJob" in found.fix
    assert "--kind" not in error_from_status(404, b"404 page not found\n", "LocalQueue").fix


@pytest.mark.parametrize("body", [b"<html>404 page not found</html>", b"", b'{"message": "not found"}', b"Not Found"])
def test_a_404_page_of_a_proxy_is_not_a_missing_object(body: bytes) -> None:
    found = error_from_status(404, body, "Job")
    assert type(found) is TargetError
    assert "not from an API server" in found.message


CAUSES = [
    (SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed"), "certificate-authority"),
    (SSLError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "no TLS at this address"),
    (SSLError("[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE]"), "check network"),
    (LocationParseError("bad"), "check network"),
]


@pytest.mark.parametrize(("cause", "fix"), CAUSES, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("known", [True, False])
def test_a_connection_that_can_never_succeed_is_not_retried(cause: Exception, fix: str, *, known: bool) -> None:
    found = unreachable("https://here", cause, known=known)
    assert type(found) is TargetError
    assert fix in found.fix


def test_a_connection_to_a_server_that_has_answered_is_retried() -> None:
    cut, silent = ProtocolError("Connection aborted."), ReadTimeoutError(HTTPConnectionPool("here"), "/", "timed out")
    assert type(unreachable("here", cut)) is Unavailable, "the server has answered before"
    assert type(unreachable("here", silent)) is TargetError
    assert type(unreachable("here", silent, known=True)) is Unavailable


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"[]", b"\xff"])
def test_a_proxys_error_page_is_shown(body: bytes) -> None:
    assert body.decode(errors="replace") in error_from_status(502, body, "Job").message
