"""HTML for a notebook: a job in a small table, or a text. What comes from elsewhere is escaped."""

from __future__ import annotations

from collections.abc import Iterable

from kitctl.base import printable
from kitctl.state.phase import JobState


def html(job: JobState) -> str:
    """A table of what is known."""
    from kitctl.state.why.explain import explain  # noqa: PLC0415 - only notebooks need it

    found = explain(job, now=0.0)
    rows = (
        ("Job", f"{job.namespace}/{job.name}"),
        ("Phase", job.phase),
        ("Why", found.cause),
        ("Fix", found.fix),
        ("Seen", found.note),
        ("Then", found.then),
        ("Nodes", job.node_range if job.finished else f"{job.ready_nodes} of {job.node_range}"),
        ("Ranks", str(job.world_size or "")),
        ("Progress", ", ".join(filter(None, (job.steps, job.loss)))),
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
