"""The results of checks, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kitctl.base import printable
from kitctl.state.checks import Finding, Verdict

MARKS: Final[dict[Verdict, str]] = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM", "unknown": "unknown"}
_NAME, _MARK = 14, 8


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    """One line per check, as it is made, and one each for its fix and how to continue."""
    for finding in findings:
        yield printable.line(f"{finding.check:<{_NAME}}{MARKS[finding.verdict]:<{_MARK}}{finding.what}")
        for name, text in (("fix", finding.fix), ("then", finding.then)):
            if text:
                yield printable.line(f"{'':<{_NAME + _MARK}}{name}: {text}")
