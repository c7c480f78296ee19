"""What any target refuses, in the same words everywhere."""

from __future__ import annotations

from kitctl.errors import ConflictError, NotFound, TargetError, UsageError


def already_there(name: str, phase: str = "") -> ConflictError:
    """A job of that name exists; ``phase`` says how it is, where that is known."""
    fix = f"choose another --name, replace it with --replace, or remove it: kitctl delete {name}"
    return ConflictError(f"name: a job {name!r} is there already" + (f" ({phase.lower()})" if phase else ""), fix=fix)


def check_scale(name: str, nodes: int, *, low: int, high: int) -> None:
    """Refuse a number of nodes that a job was not submitted for.

    Raises:
        UsageError: it is not within ``low`` and ``high``.
    """
    if low <= nodes <= high:
        return
    many = f"{low} to {high} nodes" if low < high else f"exactly {high} nodes"
    fix = "choose a number in that range, or submit it anew with --nodes MIN:MAX"
    raise UsageError(f"nodes: {nodes}, but {name!r} was submitted for {many}", fix=fix)


def nothing_kept(name: str, place: str, fix: str) -> NotFound:
    """There is neither a job of that name nor anything that one has left."""
    return NotFound(f"no job {name!r} {place}, and no snapshots of one", fix=fix)


def keeps_none(name: str) -> ConflictError:
    """A job was submitted without snapshots."""
    return ConflictError(f"{name!r} keeps no snapshots", fix="submit it with snapshots.enabled=true")


def trainer_failed(told: bytes) -> TargetError:
    """The trainer, asked to do something beside a job, has failed; what it said last is why."""
    lines = told.decode(errors="replace").strip().splitlines() or ["the trainer ended without a word"]
    missing = "No module named" in lines[-1]
    return TargetError(lines[-1], fix="the image needs a trainer of kitctl's version" if missing else "")
