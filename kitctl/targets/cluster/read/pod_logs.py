"""Reads the logs of a job's pods: what they have logged so far, or all lines as they arrive.

A log request ends with the pod, and every few hours without a reason. So a reader repeats it, from the time of its
last line on, until the pod is deleted or has ended.

A kubelet begins a new file every 10 MiB. One that is still reading the old file then does not notice, and sends nothing
any more: such a request is repeated after a minute of silence, and once more after the end of the pod.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from kitctl.base.errors import KitError, NotFound, Unavailable
from kitctl.state.logs import Line, parse
from kitctl.targets.cluster.connection.api import Api, Silent
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import agent_runs, job_facts
from kitctl.targets.cluster.read.agent_runs import ReadLog

POLL_SECONDS: Final = 1.0
BATCH_SECONDS: Final = 0.1
MOST_WAITING: Final = 64  # lists of lines that readers may be ahead by: then pods wait, and memory stays as it is
# What a kubelet writes into a log that it cannot read on, for example since it has too many inotify watches.
KUBELET_ERRORS: Final = ("failed to create fsnotify watcher", "failed to watch directory", "failed to read log file")
TRIES: Final = 2  # to read a log whose connection breaks, without a further line


def pod_lines(api: Api, pod: Object) -> Iterator[Line]:
    """The log of one pod; empty if it is deleted, or its container has not started.

    Where the connection breaks, it is read on from its last line.

    Raises:
        Unavailable: it broke ``TRIES`` times without a further line.
    """
    where, container, index = pod["metadata"], job_facts.container_name(pod), job_facts.node_index(pod) or 0
    place, failures = _Place(), 0
    with suppress(NotFound):
        while failures < TRIES:
            try:
                for text in api.lines(where["namespace"], where["name"], container, **place.since()):
                    line = parse(text, index)
                    if place.pass_by(line):
                        failures = 0
                        yield line
            except Unavailable:
                failures += 1
                if failures == TRIES:
                    raise
            else:
                return


class _Place:
    """How far a log was read. Several lines may have one time, so those of the last one are counted."""

    def __init__(self) -> None:
        self._time, self._count = "", 0
        self._from, self._skipped = "", 0

    def since(self) -> dict[str, str]:
        """The query for the log from there on: of whole seconds, so some lines arrive twice."""
        self._from, self._skipped = self._time, self._count
        return {"sinceTime": f"{self._from[:19]}Z"} if self._from else {}

    def pass_by(self, line: Line) -> bool:
        """Whether a line is new; those that were read before are not."""
        if self._from and (line.time < self._from or (line.time == self._from and self._skipped)):
            self._skipped -= line.time == self._from
            return False
        if line.time:
            self._count = self._count + 1 if line.time == self._time else 1
            self._time = line.time
        return True


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a job's lines come from.

    Attributes:
        pods: lists the pods that exist.
        missing: counts the runs of agents whose lines none of these pods holds.
        ended: whether the job has ended.
        copies: reads these lines, given their number and what was read from pods.
    """

    pods: Callable[[], list[Object]]
    missing: Callable[[list[Object]], int]
    ended: Callable[[], bool]
    copies: Callable[[int, list[ReadLog]], Iterator[Line]]


def lines(api: Api, source: Source) -> list[Iterator[Line]]:
    """What was logged so far: a stream for each pod that still has its log, and one for all others."""
    pods = source.pods()
    readable = [pod for pod in pods if job_facts.has_logs(pod) and not job_facts.loses_logs(pod)]
    streams = [pod_lines(api, pod) for pod in readable]
    if missing := source.missing(pods):
        streams.append(source.copies(missing, [agent_runs.read_log(pod) for pod in readable]))
    return streams


def follow(api: Api, source: Source) -> Iterator[list[Line]]:
    """Batches of new lines until the job has ended and the last line of each pod was read; a batch may be empty.

    First come the lines of pods that were deleted before, last the unread lines of pods that were deleted meanwhile.
    Who closes this before its end leaves no reader behind: each ends with what it reads next.
    """
    readers = _Readers(api)
    missing, read = _missing(source)
    if missing:
        yield [*source.copies(missing, read)]
    try:
        yield from _followed(source, readers)
    finally:
        readers.stopped.set()
    cut = sum(not reader.whole for reader in readers)
    if count := max(cut, _missing(source)[0] - missing) if readers.by_uid else 0:
        yield [*source.copies(count, [reader.read for reader in readers])]


