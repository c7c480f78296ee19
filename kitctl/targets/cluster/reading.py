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
from typing import Final

from kitctl.errors import KitError, NotFound, Unavailable
from kitctl.logs import Line, parse
from kitctl.targets.cluster import companion, facts
from kitctl.targets.cluster.api import Api, whole_lines
from kitctl.targets.cluster.resources import Object

POLL_SECONDS: Final = 1.0
BATCH_SECONDS: Final = 0.1


def pod_lines(api: Api, pod: Object) -> Iterator[Line]:
    """What one pod has logged; nothing if it is gone, or its container has not started."""
    where = pod["metadata"]
    with suppress(NotFound):
        for text in api.lines(where["namespace"], where["name"]):
            yield parse(text, facts.index(pod) or 0)


def kept_lines(api: Api, job: Object, folder: str) -> Iterator[Line]:
    """What the agents kept beside the snapshots, rank by rank: when it was said nobody knows any more."""
    for text in whole_lines(companion.output(api, job, ("python", "-P", "-m", "trainer.kept", folder))):
        yield Line("", 0, text)


def follow(api: Api, pods: Callable[[], list[Object]], over: Callable[[], bool]) -> Iterator[list[Line]]:
    """Batches of new lines until the job is over and every pod's last line was read; a batch may be empty."""
    arriving: queue.SimpleQueue[Line] = queue.SimpleQueue()
    readers: dict[str, _Reader] = {}
    ended, next_look = False, 0.0
    while True:
        if time.monotonic() >= next_look:
            ended = over()
            for pod in filter(facts.has_logs, pods()):
                name = pod["metadata"]["name"]
                if name not in readers:
                    readers[name] = _Reader(api, pod, arriving)
                    readers[name].start()
            next_look = time.monotonic() + POLL_SECONDS
        batch = _arrived(arriving)
        yield batch
        if ended and not batch and not any(reader.is_alive() for reader in readers.values()):
            return


class _Reader(threading.Thread):
    """Follows one pod's log to its end."""

    def __init__(self, api: Api, pod: Object, arriving: queue.SimpleQueue[Line]) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._namespace = pod["metadata"]["namespace"]
        self._pod = pod["metadata"]["name"]
        self._index = facts.index(pod) or 0
        self._arriving = arriving
        self._last = ""

    def run(self) -> None:
        """Ask again until the log has ended."""
        while not self._read():
            time.sleep(POLL_SECONDS)

    def _read(self) -> bool:
        """Read until the connection ends; whether the log has, too."""
        since = {"sinceTime": f"{self._last[:19]}Z"} if self._last else {}  # whole seconds: some lines come again
        seen = self._last
        try:
            for text in self._api.lines(self._namespace, self._pod, follow="true", **since):
                line = parse(text, self._index)
                if line.time > seen:
                    self._last = line.time
                    self._arriving.put(line)
            pod = self._api.find("Pod", self._namespace, self._pod)
        except Unavailable:
            return False
        except KitError:
            return True  # the pod is gone, or nobody may read it any more
        return pod is None or not facts.running(pod)


def _arrived(arriving: queue.SimpleQueue[Line]) -> list[Line]:
    """What has arrived, after waiting a moment for the first."""
    batch = []
    with suppress(queue.Empty):
        batch.append(arriving.get(timeout=BATCH_SECONDS))
        while True:
            batch.append(arriving.get_nowait())
    return batch
