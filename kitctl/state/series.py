"""What is drawn of jobs: curves and marks over time or steps, from their histories. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from kitctl.base.quantity import duration, format_bytes, pluralize, significant
from kitctl.base.redaction import Redactor
from kitctl.state import history
from kitctl.state.history import JobHistory
from kitjob.timeline import Event, Row

By: TypeAlias = Literal["time", "step"]
SMALLEST: Final = 1e-12  # of the numbers of an axis, a range that is drawn
MOST: Final = 800  # points of a curve; more are not seen
GAP: Final = 1.0  # seconds without a row that interrupt a curve
BETWEEN_STEPS: Final = (  # phases of the loop that are no part of a step
    *("STARTING", "JOINING", "PREPARING", "RESTORING"),
    *("EVALUATING", "SAVING", "FINISHING"),
)
PARTIAL: Final = 0.5  # seconds of a row at the end of a group, in which few steps say little of their time
LOG_FROM: Final = 30.0  # a loss that falls by this factor is drawn on a logarithmic scale


class Metric(NamedTuple):
    """Something that rows have values of."""

    title: str
    value: Callable[[Row], float | None]
    show: Callable[[float], str] = significant
    stairs: bool = False  # it keeps its value between its changes, and is whole
    may_be_log: bool = False
    from_zero: bool = False


class Point(NamedTuple):
    """A value at a time since the submission, or at a step."""

    x: float
    y: float


class Mark(NamedTuple):
    """Something that happened; ``end``: the first step after a fault."""

    x: float
    kind: str
    text: str
    end: float | None = None


class Run(NamedTuple):
    """What is drawn of a job: by metric its curve, in parts between which nothing is known."""

    name: str
    curves: Mapping[str, Sequence[Sequence[Point]]]
    marks: Sequence[Mark]


class Picture(NamedTuple):
    """Runs over each other, a panel for each metric."""

    by: By
    metrics: Sequence[str]
    runs: Sequence[Run]

    @property
    def end(self) -> float:
        """The largest x."""
        return max((part[-1].x for run in self.runs for parts in run.curves.values() for part in parts), default=0.0)

    @property
    def begin(self) -> float:
        """The smallest x."""
        return min((part[0].x for run in self.runs for parts in run.curves.values() for part in parts), default=0.0)

    def bounds(self, metric: str) -> tuple[float, float, bool]:
        """The smallest and the largest value of a panel, and whether its scale is logarithmic."""
        values = [one.y for run in self.runs for part in run.curves.get(metric, ()) for one in part]
        low, high = min(values, default=0.0), max(values, default=1.0)
        kind = METRICS[metric]
        if kind.may_be_log and low > 0 and high / low > LOG_FROM:
            return low, high, True
        if kind.from_zero and low >= 0:
            low = 0.0
        return (low, high, False) if high > low else (low - abs(low or 1) / 2, high + abs(high or 1) / 2, False)


def _in_steps(row: Row) -> float:
    """Seconds of a row that were spent in steps."""
    return max(row.seconds - sum(row.phases.get(phase, 0.0) for phase in BETWEEN_STEPS), 0.0)


def _seconds_text(seconds: float) -> str:
    if not seconds:
        return "0"
    return f"{significant(1000 * seconds)} ms" if seconds < 1 else f"{significant(seconds)} s"


def _number(number: float) -> str:
    return f"{number:.3g}"


def _count(number: float) -> str:
    return f"{number:g}" if abs(number) < 1e6 else significant(number)  # noqa: PLR2004


METRICS: Final[Mapping[str, Metric]] = {
    "loss": Metric("loss", lambda row: row.loss, show=_number, may_be_log=True),
    "throughput": Metric("throughput, samples/s", lambda row: row.samples_per_second, from_zero=True),
    "step-time": Metric(
        "step time",
        lambda row: _in_steps(row) / row.steps if row.steps and row.seconds > PARTIAL else None,
        show=_seconds_text,
        from_zero=True,
    ),
    "world-size": Metric("ranks", lambda row: row.world or None, show=_count, stairs=True, from_zero=True),
    "data-wait": Metric(
        "data wait, share of time",
        lambda row: row.phases.get("DATA", 0.0) / row.seconds if row.steps and not row.of_own_loop else None,
        show=lambda share: f"{share:.0%}",
        from_zero=True,
    ),
    "memory": Metric("memory of a node's ranks", lambda row: row.memory or None, show=format_bytes, from_zero=True),
}
DEFAULT: Final = ("loss", "throughput", "step-time", "world-size")
MARKS: Final[Mapping[str, str]] = {"fault": "fault", "resized": "resized", "snapshot": "snapshot"}


def picture(jobs: Iterable[JobHistory], *, metrics: Sequence[str] = (), by: By = "time", since: float = 0.0) -> Picture:
    """What is drawn of jobs.

    Args:
        jobs: their histories.
        metrics: which panels; by default those of ``DEFAULT`` that any of the jobs has values of.
        by: what is on the horizontal axis.
        since: only the last seconds of each; 0: all.
    """
    runs = [_run(job, metrics or DEFAULT, by, since) for job in jobs]
    known = [one for one in metrics or DEFAULT if any(run.curves[one] for run in runs)]
    return Picture(by, known, runs)


def redacted(picture: Picture, redactor: Redactor) -> Picture:
    """The same without secrets in its texts."""
    runs = [
        run._replace(
            name=redactor.text(run.name), marks=[one._replace(text=redactor.text(one.text)) for one in run.marks]
        )
        for run in picture.runs
    ]
    return picture._replace(runs=runs)


def recent(job: JobHistory, since: float) -> tuple[list[Row], list[Event]]:
    """A job's rows and events, or those of its last seconds."""
    logs = history.writers(job)
    rows, events = history.rows(logs), history.events(job, logs)
    end = max([job.ended or 0.0, *(row.time for row in rows)])
    first = end - since if since else 0.0
    return [row for row in rows if row.time >= first], [one for one in events if one.time >= first]


