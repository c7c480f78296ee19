"""What is asked of an API server: plain dicts in and out, since typed models take long to import."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

import urllib3
from kubernetes.client.api_client import ApiClient

from kitctl import names
from kitctl.errors import NotFound, UnsupportedError
from kitctl.targets.cluster.refusals import no_answer_of_an_api
from kitctl.targets.cluster.resources import RESOURCES, Object
from kitctl.targets.cluster.transport import Transport

APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML: the API server reads it as such
MERGE: Final = "application/merge-patch+json"


class Api:
    """One API server, as one user.

    Every method raises a ``KitError`` for what the server refuses (``refusals``), and ``TargetError`` if it cannot be
    reached. Nothing is changed that is not the very object which was looked at: by its uid.
    """

    def __init__(self, client: ApiClient, tell: Callable[[str], None]) -> None:
        self._client = client
        self.transport = Transport(client, tell)
        self.server = self.transport.server

    def version(self) -> Object:
        """What the server says of itself: ``major``, ``minor``, ``gitVersion``."""
        return self.transport.json("GET", "version", "/version")

    def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """One object.

        Raises:
            NotFound: there is none of that name.
        """
        return self.transport.json("GET", kind, RESOURCES[kind].path(namespace, name))

    def find(self, kind: str, namespace: str | None, name: str) -> Object | None:
        """One object, or None; also where the server does not know its kind."""
        with suppress(NotFound, UnsupportedError):
            return self.get(kind, namespace, name)
        return None

    def select(self, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """All objects of a kind that match ``labelSelector`` and the like."""
        return self._list(kind, namespace, query)[0]

    def pages(self, kind: str, size: int) -> Iterator[list[Object]]:
        """All objects of a kind of the whole cluster, ``size`` at a time."""
        query = {"limit": str(size)}
        while True:
            items, following = self._list(kind, None, query)
            yield items
            if not following:
                return
            query["continue"] = following

    def preview(self, manifest: Object) -> Object:
        """What server-side apply would make of an object; nothing is changed, whoever owns its fields."""
        where, kind = manifest["metadata"], manifest["kind"]
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true", "dryRun": "All"}
        path = RESOURCES[kind].path(where["namespace"], where["name"])
        return self.transport.json("PATCH", kind, path, query=query, body=manifest, content=APPLY)

    def create(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create an object that is not there yet.

        Raises:
            ConflictError: one of that name is there; it is left as it is.
            UsageError: it has a field that this server does not know, and would leave out.
        """
        kind = manifest["kind"]
        query = {"fieldManager": names.FIELD_MANAGER, "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        path = RESOURCES[kind].path(manifest["metadata"]["namespace"])
        return self.transport.json("POST", kind, path, query=query, body=manifest)

    def ask(self, kind: str, **parts: Object) -> Object:
        """Post an object that is a question: it has no name, and is not kept; its status."""
        body = {"apiVersion": RESOURCES[kind].group_version, "kind": kind, **parts}
        status: Object = self.transport.json("POST", kind, RESOURCES[kind].path(None), body=body).get("status") or {}
        return status

    def patch(self, found: Object, change: Object, *, version: str = "") -> Object:
        """A JSON merge patch of an object that was found, with its ``kind``.

        Args:
            found: the object; another one of its name, made since, is not touched.
            change: the patch.
            version: the object's resourceVersion, where it must not have changed since.

        Raises:
            ConflictError: it is another one by now, or has changed.
        """
        where = found["metadata"]
        marks = {"uid": where["uid"]} | ({"resourceVersion": version} if version else {})
        body = change | {"metadata": change.get("metadata", {}) | marks}
        path = RESOURCES[found["kind"]].path(where["namespace"], where["name"])
        query = {"fieldManager": names.FIELD_MANAGER}
        return self.transport.json("PATCH", found["kind"], path, query=query, body=body, content=MERGE)

    def delete(self, found: Object, *, version: str = "", grace_seconds: int | None = None) -> None:
        """Delete an object that was found, with its ``kind``, once all that it owns is; one that is gone is no error.

        Arguments and errors are those of ``patch``; ``grace_seconds`` is a pod's, if not its own.
        """
        where = found["metadata"]
        marks = {"uid": where["uid"]} | ({"resourceVersion": version} if version else {})
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": marks}
        path = RESOURCES[found["kind"]].path(where["namespace"], where["name"])
        with suppress(NotFound):
            self.transport.json("DELETE", found["kind"], path, body=body | grace)

    def lines(self, namespace: str, pod: str, **query: str) -> Iterator[str]:
        """The lines of a pod's log as they arrive, each with its time."""
        path = RESOURCES["Pod"].path(namespace, pod, "log")
        query |= {"timestamps": "true", "container": names.CONTAINER}
        answer = self.transport.stream("GET", "Pod", path, query=query)
        try:
            yield from whole_lines(answer.stream())
        except urllib3.exceptions.HTTPError as error:
            raise self.transport.broken(error) from error
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

    def _list(self, kind: str, namespace: str | None, query: dict[str, str]) -> tuple[list[Object], str]:
        """The items of one answer, and where the next begins; empty: there is none."""
        answer = self.transport.json("GET", kind, RESOURCES[kind].path(namespace), query=query)
        if not isinstance(answer.get("items", []), list | None) or "metadata" not in answer:
            raise no_answer_of_an_api(self.server, 200, {}, str(answer).encode())
        return answer.get("items") or [], str(answer["metadata"].get("continue") or "")


def whole_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Lines of what comes in pieces; the last one may lack its end."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")
