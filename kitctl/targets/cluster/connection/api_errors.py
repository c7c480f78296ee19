"""Maps an API server's error responses to kitctl's errors with their fixes, by one table. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProtocolError, ReadTimeoutError, SSLError

from kitctl.base import printable
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
from kitctl.kinds import DEFAULT, of_key


class Rule(NamedTuple):
    """A row of the table; the first one applies whose status (0: any) and words match the response."""

    status: int
    words: str
    error: type[KitError]
    fix: str


_VALUE: Final = re.compile(r": Invalid value: \{.*\}: ", re.DOTALL)  # a whole pod template may be in a message
ANONYMOUS: Final = 'User "system:anonymous"'  # who the API server sees in a request without credentials
UNKNOWN_PATH: Final = "404 page not found"  # plain text: the only response of an API server that is not an object
POLICY: Final = (
    "a policy of this cluster forbids it: follow its message; labels and annotations are keys of a job, and of its pod"
)
# fmt: off
ERROR_RULES: Final = (
    Rule(400, "does not support dry run", UnsupportedError, "try without: kitctl submit --no-checks"),
    Rule(400, "strict decoding error", UsageError, "check the spelling of a field of your own, under pod or in a "
            "template; else the cluster's Kubernetes, or operator, is too old for it (kitctl doctor)"),
    Rule(0, "denied the request", UsageError, POLICY),
    Rule(422, "denied request", UsageError, POLICY),
    Rule(401, "", TargetError, "the credentials are wrong or expired: log in to the cluster again"),
    Rule(403, ANONYMOUS, Forbidden, "the kubeconfig's user has no credentials: log in to the cluster, or choose "
            "another --context"),
    Rule(403, "must specify", UsageError, "a quota of the namespace requires it: add {keys} to the job"),
    Rule(403, "exceeded quota", UsageError, "ask for less, or for a larger quota: kubectl describe quota"),
    Rule(403, " usage per ", UsageError, "ask for what kubectl describe limitrange allows: resources.requests, "
            "resources.limits"),
    Rule(403, "limit to request ratio", UsageError, "see kubectl describe limitrange: set resources.requests nearer "
            "to resources.limits"),
    Rule(403, "violates PodSecurity", UsageError, "leave out what it names (under pod, volumes or security; "
            "security.profile: restricted is the default), or use a namespace that allows more"),
    Rule(403, "no PriorityClass", UsageError, "kubectl get priorityclass lists them"),
    Rule(403, "looking up service account", UsageError, "create it, or leave security.serviceAccount out"),
    Rule(403, "is being terminated", UsageError, "the namespace is being deleted: wait, or choose another with -n"),
    Rule(403, "", Forbidden, "ask for this right, or use a namespace where you have it: kubectl auth can-i --list"),
    Rule(404, "namespaces", UsageError, "create it (kubectl create namespace NAME), or choose another with -n"),
    Rule(404, "", NotFound, "kitctl list -A shows all jobs"),
    Rule(409, "UID in the precondition", ConflictError, "it was deleted and created again meanwhile: check it first"),
    Rule(409, "conflict with", ConflictError, "another field manager owns it: kubectl get --show-managed-fields"),
    Rule(409, "", ConflictError, "try again: it was being changed"),
    Rule(422, "metadata.uid", ConflictError, "it was deleted and created again meanwhile: check it first"),
    Rule(422, "immutable", UsageError, "a job's pods cannot be changed: submit it with --replace"),
    Rule(422, "must be less than or equal to", UsageError, "a request is above its limit, which may be the "
            "namespace's (kubectl describe limitrange): set resources.requests and resources.limits"),
    Rule(422, "Duplicate value", UsageError, "choose another name for what you add to the pods: one of the job has it"),
    Rule(422, "", UsageError, ""),
    Rule(429, "", TargetError, "the API server is overloaded: try again"),
    Rule(500, "failed calling webhook", TargetError, "the cluster asks that webhook about each such object, and "
            "it does not answer: tell its administrator; kubectl get validatingwebhookconfigurations lists them"),
)
# A part of the error's text -> what to do about the connection.
TLS: Final = {
    "WRONG_VERSION_NUMBER": "no TLS at this address: check the server's address in the kubeconfig (http, https, port)",
    "RECORD_LAYER_FAILURE": "no TLS at this address: check the server's address in the kubeconfig (http, https, port)",
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by the kubeconfig's certificate-authority: "
    "renew the kubeconfig; the response may come from a proxy",
}
# fmt: on
LATE: Final = (ConnectTimeoutError, ReadTimeoutError, TimeoutError)
NETWORK: Final = "check network, VPN and context (kubectl config current-context), or use --target local"
NO_API: Final = (
    "the response is not from an API server, perhaps from a proxy: check the server's address in the kubeconfig, "
    "HTTPS_PROXY and NO_PROXY, and what kubectl get --raw /version says"
)


def error_from_status(status: int, body: bytes, kind: str) -> KitError:
    """The error for a response of the API server to a request for an object of this kind."""
    message = _message(body)
    if message is None:
        return _error_without_status(status, body, kind)
    for rule in ERROR_RULES:
        if rule.status in {0, status} and rule.words in message:
            return rule.error(f"{kind}: {message}", fix=rule.fix.replace("{keys}", _missing(message)))
    return TargetError(f"{kind}: HTTP {status}: {message}", fix="try again, or see the API server's log")


def not_an_api_server(server: str, status: int, headers: Mapping[str, str], body: bytes) -> TargetError:
    """The error for a response that no API server sends: a page, a redirect, an empty body."""
    if where := headers.get("Location"):
        what = f"redirects (HTTP {status}) to {one_line(where)}"
    elif not body.strip():
        what = f"sent an empty response (HTTP {status})"
    else:
        what = f"sent no JSON object (HTTP {status}, {one_line(headers.get('Content-Type', 'no type'))}): "
        what += _shown(body)
    return TargetError(f"{server} does not seem to be a Kubernetes API server: it {what}", fix=NO_API)


def unreachable(server: str, cause: Exception, *, known: bool = False) -> TargetError:
    """The error for a server that did not answer.

    Args:
        server: its address.
        cause: the connection's error.
        known: whether it has answered before, and so may answer again (``Unavailable``).
    """
    what = f"the cluster at {server} cannot be reached: {one_line(str(cause))}"
    if isinstance(cause, SSLError):
        return TargetError(what, fix=next((fix for words, fix in TLS.items() if words in str(cause)), NETWORK))
    transient = (ProtocolError, *((*LATE, NewConnectionError) if known else ()))
    return Unavailable(what, fix=NETWORK) if isinstance(cause, transient) else TargetError(what, fix=NETWORK)


def too_large(server: str, limit: int) -> TargetError:
    """The error for an answer of more than ``limit`` bytes."""
    what = f"the answer of the cluster at {server} is larger than {limit >> 20} MiB, and was not read"
    return TargetError(
        what,
        fix="name a job or a namespace (-n) instead of all; or the server is no API server: see "
        "what kubectl get --raw /version says",
    )


def one_line(text: str) -> str:
    """Text of a server in one line, which cannot look like a line of kitctl's own."""
    return printable.line(" ".join(text.split()))


