"""What any target refuses, in the same words everywhere."""

from __future__ import annotations

from kitctl.errors import ConflictError, UsageError


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
