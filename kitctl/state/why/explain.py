"""Chooses the cause of a job's state and its fix, with the evidence. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from kitctl.base.quantity import duration
from kitctl.state.phase import JobState
from kitctl.state.why.causes.hangs import (
    APART,
    LATE,
    LOST_THREADS,
    LOST_WORKER,
    NOT_ENDED,
    OTHER_GROUP,
    UNREAD,
    UNREAD_QUEUE,
)
from kitctl.state.why.causes.losses import CUT_SHORT
from kitctl.state.why.failed import AGAIN, left_behind, of_failure, shown
from kitctl.state.why.repeats import says
from kitctl.state.why.rule import brief
from kitctl.state.why.tables import OF_RANK, UNKNOWN, Match, look_up
from kitjob.report import AT_THE_SAME_LINE, Termination

EVIDENCE: Final = 12  # lines
TRIES: Final = 3  # restarts before the first step, after which what they recover from counts as the cause
FROM_THE_BEGINNING: Final = "resumed at step 0: "  # of a script's own loop: nothing was saved, or nothing is loaded
LATER: Final = "training goes on, and what is missing follows once that ends"
TEXTS: Final = 20  # different reasons of nodes that are looked at
_AGAIN: Final = re.compile(
    r"; (?:started again|again at this step)\b|\), (?:restart \d|no restart left|which no |2 times at )"
)
_SIDECAR: Final = re.compile(r"sidecar ")  # what is wrong with it is told although the ranks run
# What may take long before the ranks start, as a large data set or many packages do: facts.
_STAGING: Final = re.compile(r"(?:init container \S+ has run for \d+ s|installing requirements)$")
# No other fact is known not to go on.
_ENDLESS: Final = re.compile(f"{OTHER_GROUP}|{LOST_WORKER}|{NOT_ENDED}|{UNREAD}|{UNREAD_QUEUE}|{LOST_THREADS}|{APART}")
_MAY_WAIT: Final = re.compile(r"rank \d+ has saved \S+ to its node's own folder: ")
_OTHERS_ALONE: Final = "ranks of other nodes do not find it there; "  # and not: it is gone with its pod
_DID_NOTHING: Final = re.compile(
    r"no optimizer step was seen; rank \d+ printed a traceback, and ended with exit code 0: (.*)", re.DOTALL
)
# What a rank says at its end of training that did nothing, or less than it could.
_OF_TRAINING: Final = re.compile(r"(?:no optimizer step was seen; )?rank \d+: (.*)", re.DOTALL)
_FROM_OUTSIDE: Final = re.compile(r"killed by SIG(?!SEGV|FPE|ABRT|ILL|BUS)")  # a crash is the script's own
_CONFLICT: Final = "torch and what belongs to it stay as they are in the image"  # of requirements
_OF_JOB: Final = re.compile(r"\b(?:JOB|NAMESPACE)\b(?!=)")
_DEADLINE: Final = re.compile(r"DeadlineExceeded\b")


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is in its state."""

    cause: str
    """In one line of at most 160 characters. Empty: nothing is known to be wrong."""
    fix: str
    """What to do about it. Empty: unknown."""
    code: str = ""
    """The stable name of the cause, or of what was seen, as docs/troubleshooting.md has it. Empty: it has none."""
    go_on: str
    """The command that continues the job, once that is done. Empty: it continues by itself, or not as it is."""
    then: str = ""
    """How to continue, in a line. Empty: nothing has to be done."""
    fact: str
    """Where the ranks are while none takes a step, or what runs before them: no cause, as it may be as it should.
    Empty: steps are taken."""
    note: str = ""
    """What was seen of a job that has succeeded, and may be as it should. Empty: nothing of the kind."""
    evidence: tuple[str, ...]
    """What shows the cause: messages of pods, nodes and ranks."""
    before: str = ""
    """The last failure that the job has recovered from, and how long ago. Empty: none, or the cause says it."""
    before_fix: str = ""
    """What to do about that. Empty: unknown."""
    before_code: str = ""
    """The stable name of that cause. Empty: it has none."""

    @property
    def headline(self) -> str:
        """The cause, else where the ranks stand still: what heads all pages about the job."""
        return self.cause or self.fact