def _error_without_status(status: int, body: bytes, kind: str) -> KitError:
    """For a response without a Status object: from a proxy, or plain text from the server."""
    text = _shown(body)
    if status == 404 and text == UNKNOWN_PATH:  # noqa: PLR2004 - HTTP's own
        fix = "the cluster does not know this kind of object"
        job_kind = of_key(kind)
        if job_kind and job_kind.operator:
            fix += f"; install {job_kind.operator}, or use --kind {DEFAULT.name}"
        return UnsupportedError(f"{kind}: {text}", fix=fix)
    if "HTTP request to an HTTPS server" in text:
        return TargetError(text, fix="write https:// in the server's address in the kubeconfig")
    return TargetError(f"{kind}: HTTP {status}, not from an API server: {text}", fix=NO_API)


def _message(body: bytes) -> str | None:
    """The message of a Status object; None if the body is not one."""
    try:
        found: Any = json.loads(body)
        return one_line(_VALUE.sub(": ", str(found["message"]))) if found["kind"] == "Status" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _missing(message: str) -> str:
    """The keys of a job file that a quota requires: ``must specify limits.cpu for: a; limits.memory for: a``."""
    keys = re.findall(
        r"\b((?:requests|limits)\.[-\w./]+|cpu|memory)\b(?= for:|,|;|$)", message.partition("must specify")[2]
    )
    named = (key if "." in key else f"requests.{key}" for key in keys)
    return ", ".join(f"resources.{key}" for key in dict.fromkeys(named)) or "what it lists"


def _shown(body: bytes) -> str:
    return one_line(body[:4096].decode(errors="replace"))[:300]
