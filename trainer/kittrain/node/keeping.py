"""A copy of what this node prints that outlives it, on a volume that may be slow, full or away: nobody waits for it.

One file for each life of a node, ``<log folder>/node-<index>/<milliseconds>-<pod>.log``: when its agent began, and in
which pod. Each line has its time in front, as kubelet writes it. ``kittrain.kept`` reads them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from kittrain.env import NodeEnv

LIMIT: Final = 8 << 20  # bytes that wait for the volume; beyond them lines are left out
PATIENCE: Final = 5.0  # seconds that a node which ends waits for the volume


def path_of(log_dir: Path, *, node_index: int, pod: str, begun: float) -> Path:
    """Where the copy of one life of a node lies; ``begun`` in Unix seconds."""
    return log_dir / f"node-{node_index}" / f"{begun * 1000:.0f}-{pod}.log"


def keeper_of(node: NodeEnv, say: Callable[[str], None]) -> Keeper | None:
    """The keeper of a node's new life; None where nothing is to be kept."""
    if node.log_dir is None:
        return None
    path = path_of(node.log_dir, node_index=node.node_index, pod=node.pod, begun=time.time())
    return Keeper(path, say=say)


class Keeper:
    """Writes the copy, from a thread of its own.

    Args:
        path: the file; its folder is made.
        say: told once what is wrong with the volume.
        limit: bytes that may wait for it.
    """

    def __init__(self, path: Path, *, say: Callable[[str], None], limit: int = LIMIT) -> None:
        self._path = path
        self._say = say
        self._limit = limit
        self._owner = os.getpid()
        self._change = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes, of these
        self._left_out = 0  # lines, since the last one that waits
        self._ended = False
        self._troubled = False
        self._torn = False  # whether the file ends within a line
        self._thread = threading.Thread(target=self._run, name="kept-log", daemon=True)

    @property
    def lives(self) -> int:
        """How many lives of this node are kept, with this one."""
        return 1 + sum(path != self._path for path in self._path.parent.glob("*-*.log"))

    def start(self) -> None:
        """Begin to write; until then lines wait. A process that has not begun may still be forked from."""
        self._thread.start()

    def put(self, lines: bytes) -> None:
        """Whole lines to be written as soon as the volume takes them. Never waits."""
        if os.getpid() != self._owner:
            return  # a rank that was forked from this process
        with self._change:
            whole = b"".join(b"%s %s" % (_now(), line) for line in lines.splitlines(keepends=True))
            if self._size + len(whole) > self._limit:
                self._left_out += lines.count(b"\n")
                return
            self._mention_gap()
            self._append(whole)

    def close(self, patience: float = PATIENCE) -> None:
        """Write what waits, if that can be done soon."""
        with self._change:
            self._mention_gap()
            self._ended = True
            self._change.notify()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(patience)

    def _mention_gap(self) -> None:
        if self._left_out:
            self._append(
                b"%s [kept]: %d lines are missing here: the volume did not take them\n" % (_now(), self._left_out)
            )
            self._left_out = 0

    def _append(self, whole: bytes) -> None:
        self._waiting.append(whole)
        self._size += len(whole)
        self._change.notify()

    def _run(self) -> None:
        file: BinaryIO | None = None
        while chunk := self._next():
            try:
                file = file or self._open()
                self._write(file, chunk)
            except OSError as error:
                self._torn = True
                with self._change:
                    self._left_out += chunk.count(b"\n")
                if not self._troubled:
                    self._troubled = True
                    self._say(f"warning: no copy of this node's log is kept: {error}")
            finally:
                with self._change:
                    self._size -= len(chunk)
        if file:
            with suppress(OSError):
                file.close()

    def _next(self) -> bytes:
        """What waits, as soon as there is anything; empty when nothing comes any more."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._ended)
            chunk = b"".join(self._waiting)
            self._waiting.clear()
        return chunk

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._path.open("ab", buffering=0)

    def _write(self, file: BinaryIO, chunk: bytes) -> None:
        rest = b"\n" + chunk if self._torn and file.tell() else chunk
        while rest:
            rest = rest[file.write(rest) :]
        self._torn = False


def _now() -> bytes:
    """As kubelet writes it: RFC 3339 in UTC with nanoseconds, always as wide."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ" % rest
