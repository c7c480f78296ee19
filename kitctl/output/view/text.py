"""Jobs as plain text: a list, a job's page, its progress. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kitctl.base import printable
from kitctl.base.quantity import duration, format_bytes, pluralize, significant
from kitctl.output.view.layout import facts, sparkline, table
from kitctl.output.view.nodes import node_table
from kitctl.state.facts import OF_NODES, OWN_VOLUMES
from kitctl.state.phase import JobState
from kitctl.state.why.explain import explain
from kitctl.state.why.repeats import says, sequel, shorter, unsaid
from kitjob.report import Progress, RecoveryTimings, Termination

_LIST: Final = ("NAME", "PHASE", "NODES", "RANKS", "STEP", "LAST STEP", "LOSS", "RESTARTS", "AGE")
_LIST_SPARE: Final = ("KIND", "TARGET", "SNAPSHOT", "RANKS", "RESTARTS", "LOSS", "AGE", "LAST STEP", "NODES")
SLOW_SNAPSHOT: Final = 5.0  # seconds
_WIDE = ("TARGET", "KIND", "SNAPSHOT", "REASON")
_MAX_FAILURES = 3  # different failures that are shown
CURVE: Final = 32  # columns of a curve


class Look(NamedTuple):
    """How a page looks.

    Attributes:
        width: columns of the terminal; None: there is none, so nothing is wrapped, left out or drawn.
        unicode: whether it can show other characters than ASCII.
        wide: whether all nodes are shown, one by one.
    """

    width: int | None = None
    unicode: bool = True
    wide: bool = False


PLAIN: Final = Look()


def job_list(jobs: Sequence[JobState], now: float, look: Look = PLAIN, *, namespaces: bool = False) -> list[str]:
    """One line per job."""
    header = (("NAMESPACE",) if namespaces else ()) + _LIST + (_WIDE if look.wide else ())
    rows = [_list_row(job, now, namespaces=namespaces, wide=look.wide) for job in jobs]
    return table(header, rows, look.width, _LIST_SPARE)


def job_page(job: JobState, now: float, look: Look = PLAIN) -> list[str]:
    """One job, the most important first."""
    head = facts([row for row in _facts(job, now, look) if row[1]], look.width)
    cause = explain(job, now).cause
    told = (cause, shorter(job.reason, cause))
    rows = [replace(one, reason="as above") if _is_told(one.reason, job.reason, told) else one for one in job.nodes]
    nodes = node_table(rows, now, wide=look.wide, width=look.width)
    failed = failure_lines(job.failure, cause)
    return [*head, "", *nodes, *([""] if failed else []), *failed]


def _is_told(reason: str, of_job: str, told: Sequence[str]) -> bool:
    """Whether the page has said what a node's row would say again."""
    whole = bool(of_job) and reason.endswith(f", but {of_job}")
    return bool(reason) and (whole or any(says(text, reason) for text in told))


def _facts(job: JobState, now: float, look: Look) -> list[tuple[str, str]]:
    found = explain(job, now)
    more = sequel(job.reason, found.cause)  # which is no sentence without the cause before it
    reason = "" if more or says(found.note, job.reason) else shorter(job.reason, found.cause)
    curves = look.width is not None and look.unicode
    return [
        ("Job", f"{job.namespace}/{job.name}"),
        ("Phase", job.phase + (f": {reason}" if reason else "")),
        ("Why", f"{found.cause}{more}"),
        ("Fix", found.fix),
        ("Then", found.then),
        ("Seen", found.note),
        ("No step", job.still(now).removeprefix("no step ")),
        ("Runs on", f"{job.target} ({job.job_kind})"),
        ("Queue", f"{job.queue.name} ({job.queue.state.lower()})" if job.queue else ""),
        ("Nodes", _nodes(job)),
        ("Progress", progress_line(job.progress)),
        ("Loss", _curve(job.trend.loss) if curves else ""),
        ("Speed", _curve(job.trend.speed) if curves else ""),
        (
            "Metrics",
            "  ".join(
                f"{name} {math.nan if value is None else value:.4g}" for name, value in job.progress.metrics.items()
            ),
        ),
        ("Snapshot", _snapshot(job, now)),
        ("Copies", _copies(job)),
        ("Mirror", _mirror(job, now)),
        ("Outputs", job.outputs),
        ("Slow", ", ".join(f"rank {rank} takes {ratio:.1f} x the others' step" for rank, ratio in job.slow.items())),
        ("Recovery", _recovery(job.last_recovery, found.cause)),
        ("Failures", _failures(job, found.cause)),
        ("Age", duration((job.ended or now) - job.created) + (" (ended)" if job.ended else "")),
    ]


