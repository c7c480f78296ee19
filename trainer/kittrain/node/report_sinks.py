"""Where the job's report goes: to a file, or to a ConfigMap."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from kittrain.node.configmap import ConfigMapSink


class Sink(Protocol):
    """A destination of reports."""

    @property
    def interval(self) -> float:
        """Seconds between two reports while only the progress changes."""

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the report.

        Raises:
            OSError: it could not be written; the next one may succeed.
        """


@dataclass(frozen=True)
class FileSink:
    """``file:<path>``: a JSON file, replaced atomically."""

    interval: ClassVar[float] = 1.0

    path: Path

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the file."""
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(report))
        scratch.replace(self.path)


def sink_of(address: str | None, warn: Callable[[str], None]) -> Sink | None:
    """The sink that the job spec names; None if it has none, or one of an unknown kind."""
    scheme, _, rest = (address or "").partition(":")
    match scheme:
        case "file" if rest:
            return FileSink(Path(rest))
        case "configmap" if rest:
            return ConfigMapSink(name=rest)
    if address:
        warn(f"warning: report {address!r} is neither file:<path> nor configmap:<name>; status is incomplete")
    return None
