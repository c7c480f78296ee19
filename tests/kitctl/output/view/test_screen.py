"""The alternate screen of a real terminal, by what a process writes to it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kitctl.output.view.screen import ENTER, LEAVE

SCRIPT = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from kitctl.output.view.screen import Screen
try:
    with Screen(lambda width: [f"row {number} of {width}" for number in range(100)]) as screen:
        if "fail" in sys.argv:
            print("warning: away", file=sys.stderr)
            screen.draw()
            raise ValueError("broken")
        while True:
            screen.draw()
            screen.wait()
except KeyboardInterrupt:
    print("left")
"""
SECONDS = 60.0


class Terminal:
    """A process in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.outer, self.inner = pty.openpty()
        self.resize(60, 10)
        self.before = termios.tcgetattr(self.inner)
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments],
            stdin=self.inner,
            stdout=self.inner,
            stderr=self.inner,
            start_new_session=True,
            cwd=Path.cwd(),
        )

    def resize(self, columns: int, rows: int) -> None:
        """As a window that is resized; its foreground process gets SIGWINCH."""
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, text: str) -> None:
        """Read until a text has been written since the last one."""
        deadline = time.monotonic() + SECONDS
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.seen!r}"
            self.seen += os.read(self.outer, 1 << 14).decode()
        self.seen = self.seen.partition(text)[2]

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self.outer, keys.encode())

    def restored(self) -> bool:
        """Whether the terminal's settings are as before."""
        return termios.tcgetattr(self.inner) == self.before


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    found = Terminal(*getattr(request, "param", ()))
    yield found
    found.process.kill()
    found.process.wait()
    os.close(found.outer)
    os.close(found.inner)


def test_keys_scroll_and_a_resized_terminal_is_filled(terminal: Terminal) -> None:
    terminal.wait_for(ENTER)
    terminal.wait_for("row 0 of 60")
    terminal.wait_for("lines 1-9 of 100")
    terminal.press("j")
    terminal.wait_for("lines 2-10 of 100")
    terminal.press(" ")
    terminal.wait_for("lines 10-18 of 100")
    terminal.press("G")
    terminal.wait_for("lines 92-100 of 100")
    terminal.press("\x1b[A")
    terminal.wait_for("lines 91-99 of 100")
    terminal.press("g")
    terminal.wait_for("lines 1-9 of 100")
    terminal.resize(40, 5)
    terminal.wait_for("row 0 of 40")
    terminal.wait_for("lines 1-4 of 100")


@pytest.mark.parametrize("keys", ["\x03", "q"])
def test_ctrl_c_and_q_leave_and_restore_the_terminal(keys: str, terminal: Terminal) -> None:
    terminal.wait_for("lines 1-9")
    assert not terminal.restored(), "keys are not echoed meanwhile"
    terminal.press(keys)
    terminal.wait_for(LEAVE)
    terminal.wait_for("left")
    assert terminal.process.wait(SECONDS) == 0
    assert terminal.restored()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_ended_restores_the_terminal(number: signal.Signals, terminal: Terminal) -> None:
    terminal.wait_for("lines 1-9")
    terminal.process.send_signal(number)
    terminal.wait_for(LEAVE)
    assert terminal.process.wait(SECONDS) == 128 + number
    assert terminal.restored()


def test_ctrl_z_gives_the_terminal_back_until_it_is_continued(terminal: Terminal) -> None:
    terminal.wait_for("lines 1-9")
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.wait_for(LEAVE)
    while not re.search(r"^State:\s+T", Path(f"/proc/{terminal.process.pid}/status").read_text(), re.MULTILINE):
        time.sleep(0.01)
    assert terminal.restored()
    terminal.process.send_signal(signal.SIGCONT)
    terminal.wait_for(ENTER)
    terminal.wait_for("lines 1-9")


@pytest.mark.parametrize("terminal", [("fail",)], indirect=True)
def test_an_error_restores_the_terminal_and_warnings_are_on_the_page_and_after_it(terminal: Terminal) -> None:
    terminal.wait_for(ENTER)
    terminal.press("G")
    terminal.wait_for(LEAVE)
    terminal.wait_for("warning: away")
    terminal.wait_for("ValueError: broken")
    assert terminal.process.wait(SECONDS) == 1
    assert terminal.restored()
