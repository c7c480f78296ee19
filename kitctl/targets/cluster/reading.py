"""Reading the logs of a job's pods: those that are there, or all as they come, from before the first one exists.

A log request ends when the pod does, and every few hours for no reason; so each pod is asked again, from the time of
its last line on, until it is gone or has ended.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kitctl.errors import KitError, NotFound, Unavailable
from kitctl.logs import Line, parse
from kitctl.targets.cluster import facts, lives
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.lives import Read
from kitctl.targets.cluster.resources import Object

POLL_SECONDS: Final = 1.0
BATCH_SECONDS: Final = 0.1


def pod_lines(api: Api, pod: Object) -> Iterator[Line]:
    """What one pod has logged; nothing if it is gone, or its container has not started."""
    where = pod["metadata"]
    with suppress(NotFound):
        for text in api.lines(where["namespace"], where["name"]):
            yield parse(text, facts.index(pod) or 0)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A job whose log is followed.

    Attributes:
        pods: those that are there.
        lost: how many lives of its nodes have no pod of these any more.
        over: whether it has ended.
        kept: their lines, given how many there are and what was read from pods.
    """

    pods: Callable[[], list[Object]]
    lost: Callable[[list[Object]], int]
    over: Callable[[], bool]
    kept: Callable[[int, list[Read]], Iterator[Line]]


def lines(api: Api, source: Source) -> list[Iterator[Line]]:
    """What was logged so far: a stream for each pod that still has its log, and one for all others."""
    pods = source.pods()
    told = [pod for pod in pods if facts.has_logs(pod) and not facts.loses_logs(pod)]
    streams = [pod_lines(api, pod) for pod in told]
    if lost := source.lost(pods):
        streams.append(source.kept(lost, [lives.of_pod(pod) for pod in told]))
    return streams


def follow(api: Api, source: Source) -> Iterator[list[Line]]:
    """Batches of new lines until the job is over and everybody's last line was read; a batch may be empty.

    First comes what pods that are gone had printed, last what pods that went meanwhile had not yet told.
    """
    arriving: queue.SimpleQueue[Line] = queue.SimpleQueue()
    readers: dict[str, _Reader] = {}
    pods = source.pods()
    lost = source.lost(pods)
    if lost:
        yield [*source.kept(lost, [lives.of_pod(pod) for pod in pods if facts.has_logs(pod)])]
    ended, next_look = False, 0.0
    while True:
        if time.monotonic() >= next_look:
            ended = source.over()
            _begin_reading(api, pods := source.pods(), readers, arriving)
            next_look = time.monotonic() + POLL_SECONDS
        batch = _arrived(arriving)
        yield batch
        if ended and not batch and not any(reader.is_alive() and not reader.silent for reader in readers.values()):
            break
    cut = sum(not reader.whole for reader in readers.values())
    if count := max(cut, source.lost(pods) - lost) if readers else 0:
        yield [*source.kept(count, [reader.read for reader in readers.values()])]


def _begin_reading(
    api: Api, pods: list[Object], readers: dict[str, _Reader], arriving: queue.SimpleQueue[Line]
) -> None:
    """Read each pod that has something to say, once: a pod that replaces another may have its name."""
    for pod in filter(facts.has_logs, pods):
        if (uid := pod["metadata"]["uid"]) not in readers:
            readers[uid] = _Reader(api, pod, arriving)
            readers[uid].start()


class _Reader(threading.Thread):
    """Follows one pod's log to its end."""

    def __init__(self, api: Api, pod: Object, arriving: queue.SimpleQueue[Line]) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._namespace = pod["metadata"]["namespace"]
        self._pod = pod["metadata"]["name"]
        self._index = facts.index(pod) or 0
        self._found = pod
        self._arriving = arriving
        self._last: Line | None = None
        self.silent = False  # whether nobody answers for the pod, such as the kubelet of a machine that is off
        self.whole = False  # whether all that the pod has printed was read

    @property
    def read(self) -> Read:
        """What was read."""
        return lives.of_pod(self._found, whole=self.whole, last=self._last)

    def run(self) -> None:
        """Ask again until the log has ended."""
        while not self._read():
            time.sleep(POLL_SECONDS)

    def _read(self) -> bool:
        """Read until the connection ends; whether the log has, too."""
        seen = self._last.time if self._last else ""
        since = {"sinceTime": f"{seen[:19]}Z"} if seen else {}  # whole seconds: some lines come again
        try:
            for text in self._api.lines(self._namespace, self._pod, follow="true", **since):
                line = parse(text, self._index)
                self.silent = False
                if line.time > seen:
                    self._last = line
                    self._arriving.put(line)
            pod = self._api.find("Pod", self._namespace, self._pod)
        except Unavailable:
            self.silent = True
            return False
        except KitError:
            return True  # the pod is gone, or nobody may read it any more
        there = pod is not None and pod["metadata"]["uid"] == self._found["metadata"]["uid"]
        self.whole = there and not facts.running(pod or {})
        return not there or self.whole


def _arrived(arriving: queue.SimpleQueue[Line]) -> list[Line]:
    """What has arrived, after waiting a moment for the first."""
    batch = []
    with suppress(queue.Empty):
        batch.append(arriving.get(timeout=BATCH_SECONDS))
        while True:
            batch.append(arriving.get_nowait())
    return batch
