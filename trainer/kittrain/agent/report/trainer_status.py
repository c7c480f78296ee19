"""Writes the progress to ``status.trainerStatus`` of a TrainJob, via the status server of Kubeflow Trainer.

Trainer sets three variables and mounts a token into the pods of a TrainJob where its feature gate TrainJobStatus is on
(Trainer 2.2 and later). Standard library only.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from kitjob.report import Preparation, Report

URL: Final = "KUBEFLOW_TRAINER_SERVER_URL"
CA: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105  the path of one
TIMEOUT: Final = 10.0  # seconds per socket operation
LONGEST: Final = 64  # characters of a metric's name or value
PROGRESS: Final = (
    *("step", "total_steps", "epoch", "epochs", "loss"),
    *("samples_per_second", "steps_per_second", "snapshot_step"),
)


class StatusRejectedError(OSError):
    """The status server rejected a report, or did not answer."""


@dataclass(frozen=True, kw_only=True)
class TrainerStatusSink:
    """Posts the parts of a report that a TrainJob's status can hold."""

    interval: ClassVar[float] = 5.0  # seconds, as for a ConfigMap

    url: str
    ca: Path
    token: Path

    def tail(self) -> str:
        """Nothing: a status has no place for it."""
        return ""

    def put(self, report: Report, tail: str = "") -> None:  # noqa: ARG002  likewise
        """Replace the progress.

        Raises:
            StatusRejectedError: the server did not take it.
        """
        where = urlsplit(self.url)
        try:
            trust = ssl.create_default_context(cafile=self.ca)
            headers = {"Authorization": f"Bearer {self.token.read_text().strip()}", "Content-Type": "application/json"}
            server = HTTPSConnection(where.hostname or "", where.port, context=trust, timeout=TIMEOUT)
            try:
                server.request("POST", where.path, body=json.dumps(status_of(report)), headers=headers)
                status = server.getresponse().status
            finally:
                server.close()
        except (OSError, HTTPException) as error:
            raise StatusRejectedError(f"status.trainerStatus: {error!r}") from error
        if status != HTTPStatus.OK:
            raise StatusRejectedError(f"status.trainerStatus: HTTP status {status}")

    def last(self) -> Report | None:
        """None: a TrainJob's status is not read."""
        return None

    def prepare(self, node: int, note: Preparation | None) -> None:
        """Does nothing: a TrainJob's status has no field for it."""


def sink_from(environ: Mapping[str, str]) -> TrainerStatusSink | None:
    """The sink of a TrainJob's pod; None in other pods, and where the feature gate is off."""
    if not all(environ.get(name) for name in (URL, CA, TOKEN)):
        return None
    return TrainerStatusSink(url=environ[URL], ca=Path(environ[CA]), token=Path(environ[TOKEN]))


def status_of(report: Report) -> dict[str, Any]:
    """The request for a report. Pure."""
    progress = report.progress
    step, total, left = progress.step, progress.total_steps, progress.eta_seconds
    parts = {
        "progressPercentage": min(100, 100 * step // total) if step is not None and total else None,
        "estimatedRemainingSeconds": max(0, round(left)) if left is not None else None,
        "metrics": [{"name": name[:LONGEST], "value": str(value)[:LONGEST]} for name, value in _metrics(report)],
        "lastUpdatedTime": report.updated,
    }
    return {"trainerStatus": {key: value for key, value in parts.items() if value is not None}}


def _metrics(report: Report) -> Iterator[tuple[str, Any]]:
    """Kittrain's own, under their names in the report, then the script's."""
    progress = report.progress
    own = {"world_size": report.world_size or None, **{name: getattr(progress, name) for name in PROGRESS}}
    yield from ((name, value) for name, value in own.items() if value is not None)
    yield from ((name, value) for name, value in progress.metrics.items() if name not in own)
