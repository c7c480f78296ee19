"""Requests to the cluster's API server, as the service account that Kubernetes mounts into the pod.

Uses the standard library, so the image needs no Kubernetes client. Ignores proxies: the server is in the cluster.
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

from kitjob import typed
from kitjob.decoders import MalformedError

T = TypeVar("T")

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # token, ca.crt and namespace
TIMEOUT: Final = 10.0  # seconds per socket operation
RETRY_TIMEOUT: Final = 60.0  # seconds to retry for
RETRY_INTERVAL: Final = 1.0  # seconds
DENIED: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
FIELD_MANAGER: Final = "kittrain.agent"


class ApiError(OSError):
    """A request to the API server failed.

    Attributes:
        status: the HTTP status; 0 if there was no answer.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class NoAccountError(ApiError):
    """No service account token is mounted, or this is not a pod."""


class DeniedError(ApiError):
    """The service account lacks the right, or the object does not exist. Retrying does not help."""


def retry_request(act: Callable[[], T]) -> T:
    """Return what ``act`` returns; retry it on errors other than those below.

    Raises:
        NoAccountError: there is no service account.
        DeniedError: the server denied the request.
        ApiError: it still failed after :data:`RETRY_TIMEOUT`.
    """
    deadline = time.monotonic() + RETRY_TIMEOUT
    while True:
        try:
            return act()
        except ApiError as error:
            if isinstance(error, NoAccountError | DeniedError) or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_INTERVAL)


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """The API server, for objects in the pod's namespace."""

    account: Path = ACCOUNT

    def get(self, group: str, resource: str, name: str) -> dict[str, Any]:
        """Read an object; ``group`` is the URL prefix, such as ``api/v1``.

        Raises:
            ApiError: it could not be read.
        """
        return self._send("GET", f"{group}/namespaces/{self._mounted('namespace')}/{resource}/{name}")

    def node(self, name: str) -> dict[str, Any]:
        """Read a Kubernetes node, which is in no namespace.

        Raises:
            ApiError: it could not be read.
        """
        return self._send("GET", f"api/v1/nodes/{name}")

    def patch(self, group: str, resource: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a JSON merge patch to an object.

        Raises:
            ApiError: it could not be patched.
        """
        path = f"{group}/namespaces/{self._mounted('namespace')}/{resource}/{name}?fieldManager={FIELD_MANAGER}"
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
        """One of the account's files, read for each request: tokens expire after an hour."""
        try:
            return (self.account / name).read_text().strip()
        except FileNotFoundError as error:
            raise NoAccountError("no service account token is mounted into this pod") from error

    def _server(self) -> HTTPSConnection:
        """A new connection for each request: an idle one may be dropped on the way without notice."""
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if not host:
            raise NoAccountError("no API server: KUBERNETES_SERVICE_HOST is not set")
        trust = ssl.create_default_context(cafile=self.account / "ca.crt")
        return HTTPSConnection(host, int(port or 443), context=trust, timeout=TIMEOUT)
