"""Where the job's report goes: to a file or a ConfigMap, and to the status of a TrainJob."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Protocol

from kitjob import typed
from kitjob.record import Record
from kitjob.report import Preparation, Report
from kittrain.agent.report import trainer_status
from kittrain.agent.report.configmap import ConfigMapSink, parsed


class Sink(Protocol):
    """A destination of reports."""

    @property
    def interval(self) -> float:
        """Seconds between two reports while only the progress changes."""

    def put(self, report: Report, tail: str = "") -> None:
        """Replace the report, and the tail of the run's history if it is given.

        Raises:
            OSError: it could not be written; the next one may succeed.
        """

    def tail(self) -> str:
        """The tail that is there, perhaps of a former run; empty: there is none, or it is kept elsewhere.

        Raises:
            OSError: the destination did not answer.
        """

    def last(self) -> Report | None:
        """The report that is there, perhaps of a former run; None: there is none, or it cannot be read.

        Raises:
            OSError: the destination did not answer.
        """

    def prepare(self, node: int, note: Preparation | None) -> None:
        """Replace what a node says of itself before it joins; None: nothing any more.

        Raises:
            OSError: it could not be written.
        """


@dataclass(frozen=True)
class FileSink:
    """``file:<path>``: a JSON file, replaced atomically; ``preparing-<node>.json`` next to it is a node's own."""

    interval: ClassVar[float] = 1.0

    path: Path

    def put(self, report: Report, tail: str = "") -> None:  # noqa: ARG002  the history has files of its own
        """Replace the file."""
        _replace(self.path, report)

    def tail(self) -> str:
        """Nothing."""
        return ""

    def last(self) -> Report | None:
        """The file's content."""
        return parsed(self.path.read_bytes()) if self.path.exists() else None

    def prepare(self, node: int, note: Preparation | None) -> None:
        """Replace or remove the node's file."""
        path = self.path.with_name(f"preparing-{node}.json")
        if note is None:
            path.unlink(missing_ok=True)
        else:
            _replace(path, note)


@dataclass(frozen=True)
class Sinks:
    """Several sinks; an error of one does not affect the others."""

    sinks: tuple[Sink, ...]

    @property
    def interval(self) -> float:
        """The shortest one."""
        return min(sink.interval for sink in self.sinks)

    def put(self, report: Report, tail: str = "") -> None:
        """Replace the report in each.

        Raises:
            OSError: of the first one that failed.
        """
        self._each(lambda sink: sink.put(report, tail))

    def tail(self) -> str:
        """Of the first sink that has one.

        Raises:
            OSError: that sink, or one before it, did not answer.
        """
        return next((tail for sink in self.sinks if (tail := sink.tail())), "")

    def last(self) -> Report | None:
        """Of the first sink that has one.

        Raises:
            OSError: that sink, or one before it, did not answer.
        """
        return next((report for sink in self.sinks if (report := sink.last())), None)

    def prepare(self, node: int, note: Preparation | None) -> None:
        """Replace what a node says of itself in each.

        Raises:
            OSError: of the first one that failed.
        """
        self._each(lambda sink: sink.prepare(node, note))

    def _each(self, act: Callable[[Sink], None]) -> None:
        failures = []
        for sink in self.sinks:
            try:
                act(sink)
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


def _replace(path: Path, content: Record) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(typed.dump(content))
    scratch.replace(path)


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
