"""Writes the report to the job's ConfigMap (``KIT_REPORT=configmap:<name>``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import ClassVar, Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.names import HISTORY_KEY, PREPARING_KEY, REPORT_KEY
from kitjob.report import Preparation, Report
from kittrain.system.apiserver import ApiError, ApiServer

ERRORS: Final[Mapping[int, str]] = {
    # Why the API server rejects a report, and the fix.
    HTTPStatus.UNAUTHORIZED: "the service account's token was rejected; is the cluster's clock right?",
    HTTPStatus.FORBIDDEN: "the pod's service account lacks the right; "
    "let its Role `patch` that ConfigMap, or set security.reportStatus: false",
    HTTPStatus.NOT_FOUND: "it does not exist; kitctl creates it with the job, and kitctl resume makes it anew",
}


class ReportRejectedError(OSError):
    """The API server rejected the report; the message has the reason and the fix."""


@dataclass(frozen=True, kw_only=True)
class ConfigMapSink:
    """Writes keys of a ConfigMap in the pod's namespace: report, tail of the history, and what a node prepares."""

    # The load on the API server equals that of two nodes' leases, which are renewed every 10 s.
    interval: ClassVar[float] = 5.0

    name: str
    server: ApiServer = field(default_factory=ApiServer)

    def put(self, report: Report, tail: str = "") -> None:
        """Replace the report and the tail, in one request.

        Raises:
            ReportRejectedError: it was rejected.
        """
        self._set({REPORT_KEY: typed.dump(report).decode()} | ({HISTORY_KEY: tail} if tail else {}))

    def last(self) -> Report | None:
        """The key's content.

        Raises:
            ReportRejectedError: the API server did not return it.
        """
        return parsed(self._get(REPORT_KEY))

    def tail(self) -> str:
        """The other key's content.

        Raises:
            ReportRejectedError: the API server did not return it.
        """
        return self._get(HISTORY_KEY)

    def prepare(self, node: int, note: Preparation | None) -> None:
        """Replace or remove the node's key.

        Raises:
            ReportRejectedError: it was rejected.
        """
        self._set({f"{PREPARING_KEY}{node}": None if note is None else typed.dump(note).decode()})

    def _get(self, key: str) -> str:
        try:
            found = self.server.get("api/v1", "configmaps", self.name)
        except ApiError as error:
            raise ReportRejectedError(f"the ConfigMap {self.name}: {error}") from error
        return (found.get("data") or {}).get(key) or ""

    def _set(self, data: Mapping[str, str | None]) -> None:
        try:
            self.server.patch("api/v1", "configmaps", self.name, {"data": dict(data)})
        except ApiError as error:
            why = f"the ConfigMap {self.name}: {ERRORS.get(error.status, error)}" if error.status else str(error)
            raise ReportRejectedError(why) from error


def parsed(text: str | bytes) -> Report | None:
    """A report's JSON; None if it is none."""
    try:
        report: Report = typed.load(Report, text.encode() if isinstance(text, str) else text)
    except MalformedError:
        return None
    return report