def explain(job: JobState, now: float) -> Explanation:
    """The cause of a job's state; ``now`` is in Unix seconds, for how long its ranks stand still."""
    local = job.target == "local"
    found = next(_causes(job, local=local), UNKNOWN)
    cause = found.cause
    evidence = tuple(_evidence(job))[:EVIDENCE]
    then = _then(job) if cause or job.phase in {"Failed", "Cancelled", "Suspended"} else ""
    before, its = _before(job, now, local=local) if not cause or job.phase != "Failed" else ("", UNKNOWN)
    fact = job.still(now) or next((one.reason for one in job.nodes if _STAGING.match(one.reason)), "")
    if not cause and _ENDLESS.search(fact):
        found = look_up(fact, local=local) or UNKNOWN
    notes = [brief(job.reason), job.note] if _may_wait(job) else [job.note]
    if not cause and (hidden := _DID_NOTHING.match(job.note) or _OF_TRAINING.match(job.note)):
        found = look_up(hidden[1], local=local) or UNKNOWN
        notes = notes[:: -1 if found is not UNKNOWN else 1]  # first what the fix is for
    told = says(cause, before.partition(": ")[2].removeprefix("hang: ")) or (its.worded and its.cause in cause)
    return Explanation(
        cause=cause,
        fix=_addressed(found.fix, job),
        code=found.code,
        go_on=_go_on(job),
        then=then,
        fact=fact,
        note="" if cause else "; ".join(filter(None, notes)),
        evidence=evidence,
        before="" if told else before,
        before_fix="" if told else _addressed(its.fix, job),
        before_code="" if told else its.code,
    )


def _addressed(fix: str, job: JobState) -> str:
    """A fix whose commands name the job."""
    return _OF_JOB.sub(lambda found: job.name if found[0] == "JOB" else job.namespace, fix)


def _before(job: JobState, now: float, *, local: bool) -> tuple[str, Match]:
    """``2m10s ago, rank 1 of node 1: hang: ...``, and its row; empty without a failure that was recovered from."""
    last = max(job.failures, key=lambda one: one.time, default=None)
    if last is None:
        return "", UNKNOWN
    start = last.cause.rstrip("…")  # it may be cut; the recovery, or a node, has the whole
    longer = (job.last_recovery.cause if job.last_recovery else "", *(one.reason for one in job.nodes))
    whole = next((text[text.find(start) :] for text in longer if start and start in text), last.cause)
    whole = _AGAIN.split(whole)[0]
    ago = duration(max((job.ended or now) - last.time, 0.0))
    when = f"{ago} before its end" if job.ended else f"{ago} ago"
    known = look_up(whole, local=local) or UNKNOWN
    return f"{when}, rank {last.rank} of node {last.node}: {brief(whole)}", known._replace(
        fix=known.fix or last.fix, code=known.code or last.code
    )


def advice(job: JobState, found: Explanation) -> str:
    """The fix; of a failed job without a known one, the command that shows its logs."""
    if found.fix or job.phase != "Failed":
        return found.fix
    rank = "" if job.failure is None or job.failure.rank is None else f" --rank {job.failure.rank}"
    return f"see kitctl logs {job.name}{rank}"


def _go_on(job: JobState) -> str:
    """Kubernetes cannot start a job again that has failed, and a deadline counts from the submission."""
    if job.phase == "Suspended":
        return f"kitctl resume {job.name}"
    again = job.phase == "Failed" and job.target == "local" and not (_out_of_time(job) or _is_of_code(job))
    return f"kitctl restart {job.name}" if again or job.phase == "Cancelled" else ""


def _is_of_code(job: JobState) -> bool:
    """Whether only another script helps, or other requirements; what else was wrong may have been mended since."""
    return bool(job.failure and (AT_THE_SAME_LINE in job.failure.reason or _CONFLICT in job.failure.reason))


def _out_of_time(job: JobState) -> bool:
    return bool(job.failure and _DEADLINE.match(f"{job.failure.error} {job.failure.reason}".lstrip()))


def _then(job: JobState) -> str:
    saved = job.goes_on_from
    on = f"continues from {saved}" if saved else "starts it again"
    go_on, submit = _go_on(job), f"kitctl submit --name {job.name} --replace"
    resume = f"--continue {job.mirror.url}" if job.mirror and job.has_lost_snapshots else "--resume"
    anew = f"{submit} {resume}" if saved else submit
    match job.phase:
        case "Failed" if go_on or _is_of_code(job):
            again = f"{go_on} {on}; " if go_on else ""
            return f"{again}after a change of script or options: {anew} ..."
        case "Failed":
            return f"{anew}{' --deadline TIME' if _out_of_time(job) else ''} ... {on}"
        case "Cancelled" | "Suspended":
            elsewhere = f"; on another cluster: kitctl submit {resume} ..." if saved and resume != "--resume" else ""
            return f"{go_on} {on}{elsewhere}"
        case "Succeeded":
            return f"to train again: {submit} ..."
        case "Pending":
            return f"it starts by itself once it can; with other options: {submit} ..."
        case _:
            return ""


