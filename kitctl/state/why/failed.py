"""The cause of a rank's failure, and its fix. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from kitctl.state.log_folding import folded_traceback
from kitctl.state.why.error_text import (
    crashed_at,
    first_of_group,
    names_no_file,
    origin,
    said_before,
    source,
    with_place,
)
from kitctl.state.why.rule import LIMIT, brief
from kitctl.state.why.tables import UNKNOWN, Match, around_error, look_up
from kitjob.report import PastFailure, Termination

FRAMES: Final = 8  # lines of a traceback's end that are shown
AGAIN: Final = "kitctl logs {0} --failed shows how they ended"
DIFFERENT: Final = "the ranks call different collectives, or exchange tensors of different shapes or types: {} when {}"
RESUME: Final = (
    "let the script take what it finds when it is started again: exist_ok=True, and go on from its last checkpoint"
)
_LIVES: Final = ("ended with ", "called ", "finished the ")  # begins what a rank has done that lives: a sentence of it
_IS_THERE: Final = re.compile(r"^FileExistsError: |\balready exists\b|\bexists and is not empty\b")
_EXIT_CODE: Final = re.compile(r"^exit code \d+: ")  # of a script that prints its error itself
_NO_MESSAGE: Final = re.compile(r"exit code -?\d+|killed by SIG|.*exited unexpectedly")  # the lines say more


def of_failure(failure: Termination, *, local: bool) -> Match:
    """The cause and the fix: of the rank that failed first, if one did; else of the job."""
    failure = first_of_group(failure)
    goes_on = failure.error.startswith(_LIVES)
    where = "" if failure.rank is None or not failure.error else f"rank {failure.rank}{' ' if goes_on else ': '}"
    # The error's own words first: a rank may have printed, and handled, anything before.
    printed = "\n".join(line for line in failure.lines if not line.lower().startswith("warning"))
    around = around_error(failure.reason) if where else None
    beside = failure.reason if around is None else around  # without the error, which may be cut there
    found = look_up(f"{failure.error}\n{beside}", failure.traceback, local=local, around=around)
    if _NO_MESSAGE.match(failure.error):
        found = look_up(f"{failure.error}\n{printed}", local=local, around="") or found
    found = found or UNKNOWN
    cause = found.cause if found.worded else failure.error or failure.reason
    if not found.worded and (inner := said_before(failure) or origin(failure)):
        first = look_up(inner, failure.traceback, local=local, around="") or found
        cause, found = f"{first.cause if first.worded else inner} ({cause})", first
    elif cause.endswith(":") or names_no_file(cause):  # else it has no word of its own
        cause += source(failure.traceback)
    place = crashed_at(failure.error)
    if place and failure.elsewhere:
        where, cause = "", DIFFERENT.format(f"rank {failure.rank}{place}", failure.elsewhere)
    elif found.worded and place and len(where + cause + place) <= LIMIT:
        cause += place
    fix = found.fix or failure.fix
    if found.of_code or not fix:
        fix = with_place(fix, failure.traceback or printed)
    told = cause if cause.startswith(("rank ", "ranks ")) else f"{where}{cause}"
    return found._replace(cause=brief(told), fix=fix, code=found.code or failure.code)


def left_behind(failure: Termination, failures: Sequence[PastFailure], job: str, *, local: bool) -> Match | None:
    """Of ranks that cannot be started again, as what they wrote is there: what has made them start again is the cause.

    None if nothing else has failed before: then all ranks make it at once, or an earlier run has.
    """
    printed = failure.lines if _EXIT_CODE.match(failure.error) else ()
    error = next((one for one in (_EXIT_CODE.sub("", failure.error), *printed) if _IS_THERE.search(one)), "")
    if not error:
        return None
    others = [one for one in failures if not _IS_THERE.search(_EXIT_CODE.sub("", one.cause))]
    earlier = [
        one
        for one in others
        if one.time < (failure.time or math.inf) and not failure.error.startswith(one.cause.rstrip("…"))
    ]
    if not earlier:
        return None
    first = min(earlier, key=lambda one: one.time)
    found = look_up(first.cause, local=local) or UNKNOWN
    cause = found.cause if found.worded else first.cause
    if len(cause) > LIMIT // 2:
        cause = f"{cause[: LIMIT // 2]}…"
    told = brief(f"rank {first.rank}: {cause}; started again, rank {failure.rank}: {error}")
    fix = f"{RESUME}; of the first failure: {found.fix or first.fix or AGAIN.format(job)}"
    return Match(cause=told, fix=fix, code=found.code or first.code or "cannot-start-again")


def shown(failure: Termination) -> list[str]:
    """The end of its traceback, else the last lines that the rank has printed; frames of libraries are folded."""
    if failure.traceback:
        return folded_traceback(failure.traceback)[-FRAMES:]
    return folded_traceback("\n".join(failure.lines)) if failure.lines else []
