"""Chooses the cause of a job's state and its fix, with the evidence. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from kitctl.base.quantity import duration
from kitctl.state.log_folding import folded_traceback
from kitctl.state.phase import JobState
from kitctl.state.why.containers import CONTAINERS
from kitctl.state.why.data import DATA
from kitctl.state.why.distributed import DISTRIBUTED
from kitctl.state.why.ends import ENDS, PODS
from kitctl.state.why.error_text import (
    crashed_at,
    first_of_group,
    names_no_file,
    origin,
    said_before,
    source,
    with_place,
)
from kitctl.state.why.groups import GROUPS
from kitctl.state.why.hangs import APART, HANGS, LATE, LOST_WORKER, NOT_ENDED, OTHER_GROUP
from kitctl.state.why.images import IMAGES
from kitctl.state.why.libraries import LIBRARIES
from kitctl.state.why.losses import CUT_SHORT, LOSSES
from kitctl.state.why.network import NETWORK
from kitctl.state.why.python import PYTHON
from kitctl.state.why.repeats import says
from kitctl.state.why.rule import LIMIT, Family, brief
from kitctl.state.why.scheduling import SCHEDULING
from kitctl.state.why.scripts import SCRIPTS
from kitctl.state.why.services import SERVICES
from kitctl.state.why.snapshots import SNAPSHOTS
from kitctl.state.why.starts import STARTS
from kitctl.state.why.tensors import TENSORS
from kitctl.state.why.training import TRAINING
from kitctl.state.why.volumes import VOLUMES
from kitjob.report import AT_THE_SAME_LINE, Termination

FAMILIES: Final[tuple[Family, ...]] = (
    SCHEDULING,
    IMAGES,
    VOLUMES,
    CONTAINERS,
    STARTS,
    PODS,
    ENDS,
    LOSSES,
    SNAPSHOTS,
    TRAINING,
    DATA,
    LIBRARIES,
    SERVICES,
    SCRIPTS,
    NETWORK,
    HANGS,
    GROUPS,
    DISTRIBUTED,
    TENSORS,
    PYTHON,  # the last: what a library says tells more
)
EVIDENCE: Final = 12  # lines
FRAMES: Final = 8  # lines of them, of a traceback's end
TRIES: Final = 3  # restarts before the first step, after which what they recover from counts as the cause
AGAIN: Final = "kitctl logs {0} --failed shows how they ended"
RESUME: Final = (
    "let the script take what it finds when it is started again: exist_ok=True, and go on from its last checkpoint"
)
FROM_THE_BEGINNING: Final = "resumed at step 0: "  # of a script's own loop: nothing was saved, or nothing is loaded
LATER: Final = "training goes on, and what is missing follows once that ends"
TEXTS: Final = 20  # different reasons of nodes that are looked at
_OF_RANK: Final = re.compile(r"^(?:before: )?(?:node \d+: )?(rank \d+) failed \((.*)\).*", re.DOTALL)
_AGAIN: Final = re.compile(
    r"; (?:started again|again at this step)\b|\), (?:restart \d|no restart left|which no |2 times at )"
)
_BESIDE: Final = re.compile(r"((?:init container|sidecar) [\w.-]+): ")  # whose container does not start
_SIDECAR: Final = re.compile(r"sidecar ")  # what is wrong with it is told although the ranks run
# What may take long before the ranks start, as a large data set or many packages do: facts.
_STAGING: Final = re.compile(r"(?:init container \S+ has run for \d+ s|installing requirements)$")
_ENDLESS: Final = re.compile(f"{OTHER_GROUP}|{LOST_WORKER}|{NOT_ENDED}|{APART}")  # no other fact is known not to go on
_IS_THERE: Final = re.compile(r"^FileExistsError: |\balready exists\b|\bexists and is not empty\b")
_MAY_WAIT: Final = re.compile(r"rank \d+ has saved \S+ to its node's own folder: ")
_OTHERS_ALONE: Final = "ranks of other nodes do not find it there; "  # and not: it is gone with its pod
_DID_NOTHING: Final = re.compile(
    r"no optimizer step was seen; rank \d+ printed a traceback, and ended with exit code 0: (.*)", re.DOTALL
)
# What a rank says at its end of training that did nothing, or less than it could.
_OF_TRAINING: Final = re.compile(r"(?:no optimizer step was seen; )?rank \d+: (.*)", re.DOTALL)
_FROM_OUTSIDE: Final = re.compile(r"killed by SIG(?!SEGV|FPE|ABRT|ILL|BUS)")  # a crash is the script's own
_DEADLINE: Final = re.compile(r"DeadlineExceeded\b")
_NO_MESSAGE: Final = re.compile(r"exit code -?\d+|killed by SIG|.*exited unexpectedly")  # the lines say more


class _Known(NamedTuple):
    """What a row tells of a message.

    Attributes:
        cause: in a line.
        fix: what to do about it.
        worded: whether the cause is in the table's own words.
        of_code: whether the script's own line is to be looked at.
    """

    cause: str = ""
    fix: str = ""
    worded: bool = False
    of_code: bool = False


UNKNOWN: Final = _Known()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is in its state."""

    cause: str
    """In one line of at most 160 characters. Empty: nothing is known to be wrong."""
    fix: str
    """What to do about it. Empty: unknown."""
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

    @property
    def headline(self) -> str:
        """The cause, else where the ranks stand still: what heads all pages about the job."""
        return self.cause or self.fact