def _causes(job: JobState, *, local: bool) -> Iterator[Match]:
    """Causes and their fixes, the most telling first."""
    if job.failure and job.phase == "Failed":
        yield _of_ended(job, job.failure, local=local)
    elif not job.finished:
        nodes = [one.reason for one in job.nodes if _stuck(job) or one.state != "Running" or _SIDECAR.match(one.reason)]
        begun = [_late(job), _cut_short(job)]
        texts = [*nodes, *begun, job.reason] if _stuck(job) else [*begun, job.reason, *nodes]
        texts = [one for one in texts if not (_STAGING.match(one) or _MAY_WAIT.match(one))]
        if again := _repeated(job):
            yield of_failure(again, local=local)
        told = job.last_failure
        if told and (job.reason.startswith("before: ") or told.outcome == "fatal" or _MAY_WAIT.match(job.reason)):
            yield _of_ended(job, told, local=local)
        for text in [*dict.fromkeys(filter(None, texts))][:TEXTS]:
            if found := look_up(text, local=local):
                yield found
        if job.reason and not (_STAGING.match(job.reason) or _may_wait(job)):
            yield Match(brief(OF_RANK.sub(r"\1: \2", job.reason)))
        if _stuck(job):
            cause = f"its ranks were started {job.restarts} times, and have taken no step"
            yield Match(cause, AGAIN.format(job.name), "no-step-after-restarts")
        yield from _of_storage(job)
    elif job.phase == "Succeeded" and job.reason and not _may_wait(job):  # what ranks have warned of: no finite loss
        found = look_up(job.reason, local=local)
        yield found or Match(brief(job.reason))


def _of_ended(job: JobState, failure: Termination, *, local: bool) -> Match:
    """Of a failure, or of an earlier one that has made the ranks start again."""
    return left_behind(failure, job.failures, job.name, local=local) or of_failure(failure, local=local)


def _of_storage(job: JobState) -> Iterator[Match]:
    """What keeps snapshots from being where they should be, while training goes on."""
    for what, code, kept in (
        ("mirrored", "snapshots-not-mirrored", job.mirror),
        ("copied to other nodes", "snapshots-not-copied", job.copies),
    ):
        if kept and kept.warning:
            cause, _, fix = kept.warning.partition("; fix: ")
            yield Match(brief(f"snapshots are not {what} now: {cause}"), fix or LATER, code)


def _repeated(job: JobState) -> Termination | None:
    """The failure of the script's own that a job comes to again, as it has begun anew: it explains the lost steps."""
    last = job.failures[-1] if job.failures and job.reason.startswith(FROM_THE_BEGINNING) else None
    if last is None or _FROM_OUTSIDE.match(last.cause):
        return None
    return Termination(
        outcome="retryable",
        rank=last.rank,
        node=last.node,
        time=last.time,
        error=last.cause,
        fix=last.fix,
        code=last.code,
    )


def _may_wait(job: JobState) -> bool:
    """Whether a job's reason may harm it once something else does: of a healthy one it is a note.

    What is gone with its pods has harmed one that has succeeded.
    """
    return bool(_MAY_WAIT.match(job.reason)) and (job.phase != "Succeeded" or _OTHERS_ALONE in job.reason)


def _late(job: JobState) -> str:
    """What a job has begun anew for, if ranks have waited for others in vain: it explains the lost steps."""
    cause = job.last_recovery.cause if job.last_recovery and job.reason.startswith(FROM_THE_BEGINNING) else ""
    return cause if re.search(LATE, cause) else ""


def _cut_short(job: JobState) -> str:
    """What a job has begun anew for, if ranks of a drained node were killed before they had saved."""
    drained = (one.reason for one in job.nodes if re.search(CUT_SHORT, one.reason))
    return next(drained, "") if job.reason.startswith(FROM_THE_BEGINNING) else ""


def _stuck(job: JobState) -> bool:
    """Whether it starts again and again, and each time from the beginning. Nodes may be lost together."""
    each = [node.restarts for node in job.nodes]
    starts = job.restarts - sum(each) + max(each, default=0)
    return starts >= TRIES and (job.progress.step is None or job.reason.startswith(FROM_THE_BEGINNING))


def _evidence(job: JobState) -> Iterator[str]:
    yield f"phase {job.phase}" + (f": {job.reason}" if job.reason else "")
    failure = job.failure or job.last_failure
    if failure:
        yield from shown(failure)
    for node in job.nodes:
        if node.reason and node.reason not in job.reason:
            yield f"node {node.index} ({node.state}): {node.reason}"
    for told, times in Counter(f"rank {one.rank} of node {one.node}: {one.cause}" for one in job.failures).items():
        yield f"before{f', {times} times' * (times > 1)}: {told}"
