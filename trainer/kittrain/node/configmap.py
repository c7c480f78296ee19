"""``configmap:<name>``: the report, in a ConfigMap beside the job, through the API server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar, Final

from kittrain.system.apiserver import ApiError, ApiServer

KEY: Final = "report"  # in the ConfigMap's data
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
    server: ApiServer = field(default_factory=ApiServer)

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the report.

        Raises:
            RefusedError: it was not taken.
        """
        try:
            self.server.patch("api/v1", "configmaps", self.name, {"data": {KEY: json.dumps(report)}})
        except ApiError as error:
            why = f"the ConfigMap {self.name}: {REFUSALS.get(error.status, error)}" if error.status else str(error)
            raise RefusedError(why) from error