def explain(job: JobState, now: float) -> Explanation:
    """The cause of a job's state; ``now`` is in Unix seconds, for how long its ranks stand still."""
    local = job.target == "local"
    cause, fix = next(_causes(job, local=local), ("", ""))
    evidence = tuple(_evidence(job))[:EVIDENCE]
    then = _then(job) if cause or job.phase in {"Failed", "Cancelled", "Suspended"} else ""
    before, its = _before(job, now, local=local) if not cause or job.phase != "Failed" else ("", UNKNOWN)
    fact = job.still(now) or next((one.reason for one in job.nodes if _STAGING.match(one.reason)), "")
    if not cause and _ENDLESS.search(fact):
        fix = (_known(fact, local=local) or UNKNOWN).fix
    note = "; ".join(filter(None, (brief(job.reason), job.note))) if _may_wait(job) else job.note
    if not cause and (hidden := _DID_NOTHING.match(job.note) or _OF_TRAINING.match(job.note)):
        fix = (_known(hidden[1], local=local) or UNKNOWN).fix
    told = says(cause, before.partition(": ")[2].removeprefix("hang: ")) or (its.worded and its.cause in cause)
    return Explanation(
        cause=cause,
        fix=fix,
        go_on=_go_on(job),
        then=then,
        fact=fact,
        note="" if cause else note,
        evidence=evidence,
        before="" if told else before,
        before_fix="" if told else its.fix,
    )


def _before(job: JobState, now: float, *, local: bool) -> tuple[str, _Known]:
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
    known = _known(whole, local=local) or UNKNOWN
    return f"{when}, rank {last.rank} of node {last.node}: {brief(whole)}", known._replace(fix=known.fix or last.fix)


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
    """Whether only another script helps; after other errors, what was wrong on the machine may have been fixed."""
    return bool(job.failure and AT_THE_SAME_LINE in job.failure.reason)


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


def _causes(job: JobState, *, local: bool) -> Iterator[tuple[str, str]]:
    """Causes and their fixes, the most telling first."""
    if job.failure and job.phase == "Failed":
        yield _left_behind(job, job.failure, local=local) or _of_failure(job.failure, local=local)
    elif not job.finished:
        nodes = [one.reason for one in job.nodes if _stuck(job) or one.state != "Running" or _SIDECAR.match(one.reason)]
        begun = [_late(job), _cut_short(job)]
        texts = [*nodes, *begun, job.reason] if _stuck(job) else [*begun, job.reason, *nodes]
        texts = [one for one in texts if not (_STAGING.match(one) or _MAY_WAIT.match(one))]
        if again := _repeated(job):
            yield _of_failure(again, local=local)
        told = job.last_failure
        if told and (job.reason.startswith("before: ") or told.outcome == "fatal" or _MAY_WAIT.match(job.reason)):
            yield _left_behind(job, told, local=local) or _of_failure(told, local=local)
        for text in [*dict.fromkeys(filter(None, texts))][:TEXTS]:
            if found := _known(text, local=local):
                yield found[:2]
        if job.reason and not (_STAGING.match(job.reason) or _may_wait(job)):
            yield brief(_OF_RANK.sub(r"\1: \2", job.reason)), ""
        if _stuck(job):
            yield f"its ranks were started {job.restarts} times, and have taken no step", AGAIN.format(job.name)
        yield from _of_storage(job)
    elif job.phase == "Succeeded" and job.reason and not _may_wait(job):  # what ranks have warned of: no finite loss
        found = _known(job.reason, local=local)
        yield found[:2] if found else (brief(job.reason), "")


def _of_storage(job: JobState) -> Iterator[tuple[str, str]]:
    """What keeps snapshots from being where they should be, while training goes on."""
    for what, kept in (("mirrored", job.mirror), ("copied to other nodes", job.copies)):
        if kept and kept.warning:
            cause, _, fix = kept.warning.partition("; fix: ")
            yield brief(f"snapshots are not {what} now: {cause}"), fix or LATER


def _repeated(job: JobState) -> Termination | None:
    """The failure of the script's own that a job comes to again, as it has begun anew: it explains the lost steps."""
    last = job.failures[-1] if job.failures and job.reason.startswith(FROM_THE_BEGINNING) else None
    if last is None or _FROM_OUTSIDE.match(last.cause):
        return None
    return Termination(
        outcome="retryable", rank=last.rank, node=last.node, time=last.time, error=last.cause, fix=last.fix
    )


