"""Reads the logs of a job's nodes, from the first line on or as they grow, in chunks."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kitctl.state.logs import Line, parse
from kitctl.targets.local.folder import JobFolder, NodeFolder

POLL_SECONDS = 0.1
CHUNK_BYTES = 1 << 20


def node_lines(node: NodeFolder) -> Iterator[Line]:
    """The logs of all attempts of a node, in order."""
    for attempt in range(1, node.attempts + 1):
        with node.log(attempt).open("rb") as file:
            for raw in file:
                yield parse(raw.decode(errors="replace"), node.index)


class Cursor:
    """How far a node's logs have been read."""

    def __init__(self, node: NodeFolder) -> None:
        self.node = node
        self.attempt = 1
        self.offset = 0

    def read_new(self) -> list[Line]:
        """The complete lines since the last call; empty if there are none yet."""
        last = self.node.attempts
        while self.attempt <= last:
            with self.node.log(self.attempt).open("rb") as file:
                file.seek(self.offset)
                data = file.read(CHUNK_BYTES)
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                self.offset += len(whole)
                texts = whole.decode(errors="replace").removesuffix("\n").split("\n")
                return [parse(text, self.node.index) for text in texts]
            if self.attempt == last:
                return []
            self.attempt, self.offset = self.attempt + 1, 0
        return []


def follow(folder: JobFolder) -> Iterator[list[Line]]:
    """Batches of new lines until the job has ended, or is suspended and nothing runs; a batch may be empty."""
    cursors: dict[int, Cursor] = {}
    while True:
        nodes = folder.nodes()
        ended = bool(folder.result) or (folder.desired.suspended and not any(node.alive() for node in nodes))
        for node in nodes:
            cursors.setdefault(node.index, Cursor(node))
        batch = [line for cursor in cursors.values() for line in cursor.read_new()]
        yield batch
        if ended and not batch:
            return
        if not batch:
            time.sleep(POLL_SECONDS)
