"""How a node ended, and the termination message that tells it to Kubernetes and to kitctl."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from kittrain.outcome.failures import Failure

Content: TypeAlias = dict[str, Any]
Outcome = Literal["done", "drained", "retryable", "fatal"]
LIMIT: Final = 4096  # bytes: the kubelet cuts a termination message there


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a node ended, or how its last round did.

    Attributes:
        outcome: what whoever restarts nodes is to do.
        reason: for a person.
        failure: of a rank, if that is what it ended with.
        node: the index of the node that all others end with; None for a reason of its own.
    """

    outcome: Outcome
    reason: str
    failure: Failure | None = None
    node: int | None = None

    @property
    def words(self) -> str:
        """What this node says of it in its log: a reason that is another's is told by that one."""
        return f"{self.outcome}: {self.reason if self.node is None else f'node {self.node} has failed for good'}"


FINISHED: Final = Ending(outcome="done", reason="the run has finished already")


def heard(told: Ending) -> Ending:
    """What another node's fatal ending is to this one: the same end."""
    return replace(told, outcome="fatal")


def message(ending: Ending, *, node_index: int) -> bytes:
    """The message as JSON of at most :data:`LIMIT` bytes.

    Where it is too long, it loses the rank's last lines, the oldest first, if the traceback is there to explain the
    failure; then the traceback's oldest lines; then texts are cut.
    """
    failure = ending.failure
    content: Content = {
        "outcome": ending.outcome,
        "reason": ending.reason,
        "rank": failure.rank if failure else None,
        "node": node_index if ending.node is None else ending.node,
        "time": failure.time if failure else int(time.time()),
        "error": failure.error if failure else "",
        "fix": failure.cause.fix if failure else "",
        "traceback": failure.traceback if failure else "",
        "lines": list(failure.lines) if failure else [],
    }
    lines: list[str] = content["lines"]
    while lines and len(_encode(content)) > LIMIT:
        del lines[0]
    for key, keep_end in (("traceback", True), ("error", False), ("reason", False), ("fix", False)):
        _cut(content, key, keep_end=keep_end)
    return _encode(content)


def _cut(content: Content, key: str, *, keep_end: bool) -> None:
    """Shorten one text until all of it fits, or nothing of that text is left."""
    while (over := len(_encode(content)) - LIMIT) > 0 and content[key]:
        text = content[key]
        cut = max(1, over // 4)  # a character is at most 4 bytes of UTF-8, or 6 once JSON has escaped it
        content[key] = text[cut:] if keep_end else text[: len(text) - cut]


def write(path: Path | None, ending: Ending, *, node_index: int) -> None:
    """Write the message in place: the kubelet reads exactly this file, which may be a mount of its own."""
    if path is not None:
        with suppress(OSError):  # the exit code still tells the outcome
            path.write_bytes(message(ending, node_index=node_index))


def _encode(content: Content) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
