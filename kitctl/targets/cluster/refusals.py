"""What an API server's refusal means to a person: one table from its answer to an error with its fix. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProtocolError, ReadTimeoutError, SSLError

from kitctl.errors import (
    ConflictError,
    Forbidden,
    KitError,
    NotFound,
    TargetError,
    Unavailable,
    UnsupportedError,
    UsageError,
)


class Refusal(NamedTuple):
    """A line of the table: the first whose status (0: any) and words are in the answer."""

    status: int
    words: str
    error: type[KitError]
    fix: str


UNKNOWN_PATH: Final = "404 page not found"  # in plain text: the one answer of an API server that is no object
# fmt: off
REFUSALS: Final = (
    Refusal(400, "does not support dry run", UnsupportedError, "try without: kitctl submit --no-checks"),
    Refusal(400, "strict decoding error", UsageError, "the cluster's Kubernetes, or operator, has no such field: use a "
            "later one (kitctl doctor)"),
    Refusal(0, "denied the request", UsageError, "a policy of this cluster forbids it: do as it says"),
    Refusal(401, "", TargetError, "the credentials are wrong or expired: log in to the cluster again"),
    Refusal(403, "must specify", UsageError, "a quota of the namespace demands it: add {keys} to the job"),
    Refusal(403, "exceeded quota", UsageError, "ask for less, or for a larger quota: kubectl describe quota"),
    Refusal(403, " usage per ", UsageError, "ask for what kubectl describe limitrange allows: resources.requests, "
            "resources.limits"),
    Refusal(403, "limit to request ratio", UsageError, "see kubectl describe limitrange: set resources.requests nearer "
            "to resources.limits"),
    Refusal(403, "violates PodSecurity", UsageError, "set security.profile: restricted, or use a namespace that allows "
            "more"),
    Refusal(403, "no PriorityClass", UsageError, "kubectl get priorityclass lists them"),
    Refusal(403, "looking up service account", UsageError, "create it, or leave security.serviceAccount out"),
    Refusal(403, "is being terminated", UsageError, "the namespace is being deleted: wait, or choose another with -n"),
    Refusal(403, "", Forbidden, "ask for this right, or use a namespace where you have it: kubectl auth can-i --list"),
    Refusal(404, "namespaces", NotFound, "create it (kubectl create namespace NAME), or choose another with -n"),
    Refusal(404, "", NotFound, "kitctl list -A shows all jobs"),
    Refusal(409, "UID in the precondition", ConflictError, "it was deleted and made anew meanwhile: look at it first"),
    Refusal(409, "conflict with", ConflictError, "somebody else owns it: kubectl get --show-managed-fields"),
    Refusal(409, "", ConflictError, "try again: it was being changed"),
    Refusal(422, "metadata.uid", ConflictError, "it was deleted and made anew meanwhile: look at it first"),
    Refusal(422, "immutable", UsageError, "a job's pods cannot be changed: submit it with --replace"),
    Refusal(422, "must be less than or equal to", UsageError, "a request is above its limit, which may be the "
            "namespace's (kubectl describe limitrange): set resources.requests and resources.limits"),
    Refusal(422, "", UsageError, ""),
    Refusal(429, "", TargetError, "the API server is overloaded: try again"),
)
# Of a cause, in words -> what to do about a connection that cannot be made.
TLS: Final = {
    "WRONG_VERSION_NUMBER": "no TLS is spoken there: check the server's address in the kubeconfig (http, https, port)",
    "RECORD_LAYER_FAILURE": "no TLS is spoken there: check the server's address in the kubeconfig (http, https, port)",
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by the kubeconfig's certificate-authority: "
    "renew the kubeconfig; a proxy in between may be the one that answers",
}
# fmt: on
NETWORK: Final = "check network, VPN and context (kubectl config current-context), or use --target local"
NO_API: Final = (
    "something else answers there, such as a proxy or its login page: check the server's address in the kubeconfig, "
    "HTTPS_PROXY and NO_PROXY, and what kubectl get --raw /version says"
)


def refusal(status: int, body: bytes, kind: str) -> KitError:
    """The error for an answer of the API server to a request about an object of this kind."""
    told = _status(body)
    if told is None:
        return _refused_by_another(status, body, kind)
    for line in REFUSALS:
        if line.status in {0, status} and line.words in told:
            return line.error(f"{kind}: {told}", fix=line.fix.replace("{keys}", _missing(told)))
    return TargetError(f"{kind}: HTTP {status}: {told}", fix="try again; the API server's log knows more")


def no_answer_of_an_api(server: str, status: int, headers: Mapping[str, str], body: bytes) -> TargetError:
    """The error for an answer that no API server gives: a page, a redirect, nothing."""
    if where := headers.get("Location"):
        what = f"redirects (HTTP {status}) to {where}"
    elif not body.strip():
        what = f"gave an empty answer (HTTP {status})"
    else:
        what = f"gave an answer that is no JSON object (HTTP {status}, {headers.get('Content-Type', 'no type')}): "
        what += _shown(body)
    return TargetError(f"{server} is no Kubernetes API server, as it seems: it {what}", fix=NO_API)


def unreachable(server: str, cause: Exception, *, known: bool = False) -> TargetError:
    """The error for a server that did not answer.

    Args:
        server: its address.
        cause: what came instead.
        known: whether it has answered before: then it may again (``Unavailable``).
    """
    what = f"the cluster at {server} cannot be reached: {cause}"
    if isinstance(cause, SSLError):
        return TargetError(what, fix=next((fix for words, fix in TLS.items() if words in str(cause)), NETWORK))
    passing = (ProtocolError, NewConnectionError, ConnectTimeoutError, ReadTimeoutError) if known else (ProtocolError,)
    return Unavailable(what, fix=NETWORK) if isinstance(cause, passing) else TargetError(what, fix=NETWORK)


def _refused_by_another(status: int, body: bytes, kind: str) -> KitError:
    """An answer without a Status: a proxy's, or the server's in plain text."""
    told = _shown(body)
    if status == 404 and told == UNKNOWN_PATH:  # noqa: PLR2004 - HTTP's own
        fix = "the cluster does not know this kind of object; "
        fix += "for PyTorchJob install Kubeflow's training operator, or use --kind IndexedJob"
        return UnsupportedError(f"{kind}: {told}", fix=fix)
    if "HTTP request to an HTTPS server" in told:
        return TargetError(told, fix="write https:// in front of the server's address in the kubeconfig")
    return TargetError(f"{kind}: HTTP {status}, and no word of an API server: {told}", fix=NO_API)


def _status(body: bytes) -> str | None:
    """The message of a Status object; None if it is none."""
    try:
        found: Any = json.loads(body)
        return str(found["message"]) if found["kind"] == "Status" else None
    except (ValueError, KeyError, TypeError):
        return None


def _missing(told: str) -> str:
    """The keys of a job file for what a quota demands: ``must specify limits.cpu for: a; limits.memory for: a``."""
    keys = re.findall(
        r"\b((?:requests|limits)\.[-\w./]+|cpu|memory)\b(?= for:|,|;|$)", told.partition("must specify")[2]
    )
    named = (key if "." in key else f"requests.{key}" for key in keys)
    return ", ".join(f"resources.{key}" for key in dict.fromkeys(named)) or "what it names"


def _shown(body: bytes) -> str:
    return " ".join(body.decode(errors="replace").split())[:300]
