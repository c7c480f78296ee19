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

# What a later run cannot show.
FIRST_SCORE: Final = (
    "Of the 82 situations that were added together, what has to be told was written down first, and all were made live",
    "before any rule was changed. Then, of those that are not healthy, in the first half 31 of 34 causes and 15 of 30",
    "fixes were right, in the second half 29 of 33 and 13 of 26; of 14 healthy jobs none had a cause. Rules were",
    "written for the first half: with them 36 of 40 causes and 20 of 33 fixes of the second half were right. Then the",
    "rest was mended. Situations and rules have the same author, who knew both halves: this is no blind test. Three",
    "expectations were wrong, and were corrected: a line's number, a library that this machine has, and wheels that",
    "were not there.",
    "Later 23 more were made up by somebody who had seen the rules and had not written them, to find what these do not",
    "know, and what has to be told of each was written down first: of 20 that are not healthy 15 causes and 6 of 17",
    "fixes were right, of 3 healthy jobs none had a cause. A script that becomes",
    "a daemon ended as if it had trained, and a random.py next to the script broke `python -m kitctl`. A job with",
    "another MASTER_ADDR, of which a cause had been expected, trains: it is among the healthy ones.",
    "Once these were mended, 14 more were made up in the same way: 14 causes and 2 of 14 fixes were right at first.",
    "A blind set came last: 36 that are not healthy, half of them on a cluster, by somebody who had not read the",
    "rules, and of this page three rows. 25 causes came first and were right, three more were told as a fact, 19",
    "fixes were right; of 8 healthy jobs one had a cause (its pod was being deleted). They were judged by hand, and",
    "the rules were mended since. Those that are in the table have `blind` in their column, and whether cause and fix",
    "were right at first. The others are like situations that were there, or do no harm: `--local_rank`, a port that",
    "another process has, a GAN's buffers.",
    "Another blind set, by somebody else, scored less: of 44 that are not healthy 27 causes (61 %) and 11 fixes were",
    "right at first; of 8 healthy jobs none had a cause, but for one whose loss was NaN indeed. Silent or wrong were a",
    "full disk, chained and empty errors, programs that a script runs, a debugger, scripts that do nothing or print an",
    "error and succeed, ranks that sleep without a group, a thread that goes on, a retry loop, and on the cluster a",
    "lost machine, preemption, cordons and taints of machines, and a sidecar. Most were mended, but not the scripts",
    "that succeed; then 13 more were made, of a set that had been written down before: 11 causes and 7 of 10 fixes",
    "were right at first. So of situations that nobody has thought of, 95 % are not reached. Those on this machine",
    "that were not right at first and are now are in the table.",
    "The next blind set was not made up, but drawn from public issues and question pages (torchrun, DDP, data",
    "loaders, checkpoints, transformers, Lightning, accelerate, Kubernetes), as the search gave them, by somebody who",
    "had seen neither rules nor corpus: of 55 that are not healthy 45 causes (82 %; on this machine 35 of 44, on the",
    "cluster 10 of 11) and 27 of 45 fixes were right at first, of 8 healthy jobs none had a cause. Three further ones",
    "do no harm here. Silent or wrong were scripts that do nothing or print an error and succeed, a NaN that only the",
    "output shows, a download that is tried again, an error that one rank logs while the others poll, groups that are",
    "told of other ranks, and early stopping; most fixes that lacked were for names that a newer library has no more.",
    "Those whose kind was mended are in the table.",
    "Another one was drawn by lot from 79 causes of such threads, Hydra and FSDP2 among them, and scored before those",
    "mends. Of 31 two do no harm here. Of the other 29, at first 22 causes came first and were right, five were told",
    "as a fact, two were silent or misleading (a hub that is not reached and tried for minutes, ranks that write one",
    "checkpoint at once), and 11 fixes were right; of 6 healthy jobs none had a cause. Ten fixes were added since.",
)
ON_CLUSTER: Final = (
    "On the test cluster (`make cluster-up`), with the same two nodes, each in a namespace of its own. `make corpus`",
    "makes these if that cluster answers, else their half stays as it was recorded. Seconds are from the first group",
    "of ranks, or from the submission if there was none.",
)


def page(results: Sequence[Told]) -> str:
    """docs/corpus.md."""
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
            *FIRST_SCORE,
            "",
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
    return f"`{text.replace('|', '¦').replace('`', chr(39))}`" if text else "-"


def _mark(right: bool | None) -> str:  # noqa: FBT001  a cell's value
    return "-" if right is None else "yes" if right else "**no**"
