"""Operations of an API server: plain dicts in and out, since typed models are slow to import.

Why: decision 9.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final
from urllib.parse import urlencode

import urllib3

from kitctl.base import names
from kitctl.base.errors import NotFound, Unavailable, UnsupportedError, UsageError
from kitctl.targets import Session
from kitctl.targets.cluster.connection.api_errors import not_an_api_server
from kitctl.targets.cluster.connection.kubeconfig import Connection
from kitctl.targets.cluster.connection.resources import RESOURCES, Object, Resource, key_of
from kitctl.targets.cluster.connection.transport import READ_SECONDS, Transport

APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML: the API server reads it as such
FOLLOW_SECONDS: Final = 60.0  # of silence, after which a followed log is attached again: a request a minute and pod
LINE_BYTES: Final = 4 << 20  # a stream without line breaks takes no more memory
PIECE_BYTES: Final = 4 << 10  # of a log: a kubelet sends up to 32 KiB at once, which as lines takes ten times as much
MERGE: Final = "application/merge-patch+json"


class Silent(Unavailable):
    """A log that is followed has had no line for ``FOLLOW_SECONDS``: its container may have nothing to say."""


class Api:
    """One API server, as one user.

    Every method raises a ``KitError`` for an error response (``api_errors``), and ``TargetError`` if the server cannot
    be reached. A change names the uid of the object that was read, so another object of that name is never changed.
    """

    def __init__(self, connection: Connection, warn: Callable[[str], None]) -> None:
        self.connection = connection
        self.warn = warn
        self.transport = Transport(connection, warn)
        self.server = self.transport.server
        self._served: dict[str, str] = {}  # the version of an add-on's API group

    def version(self) -> Object:
        """The server's version: ``major``, ``minor``, ``gitVersion``."""
        return self.transport.json("GET", "version", "/version")

    def versions(self, kind: str) -> list[str]:
        """The versions in which the server has a kind's group.

        Raises:
            UnsupportedError: it does not have the group.
        """
        group = self.transport.json("GET", kind, f"/apis/{RESOURCES[kind].group}")
        return [one["version"] for one in group.get("versions") or ()]

    def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """One object.

        Raises:
            NotFound: there is none of that name.
        """
        resource = self._resource(kind)
        return resource.typed(self.transport.json("GET", kind, resource.path(namespace, name)), kind)

    def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """One object, or None; None as well if the server does not know its kind."""
        with suppress(NotFound, UnsupportedError):
            return self.get(kind, namespace, name)
        return None

    def serves(self, kind: str) -> bool:
        """Whether the server has the add-on that a kind belongs to.

        Raises:
            UsageError: in a version that kitctl does not know.
        """
        with suppress(UnsupportedError):
            return bool(self._resource(kind))
        return False

    def pending_workloads(self, namespace: str, queue: str) -> list[Object]:
        """The Workloads that wait in a LocalQueue of Kueue, the next one first; not retried, as Kueue itself answers.

        Raises:
            KitError: Kueue is away, or does not offer it.
        """
        kind = "PendingWorkloads"
        path = self._resource(kind).path(namespace, queue, "pendingworkloads")
        answer = self.transport.json("GET", kind, path, retried=False)
        return answer.get("items") or []

    def select(self, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """All objects of a kind that match ``labelSelector`` and the like."""
        return self._list(kind, namespace, query)[0]

    def select_once(self, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """As ``select``, without retries: for an add-on's objects, which the add-on itself may serve."""
        return self._list(kind, namespace, query, retried=False)[0]

    def pages(self, kind: str, size: int) -> Iterator[list[Object]]:
        """All objects of a kind of the whole cluster, ``size`` at a time."""
        query = {"limit": str(size)}
        while True:
            items, following = self._list(kind, None, query)
            yield items
            if not following:
                return
            query["continue"] = following

    def preview(self, manifest: Object, *, version: str = "") -> Object:
        """The result of server-side apply, as a dry run that ignores who owns the fields.

        Args:
            manifest: what would be applied.
            version: the object's resourceVersion, if it must not have changed since.

        Raises:
            ConflictError: it has changed.
        """
        where, kind = manifest["metadata"], key_of(manifest)
        body = manifest | {"metadata": where | ({"resourceVersion": version} if version else {})}
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true", "dryRun": "All"}
        path = self._resource(kind).path(where["namespace"], where["name"])
        return self.transport.json("PATCH", kind, path, query=query, body=body, content=APPLY)

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object that does not exist yet.

        Raises:
            ConflictError: one of that name exists; it is not changed.
            UsageError: it has a field that this server does not know and would drop.
        """
        kind = key_of(manifest)
        query = {"fieldManager": names.FIELD_MANAGER, "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        path = self._resource(kind).path(manifest["metadata"]["namespace"])
        return self.transport.json("POST", kind, path, query=query, body=manifest)

    def review(self, kind: str, **parts: Object) -> Object:
        """Post a review object, which has no name and is not stored; returns its status."""
        body = {"apiVersion": RESOURCES[kind].group_version, "kind": kind, **parts}
        status: Object = (
            self.transport.json("POST", kind, self._resource(kind).path(None), body=body).get("status") or {}
        )
        return status

    def patch(self, found: Object, change: Object, *, version: str = "") -> Object:
        """A JSON merge patch of an object that was found, with its ``kind``.

        Args:
            found: the object; another one of its name, created since, is not changed.
            change: the patch.
            version: the object's resourceVersion, if it must not have changed since.

        Raises:
            ConflictError: it was replaced, or has changed.
        """
        where = found["metadata"]
        marks = {"uid": where["uid"]} | ({"resourceVersion": version} if version else {})
        body = change | {"metadata": change.get("metadata", {}) | marks}
        path = self._resource(key_of(found)).path(where["namespace"], where["name"])
        query = {"fieldManager": names.FIELD_MANAGER}
        return self.transport.json("PATCH", key_of(found), path, query=query, body=body, content=MERGE)

    def delete(self, found: Object, *, version: str = "", grace_seconds: int | None = None) -> None:
        """Delete an object that was found, with its ``kind``, after all that it owns; a deleted one is no error.

        Arguments and errors are those of ``patch``; ``grace_seconds`` overrides a pod's own.
        """
        where = found["metadata"]
        marks = {"uid": where["uid"]} | ({"resourceVersion": version} if version else {})
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": marks}
        path = self._resource(key_of(found)).path(where["namespace"], where["name"])
        with suppress(NotFound):
            self.transport.json("DELETE", key_of(found), path, body=body | grace)

    def lines(self, namespace: str, pod: str, container: str = names.CONTAINER, **query: str) -> Iterator[str]:
        """The lines of a container's log, each with its time; as ``arriving_lines``."""
        return chain.from_iterable(self.arriving_lines(namespace, pod, container, **query))

    def arriving_lines(
        self, namespace: str, pod: str, container: str = names.CONTAINER, **query: str
    ) -> Iterator[list[str]]:
        """The lines of a container's log, each with its time, in lists as they arrive.

        After ``READ_SECONDS`` without a byte it is ``Unavailable``; a line longer than ``LINE_BYTES`` is cut.

        Raises:
            Silent: a log that is followed had no line for ``FOLLOW_SECONDS``, or its connection is dead.
        """
        path = RESOURCES["Pod"].path(namespace, pod, "log")
        query |= {"timestamps": "true", "container": container}
        seconds = FOLLOW_SECONDS if "follow" in query else READ_SECONDS
        try:
            yield from self._pieces(path, query, seconds)
        except Unavailable as error:
            if "follow" in query and isinstance(error.__cause__, urllib3.exceptions.ReadTimeoutError):
                raise Silent(error.message) from error
            raise

    def _pieces(self, path: str, query: dict[str, str], seconds: float) -> Iterator[list[str]]:
        answer = self.transport.stream("Pod", path, query=query, read_seconds=seconds, followed="follow" in query)
        try:
            yield from split_pieces(answer.stream(PIECE_BYTES))
        except urllib3.exceptions.HTTPError as error:
            raise self.transport.connection_error(error) from error
        finally:
            answer.release_conn()

    def execute(
        self,
        namespace: str,
        pod: str,
        command: Sequence[str],
        stdin: Iterable[bytes] = (),
        container: str = names.CONTAINER,
    ) -> Iterator[bytes]:
        """Run a command in a pod's container; its stdout, as it arrives. ``stdin`` is sent first, and not closed.

        Raises:
            TargetError: it failed.
        """
        from kitctl.targets.cluster.connection import pod_exec  # noqa: PLC0415 - it imports much, for few commands

        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if stdin else []
        query += [("command", word) for word in command]
        return pod_exec.stream_stdout(*self._socket(namespace, pod, "exec", query), stdin)

    def attend(
        self, namespace: str, pod: str, command: Sequence[str], session: Session, container: str = names.CONTAINER
    ) -> int:
        """Run a command in a pod's container with the user's input and output; returns its exit code.

        Raises:
            TargetError: it could not be run.
        """
        from kitctl.targets.cluster.connection import pod_session  # noqa: PLC0415 - as above

        query = [("container", container), ("stdout", "true")]
        query += [("tty", "true")] if session.tty else [("stderr", "true")]
        query += [("stdin", "true")] if session.stdin is not None else []
        query += [("command", word) for word in command]
        return pod_session.run(*self._socket(namespace, pod, "exec", query), session)

    def forward(self, namespace: str, pod: str, port: int, connection: socket.socket) -> None:
        """Join a connection to a port of a pod, until either end is closed.

        Raises:
            TargetError: the pod refuses it, or cannot be reached.
        """
        from kitctl.targets.cluster.connection import pod_exec, pod_session  # noqa: PLC0415 - as above

        where = self._socket(namespace, pod, "portforward", [("ports", str(port))])
        pod_session.forward(connection, partial(pod_exec.connect, *where))

    def _socket(self, namespace: str, pod: str, sub: str, query: list[tuple[str, str]]) -> tuple[Connection, str]:
        """What a web socket to a pod takes: the connection, and the address."""
        path = RESOURCES["Pod"].path(namespace, pod, sub)
        return self.connection, f"{self.server}{path}?{urlencode(query)}"

    def _resource(self, kind: str) -> Resource:
        """Where the server has a kind.

        Raises:
            UnsupportedError: it is an add-on's, which the server does not have.
            UsageError: the server has it in a version that kitctl does not know.
        """
        resource = RESOURCES[kind]
        if not resource.versions:
            return resource
        if resource.group not in self._served:
            self._served[resource.group] = known_version(resource, self.versions(kind))
        return replace(resource, group_version=f"{resource.group}/{self._served[resource.group]}")

    def _list(
        self, kind: str, namespace: str | None, query: dict[str, str], *, retried: bool = True
    ) -> tuple[list[Object], str]:
        """The items of one page, with their types, and the token of the next; empty: there is none."""
        resource = self._resource(kind)
        answer = self.transport.json("GET", kind, resource.path(namespace), query=query, retried=retried)
        if not isinstance(answer.get("items", []), list | None) or "metadata" not in answer:
            raise not_an_api_server(self.server, 200, {}, str(answer).encode())
        items = [resource.typed(item, kind) for item in answer.get("items") or ()]
        return items, str(answer["metadata"].get("continue") or "")


def known_version(resource: Resource, served: Sequence[str]) -> str:
    """The version of an add-on's API to use, of those that a server has.

    Raises:
        UsageError: kitctl knows none of them.
    """
    for version in resource.versions:
        if version in served:
            return version
    what = f"the cluster has {resource.group} in {', '.join(served) or 'no version'}"
    raise UsageError(f"{what}; this kitctl knows {', '.join(resource.versions)}", fix="use a later kitctl")


def split_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream of bytes, cut at ``LINE_BYTES``; the last one may lack a line break."""
    return chain.from_iterable(split_pieces(pieces))


def split_pieces(pieces: Iterable[bytes]) -> Iterator[list[str]]:
    """The same, as lists of the lines that a piece ends."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_BYTES:
            whole.append(rest)
            rest = b""
        yield [line.decode(errors="replace") for line in whole]
    if rest:
        yield [rest.decode(errors="replace")]
