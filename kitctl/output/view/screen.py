"""The terminal's alternate screen, where a text of lines is refreshed and scrolled by keys.

What happens to the process, the terminal is as it was before: after Ctrl-C, SIGTERM, SIGHUP, an error, and while it is
stopped by Ctrl-Z. Not on Windows.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

from kitctl.output.view.layout import clipped

ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the alternate screen, no cursor
LEAVE: Final = "\x1b[0m\x1b[?25h\x1b[?1049l"
BEGIN, END = "\x1b[?2026h\x1b[H", "\x1b[J\x1b[?2026l"  # what is between is shown at once, where the terminal can
TICK: Final = 1.0  # seconds: ages are shown
SIZE: Final = os.terminal_size((80, 24))
# By key, by how many rows and by how many pages it scrolls.
KEYS: Final = {
    **dict.fromkeys((b"k", b"\x1b[A", b"\x1bOA"), (-1, 0)),
    **dict.fromkeys((b"j", b"\x1b[B", b"\x1bOB", b"\r", b"\n"), (1, 0)),
    **dict.fromkeys((b"b", b"\x1b[5~", b"\x02"), (0, -1)),
    **dict.fromkeys((b" ", b"\x1b[6~", b"\x06"), (0, 1)),
    **dict.fromkeys((b"g", b"\x1b[H", b"\x1b[1~"), (-(1 << 30), 0)),
    **dict.fromkeys((b"G", b"\x1b[F", b"\x1b[4~"), (1 << 30, 0)),
}


class Screen:
    """The screen, within its context.

    Args:
        compose: returns the lines for a width in columns; they may have colours, and are clipped.
    """

    def __init__(self, compose: Callable[[int], Sequence[str]]) -> None:
        self._compose = compose
        self._stdin = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self._top = 0
        self._shown = ""
        self._before: list[Any] | None = None
        self._said = io.StringIO()
        self._stack = ExitStack()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def __enter__(self) -> Self:
        self._stack.callback(os.close, self._wake)
        self._stack.callback(os.close, self._woken)
        for number, act in (
            (signal.SIGTERM, _end),
            (signal.SIGHUP, _end),
            (signal.SIGWINCH, self._on_change),
            (signal.SIGTSTP, self._stop),
        ):
            self._stack.callback(signal.signal, number, signal.signal(number, act))
        self._stack.callback(self._leave)
        self._stack.enter_context(redirect_stderr(self._said))  # warnings would be written over the page
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        sys.stderr.write(self._said.getvalue())

    def wake(self) -> None:
        """Have ``wait`` return; from any thread."""
        with suppress(OSError):  # it is full, or closed
            os.write(self._wake, b"x")

    def wait(self) -> None:
        """Wait for a key, a change or a moment.

        Raises:
            KeyboardInterrupt: the key is that which leaves.
        """
        watched = [self._woken] if self._stdin is None else [self._woken, self._stdin]
        ready, _, _ = select.select(watched, [], [], TICK)
        if self._woken in ready:
            os.read(self._woken, 1 << 12)
        if self._stdin in ready and self._stdin is not None:
            self._press(os.read(self._stdin, 64))

    def draw(self) -> None:
        """Write the page, if it has changed."""
        columns, rows = self.size
        lines = [*self._compose(columns), *(self._said.getvalue().splitlines()[-2:])]
        room = rows if len(lines) <= rows else max(rows - 1, 1)
        self._top = max(0, min(self._top, len(lines) - room))
        page = [clipped(line, columns) for line in lines[self._top : self._top + room]]
        if room < len(lines):
            last = min(self._top + room, len(lines))
            told = f"lines {self._top + 1}-{last} of {len(lines)}; arrows and space scroll, q leaves"
            page.append(clipped(told, columns))
        text = BEGIN + "\r\n".join(f"{line}\x1b[K" for line in page) + END
        if text != self._shown:
            self._shown = text
            _write(text)

    def _press(self, key: bytes) -> None:
        if key in {b"q", b"Q", b"\x1b", b""}:
            raise KeyboardInterrupt
        rows, pages = KEYS.get(key, (0, 0))
        self._top = max(0, self._top + rows + pages * max(self.size.lines - 2, 1))

    @property
    def size(self) -> os.terminal_size:
        """Of the terminal now."""
        try:
            found = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return SIZE
        return found if found.columns and found.lines else SIZE

    def _enter(self) -> None:
        if self._stdin is not None:
            self._before = termios.tcgetattr(self._stdin)
            tty.setcbreak(self._stdin)
        self._shown = ""
        _write(ENTER)

    def _leave(self) -> None:
        with suppress(OSError):  # the terminal is gone
            _write(LEAVE)
        if self._stdin is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._stdin, termios.TCSADRAIN, self._before)

    def _on_change(self, _number: int, _frame: FrameType | None) -> None:
        self._shown = ""
        self.wake()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()
        self.wake()


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)  # the context restores the terminal


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
