"""Forwards the ranks' output to the agent's stdout: whole lines, each prefixed with its rank.

Torch's own tee polls files ten times a second and cuts half-written lines. Here each rank writes into a pipe, and one
thread forwards whole lines in the order of writing.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kittrain.system import console

MAX_LINE: Final = 1 << 16  # bytes; longer lines are split
BAR_SECONDS: Final = 5.0  # between two forwarded states of a progress bar
REMEMBERED: Final = 100  # lines per rank, for its failure message
REMEMBERED_BYTES: Final = 4096  # per line
NO_RANKS: Final[Mapping[int, int]] = {}


class _Stream:
    """One rank's output."""

    def __init__(self, pipe: Path, *, rank: int) -> None:
        os.mkfifo(pipe, 0o600)
        # Also open for writing: so the pipe never reaches EOF, and open() on the other end never blocks.
        self.fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        self._bar_sent = -BAR_SECONDS  # the last progress bar, in ``time.monotonic()``
        self.rank = rank
        self.recent: deque[tuple[float, bytes]] = deque(maxlen=REMEMBERED)  # with its ``time.monotonic()``
        self.tapped: list[str] | None = None  # also receives the forwarded lines

    def forward(self) -> bool:
        """Forward available output; returns whether there was any."""
        try:
            data = os.read(self.fd, MAX_LINE)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        lines = [_shown(line) for line in lines]
        if b"\r" in self._rest:
            lines += self._bar()
        if len(self._rest) > MAX_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._emit(lines)
        return True

    def _bar(self) -> list[bytes]:
        """The state of a progress bar (a line redrawn after carriage returns), at most every BAR_SECONDS."""
        *states, self._rest = self._rest.split(b"\r")
        if not self._rest:
            self._rest = states.pop() + b"\r"  # the line feed may follow
        now = time.monotonic()
        state = next((state for state in reversed(states) if state.strip()), b"")
        if not state or now < self._bar_sent + BAR_SECONDS:
            return []
        self._bar_sent = now
        return [state]

    def close(self) -> None:
        """Forward the rest, including an incomplete line."""
        while self.forward():
            pass
        self._emit([_shown(self._rest)] if self._rest else [])
        os.close(self.fd)

    def _emit(self, lines: list[bytes]) -> None:
        if not lines:
            return
        prefix = f"[rank {self.rank}]: ".encode()
        console.write(b"".join(prefix + line + b"\n" for line in lines))
        now = time.monotonic()
        self.recent += ((now, line[-REMEMBERED_BYTES:]) for line in lines)
        if self.tapped is not None:
            self.tapped += [line.decode(errors="replace") for line in lines]


def _shown(line: bytes) -> bytes:
    """The line as a terminal shows it: the last state of one that is redrawn after carriage returns."""
    if b"\r" not in line:
        return line
    return next((state for state in reversed(line.split(b"\r")) if state.strip()), b"")


class RankLogs:
    """Receives the output of a round's ranks.

    Args:
        scratch: the agent's temporary folder.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._rounds = 0
        self._streams: list[_Stream] = []
        self._recent: dict[int, deque[tuple[float, bytes]]] = {}
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake = os.pipe()

    def begin(self, ranks: Sequence[int], *, kept: Mapping[int, int] = NO_RANKS) -> Path:
        """Start a round; returns a new folder with a pipe ``<rank>.pipe`` for each new rank.

        Args:
            ranks: of this node.
            kept: those that go on from the last round, with their numbers there; they have their pipes.
        """
        self.finish(kept.values())
        self._rounds += 1
        folder = self._scratch / f"round-{self._rounds}"
        folder.mkdir()
        former = {stream.rank: stream for stream in self._streams}
        self._streams = [
            former[kept[rank]] if rank in kept else _Stream(folder / f"{rank}.pipe", rank=rank) for rank in ranks
        ]
        for stream, rank in zip(self._streams, ranks, strict=True):
            stream.rank = rank
        self._recent = {stream.rank: stream.recent for stream in self._streams}
        self._finished.clear()
        self._thread = threading.Thread(target=self._run, name="rank-logs", daemon=True)
        self._thread.start()
        return folder

    def finish(self, kept: Iterable[int] = ()) -> None:
        """Forward the last lines of the ended ranks; those that are kept wait for the next round, and are not heard."""
        if self._thread:
            self._finished.set()
            os.write(self._wake[1], b"\n")  # it may wait for output: others wait for this
            self._thread.join()
            self._thread = None
        going_on = frozenset(kept)
        for stream in self._streams:
            if stream.rank not in going_on:
                stream.close()
        self._streams = [stream for stream in self._streams if stream.rank in going_on]

    def last(self, rank: int, *, within: float = float("inf"), after: float = 0.0) -> list[str]:
        """The last lines of a rank of this or the last round, oldest first.

        Args:
            rank: which one.
            within: seconds in which it has to have printed any of them; else there are none.
            after: when it has to have printed each of them, in ``time.monotonic()``.
        """
        recent = list(self._recent.get(rank, ()))
        if not recent or time.monotonic() > recent[-1][0] + within:
            return []
        return [line.decode(errors="replace") for heard, line in recent if heard >= after]

    @contextlib.contextmanager
    def tapped(self) -> Iterator[dict[int, list[str]]]:
        """Capture the ranks' output within the context: lists of lines by rank, which grow."""
        captured: dict[int, list[str]] = {}
        for stream in self._streams:
            captured[stream.rank] = stream.tapped = []
        try:
            yield captured
        finally:
            for stream in self._streams:
                stream.tapped = None

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream.fd, selectors.EVENT_READ, stream)
            selector.register(self._wake[0], selectors.EVENT_READ)
            while not self._finished.is_set():
                for key, _ in selector.select():
                    if key.data:
                        key.data.forward()
            os.read(self._wake[0], 1)
