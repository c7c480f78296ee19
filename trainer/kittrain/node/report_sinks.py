"""Where the job's report goes: to a file or a ConfigMap, and to the status of a TrainJob."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from kittrain.node import trainer_status
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


@dataclass(frozen=True)
class Sinks:
    """Several sinks; one that fails does not keep the report from the others."""

    sinks: tuple[Sink, ...]

    @property
    def interval(self) -> float:
        """The shortest one."""
        return min(sink.interval for sink in self.sinks)

    def put(self, report: Mapping[str, Any]) -> None:
        """Replace the report in each.

        Raises:
            OSError: of the first one that failed.
        """
        failures = []
        for sink in self.sinks:
            try:
                sink.put(report)
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]


def sink_of(
    address: str | None, warn: Callable[[str], None], environ: Mapping[str, str] = MappingProxyType({})
) -> Sink | None:
    """The sinks that the job spec and the environment name; None if they name none."""
    found = tuple(sink for sink in (_named(address, warn), trainer_status.sink_from(environ)) if sink)
    return found[0] if len(found) == 1 else Sinks(found) if found else None


def _named(address: str | None, warn: Callable[[str], None]) -> Sink | None:
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