def _curve(values: Sequence[float]) -> str:
    """``▁▂▃▅█  0.12 to 2.3``."""
    drawn = sparkline(values, CURVE)
    return f"{drawn}  {significant(min(values))} to {significant(max(values))}" if drawn else ""


def progress_line(progress: Progress) -> str:
    """``epoch 2/5  step 120/450 (27 %)  loss 0.1234  812 samples/s  42s left``; empty before the first step."""
    parts = []
    if progress.epoch is not None:
        parts.append(f"epoch {progress.epoch}" + (f"/{progress.epochs}" if progress.epochs else ""))
    if progress.step is not None:
        share = (
            f"/{progress.total_steps} ({100 * progress.step // progress.total_steps} %)" if progress.total_steps else ""
        )
        own = f"{f', {progress.step}' * bool(progress.resumed_from)} since the ranks started" * progress.of_own_loop
        parts.append(f"step {progress.reached}{share}{own}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.samples_per_second is not None:
        parts.append(f"{progress.samples_per_second:.0f} samples/s")
    if progress.steps_per_second is not None:
        parts.append(f"{significant(progress.steps_per_second)} steps/s")
    if progress.eta_seconds:
        parts.append(f"{duration(progress.eta_seconds)} left")
    return "  ".join(parts)


def recovery_parts(recovery: RecoveryTimings) -> str:
    """The parts of a recovery: ``stop 0.1, form 0.2, start 0.0``."""
    return ", ".join(f"{name.replace('_', ' ')} {seconds:.1f}" for name, seconds in recovery.parts.items())


def failure_lines(failure: Termination | None, told: str = "") -> list[str]:
    """The traceback of the rank that failed first; without one, its last lines; without the last, if that was told."""
    if failure is None:
        return []
    lines = unsaid(failure.traceback.rstrip().split("\n") if failure.traceback else failure.lines, told)
    if not lines:
        return []
    rank = "" if failure.rank is None else f" of rank {failure.rank}"
    where = "" if failure.node is None else f" on node {failure.node}"
    what = "Traceback" if failure.traceback else "Last lines"
    return [f"{what}{rank}{where}:", *(f"  {printable.line(line.expandtabs())}" for line in lines)]


def _list_row(job: JobState, now: float, *, namespaces: bool, wide: bool) -> list[str]:
    progress = job.progress
    row = [
        *([job.namespace] if namespaces else []),
        job.name,
        job.phase,
        job.node_range if job.finished else f"{job.ready_nodes}/{job.node_range}",
        str(job.world_size or "-"),
        "-" if progress.reached is None else str(progress.reached),
        _last_step(job, now),
        "-" if progress.loss is None else f"{progress.loss:.4f}",
        str(job.restarts),
        duration(now - job.created),
    ]
    return row + (
        [job.target, job.job_kind, str(progress.snapshot_step or "-"), explain(job, now).headline] if wide else []
    )


def _last_step(job: JobState, now: float) -> str:
    """``3s``; of a job that trains."""
    last = job.standstill.since if job.standstill else job.last_step
    return "-" if last is None or job.progress.step is None or job.phase != "Running" else duration(now - last)


def _nodes(job: JobState) -> str:
    ranks = f", {pluralize(job.world_size, 'rank')}" if job.world_size else ""
    restarts = f", {pluralize(job.restarts, 'restart')}" if job.restarts else ""
    train, _, spares = job.node_range.partition("+")
    ready = f", {len(job.spares)} of {pluralize(int(spares), 'spare')} ready" if spares else ""
    return f"{job.node_range if job.finished else f'{job.ready_nodes} of {train} up{ready}'}{ranks}{restarts}"


def _snapshot(job: JobState, now: float) -> str:
    """Empty also of ranks that have reported no step: they may be a plain script's, which saves in its own way."""
    progress = job.progress
    step, published, since = progress.snapshot_step, progress.snapshot_time, progress.writing_since or now
    if not job.snapshots or progress.of_own_loop or (progress.step is None and not step):
        return ""
    age = f" ({duration(now - published)} ago)" if step and published and not job.finished else ""
    writing = f", writing step {progress.writing_step} for {duration(now - since)}" if _is_slow(job, now) else ""
    if step and _is_gone(job):
        return f"step {step} was in {job.snapshots}, and is gone with it"
    if step and job.snapshots == OWN_VOLUMES and job.finished:
        return f"step {step}, in {job.snapshots}, until its pod is deleted"
    return f"{f'step {step}' if step else 'none yet'}{age}{writing}, in {job.snapshots}"


def _is_gone(job: JobState) -> bool:
    """Whether its snapshots went with its nodes; one that has ended keeps its volume while its pod is there."""
    stays = job.snapshots == OWN_VOLUMES and any(node.pod for node in job.nodes)
    return job.has_lost_snapshots and job.snapshots in OF_NODES and not stays


def _copies(job: JobState) -> str:
    """``copies 2 of 2, step 4120``, of the newest snapshot that is whole, and which one is safe if that is not."""
    copies = job.copies
    if copies is None or (copies.step is not None and _is_gone(job)):
        return ""
    if copies.step is None and job.has_lost_snapshots:
        return f"no snapshot is whole any more; step {copies.copied_step} had all"
    there = f"{copies.have} of {copies.wanted}, step {copies.step}" if copies.step is not None else "none yet"
    safe = f"step {copies.copied_step} has all" if copies.copied_step is not None else "no snapshot has all"
    warning = f"; warning: {copies.warning}" if copies.warning else ""
    return there + (f"; {safe}" if copies.copied_step != copies.step else "") + warning


def _mirror(job: JobState, now: float) -> str:
    """``step 120, 1.2 GiB in s3://bucket/prefix; 1 snapshot (600 MiB) of the last 12s is not there yet``."""
    mirror = job.mirror
    if mirror is None:
        return ""
    there = f"step {mirror.step}, {format_bytes(mirror.size)} in {mirror.url}" if mirror.step is not None else ""
    there = there or f"nothing of this run is in {mirror.url} yet"
    age = f", {duration(now - mirror.behind_since)} old" if mirror.behind_since and not job.finished else ""
    left = f"{pluralize(mirror.behind, 'snapshot')} ({format_bytes(mirror.behind_bytes)}{age}) not yet"
    warning = f"; warning: {mirror.warning}" if mirror.warning else ""
    return there + (f"; {left}" if mirror.behind else "") + warning


def _is_slow(job: JobState, now: float) -> bool:
    """Whether a snapshot is being written for so long that it is worth a word."""
    since = job.progress.writing_since
    return since is not None and not job.finished and now > since + SLOW_SNAPSHOT


def _recovery(recovery: RecoveryTimings | None, told: str) -> str:
    """``in 1.2 s (stop 0.1, form 0.2, ...) after: node 1 is lost``; the cause alone if no agent has measured it."""
    if recovery is None:
        return ""
    cause = shorter(recovery.cause, told) or "as above"
    if not recovery.parts:
        return cause
    return f"in {sum(recovery.parts.values()):.1f} s ({recovery_parts(recovery)}) after: {cause}"


def _failures(job: JobState, told: str) -> str:
    """``rank 1 of node 1, 2 times (exit code 3: no data); rank 0 of node 0 (KeyError: 'x')``; the last one last."""
    told = f"{told} {job.reason}"
    counts = Counter((one.node, one.rank, one.cause) for one in job.failures)
    shown = [
        f"rank {rank} of node {node}{f', {count} times' if count > 1 else ''}"
        f" ({'as above' if says(told, cause) else cause})"
        for (node, rank, cause), count in counts.items()
    ]
    return f"{'' if len(shown) <= _MAX_FAILURES else '...; '}{'; '.join(shown[-_MAX_FAILURES:])}"
