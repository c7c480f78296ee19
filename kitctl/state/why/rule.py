"""A row of the tables of causes, and how a text becomes a cause that fits a line. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

LIMIT: Final = 160  # characters of a cause
# JOB and NAMESPACE in a fix stand for those of the job that it is told of.
AGAIN: Final = "kitctl submit --name JOB --replace --resume ..."  # with the options that it was submitted with
Stage = Literal["Pending", "Starting", "Running", "Failed"]  # the phase in which a cause is told for the most part
_PREFIXES: Final = (
    # What libraries put before their own words: the place in their source.
    (re.compile(r"\[enforce fail at [^\]]*\] ?(?:[\w.]+ == [\w.]+\. |\S+ != \S+\. )?"), ""),
    (re.compile(r"\[/[^\]]*\] "), ""),
    (re.compile(r"\. This is typically caused by .*"), ""),
    (re.compile(r"(Weights only load failed)\. .*?WeightsUnpickler error: "), r"\1: "),  # advice, which the fix has
    (re.compile(r"( was not an allowed global by default)\. Please use .*"), r"\1"),
    (re.compile(r"(?<![\w/.])(?:/[^/\s:'\"]+){3,}((?:/[^/\s:'\"]+){2})"), r"…\1"),  # all but a path's last two parts
)


@dataclass(frozen=True)
class Rule:
    """A cause.

    Attributes:
        code: its stable name, as people count causes.
        pattern: by which a message is recognized.
        cause: in words; ``{0}`` is the pattern's first group. Empty: the message itself.
        fix: what the user can do; JOB and NAMESPACE in it are those of the job.
        local: the fix on this machine, where that differs: it has no limits of memory, no images and no volumes.
        beside: the fix for a sidecar or an init container, where that differs: its image is another one.
        called: what the traceback has to have, too: some messages mean different things in different places.
        seen: the message as people see it, for the documentation, of a cause without words of its own.
        means: what the message does not say itself, for the documentation.
    """

    code: str
    pattern: str
    cause: str
    fix: str
    local: str = ""
    beside: str = ""
    called: str = ""
    seen: str = ""
    means: str = ""

    def matches(self, text: str, traceback: str = "") -> re.Match[str] | None:
        """Where the message is in a text."""
        if self.called and not _compiled(self.called).search(traceback):
            return None
        return _compiled(self.pattern, re.DOTALL).search(text)

    def fixed(self, found: re.Match[str], *, local: bool, beside: bool = False) -> str:
        """The fix, with what the message says; ``beside``: of a container beside that of the ranks."""
        other = self.local if local else self.beside if beside else ""
        return (other or self.fix).format(*found.groups())


@cache
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A compiled pattern. There are about as many as ``re`` keeps by itself, which would compile them at each use."""
    return re.compile(pattern, flags)


def quoted(code: str, pattern: str, fix: str, seen: str, *, local: str = "", called: str = "") -> Rule:
    """A cause that is told in the message's own words."""
    return Rule(code, pattern, "", fix, local, called=called, seen=seen)


@dataclass(frozen=True)
class Family:
    """Causes of one kind, in their order: the first that matches counts.

    Attributes:
        title: of their section in the documentation.
        stage: its chapter there.
        rules: the rows.
        of_ranks: whether they are of what ranks say, too, and not only of pods, machines and agents.
        of_code: whether the script's own line is to be looked at.
    """

    title: str
    stage: Stage
    rules: Sequence[Rule]
    of_ranks: bool = True
    of_code: bool = False


def brief(text: str) -> str:
    """A message in one line of at most LIMIT characters, without what comes before its own words."""
    line = " ".join(text.split())
    for pattern, replacement in _PREFIXES if len(line) > LIMIT // 2 else ():
        line = pattern.sub(replacement, line)
    return line if len(line) <= LIMIT else f"{line[: LIMIT * 2 // 3]}…{line[-(LIMIT - LIMIT * 2 // 3 - 1) :]}"