def _may_wait(job: JobState) -> bool:
    """Whether a job's reason may harm it once something else does: of a healthy one it is a note.

    What is gone with its pods has harmed one that has succeeded.
    """
    return bool(_MAY_WAIT.match(job.reason)) and (job.phase != "Succeeded" or _OTHERS_ALONE in job.reason)


def _left_behind(job: JobState, failure: Termination, *, local: bool) -> tuple[str, str] | None:
    """Of ranks that cannot be started again, as what they wrote is there: what has made them start again is the cause.

    None if nothing else has failed before: then all ranks make it at once, or an earlier run has.
    """
    if not _IS_THERE.search(failure.error):
        return None
    earlier = [one for one in job.failures if not _IS_THERE.search(one.cause) and one.time < (failure.time or math.inf)]
    if not earlier:
        return None
    first = min(earlier, key=lambda one: one.time)
    known = _known(first.cause, local=local) or UNKNOWN
    cause = known.cause if known.worded else first.cause
    if len(cause) > LIMIT // 2:
        cause = f"{cause[: LIMIT // 2]}…"
    told = brief(f"rank {first.rank}: {cause}; started again, rank {failure.rank}: {failure.error}")
    return told, f"{RESUME}; of the first failure: {known.fix or AGAIN.format(job.name)}"


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


def _of_failure(failure: Termination, *, local: bool) -> tuple[str, str]:
    """Of the rank that failed first, if one did; else of the job."""
    failure = first_of_group(failure)
    goes_on = failure.error.startswith(
        ("ended with ", "called ", "finished the ")
    )  # of a rank that lives: the sentence names it
    where = "" if failure.rank is None or not failure.error else f"rank {failure.rank}{' ' if goes_on else ': '}"
    # The error's own words first: a rank may have printed, and handled, anything before.
    printed = "\n".join(line for line in failure.lines if not line.lower().startswith("warning"))
    around = _around(failure.reason) if where else None
    beside = failure.reason if around is None else around  # without the error, which may be cut there
    known = _known(f"{failure.error}\n{beside}", failure.traceback, local=local, around=around)
    if _NO_MESSAGE.match(failure.error):
        known = _known(f"{failure.error}\n{printed}", local=local, around="") or known
    known = known or UNKNOWN
    cause = known.cause if known.worded else failure.error or failure.reason
    if not known.worded and (inner := said_before(failure) or origin(failure)):
        first = _known(inner, failure.traceback, local=local, around="") or known
        cause, known = f"{first.cause if first.worded else inner} ({cause})", first
    elif cause.endswith(":") or names_no_file(cause):  # else it has no word of its own
        cause += source(failure.traceback)
    if known.worded and (place := crashed_at(failure.error)) and len(where + cause + place) <= LIMIT:
        cause += place
    fix = known.fix or failure.fix
    if known.of_code or not fix:
        fix = with_place(fix, failure.traceback or printed)
    return brief(cause if cause.startswith(("rank ", "ranks ")) else f"{where}{cause}"), fix


def _around(text: str) -> str | None:
    """What is said after a rank's error; None if the text is of none."""
    found = _OF_RANK.match(text)
    return text[found.end(2) :] if found else None


def _known(text: str, traceback: str = "", *, local: bool, around: str | None = None) -> _Known | None:
    """The row that tells of a message; None for an unknown one.

    What a rank says tells of no pod and no machine: causes of these are looked for in what is said ``around`` it.
    """
    said, beside = text, _BESIDE.match(text)
    if around is None and (error := _OF_RANK.match(text)):
        text, said, around = f"{error[1]}: {error[2]}", error[2], _around(text)
    for family in FAMILIES:
        where = said if family.of_ranks or around is None else around
        for rule in family.rules:
            if found := rule.matches(where, traceback):
                worded = rule.cause.format(*found.groups())
                return _Known(
                    cause=brief(f"{beside[0] if beside and worded else ''}{worded or text}"),
                    fix=rule.fixed(found, local=local, beside=bool(beside)),
                    worded=bool(rule.cause),
                    of_code=family.of_code,
                )
    return None


def _shown(failure: Termination) -> list[str]:
    """The end of its traceback, else the last lines that the rank has printed; frames of libraries are folded."""
    if failure.traceback:
        return folded_traceback(failure.traceback)[-FRAMES:]
    return folded_traceback("\n".join(failure.lines)) if failure.lines else []


def _evidence(job: JobState) -> Iterator[str]:
    yield f"phase {job.phase}" + (f": {job.reason}" if job.reason else "")
    failure = job.failure or job.last_failure
    if failure:
        yield from _shown(failure)
    for node in job.nodes:
        if node.reason and node.reason not in job.reason:
            yield f"node {node.index} ({node.state}): {node.reason}"
    for told, times in Counter(f"rank {one.rank} of node {one.node}: {one.cause}" for one in job.failures).items():
        yield f"before{f', {times} times' * (times > 1)}: {told}"
