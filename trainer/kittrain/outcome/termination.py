"""How a node ended, and the termination message that reports it to Kubernetes and kitctl."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from kitjob import typed
from kitjob.names import Outcome
from kitjob.report import LAST_LINE, Termination
from kittrain.outcome.failures import Failure
from kittrain.system.texts import shortened

Content: TypeAlias = dict[str, Any]
ERROR: Final = 900  # characters of an error that leave room for its traceback
FIRST: Final = 9  # lines of a traceback that show where it begins: its header, and four calls
LIMIT: Final = 4096  # bytes: the kubelet truncates a termination message there


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a node ended, or how its last round did.

    Attributes:
        outcome: what decides whether the node is restarted.
        reason: why, in a sentence.
        failure: of a rank, if one caused the end.
        node: index of the node whose failure ended all others; None for a node's own end.
        note: of a good end, what a rank has said last, if that was an error, or if no step was seen.
    """

    outcome: Outcome
    reason: str
    failure: Failure | None = None
    node: int | None = None
    note: str = ""

    @property
    def summary(self) -> str:
        """The end in this node's log; another node's reason is in that node's log, and the last line in this one."""
        note = f"; {self.note}" if self.note and not LAST_LINE.match(self.note) else ""
        return f"{self.outcome}: {self.reason if self.node is None else f'node {self.node} has failed for good'}{note}"


FINISHED: Final = Ending(outcome="done", reason="the run has finished already")


def cut_short(why: str) -> Ending:
    """The end of a node whose ranks were stopped in what the script does after its training, by a lost node."""
    return replace(FINISHED, reason=f"{FINISHED.reason}; what the script did after its training was cut short: {why}")


def as_fatal(ending: Ending) -> Ending:
    """How this node ends because of another node's permanent failure."""
    return replace(ending, outcome="fatal")


def message(ending: Ending, *, node_index: int) -> bytes:
    """The message as JSON of at most :data:`LIMIT` bytes.

    If it is too long, it loses the rank's last lines (the oldest first) if there is a traceback that explains the
    failure, then what is beyond ``ERROR`` characters of the error, then lines in the middle of the traceback: it begins
    with the user's call, and ends with the error. Then the traceback's first lines, and the ends of the other texts.
    """
    failure = ending.failure
    about: Content = {}
    if failure:
        lines = {"traceback": failure.traceback, "lines": failure.lines}
        known = {"fix": failure.cause.fix, "code": failure.cause.code, "elsewhere": failure.elsewhere}
        about = {"rank": failure.rank, "time": failure.time, "error": failure.error, **known, **lines}
    node = node_index if ending.node is None else ending.node
    about = {"time": int(time.time()), "note": ending.note, **about}
    told = Termination(**about, outcome=ending.outcome, reason=ending.reason, node=node)
    content: Content = typed.encode(told)
    last: list[str] = content["lines"]
    while last and len(_encode(content)) > LIMIT:
        del last[0]
    if len(_encode(content)) > LIMIT and content["traceback"]:
        content["error"] = shortened(content["error"], head=ERROR * 2 // 3, tail=ERROR // 3)
        _cut_middle(content, "traceback")
    for key, keep_end in (("traceback", True), ("error", False), ("reason", False), ("fix", False)):
        _cut(content, key, keep_end=keep_end)
    return _encode(content)


def _cut_middle(content: Content, key: str) -> None:
    """Leave out lines after the first ``FIRST`` until the message fits, or one line is left after them."""
    first, rest, left_out = content[key].split("\n")[:FIRST], content[key].split("\n")[FIRST:], 0
    while len(rest) > 1 and (over := len(_encode(content)) - LIMIT) > 0:
        while len(rest) > 1 and over > 0:
            over -= len(json.dumps(rest.pop(0), ensure_ascii=False).encode("utf-8", "replace"))
            left_out += 1
        content[key] = "\n".join([*first, f"  [... {left_out} lines ...]", *rest])


def _cut(content: Content, key: str, *, keep_end: bool) -> None:
    """Shorten one text until the message fits, or the text is empty."""
    while (over := len(_encode(content)) - LIMIT) > 0 and content[key]:
        text = content[key]
        cut = max(1, over // 4)  # a character is at most 4 bytes of UTF-8, or 6 if JSON escapes it
        content[key] = text[cut:] if keep_end else text[: len(text) - cut]


def write(path: Path | None, ending: Ending, *, node_index: int) -> None:
    """Write the message in place: the kubelet reads this file, which may be a mount that cannot be replaced."""
    if path is not None:
        with suppress(OSError):  # the exit code still reports the outcome
            path.write_bytes(message(ending, node_index=node_index))


def clear(path: Path | None) -> None:
    """Take a message back, in place."""
    if path is not None:
        with suppress(OSError):
            path.write_bytes(b"")


def _encode(content: Content) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
