"""Copies this node's output to a volume, where it outlives the pod. Writing is asynchronous: the volume may be slow.

Each run of an agent has a file ``<log folder>/node-<index>/<start in ms>-<pod>.log``. Each line starts with its time,
in kubelet's format. ``kittrain.helper.log_copies`` reads them.
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

from kittrain.job.env import NodeEnv

LIMIT: Final = 8 << 20  # bytes buffered for the volume; further lines are dropped
CLOSE_TIMEOUT: Final = 5.0  # seconds to write the rest when the node ends


def log_copy_path(log_dir: Path, *, node_index: int, pod: str, started: float) -> Path:
    """The file for one run of a node's agent; ``started`` in Unix seconds."""
    return log_dir / f"node-{node_index}" / f"{started * 1000:.0f}-{pod}.log"


def open_log_copy(node: NodeEnv, log: Callable[[str], None], *, started: float) -> LogCopy | None:
    """The copy for this run of the agent; None without a log folder.

    Args:
        node: the node's environment.
        log: called with the volume's first error.
        started: when the run began, in Unix seconds. An agent that is started again in its pod continues the run.
    """
    if not node.run.log_dir:
        return None
    path = log_copy_path(Path(node.run.log_dir), node_index=node.node_index, pod=node.pod, started=started)
    return LogCopy(path, log=log)


class LogCopy:
    """Writes the copy from a background thread.

    Args:
        path: the file; its folder is created.
        log: called with the volume's first error.
        limit: bytes that may be buffered.
    """

    def __init__(self, path: Path, *, log: Callable[[str], None], limit: int = LIMIT) -> None:
        self._path = path
        self._log = log
        self._limit = limit
        self._pid = os.getpid()
        self._change = threading.Condition()
        self._buffer: deque[bytes] = deque()
        self._size = 0  # bytes in it
        self._dropped = 0  # lines, since the last buffered one
        self._closed = False
        self._warned = False
        self._torn = False  # whether the file ends in a partial line
        self._thread = threading.Thread(target=self._run, name="log-copy", daemon=True)

    @property
    def agent_runs(self) -> int:
        """How many runs of this node's agent have a copy, including this one."""
        return 1 + sum(path != self._path for path in self._path.parent.glob("*-*.log"))

    def start(self) -> None:
        """Start the thread. Lines are buffered until then, so that the process can still be forked."""
        self._thread.start()

    def write(self, lines: bytes) -> None:
        """Queue whole lines. Never blocks."""
        if os.getpid() != self._pid:
            return  # a rank forked from this process
        with self._change:
            whole = b"".join(b"%s %s" % (_now(), line) for line in lines.splitlines(keepends=True))
            if self._size + len(whole) > self._limit:
                self._dropped += lines.count(b"\n")
                return
            self._mark_gap()
            self._append(whole)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Write the rest, for at most ``timeout`` seconds."""
        with self._change:
            self._mark_gap()
            self._closed = True
            self._change.notify()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(timeout)

    def _mark_gap(self) -> None:
        if self._dropped:
            self._append(b"%s [log copy]: %d lines missing: the volume could not keep up\n" % (_now(), self._dropped))
            self._dropped = 0

    def _append(self, whole: bytes) -> None:
        self._buffer.append(whole)
        self._size += len(whole)
        self._change.notify()

    def _run(self) -> None:
        file: BinaryIO | None = None
        while chunk := self._next():
            try:
                file = file or self._open()
                self._write_to(file, chunk)
            except OSError as error:
                self._torn = True
                with self._change:
                    self._dropped += chunk.count(b"\n")
                if not self._warned:
                    self._warned = True
                    self._log(f"warning: cannot write the copy of this node's log: {error}")
            finally:
                with self._change:
                    self._size -= len(chunk)
        if file:
            with suppress(OSError):
                file.close()

    def _next(self) -> bytes:
        """Wait for data and take the buffer; empty after ``close``."""
        with self._change:
            self._change.wait_for(lambda: self._buffer or self._closed)
            chunk = b"".join(self._buffer)
            self._buffer.clear()
        return chunk

    def _open(self) -> BinaryIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._path.open("ab", buffering=0)

    def _write_to(self, file: BinaryIO, chunk: bytes) -> None:
        rest = b"\n" + chunk if self._torn and file.tell() else chunk
        while rest:
            rest = rest[file.write(rest) :]
        self._torn = False


def _now() -> bytes:
    """Kubelet's format: RFC 3339 in UTC with nanoseconds, of fixed width."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode() + b".%09dZ" % rest
