"""Why a job is in its state, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kitctl.base import printable
from kitctl.state.phase import JobState
from kitctl.state.why.explain import Explanation, advice
from kitctl.state.why.repeats import says


def lines(found: Explanation, job: JobState) -> Iterator[str]:
    """The cause first; then its fix, how to go on, and the evidence."""
    well = f"{job.phase}; {found.note}" if found.note else f"nothing is known to be wrong: {job.phase}"
    yield printable.line(found.headline or well)
    named = (
        ("fix", advice(job, found)),
        ("then", found.then),
        ("now", found.fact if found.cause else ""),
        ("before", found.before),
        ("its fix", found.before_fix),
        ("code", found.code),
    )
    for name, text in named:
        if text:
            yield printable.line(f"{name}: {text}")
    if found.cause or found.fact:
        yield "evidence:"
        told = f"{found.cause} {found.before}"
        shown = (line for line in found.evidence if not says(told, line))
        yield from (f"  {printable.line(line.expandtabs())}" for line in shown)
