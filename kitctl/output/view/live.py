"""A job's page that is refreshed in a terminal, with a progress bar. The only user of rich."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from kitctl.output.view.text import job_page
from kitctl.state.phase import JobState

_STYLES = {
    "Running": "bold green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Recovering": "bold yellow",
    "Cancelled": "bold yellow",
}


def watch(states: Iterator[JobState]) -> JobState:
    """Show each state in place of the last; return the final one."""
    last = next(states)
    with Live(_page(last), console=Console(highlight=False), auto_refresh=False) as live:
        for last in states:
            live.update(_page(last), refresh=True)
    return last


def _page(job: JobState) -> Group:
    text = Text("\n".join(job_page(job, time.time())))
    if style := _STYLES.get(job.phase):
        text.highlight_words([job.phase], style)
    step, total = job.progress.step, job.progress.total_steps
    return Group(ProgressBar(total=total, completed=step, width=60), text) if step and total else Group(text)
