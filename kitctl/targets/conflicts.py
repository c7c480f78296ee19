"""Errors that all targets share, with the same messages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from kitctl.base.errors import ConflictError, JobNotFound, KitError, TargetError, UsageError
from kitctl.base.quantity import pluralize

if TYPE_CHECKING:
    from kitctl.state.faults import FaultInjection
    from kitjob.job_keys import JobKeys
    from kitjob.report import Report

_ALIKE: Final = 0.6  # of 1: names of jobs are short, and a wrong one does no harm
_SHOWN: Final = 3


def already_exists(name: str, phase: str = "") -> ConflictError:
    """A job of that name exists; ``phase`` is its phase, where that is known."""
    fix = f"choose another --name, replace it with --replace, or remove it: kitctl delete {name}"
    return ConflictError(f"name: job {name!r} already exists" + (f" ({phase.lower()})" if phase else ""), fix=fix)


def check_scale(name: str, nodes: int, *, low: int, high: int) -> None:
    """Refuse a number of nodes that a job was not submitted for.

    Raises:
        UsageError: it is not within ``low`` and ``high``.
    """
    if low <= nodes <= high:
        return
    many = f"{low} to {high} nodes" if low < high else f"exactly {pluralize(high, 'node')}"
    fix = "choose a number in that range, or submit it again with --nodes MIN:MAX"
    raise UsageError(f"nodes: {nodes}, but {name!r} was submitted for {many}", fix=fix)


def check_copies(name: str, job: JobKeys, *, nodes: int, now: int) -> None:
    """Refuse to take away more nodes at once than there are copies of what each has.

    Args:
        name: of the job.
        job: its settings.
        nodes: that it is to have.
        now: that it has.

    Raises:
        ConflictError: two nodes could have both copies of a part of the snapshots.
    """
    if job.snapshots.storage != "claim" and nodes < now - 1:
        what = f"with snapshots.storage: {job.snapshots.storage} two nodes have all copies of a part of the snapshots"
        fix = f"one node at a time: kitctl scale {name} --nodes {now - 1}, and on when status shows all copies"
        raise ConflictError(what, fix=fix)


def check_volumes(name: str, job: JobKeys, verb: str, report: Report | None) -> None:
    """Refuse to stop all nodes of a job whose snapshots go with them, unless it has a mirror, and that takes them.

    Args:
        name: of the job.
        job: its settings.
        verb: what is to be done.
        report: how far its mirror is; None: that is not known.

    Raises:
        ConflictError: they would be lost.
    """
    mirror = report.mirror if report and job.snapshots.in_memory else None
    if mirror and mirror.warning:
        newest = "nothing" if mirror.step is None else f"step {mirror.step}"
        what = f"{verb} would lose what {name!r} has in memory: its mirror has {newest}, and takes no more"
        fix = f"try again once it does; kitctl cancel {name} stops it all the same"
        raise ConflictError(f"{what}: {mirror.warning}", fix=fix)
    if job.snapshots.go_with_pods:
        what = f"{verb} would delete the snapshots of {name!r}: they are on volumes that go with its pods"
        raise ConflictError(what, fix="submit it with snapshots.mirror, or with snapshots.storage: claim")


def scale_notes(name: str, job: JobKeys) -> list[str]:
    """What a larger number of nodes does not do at once."""
    if job.policy.grow != "never":
        return []
    then = f"kitctl suspend {name} and kitctl resume {name} make use of it"
    return [f"policy.grow is never: a node that is added stands by until a node is lost; {then}"]


def no_job(name: str, where: str, known: Callable[[], Collection[str]]) -> JobNotFound:
    """No job of that name exists; ``known`` lists the namespace's jobs, the oldest first."""
    return JobNotFound(f"no job {name!r} {where}", fix=_meant(name, "kitctl list -A shows all jobs", known))


def no_snapshots(name: str, where: str, fix: str, known: Callable[[], Collection[str]]) -> JobNotFound:
    """Neither a job of that name exists, nor snapshots of one."""
    return JobNotFound(f"no job {name!r} {where}, and no snapshots of one", fix=_meant(name, fix, known))


def _meant(name: str, fix: str, known: Callable[[], Collection[str]]) -> str:
    """The fix, after the names of the jobs that were likely meant."""
    try:
        near = alike(name, known())
    except KitError:  # what this is about says enough
        near = []
    return f"did you mean {' or '.join(near)}? {fix}" if near else fix


def alike(name: str, known: Collection[str]) -> list[str]:
    """The jobs that were likely meant: those whose names go on, or end before, the newest first; else those alike.

    Args:
        name: what was given.
        known: the jobs, the oldest first.
    """
    parts = [one for one in reversed([*known]) if one.startswith(f"{name}-") or name.startswith(f"{one}-")]
    return (parts or get_close_matches(name, [*dict.fromkeys(known)], _SHOWN, _ALIKE))[:_SHOWN]


def snapshots_disabled(name: str) -> ConflictError:
    """A job was submitted without snapshots."""
    return ConflictError(f"{name!r} keeps no snapshots", fix="submit it with snapshots.enabled=true")


def snapshots_on_nodes(name: str, mirror: str) -> ConflictError:
    """A job whose nodes keep its snapshots on volumes of their own, or in memory.

    Args:
        name: of the job.
        mirror: that has them, too; empty: there is none.
    """
    what = f"the snapshots of {name!r} are on its nodes, each of which has a part"
    fix = f"ask for {mirror} instead of {name}" if mirror else "with snapshots.mirror a bucket has them, too"
    return ConflictError(what, fix=f"kitctl status shows how far they are; {fix}")


def snapshots_were_in_memory(name: str, mirror: str) -> ConflictError:
    """A job that has no node left, whose memory had its snapshots."""
    what = f"the snapshots of {name!r} were in its nodes' memory, and no node of it runs"
    return ConflictError(what, fix=f"ask for {mirror} instead of {name}: all that it has published is there")


def node_gone(node: int) -> ConflictError:
    """A rank's node is not running."""
    return ConflictError(f"node {node} is not running", fix="try again once the job trains")


def fault_misses(injection: FaultInjection, why: str) -> ConflictError:
    """A fault has no target; ``why`` may name its fix."""
    why, _, fix = why.partition("; fix: ")
    what = f"{injection.fault} cannot hit {injection.target}: {why}"
    return ConflictError(what, fix=fix or "try again once the job trains")


def trainer_failed(stderr: bytes) -> TargetError:
    """A command of the trainer failed; the last line of its stderr is the reason."""
    lines = stderr.decode(errors="replace").strip().splitlines() or ["the trainer exited without output"]
    missing = "No module named" in lines[-1]
    return TargetError(lines[-1], fix="the image needs a trainer of kitctl's version" if missing else "")
