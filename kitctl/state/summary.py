"""A job in brief, for a notebook and an interpreter: a line, and a small table in HTML. Pure.

Its texts are from elsewhere: they are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kitctl.base import printable

if TYPE_CHECKING:
    from kitctl.state.phase import JobState


def line(job: JobState) -> str:
    """``digits-kzls: Running, step 72/225, loss 0.0818``."""
    parts = [job.phase, _step(job), _loss(job), _cut(job.reason)]
    return printable.line(f"{job.name}: {', '.join(filter(None, parts))}")


def html(job: JobState) -> str:
    """A table of what is known."""
    from kitctl.state.why.explain import explain  # noqa: PLC0415 - which imports the module that imports this one

    found = explain(job, now=0.0)
    rows = (
        ("Job", f"{job.namespace}/{job.name}"),
        ("Phase", job.phase),
        ("Why", found.cause),
        ("Fix", found.fix),
        ("Then", found.then),
        ("Nodes", job.node_range if job.finished else f"{job.ready_nodes} of {job.node_range}"),
        ("Ranks", str(job.world_size or "")),
        ("Progress", ", ".join(filter(None, (_step(job), _loss(job))))),
        ("Runs on", f"{job.target} ({job.job_kind})"),
        ("Snapshots", job.snapshots),
    )
    return table([row for row in rows if row[1]])


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Rows of a heading and a text."""
    parts = (f"<tr><th>{_escaped(name)}</th><td>{_escaped(printable.line(text))}</td></tr>" for name, text in rows)
    return f"<table>{''.join(parts)}</table>"


def pre(text: str) -> str:
    """A text with its line breaks."""
    return f"<pre>{_escaped(printable.text(text))}</pre>"


def _escaped(text: str) -> str:
    from html import escape  # noqa: PLC0415 - 2 ms, for notebooks alone

    return escape(text)


def _step(job: JobState) -> str:
    progress = job.progress
    total = f"/{progress.total_steps}" if progress.total_steps else ""
    return "" if progress.step is None else f"step {progress.step}{total}"


def _loss(job: JobState) -> str:
    return "" if job.progress.loss is None else f"loss {job.progress.loss:.4g}"


def _cut(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