def _followed(source: Source, readers: _Readers) -> Iterator[list[Line]]:
    """Batches of what pods log, until the job has ended and each that answers was read to its end."""
    ended, next_poll = False, 0.0
    while True:
        if time.monotonic() >= next_poll:
            ended = source.ended()
            readers.start(source.pods())
            next_poll = time.monotonic() + POLL_SECONDS
        batch = _receive(readers.arriving)
        yield batch
        for reader in readers:
            if reader.error:
                raise reader.error
        if ended and not batch and not any(reader.is_alive() and not reader.silent for reader in readers):
            return


def _missing(source: Source) -> tuple[int, list[ReadLog]]:
    """How many runs' lines no pod holds, and the logs that pods hold."""
    pods = source.pods()
    return source.missing(pods), [agent_runs.read_log(pod) for pod in pods if job_facts.has_logs(pod)]


class _Readers:
    """A reader for each pod that has logs, by uid: a pod that replaces another one may have its name.

    Attributes:
        by_uid: the readers.
        arriving: what they have read.
        stopped: whether nobody wants it any more.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.by_uid: dict[str, _Reader] = {}
        self.arriving: queue.Queue[list[Line]] = queue.Queue(MOST_WAITING)
        self.stopped = threading.Event()

    def __iter__(self) -> Iterator[_Reader]:
        return iter(self.by_uid.values())

    def start(self, pods: list[Object]) -> None:
        """Start those of new pods."""
        for pod in filter(job_facts.has_logs, pods):
            if (uid := pod["metadata"]["uid"]) not in self.by_uid:
                self.by_uid[uid] = _Reader(self._api, pod, self.arriving, self.stopped)
                self.by_uid[uid].start()


class _Reader(threading.Thread):
    """Follows one pod's log to its end."""

    def __init__(self, api: Api, pod: Object, arriving: queue.Queue[list[Line]], stopped: threading.Event) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._namespace = pod["metadata"]["namespace"]
        self._pod = pod["metadata"]["name"]
        self._container = job_facts.container_name(pod)
        self._index = job_facts.node_index(pod) or 0
        self._uid = pod["metadata"]["uid"]
        self._log = agent_runs.read_log(pod)
        self._arriving = arriving
        self._stopped = stopped
        self._last: Line | None = None
        self._place = _Place()
        self.silent = False  # whether the pod's kubelet does not answer, for example on a node that is off
        self.whole = False  # whether the pod's whole log was read
        self.error: Exception | None = None  # with which it has ended, and which nothing here expects

    @property
    def read(self) -> ReadLog:
        """What was read."""
        return replace(self._log, whole=self.whole, last=self._last)

    def run(self) -> None:
        """Read until the log has ended, or nobody wants it any more."""
        try:
            while not (self._read() or self._stopped.wait(POLL_SECONDS)):
                pass
        except Exception as error:  # noqa: BLE001 - who follows the logs raises it
            self.error = error

    def _read(self) -> bool:
        """Read until the connection ends; returns whether the log has ended as well."""
        try:
            self._take(follow="true")
            if self._stopped.is_set():
                return True
            pod = self._api.find("Pod", self._namespace, self._pod)
            exists = pod is not None and pod["metadata"]["uid"] == self._uid
            if exists and not job_facts.is_running(pod or {}):
                self._take()  # what a newer file has
                self.whole = True
        except Silent:
            return False
        except Unavailable:
            self.silent = True
            return False
        except KitError:
            return True  # the pod is deleted, or may not be read any more
        return not exists or self.whole

    def _take(self, **query: str) -> None:
        """Read what is new, to the end of a request."""
        query |= self._place.since()
        for texts in self._api.arriving_lines(self._namespace, self._pod, self._container, **query):
            if self._stopped.is_set():
                return
            self.silent = False
            read = (parse(text, self._index) for text in texts if not text.startswith(KUBELET_ERRORS))
            lines = [line for line in read if self._place.pass_by(line)]
            if lines:
                self._last = lines[-1]
                self._put(lines)

    def _put(self, lines: list[Line]) -> None:
        """Hand lines over, once there is room."""
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._arriving.put(lines, timeout=POLL_SECONDS)
                return


def _receive(arriving: queue.Queue[list[Line]]) -> list[Line]:
    """The lines that have arrived, after waiting a moment for the first one."""
    batch: list[Line] = []
    with suppress(queue.Empty):
        batch += arriving.get(timeout=BATCH_SECONDS)
        for _ in range(MOST_WAITING):  # then they are printed, however fast others come
            batch += arriving.get_nowait()
    return batch
