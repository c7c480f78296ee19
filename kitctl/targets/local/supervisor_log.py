"""What a job's ``supervisor.log`` says of a supervisor that does not run. Pure, but for the clock.

Each start writes a line, and so does each supervisor whose loop begins or ends; all its own lines begin with a time.
What has none is output of Python or of the fork server.
"""

from __future__ import annotations

import re
import time
from typing import Final

STARTING: Final = "starting a supervisor"
STARTED: Final = "supervising"
ENDED: Final = "nothing left to supervise"

_OWN: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
_TRACEBACK: Final = "Traceback (most recent call last):"


def stamped(text: str) -> str:
    """A line of the log."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n"


def interrupted(log: str) -> str:
    """The last line of the last supervisor if it ended before its loop did, such as by SIGKILL; empty otherwise.

    Ask only while none runs: the lines of one that runs look alike.
    """
    section = log.rpartition(f" {STARTING}\n")[2]
    own = [line for line in section.splitlines() if re.match(_OWN, line)]
    ended = not own or own[-1].endswith(f" {ENDED}")
    return "" if ended or failure(log) else own[-1]


def failure(log: str) -> str:
    """The last line of the last supervisor that has ended with an error; empty if it runs, as far as the log says."""
    for section in reversed(log.split(f" {STARTING}\n")):
        lines = [line for line in section.splitlines() if line.strip()]
        if lines and re.fullmatch(_OWN.rstrip(), lines[-1]):
            lines.pop()  # the time of the next start
        if lines:
            crashed = not any(line.endswith(f" {STARTED}") for line in lines) or _TRACEBACK in lines
            return lines[-1].strip() if crashed and not re.match(_OWN, lines[-1]) else ""
    return ""
