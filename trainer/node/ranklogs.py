"""What the ranks print, as it leaves the node: whole lines, each with its rank in front, and copies that outlive it.

Torch's own tee polls files ten times a second and cuts lines that it catches half written; here every rank writes
into a pipe, and one thread passes on whole lines in the order in which they were written.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from trainer.system import console

LONGEST_LINE: Final = 1 << 16  # bytes; a longer one is passed on in pieces
REMEMBERED: Final = 100  # lines of each rank, for whoever asks why it ended
REMEMBERED_BYTES: Final = 4096  # of each


class _Stream:
    """One rank's output."""

    def __init__(self, pipe: Path, *, rank: int, copy: BinaryIO | None) -> None:
        os.mkfifo(pipe, 0o600)
        # Open for writing too: the pipe then never ends, and open() of the other end never waits.
        self.fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._prefix = f"[rank {rank}]: ".encode()
        self._rest = b""
        self._copy = copy
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
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._emit(lines)
        return True

    def close(self) -> None:
        """Pass on all that is left, an unfinished line too."""
        while self.pass_on():
            pass
        self._emit([self._rest] if self._rest else [])
        os.close(self.fd)
        if self._copy:
            self._copy.close()

    def _emit(self, lines: list[bytes]) -> None:
        if not lines:
            return
        console.write(b"".join(self._prefix + line + b"\n" for line in lines))
        self.recent += (line[-REMEMBERED_BYTES:] for line in lines)
        if self.tapped is not None:
            self.tapped += [line.decode(errors="replace") for line in lines]
        if self._copy:
            with contextlib.suppress(OSError):  # a full disk costs the copy, not the run
                self._copy.write(b"\n".join([*lines, b""]))


class RankLogs:
    """Takes what the ranks of a round print.

    Args:
        scratch: a folder of this agent's own.
        log_dir: where ``rank-<rank>.log`` files are kept, appended to round after round; None keeps none.
        warn: called once if they cannot be kept.
    """

    def __init__(self, *, scratch: Path, log_dir: Path | None, warn: Callable[[str], None]) -> None:
        self._scratch = scratch
        self._log_dir = log_dir
        self._warn = warn
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
            self._streams.append(_Stream(folder / f"{rank}.pipe", rank=rank, copy=self._copy(rank)))
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

    def _copy(self, rank: int) -> BinaryIO | None:
        """The file that outlives the node; a volume that cannot be written costs this, not the run."""
        if self._log_dir is None:
            return None
        try:
            self._log_dir.mkdir(parents=True, exist_ok=True)
            return (self._log_dir / f"rank-{rank}.log").open("ab", buffering=0)
        except OSError as error:
            self._log_dir = None
            self._warn(f"warning: the ranks' logs end with this node, no copy can be kept: {error}")
            return None

    def _pump(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream.fd, selectors.EVENT_READ, stream)
            while not self._finished.is_set():
                for key, _ in selector.select(timeout=0.1):
                    key.data.pass_on()
