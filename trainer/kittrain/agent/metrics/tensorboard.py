"""Writes TensorBoard events of the library's loop, if a job asks for them: a point a second, by torchtitan's tags.

The agent of rank 0 writes them, from a thread: nothing is added to a step, and no rank imports anything. Each start of
the ranks has a file of its own, which says where it resumed: TensorBoard hides what was written beyond that.

Why: decision 57.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from kitjob.report import RankProgress
from kitjob.timeline import Line, Row
from kittrain.job.env import NodeEnv
from kittrain.system.backlog import Backlog

FOLDER: Final = "tensorboard"  # among the run's history, with which it is kept and deleted
QUEUED: Final = 1024  # points that wait for the volume; the oldest are dropped
DENSE: Final = 4096  # so many points are all written; then half as many in twice the time, and so on: 10 MB a month
METRICS: Final = 32  # of the script, at most


class Point(NamedTuple):
    """What is known of a moment; ``resumed`` is the step that these ranks resumed from, with their first point."""

    resumed: int | None
    step: int
    time: float
    values: Mapping[str, float]


class TensorBoard:
    """Listens to a node's history. Writes nothing on nodes without rank 0, and of a loop of the script's own.

    Args:
        node: the node's environment.
        log: is told where the events are, or once why there are none.
        now: the time of the node's history.
    """

    def __init__(self, node: NodeEnv, log: Callable[[str], None], now: Callable[[], float] = time.time) -> None:
        self._folder = node.history_folder and node.history_folder / FOLDER
        self._packages = node.packages
        self._log = log
        self._now = now
        self._row: Row | None = None
        self._start: float | None = None  # of the ranks: when they reported their first step
        self._step = 0
        self._seen = 0  # points
        self._written: dict[str, float] = {}  # the script's metrics
        self._points = Backlog[Point](QUEUED)
        self._thread: threading.Thread | None = None

    def add(self, line: Line) -> None:
        """Take a line of the history."""
        if isinstance(line, Row):
            self._row = line

    def progress(self, known: RankProgress) -> None:
        """Take what rank 0 has reported of its last step."""
        anew = known.resumed_at != self._start
        if known.of_own_loop or known.step is None or known.resumed_at is None or not (anew or known.step > self._step):
            return
        self._start, self._step = known.resumed_at, known.step
        self._seen += 1
        if anew or self._seen % stride(self._seen) == 0:
            resumed = known.resumed_from or 0
            values = {**_loop(known), **_times(self._row), **self._changed(known.metrics)}
            self._put(Point(resumed if anew else None, known.step, self._now(), values))

    def close(self, timeout: float) -> None:
        """Write the rest, for so many seconds at most."""
        self._points.close()
        if self._thread:
            self._thread.join(timeout)

    def _changed(self, metrics: Mapping[str, float | None]) -> dict[str, float]:
        """The script's metrics that it has set anew."""
        known = [(name, value) for name, value in metrics.items() if value is not None][:METRICS]
        found = {name: value for name, value in known if self._written.get(name) != value}
        self._written |= found
        return {f"metrics/{name}": value for name, value in found.items()}

    def _put(self, point: Point) -> None:
        self._points.put(point)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Write points until the node ends. Errors must not end it, and cost no more than the events."""
        try:
            records = self._records()
        except Exception as error:  # noqa: BLE001  whatever the package raises as it is imported
            self._log(f"warning: no TensorBoard events: {error}")
            return
        file: _File | None = None
        warned = False
        while points := self._points.wait():
            try:
                for point in points:
                    if file is None or point.resumed is not None:
                        file = _File(records, point)
                    file.write(point)
                assert file is not None
                file.flush()
            except OSError as error:  # a full disk: what comes later may be written, to another file
                file = None
                if not warned:
                    warned = True
                    self._log(f"warning: cannot write TensorBoard events: {error}")

    def _records(self) -> _Records:
        """What writes to the run's folder.

        Raises:
            Exception: it cannot, with the reason.
        """
        if self._folder is None:
            raise FileNotFoundError("the job keeps no snapshots, next to which they would be (snapshots.enabled)")
        if self._packages:
            sys.path.append(str(self._packages))  # behind all that the agent has itself
        records = _Records(self._folder)
        self._log(f"TensorBoard events in {self._folder}")
        return records


class _Records:
    """Makes records of points, with the installed package.

    Raises:
        ImportError: it is not installed, or not one that has these names.
    """

    def __init__(self, folder: Path) -> None:
        try:
            # Not its writer, which imports TensorFlow where there is one.
            from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415
            from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
        except ImportError as error:
            raise ImportError(f"{error}; add tensorboard to the image, or to the job's requirements") from error
        self.folder = folder
        self.event: Any = event_pb2.Event
        self.start: Any = event_pb2.SessionLog.START
        self.summary: Any = summary_pb2.Summary
        self.writer: Any = RecordWriter
        self.files = 0

    def new_file(self, moment: float) -> IO[bytes]:
        """A file that TensorBoard reads after all that began before."""
        self.files += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(moment):010d}.{socket.gethostname()}.{os.getpid()}.{self.files}"
        return (self.folder / name).open("xb", buffering=1 << 16)


class _File:
    """The events since a start of the ranks."""

    def __init__(self, records: _Records, first: Point) -> None:
        self._records = records
        self._file = records.new_file(first.time)
        self._writer = records.writer(self._file)
        self._write(first.time, file_version="brain.Event:2")
        if first.resumed is not None:
            mark = records.event(wall_time=first.time, step=first.resumed + 1)
            mark.session_log.status = records.start
            self._writer.write(mark.SerializeToString())

    def write(self, point: Point) -> None:
        """Add a point."""
        make = self._records.summary
        values = [make.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        self._write(point.time, step=point.step, summary=make(value=values))

    def flush(self) -> None:
        """Hand it to the operating system."""
        self._file.flush()

    def _write(self, moment: float, **fields: Any) -> None:
        self._writer.write(self._records.event(wall_time=moment, **fields).SerializeToString())


def stride(seen: int) -> int:
    """Of so many points each how manieth is written: the longer a run, the fewer."""
    return int(2 ** (seen // DENSE).bit_length())


def _loop(known: RankProgress) -> dict[str, float]:
    """What the loop reports, as torchtitan calls it; of samples of all ranks, where that has tokens of one."""
    found = {
        "loss_metrics/global_avg_loss": known.loss,
        "throughput(samples/s)": known.samples_per_second,
        "epoch": known.epoch,
    }
    return {tag: float(value) for tag, value in found.items() if value is not None}


def _times(row: Row | None) -> dict[str, float]:
    """Seconds of a step, and of its wait for data, in the last second or so."""
    if row is None or not row.steps or row.seconds <= 0:
        return {}
    waited = row.phases.get("DATA", 0.0)
    return {
        "time_metrics/end_to_end(s)": row.seconds / row.steps,
        "time_metrics/data_loading(s)": waited / row.steps,
        "time_metrics/data_loading(%)": 100 * waited / row.seconds,
        "world_size": float(row.world),
    }