def x_text(picture: Picture, x: float) -> str:
    """A position on the horizontal axis."""
    return duration(x) if picture.by == "time" else _count(x)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high, at most so many; one where floating point knows too few between them."""
    span = high - low
    if span <= SMALLEST * max(abs(low), abs(high)) or most < 1:
        return [low]
    step = 10.0**-12
    while span / step > 10 * most:
        step *= 10
    for factor in (1, 2, 5, 10, 20, 50, 100):
        if span / (step * factor) <= most:
            step *= factor
            break
    first = -(-low // step)
    return [round((first + index) * step, 12) for index in range(int((high - first * step) / step + 1e-9) + 1)]


def time_ticks(low: float, high: float, most: int) -> list[float]:
    """Round times from low to high, at most so many."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
    step = next((one for one in steps if (high - low) / one <= most), None)
    if step is None:
        return [86400 * one for one in ticks(low / 86400, high / 86400, most)]
    first = -(-low // step)
    return [(first + index) * step for index in range(int((high - first * step) // step) + 1)]


def _run(job: JobHistory, metrics: Sequence[str], by: By, since: float) -> Run:
    rows, events = recent(job, since)

    def x(row: Row) -> float | None:
        return row.time - job.submitted if by == "time" else row.step

    curves = {name: [*_curve(rows, METRICS[name], x, by)] for name in metrics}
    return Run(job.name, curves, [*_marks(job, rows, events, by)])


def _curve(rows: Sequence[Row], metric: Metric, x: Callable[[Row], float | None], by: By) -> Iterator[Sequence[Point]]:
    part: list[Point] = []
    last: Row | None = None
    for row in rows:
        at, value = x(row), metric.value(row)
        if at is None or value is None or not math.isfinite(value):
            continue
        if last and part and _breaks(last, row, part[-1].x, at):
            yield _fewer(part)
            part = []
        if metric.stairs and by == "time":
            part.append(Point(max(at - row.seconds, part[-1].x if part else 0.0), value))
        part.append(Point(at, value))
        last = row
    if part:
        yield _fewer(part)


def _breaks(last: Row, row: Row, before: float, at: float) -> bool:
    return at < before or last.round != row.round or row.time - row.seconds > last.time + GAP


def _fewer(part: Sequence[Point]) -> Sequence[Point]:
    """At most about ``MOST`` points: of each piece the smallest and the largest."""
    if len(part) <= MOST:
        return part
    size = -(-2 * len(part) // MOST)
    kept: list[Point] = []
    for start in range(0, len(part), size):
        piece = part[start : start + size]
        kept += sorted({min(piece, key=lambda one: one.y), max(piece, key=lambda one: one.y)})
    return kept


def _marks(job: JobHistory, rows: Sequence[Row], events: Sequence[Event], by: By) -> Iterator[Mark]:
    times = [row.time for row in rows]
    firsts = [one.time for one in events if one.what == "first step"]
    known = [one for one in events if one.what in MARKS]

    def x(time: float) -> float | None:
        if by == "time":
            return time - job.submitted
        index = bisect_right(times, time)
        return next((row.step for row in reversed(rows[:index]) if row.step is not None), None)

    for one in single(known):
        if (at := x(one.time)) is None:
            continue
        after = next((time for time in firsts if time > one.time), None) if one.what == "fault" else None
        end = None if after is None or by == "step" else x(after)
        text = {
            "fault": one.cause or "fault",
            "resized": one.cause or pluralize(one.world, "rank"),
            "snapshot": f"step {one.step}" if one.step is not None else "snapshot",
        }[one.what]
        yield Mark(at, one.what, text, end)


def single(found: Sequence[Event]) -> Iterator[Event]:
    """Without what several sources say of one fault."""
    faults = [one for one in found if one.what == "fault"]
    doubled = {id(after) for before, after in pairwise(faults) if after.time - before.time < history.SAME}
    return (one for one in found if id(one) not in doubled)
