"""A job's page that is refreshed in a terminal, with a progress bar."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from kitctl.output.view.screen import Screen
from kitctl.output.view.text import Look, job_page
from kitctl.state.phase import JobState

PLAIN: Final = "\x1b[0m"
GREEN, YELLOW, RED = "\x1b[1;32m", "\x1b[1;33m", "\x1b[1;31m"
COLOURS: Final = {
    "Running": GREEN,
    "Succeeded": GREEN,
    "Failed": RED,
    "Recovering": YELLOW,
    "Cancelled": YELLOW,
}
WIDEST_BAR: Final = 60


def watch(states: Iterator[JobState], *, wide: bool = False, unicode: bool = True) -> JobState:
    """Show each state in place of the last, on a screen of its own; the final one stays, and is returned.

    Raises:
        KeyboardInterrupt: the user leaves; the last state stays as well.
    """
    shown = next(states)
    arriving: SimpleQueue[JobState | BaseException | None] = SimpleQueue()

    def compose(width: int) -> Sequence[str]:
        return page(shown, time.time(), Look(width=width, unicode=unicode, wide=wide))

    screen = Screen(compose)

    def read() -> None:
        try:
            for state in states:
                arriving.put(state)
                screen.wake()
            arriving.put(None)
        except BaseException as error:  # noqa: BLE001 - it is raised where the page is shown
            arriving.put(error)
        screen.wake()

    threading.Thread(target=read, name="states", daemon=True).start()
    try:
        with screen:
            while True:
                screen.draw()
                screen.wait()
                with suppress(Empty):
                    while found := arriving.get_nowait():
                        if isinstance(found, BaseException):
                            raise found
                        shown = found
                    break
    finally:
        print("\n".join(compose(screen.size.columns)), flush=True)  # noqa: T201 - where the page was
    return shown


def page(job: JobState, now: float, look: Look) -> list[str]:
    """The lines of a job's page, coloured, with a progress bar in a row of its own."""
    lines = job_page(job, now, look)
    if os.environ.get("NO_COLOR"):
        return [*_bar(job, look, "", ""), *lines]
    colour = COLOURS.get(job.phase, "")
    painted = [
        line.replace(job.phase, f"{colour}{job.phase}{PLAIN}", 1) if colour and line.startswith("Phase") else line
        for line in lines
    ]
    return [*_bar(job, look, colour, PLAIN if colour else ""), *painted]


def _bar(job: JobState, look: Look, colour: str, plain: str) -> list[str]:
    step, total = job.progress.step, job.progress.total_steps
    if not step or not total:
        return []
    share = min(step / total, 1.0)
    width = max(min(look.width or WIDEST_BAR, WIDEST_BAR) - 6, 4)
    full, empty = ("━", "─") if look.unicode else ("#", "-")
    done = round(share * width)
    return [f"{colour}{full * done}{plain}{empty * (width - done)} {share:4.0%}", ""]
