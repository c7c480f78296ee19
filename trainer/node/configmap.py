"""``configmap:<name>``: the report, in a ConfigMap beside the job, through the API server.

With what Kubernetes mounts into each pod that has a service account, and the standard library: the image needs no
client of Kubernetes. Proxies are not asked: the API server is in the cluster.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, ClassVar, Final

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # token, ca.crt and namespace
KEY: Final = "report"  # in the ConfigMap's data
TIMEOUT: Final = 10.0  # seconds, for each step of a request
REFUSALS: Final[Mapping[int, str]] = {
    # Why the API server does not take a report, and what to do about it.
    HTTPStatus.UNAUTHORIZED: "the service account's token is not accepted; is the cluster's clock right?",
    HTTPStatus.FORBIDDEN: "the pod's service account may not; "
    "let its Role `patch` that ConfigMap, or set security.reportStatus: false",
    HTTPStatus.NOT_FOUND: "it is not there; kitctl makes it with the job, and it must not be deleted before",
}


class RefusedError(OSError):
    """The report was not taken; says why, and what would help."""


@dataclass(frozen=True, kw_only=True)
class ConfigMapSink:
    """The key :data:`KEY` of a ConfigMap in the pod's own namespace."""

    # A job's report costs the API server as much as the leases of two of its nodes, which are renewed every 10 s.
    interval: ClassVar[float] = 5.0

    name: str
    account: Path = ACCOUNT

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the report.

        Raises:
            RefusedError: it was not taken.
        """
        patch = json.dumps({"data": {KEY: json.dumps(report)}})
        headers = {
            "Authorization": f"Bearer {self._mounted('token')}",
            "Content-Type": "application/merge-patch+json",
            "Connection": "close",
        }
        path = f"/api/v1/namespaces/{self._mounted('namespace')}/configmaps/{self.name}?fieldManager=trainer.agent"
        server = self._server()
        try:
            server.request("PATCH", path, body=patch, headers=headers)
            status = server.getresponse().status
        except (OSError, HTTPException) as error:
            raise RefusedError(f"the API server at {server.host}:{server.port}: {error!r}") from error
        finally:
            server.close()
        if status != HTTPStatus.OK:
            raise RefusedError(f"the ConfigMap {self.name}: {REFUSALS.get(status, f'HTTP status {status}')}")

    def _mounted(self, name: str) -> str:
        """One of the account's files, read anew each time: tokens last an hour."""
        try:
            return (self.account / name).read_text().strip()
        except FileNotFoundError as error:
            raise RefusedError("no token of a service account is mounted into this pod") from error

    def _server(self) -> HTTPSConnection:
        """A connection for one request: one that was kept might be cut by whatever stands between, unnoticed."""
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if not host:
            raise RefusedError("no API server here: KUBERNETES_SERVICE_HOST is not set")
        trust = ssl.create_default_context(cafile=self.account / "ca.crt")
        return HTTPSConnection(host, int(port or 443), context=trust, timeout=TIMEOUT)
