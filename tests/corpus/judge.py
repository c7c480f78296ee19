"""Whether what is told of a situation is right; and the page with all of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kitctl.state.why.explain import Explanation
from tests.corpus.situation import Situation


@dataclass(frozen=True, kw_only=True)
class Told:
    """What was told of a situation, by ``kitctl why`` or, where nothing was created, by ``submit``.

    Attributes:
        situation: which.
        said: the cause, the fact, or the note.
        cause: whether it is right.
        fix: the same of the fix; None: none is asked for.
        advised: the fix.
        seconds: from the first round of the ranks, or the submission, until it was told; None: never.
        phase: at the end.
        before: another cause that was told before the right one; empty: none.
    """

    situation: Situation
    said: str
    cause: bool
    fix: bool | None
    advised: str = ""
    seconds: float | None = None
    phase: str = ""
    before: str = ""


def judge(
    one: Situation, found: Explanation, *, seconds: float | None = None, phase: str = "", before: str = ""
) -> Told:
    """A healthy job may show a fact while it lasts, and neither a cause nor a fix, and has to end well."""
    said = found.headline or found.note
    well = not found.cause and not found.fix and phase in {"", "Running", "Starting", "Pending", "Succeeded"}
    fix = bool(re.search(one.fix, found.fix)) if one.fix and not one.healthy else None
    right = well if one.healthy else bool(re.search(one.cause, said)) and not before
    return Told(
        situation=one,
        said=said,
        cause=right,
        fix=fix,
        advised=found.fix,
        seconds=seconds,
        phase=phase,
        before=before,
    )


REFUSED: Final = "refused"  # by submit, before anything was created
INTRODUCTION: Final = (
    "Situations that are made live, on two nodes, and what `kitctl why` or `submit` tells of them. `make corpus`",
    "makes all of them, which takes about half an hour, and records the jobs' states, on which `tests/corpus` tests",
    "the rules; `python -m tests.corpus NAME` makes one. This page shows what the rules tell of the recorded states,",
    "and the seconds that it took when they were live, from the first group of ranks, or from the submission if there",
    "was none, on two busy cores. Of healthy jobs nothing may be told but where their ranks are while none takes a",
    "step. A cause that is told first and is another one counts as wrong, although the right one followed.",
)
ON_CLUSTER: Final = (
    "On the test cluster (`make cluster-up`), with the same two nodes, each in a namespace of its own. `make corpus`",
    "makes these if that cluster answers, else their half stays as it was recorded. Seconds are from the first group",
    "of ranks, or from the submission if there was none.",
)


def page(results: Sequence[Told], first_scores: str) -> str:
    """docs/corpus.md, with the section on what was told at first, which a later run cannot show."""
    local = [one for one in results if one.situation.on == "local"]
    cluster = [one for one in results if one.situation.on == "cluster"]
    halves = [
        f"{half} {'set' if half == 'blind' else 'half'}: {sum(one.cause for one in part)} of {len(part)} causes right"
        for half in ("first", "second", "blind")
        if (part := [one for one in results if one.situation.half == half])
    ]
    return "\n".join(
        [
            "# Corpus",
            "",
            *INTRODUCTION,
            "",
            f"{'; '.join(halves)}. The halves are drawn by chance.",
            "",
            first_scores,
            "## On this machine",
            "",
            *_table(local),
            "",
            "## On a cluster",
            "",
            *ON_CLUSTER,
            "",
            *_table(cluster),
            "",
        ]
    )


def _table(results: Sequence[Told]) -> list[str]:
    rows = [
        f"| {one.situation.name} | {_half(one.situation)} | {'submit' if one.phase == REFUSED else 'why'} |"
        f" {_cell(one.said)} | {_mark(one.cause)} | {_mark(one.fix)} |"
        f" {'-' if one.seconds is None else f'{one.seconds:.0f}'} | {len(one.said)} |"
        for one in results
    ]
    return [
        "| Situation | Half | By | Told | Right | Fix | Seconds | Characters |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ]


def _half(one: Situation) -> str:
    """Of the blind set with its first score: ``blind: yes, no``."""
    return one.half if one.first is None else f"blind: {', '.join('yes' if right else 'no' for right in one.first)}"


def _cell(text: str) -> str:
    marks = "``" if "`" in text else "`"  # a line of code in it has some of its own
    return f"{marks}{text.replace('|', '¦')}{marks}" if text else "-"


def _mark(right: bool | None) -> str:  # noqa: FBT001  a cell's value
    return "-" if right is None else "yes" if right else "**no**"
