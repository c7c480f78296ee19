"""Requests to one API server, as one user: plain dicts in and out, since typed models take long to import."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import urllib3
from kubernetes.client.api_client import ApiClient

from kitctl import names
from kitctl.errors import NotFound, UnsupportedError
from kitctl.targets.cluster.refusals import refusal, unreachable

Object: TypeAlias = dict[str, Any]
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0
APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML: the API server reads it as such
MERGE: Final = "application/merge-patch+json"


@dataclass(frozen=True)
class Resource:
    """Where objects of a kind live."""

    group_version: str
    plural: str

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.group_version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str = "", sub: str = "") -> str:
        """The URL path of one object, or of all of a namespace (or of all namespaces)."""
        scope = ("namespaces", namespace) if namespace else ()
        root = "apis" if self.group else "api"
        return "/" + "/".join(filter(None, (root, self.group_version, *scope, self.plural, name, sub)))


RESOURCES: Final[Mapping[str, Resource]] = {
    "ConfigMap": Resource("v1", "configmaps"),
    "Event": Resource("v1", "events"),
    "Job": Resource("batch/v1", "jobs"),
    "LocalQueue": Resource("kueue.x-k8s.io/v1beta1", "localqueues"),
    "NetworkPolicy": Resource("networking.k8s.io/v1", "networkpolicies"),
    "Node": Resource("v1", "nodes"),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "Pod": Resource("v1", "pods"),
    "PyTorchJob": Resource("kubeflow.org/v1", "pytorchjobs"),
    "ResourceQuota": Resource("v1", "resourcequotas"),
    "Role": Resource("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Resource("rbac.authorization.k8s.io/v1", "rolebindings"),
    "SelfSubjectRulesReview": Resource("authorization.k8s.io/v1", "selfsubjectrulesreviews"),
    "Service": Resource("v1", "services"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
    "StorageClass": Resource("storage.k8s.io/v1", "storageclasses"),
}


class Api:
    """One API server, as one user.

    Every method raises a ``KitError`` for what the server refuses (``refusals``), and ``TargetError`` if it cannot be
    reached. What the server warns of is told once.
    """

    def __init__(self, client: ApiClient, tell: Callable[[str], None]) -> None:
        self._client = client
        self._tell = tell
        self._told: set[str] = set()
        self.server: str = client.configuration.host

    def version(self) -> Object:
        """What the server says of itself: ``major``, ``minor``, ``gitVersion``."""
        return self._json("GET", "version", "/version")

    def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """One object.

        Raises:
            NotFound: there is none of that name.
        """
        return self._json("GET", kind, RESOURCES[kind].path(namespace, name))

    def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """One object, or None; also where the server does not know its kind."""
        with suppress(NotFound, UnsupportedError):
            return self.get(kind, namespace, name)
        return None

    def select(self, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """All objects of a kind that match ``labelSelector`` and the like."""
        answer = self._json("GET", kind, RESOURCES[kind].path(namespace), query=query)
        items: list[Object] = answer["items"]
        return items

    def pages(self, kind: str, size: int) -> Iterator[list[Object]]:
        """All objects of a kind of the whole cluster, ``size`` at a time."""
        query = {"limit": str(size)}
        while True:
            answer = self._json("GET", kind, RESOURCES[kind].path(None), query=query)
            yield answer["items"]
            if not (following := answer["metadata"].get("continue")):
                return
            query["continue"] = following

    def apply(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply.

        Raises:
            ConflictError: somebody else owns a field.
        """
        where, kind = manifest["metadata"], manifest["kind"]
        query = {"fieldManager": names.FIELD_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        path = RESOURCES[kind].path(where["namespace"], where["name"])
        return self._json("PATCH", kind, path, query=query, body=manifest, content=APPLY)

    def create(self, kind: str, body: Object) -> Object:
        """Post an object that is a question: it has no name, and is not kept."""
        return self._json("POST", kind, RESOURCES[kind].path(None), body=body)

    def patch(self, kind: str, namespace: str, name: str, change: Object) -> Object:
        """A JSON merge patch."""
        query = {"fieldManager": names.FIELD_MANAGER}
        path = RESOURCES[kind].path(namespace, name)
        return self._json("PATCH", kind, path, query=query, body=change, content=MERGE)

    def delete(self, kind: str, namespace: str, name: str, **query: str) -> None:
        """Delete an object once all that it owns is deleted; one that is gone already is no error."""
        with suppress(NotFound):
            path = RESOURCES[kind].path(namespace, name)
            self._json("DELETE", kind, path, query={"propagationPolicy": "Foreground", **query})

    def lines(self, namespace: str, pod: str, **query: str) -> Iterator[str]:
        """The lines of a pod's log as they arrive, each with its time."""
        path = RESOURCES["Pod"].path(namespace, pod, "log")
        query |= {"timestamps": "true", "container": names.CONTAINER}
        answer = self._send("GET", "Pod", path, query=query, read_seconds=None)
        try:
            yield from whole_lines(answer.stream())
        except urllib3.exceptions.HTTPError as error:
            raise unreachable(self.server, error) from error
        finally:
            answer.release_conn()

    def execute(self, namespace: str, pod: str, command: Sequence[str]) -> Iterator[bytes]:
        """What a command prints that is run in a pod's container, as it comes.

        Raises:
            TargetError: it failed.
        """
        from kitctl.targets.cluster import execution  # noqa: PLC0415 - it imports much, for few verbs

        path = RESOURCES["Pod"].path(namespace, pod, "exec")
        query = [("container", names.CONTAINER), ("stdout", "true"), ("stderr", "true")]
        query += [("command", word) for word in command]
        headers: dict[str, str] = {}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        url = f"{self.server}{path}?{urlencode(query)}"
        return execution.stdout(self._client.configuration, url, headers.get("authorization"))

    def _json(self, method: str, kind: str, path: str, **request: Any) -> Object:
        answer = self._send(method, kind, path, **request)
        try:
            found: Object = json.loads(answer.data)
        except urllib3.exceptions.HTTPError as error:
            raise unreachable(self.server, error) from error
        return found

    def _send(
        self,
        method: str,
        kind: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = "application/json",
        read_seconds: float | None = READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": content}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        try:
            answer: urllib3.BaseHTTPResponse = self._client.rest_client.pool_manager.request(
                method,
                self.server + path + (f"?{urlencode(query)}" if query else ""),
                body=json.dumps(body) if body is not None else None,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds),
                retries=False,
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise unreachable(self.server, error) from error
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own
            raise refusal(answer.status, answer.data, kind)
        self._pass_on(answer.headers.getlist("Warning"))
        return answer

    def _pass_on(self, warnings: list[str]) -> None:
        """Tell what the server warns of: ``299 - "would violate PodSecurity ..."``."""
        for warning in warnings:
            text = warning.partition('"')[2].rstrip('"')
            if text and text not in self._told:
                self._told.add(text)
                self._tell(f"the cluster warns: {text}")


def whole_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Lines of what comes in pieces; the last one may lack its end."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")
