"""Requests to the cluster's API server, as the service account that Kubernetes mounts into the pod.

With the standard library: the image needs no client of Kubernetes. Proxies are not asked: the server is in the cluster.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, TypeVar

from kittrain.system import typed
from kittrain.system.decoders import MalformedError

T = TypeVar("T")

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # token, ca.crt and namespace
TIMEOUT: Final = 10.0  # seconds, for each step of a request
PATIENCE: Final = 60.0  # seconds for a server that does not answer
PAUSE: Final = 1.0  # seconds between two attempts
DENIED: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
MANAGER: Final = "kittrain.agent"  # whose fields they are


class ApiError(OSError):
    """The API server did not do what was asked for.

    Attributes:
        status: HTTP's; 0 where there was no answer.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class NoAccountError(ApiError):
    """No service account's token is mounted into this pod, or it is no pod of a cluster."""


class DeniedError(ApiError):
    """This pod's service account may not, or there is no such object: so it is for all nodes, whenever they ask."""


def patiently(act: Callable[[], T]) -> T:
    """What an act gives; it is tried again while the server does not answer, or not to the question.

    Raises:
        NoAccountError: there is nobody to ask.
        DeniedError: that is the answer.
        ApiError: there was none for :data:`PATIENCE`.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except ApiError as error:
            if isinstance(error, NoAccountError | DeniedError) or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """The server, for objects of the pod's own namespace."""

    account: Path = ACCOUNT

    def get(self, group: str, resource: str, name: str) -> dict[str, Any]:
        """An object; ``group`` as in a URL, such as ``api/v1``.

        Raises:
            ApiError: it cannot be read.
        """
        return self._send("GET", f"{group}/namespaces/{self._mounted('namespace')}/{resource}/{name}")

    def patch(self, group: str, resource: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a change into an object.

        Raises:
            ApiError: it was not taken.
        """
        path = f"{group}/namespaces/{self._mounted('namespace')}/{resource}/{name}?fieldManager={MANAGER}"
        return self._send("PATCH", path, json.dumps(change))

    def _send(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {self._mounted('token')}",
            "Content-Type": "application/merge-patch+json",
            "Connection": "close",
        }
        server = self._server()
        try:
            server.request(method, f"/{path}", body=body, headers=headers)
            answer = server.getresponse()
            status, content = answer.status, answer.read()
            if status == HTTPStatus.OK:
                found: dict[str, Any] = typed.load(dict[str, Any], content)
                return found
        except (OSError, HTTPException, MalformedError) as error:
            raise ApiError(f"the API server at {server.host}:{server.port}: {error!r}") from error
        finally:
            server.close()
        raise (DeniedError if status in DENIED else ApiError)(f"HTTP status {status}", status)

    def _mounted(self, name: str) -> str:
        """One of the account's files, read anew each time: tokens last an hour."""
        try:
            return (self.account / name).read_text().strip()
        except FileNotFoundError as error:
            raise NoAccountError("no token of a service account is mounted into this pod") from error

    def _server(self) -> HTTPSConnection:
        """A connection for one request: one that was kept might be cut by whatever stands between, unnoticed."""
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if not host:
            raise NoAccountError("no API server here: KUBERNETES_SERVICE_HOST is not set")
        trust = ssl.create_default_context(cafile=self.account / "ca.crt")
        return HTTPSConnection(host, int(port or 443), context=trust, timeout=TIMEOUT)
