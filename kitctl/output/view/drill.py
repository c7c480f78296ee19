"""The results of injected faults, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kitctl.output.view.columns import columns
from kitctl.output.view.text import recovery_parts
from kitctl.state.faults import FAULTS, FaultResult

_HEADER: Final = ("FAULT", "TARGET", "NEW GROUP", "NEW STEP", "STEPS LOST", "RESTARTS", "RESULT", "TIMINGS")
_OF_MIRROR: Final = ("FAULT", "TARGET", "TOLD", "CAUGHT UP", "STEPS LOST", "RESTARTS", "RESULT")


def table(results: Sequence[FaultResult]) -> list[str]:
    """One line per fault; all are of one kind."""
    if FAULTS[results[0].fault].scope == "mirror":
        return columns(_OF_MIRROR, [_row_of_mirror(one) for one in results])
    return columns(_HEADER, [_row(one) for one in results])


def _row_of_mirror(one: FaultResult) -> list[str]:
    noticed = "caught up" if one.told is not None else "no snapshot was due"
    return [
        one.fault,
        one.target,
        _seconds(one.told),
        _seconds(one.caught_up),
        "-" if one.steps_lost is None else str(one.steps_lost),
        str(one.restarts),
        noticed if one.recovered else f"not recovered ({one.phase.lower()})",
    ]


def _row(one: FaultResult) -> list[str]:
    return [
        one.fault,
        one.target,
        _seconds(one.formed),
        _seconds(one.first_step),
        "-" if one.steps_lost is None else str(one.steps_lost),
        str(one.restarts),
        "recovered" if one.recovered else f"not recovered ({one.phase.lower()})",
        recovery_parts(one.timings) if one.timings else "-",
    ]


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
