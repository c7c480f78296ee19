"""What came of faults on purpose, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kitctl.faults import Recovery
from kitctl.view.columns import columns
from kitctl.view.text import recovery_parts

_HEADER: Final = ("FAULT", "STRUCK", "NEW GROUP", "NEW STEP", "STEPS LOST", "RESTARTS", "RESULT", "OF WHICH")


def recoveries(found: Sequence[Recovery]) -> list[str]:
    """One line a strike."""
    return columns(_HEADER, [_row(one) for one in found])


def _row(one: Recovery) -> list[str]:
    return [
        one.fault,
        one.victim,
        _after(one.formed),
        _after(one.first_step),
        "-" if one.steps_lost is None else str(one.steps_lost),
        str(one.restarts),
        "recovered" if one.recovered else f"not recovered ({one.phase.lower()})",
        recovery_parts(one.details) if one.details else "-",
    ]


def _after(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
