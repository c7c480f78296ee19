"""What an API server's refusal means to a person: one table from its answer to an error with its fix. Pure."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kitctl.errors import ConflictError, Forbidden, KitError, NotFound, TargetError, UnsupportedError, UsageError


class Refusal(NamedTuple):
    """A line of the table: the first whose status and words are in the answer."""

    status: int
    words: str
    error: type[KitError]
    fix: str


# fmt: off
REFUSALS: Final = (
    Refusal(401, "", TargetError, "the credentials are wrong or expired: log in to the cluster again"),
    Refusal(403, "exceeded quota", UsageError, "ask for less, or for a larger quota: kubectl describe quota"),
    Refusal(403, "is being terminated", UsageError, "the namespace is being deleted: wait, or choose another with -n"),
    Refusal(403, "", Forbidden, "ask for this right, or use a namespace where you have it: kubectl auth can-i --list"),
    Refusal(404, "page not found", UnsupportedError, "the cluster does not know this kind of object; "
            "for PyTorchJob install Kubeflow's training operator, or use --kind IndexedJob"),
    Refusal(404, "namespaces", NotFound, "create it (kubectl create namespace NAME), or choose another with -n"),
    Refusal(404, "", NotFound, "kitctl list -A shows all jobs"),
    Refusal(409, "conflict", ConflictError, "somebody else changed it: kubectl get --show-managed-fields says who"),
    Refusal(409, "", ConflictError, "try again: it was being changed"),
    Refusal(422, "immutable", UsageError, "a job's pods cannot be changed: submit it with --replace"),
    Refusal(422, "", UsageError, ""),
    Refusal(429, "", TargetError, "the API server is overloaded: try again"),
)
# fmt: on


def refusal(status: int, body: bytes, kind: str) -> KitError:
    """The error for an answer of the API server to a request about an object of this kind."""
    told = _message(body)
    for line in REFUSALS:
        if line.status == status and line.words in told:
            return line.error(f"{kind}: {told}", fix=line.fix)
    return TargetError(f"{kind}: HTTP {status}: {told}", fix="try again; the API server's log knows more")


def unreachable(server: str, cause: Exception) -> TargetError:
    """The error for a server that did not answer."""
    fix = "check network, VPN and context (kubectl config current-context), or use --target local"
    return TargetError(f"the cluster at {server} cannot be reached: {cause}", fix=fix)


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:300]
