"""A job's history as plain text: its events, and where its time went. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from kitctl.base import printable
from kitctl.base.quantity import duration, pluralize
from kitctl.output.view.columns import columns
from kitctl.state.goodput.result import Bucket, Goodput
from kitjob.timeline import Event

SHORT: Final = 100  # characters of a detail
BAR: Final = 24  # characters of a bar
LEAST: Final = 0.0005  # share of a part that is shown
SHOWN: Final = 0.05  # seconds of a bucket, less than which would be printed as 0


def events(found: Sequence[Event], *, wide: bool = False) -> list[str]:
    """One line per event, the oldest first; with the time since the first, or with the time of day."""
    begin = found[0].time if found else 0.0
    header = ("TIME (UTC)", "AFTER", "NODE", "EVENT", "DETAILS") if wide else ("AFTER", "NODE", "EVENT", "DETAILS")
    rows = []
    for one in found:
        row = [after(one.time - begin), "-" if one.node is None else str(one.node), one.what, details(one)]
        row[3] = row[3] if wide else _fit(row[3])
        rows.append([_clock(one.time), *row] if wide else row)
    return columns(header, rows)


def goodput(found: Goodput, *, wide: bool = False) -> list[str]:
    """Where a job's time went: a line per bucket; with ``wide`` also those of no time, and all parts."""
    facts = [
        ("Job", f"{found.namespace}/{found.name}"),
        (
            "Elapsed",
            f"{_seconds(found.elapsed_seconds)}, {pluralize(found.nodes, 'node')}: {_seconds(found.node_seconds)}",
        ),
        ("Goodput", f"{found.goodput:.1%} of all node-seconds were training"),
        ("ETTR", f"{found.ettr:.1%} since submission, {found.ettr_since_admission:.1%} since admission"),
        ("Faults", f"{found.faults}, {pluralize(found.repeated_steps, 'step')} repeated"),
    ]
    width = max(len(name) for name, _ in facts) + 3
    head = [printable.line(f"{name:<{width}}{text}") for name, text in facts]
    rows: list[list[str]] = []
    for bucket in found.buckets:
        if bucket.seconds >= SHOWN or wide:
            rows += _bucket(bucket, found, wide=wide)
    share = found.unknown_seconds / found.node_seconds if found.node_seconds else 0.0
    rows.append(["unknown", f"{found.unknown_seconds:.1f}", f"{share:.1%}", _bar(share)])
    return [*head, "", *columns(("WHAT", "NODE-SECONDS", "SHARE", ""), rows)]


def goodput_list(found: Sequence[Goodput], *, namespaces: bool) -> list[str]:
    """One line per job."""
    header = ("JOB", "NODES", "ELAPSED", "GOODPUT", "ETTR", "FAULTS", "MOST LOST ON", "UNKNOWN")
    rows = [
        [
            one.name,
            str(one.nodes),
            duration(one.elapsed_seconds),
            f"{one.goodput:.1%}",
            f"{one.ettr:.1%}",
            str(one.faults),
            "not known: a clock was set" if one.clock_jump_seconds else _worst(one),
            f"{one.unknown_seconds / one.node_seconds if one.node_seconds else 0.0:.1%}",
        ]
        for one in found
    ]
    if not namespaces:
        return columns(header, rows)
    return columns(("NAMESPACE", *header), [[one.namespace, *row] for one, row in zip(found, rows, strict=True)])


def _worst(found: Goodput) -> str:
    lost = [one for one in found.buckets if one.name not in {"training", "ended"} and one.seconds > 0]
    worst = max(lost, key=lambda one: one.seconds, default=None)
    return f"{worst.name} {worst.share:.1%}" if worst else "-"


def _bucket(bucket: Bucket, found: Goodput, *, wide: bool) -> list[list[str]]:
    rows = [[bucket.name, f"{bucket.seconds:.1f}", f"{bucket.share:.1%}", _bar(bucket.share)]]
    by_name: dict[str, float] = {}
    for one in bucket.parts:
        name = ": ".join(filter(None, [one.part, _fit(one.cause) if wide else ""])) or "other"
        by_name[name] = by_name.get(name, 0.0) + one.seconds
    for name, seconds in by_name.items():
        if seconds >= LEAST * found.node_seconds or wide:
            rows.append([f"  {name}", f"{seconds:.1f}", f"{seconds / found.node_seconds:.1%}", ""])
    return rows


def _bar(share: float) -> str:
    return "#" * round(share * BAR)


def _seconds(seconds: float) -> str:
    return f"{duration(seconds)} ({seconds:.1f} s)"


def after(seconds: float) -> str:
    """A time since the first event."""
    return f"{seconds:.1f}s" if seconds < 60 else duration(seconds)  # noqa: PLR2004


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _fit(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[: SHORT - 3]}..."


def details(one: Event) -> str:
    """What is known of an event besides its time, in a line."""
    group = f"group {one.round}: {pluralize(one.nodes, 'node')}, {pluralize(one.world, 'rank')}" if one.nodes else ""
    parts = ", ".join(f"{name.replace('_', ' ')} {seconds:.2f}" for name, seconds in one.parts.items())
    told = [
        group,
        f"step {one.step}" if one.step is not None else "",
        f"{one.seconds:.2f} s" if one.seconds is not None else "",
        f"({parts})" if parts else "",
        f"{pluralize(one.lost_steps, 'step')} lost" if one.lost_steps else "",
        one.outcome if one.outcome != one.what else "",
        f"after: {one.cause}" if one.cause and one.what == "recovered" else one.cause,
    ]
    return " ".join(filter(None, told))
