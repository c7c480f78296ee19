"""What the ranks print, as it leaves the node: whole lines, each with its rank in front.

Torch's own tee polls files ten times a second and cuts lines that it catches half written; here every rank writes
into a pipe, and one thread passes on whole lines in the order in which they were written.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kittrain.system import console

LONGEST_LINE: Final = 1 << 16  # bytes; a longer one is passed on in pieces
BAR_SECONDS: Final = 1.0  # between two states of a progress bar that are passed on
REMEMBERED: Final = 100  # lines of each rank, for whoever asks why it ended
REMEMBERED_BYTES: Final = 4096  # of each


class _Stream:
    """One rank's output."""

    def __init__(self, pipe: Path, *, rank: int) -> None:
        os.mkfifo(pipe, 0o600)
        # Open for writing too: the pipe then never ends, and open() of the other end never waits.
        self.fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._prefix = f"[rank {rank}]: ".encode()
        self._rest = b""
        self._drawn = -BAR_SECONDS  # when a line that is drawn again and again was passed on, in ``time.monotonic()``
        self.rank = rank
        self.recent: deque[bytes] = deque(maxlen=REMEMBERED)
        self.tapped: list[str] | None = None  # gets what is passed on, too

    def pass_on(self) -> bool:
        """Pass on what is there; whether there was anything."""
        try:
            data = os.read(self.fd, LONGEST_LINE)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        lines = [_shown(line) for line in lines]
        if b"\r" in self._rest:
            lines += self._bar()
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._emit(lines)
        return True

    def _bar(self) -> list[bytes]:
        """Of a line that is drawn again and again, such as a progress bar, what it shows: not all, nor too late."""
        *states, self._rest = self._rest.split(b"\r")
        if not self._rest:
            self._rest = states.pop() + b"\r"  # a line may end like this, and its line feed be on the way
        now = time.monotonic()
        state = next((state for state in reversed(states) if state), b"")
        if not state or now < self._drawn + BAR_SECONDS:
            return []
        self._drawn = now
        return [state]

    def close(self) -> None:
        """Pass on all that is left, an unfinished line too."""
        while self.pass_on():
            pass
        self._emit([_shown(self._rest)] if self._rest else [])
        os.close(self.fd)

    def _emit(self, lines: list[bytes]) -> None:
        if not lines:
            return
        console.write(b"".join(self._prefix + line + b"\n" for line in lines))
        self.recent += (line[-REMEMBERED_BYTES:] for line in lines)
        if self.tapped is not None:
            self.tapped += [line.decode(errors="replace") for line in lines]


def _shown(line: bytes) -> bytes:
    """What is left of a line on a terminal: of one that was drawn again and again, what was drawn last."""
    return next((state for state in reversed(line.split(b"\r")) if state), b"")


class RankLogs:
    """Takes what the ranks of a round print.

    Args:
        scratch: a folder of this agent's own.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._rounds = 0
        self._streams: list[_Stream] = []
        self._recent: dict[int, deque[bytes]] = {}
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, ranks: Sequence[int]) -> Path:
        """Take the output of a round's ranks; gives a new folder with a pipe ``<rank>.pipe`` for each of them."""
        self.finish()
        self._rounds += 1
        folder = self._scratch / f"round-{self._rounds}"
        folder.mkdir()
        for rank in ranks:
            self._streams.append(_Stream(folder / f"{rank}.pipe", rank=rank))
        self._recent = {stream.rank: stream.recent for stream in self._streams}
        self._finished.clear()
        self._thread = threading.Thread(target=self._pump, name="rank-logs", daemon=True)
        self._thread.start()
        return folder

    def finish(self) -> None:
        """Pass on the last lines of ranks that have ended; harmless when there are none."""
        if self._thread:
            self._finished.set()
            self._thread.join()
            self._thread = None
            for stream in self._streams:
                stream.close()
            self._streams.clear()

    def last(self, rank: int) -> list[str]:
        """What a rank of the last round has printed last, the oldest line first."""
        return [line.decode(errors="replace") for line in self._recent.get(rank, ())]

    @contextlib.contextmanager
    def tapped(self) -> Iterator[dict[int, list[str]]]:
        """What each rank prints within the context, line by line as it comes, by its rank."""
        heard: dict[int, list[str]] = {}
        for stream in self._streams:
            heard[stream.rank] = stream.tapped = []
        try:
            yield heard
        finally:
            for stream in self._streams:
                stream.tapped = None

    def _pump(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream.fd, selectors.EVENT_READ, stream)
            while not self._finished.is_set():
                for key, _ in selector.select(timeout=0.1):
                    key.data.pass_on()
