"""A job's report: one page of HTML that needs nothing else, for a browser, a mail and a printer. Pure.

The page loads nothing and runs nothing but its own script, whose digest stands in its policy. Each text of a job is
made printable and escaped where the template prints it, and has no secrets that ``Redactor`` knows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import kitctl
from kitctl.base import printable
from kitctl.base.quantity import duration, pluralize
from kitctl.base.redaction import Redactor
from kitctl.output.view import audit as proof
from kitctl.output.view import timeline
from kitctl.output.view.report import charts
from kitctl.state import history, series
from kitctl.state.goodput.account import account, lanes
from kitctl.state.goodput.result import Goodput
from kitctl.state.history import JobHistory, WriterLog
from kitctl.state.record import JobRecord
from kitjob.timeline import Event

if TYPE_CHECKING:
    import jinja2

FOLDER: Final = Path(__file__).parent
MOST_LANES: Final = 64  # nodes of which it is drawn what they did


def page(record: JobRecord, redactor: Redactor) -> str:
    """The page as a file's text.

    Args:
        record: the job.
        redactor: takes secrets out of all texts.
    """
    style, script = (FOLDER / "page.css").read_text("utf-8"), (FOLDER / "page.js").read_text("utf-8")
    shown = redactor.tree(_content(record))
    template = _environment().get_template("page.html.j2")
    return template.render(
        shown,
        style=_markup(style),
        script=_markup(script),
        policy=_policy(style, script),
        data=_markup(_json(shown["charts"]["data"] if shown["charts"] else {})),
    )


def _content(record: JobRecord) -> dict[str, Any]:
    """What the page shows, as plain data."""
    job, known = record.state, record.history
    logs = history.writers(known) if known else []  # once: they may have 8 MiB
    spent = account(known, logs) if known else None
    stretches = lanes(known, logs)[:MOST_LANES] if known else []
    events = history.events(known, logs) if known else []
    return {
        "job": {"name": job.name, "namespace": job.namespace, "phase": job.phase, "target": job.target},
        "headline": headline(record),
        "tone": _tone(record),
        "why": msgspec.to_builtins(record.why),
        "figures": list(_figures(record, spent)),
        "charts": _charts(known, logs, spent.elapsed_seconds) if known and spent else None,
        "lanes": charts.lanes(stretches, spent.elapsed_seconds) if spent else None,
        "hidden_lanes": max(known.nodes - MOST_LANES, 0) if known else 0,
        "waterfall": charts.waterfall(spent) if spent else None,
        "account": _account(spent) if spent else None,
        "events": [_event(one, events[0].time) for one in events],
        "faults": [*_faults(events)],
        "proof": _proof(record),
        "failure": _failure(record),
        "settings": _yaml(record),
        "environment": [*_surroundings(record)],
        "nodes": [_node(node) for node in job.nodes],
        "missing": {"history": "", "audit": "", "logs": ""} | dict(record.missing),
        "made": clock(record.now),
        "version": kitctl.__version__,
    }


def _charts(known: JobHistory, logs: Sequence[WriterLog], elapsed: float) -> dict[str, Any] | None:
    return charts.charts(series.picture([known]), history.rows(logs), known, elapsed)


def headline(record: JobRecord) -> str:
    """The cause of the job's state, as ``kitctl why`` has it; of one that is well how far it got."""
    job, found = record.state, record.why
    if found.cause or found.fact:
        return found.cause or found.fact
    took = duration((job.ended or record.now) - job.created)
    steps = "" if job.progress.step is None else f"{pluralize(job.progress.step, 'step')} "
    match job.phase:
        case "Succeeded":
            return f"Succeeded: {steps}in {took}" + (f"; {found.note}" if found.note else "")
        case "Cancelled":
            return f"Cancelled after {took}"
        case _:
            return f"{job.phase} for {took}" + (f": {steps.strip()}" if steps else "")


def _tone(record: JobRecord) -> str:
    """Of the headline: ``good``, ``bad``, ``warn`` or ``calm``."""
    match record.state.phase:
        case "Succeeded":
            return "warn" if record.why.cause else "good"
        case "Failed":
            return "bad"
        case "Running":
            return "warn" if record.why.cause or record.why.fact else "good"
        case "Recovering":
            return "warn"
        case _:
            return "calm"


def _figures(record: JobRecord, spent: Goodput | None) -> Iterator[tuple[str, str, str]]:
    """The numbers at the top: a name, a value, and what explains it."""
    job, progress = record.state, record.state.progress
    yield "Elapsed", duration((job.ended or record.now) - job.created), "since submission"
    if spent:
        yield "Goodput", f"{spent.goodput:.1%}", "of all node-seconds were training"
        yield "ETTR", f"{spent.ettr:.1%}", "productive time by wall clock"
    total = f" of {progress.total_steps}" if progress.total_steps else ""
    if progress.step is not None:
        yield "Step", f"{progress.step}{total}", "in a loop of the script's own" if progress.of_own_loop else ""
    if progress.loss is not None:
        yield "Loss", f"{progress.loss:.3g}", "the last one"
    for name, value in progress.metrics.items():
        yield name, "not finite" if value is None else f"{value:.4g}", "the last one"
    yield "Nodes", job.node_range, f"{job.ready_nodes} up" if not job.finished else ""
    lost = f"{pluralize(spent.repeated_steps, 'step')} repeated" if spent and spent.repeated_steps else ""
    yield "Restarts", str(job.restarts), lost
    if progress.snapshot_step:  # 0: it takes none, or has taken none yet
        yield "Snapshot", f"step {progress.snapshot_step}", "the last one"


def _account(spent: Goodput) -> dict[str, Any]:
    return {
        "elapsed": duration(spent.elapsed_seconds),
        "node_seconds": f"{spent.node_seconds:,.0f}",
        "nodes": pluralize(spent.nodes, "node"),
        "goodput": f"{spent.goodput:.1%}",
        "ettr": f"{spent.ettr:.1%}",
        "ettr_admitted": f"{spent.ettr_since_admission:.1%}",
        "unknown": spent.unknown_seconds >= timeline.SHOWN,
    }


def _event(one: Event, begin: float) -> dict[str, str]:
    return {
        "what": one.what,
        "after": timeline.after(one.time - begin),
        "clock": clock(one.time),
        "node": "" if one.node is None else str(one.node),
        "details": timeline.details(one),
    }


def _faults(events: list[Event]) -> Iterator[dict[str, Any]]:
    """Each fault with its recovery: its parts, and what it cost."""
    faults = [one for one in series.single(events) if one.what == "fault"]
    begin = events[0].time if events else 0.0
    for number, fault in enumerate(faults):
        until = faults[number + 1].time if number + 1 < len(faults) else float("inf")
        after = [one for one in events if fault.time < one.time <= until]
        step = next((one for one in after if one.what == "first step"), None)
        recovered = next((one for one in after if one.what == "recovered"), None)
        parts = recovered.parts if recovered else {}
        whole = sum(parts.values())
        yield {
            "number": number + 1,
            "after": timeline.after(fault.time - begin),
            "node": "" if fault.node is None else str(fault.node),
            "cause": fault.cause or "fault",
            "took": f"{step.time - fault.time:.1f} s" if step else "",
            "lost": recovered.lost_steps if recovered else None,
            "parts": [
                {"name": name.replace("_", " "), "seconds": f"{seconds:.2f}", "share": 100 * seconds / whole}
                for name, seconds in parts.items()
                if whole
            ],
        }


def _proof(record: JobRecord) -> dict[str, Any] | None:
    if record.audit is None:
        return None
    return {"holds": record.audit.holds, "lines": proof.page(record.audit, wide=False)}


def _failure(record: JobRecord) -> dict[str, Any] | None:
    """The first failure: its traceback, and the last lines before it."""
    told = record.state.failure or record.state.last_failure
    past_ones = [
        {"clock": clock(one.time), "node": str(one.node), "rank": str(one.rank), "cause": one.cause}
        for one in record.state.failures
    ]
    if not (told or past_ones or record.failure):
        return None
    lines = [{"time": line.time[11:23], "text": line.text} for line in record.failure]
    rank = record.failure[0].rank if record.failure else None
    return {
        "traceback": told.traceback.rstrip() if told else "",
        "lines": lines or [{"time": "", "text": line} for line in (told.lines if told else ())],
        "rank": "" if rank is None else str(rank),
        "past": past_ones,
    }


def _yaml(record: JobRecord) -> dict[str, Any]:
    """The settings as data: they are redacted by their names, and become text in the template."""
    return msgspec.to_builtins(dict(record.kept.settings))  # type: ignore[no-any-return]  # it keeps the type


def _surroundings(record: JobRecord) -> Iterator[tuple[str, str]]:
    job = record.state
    yield "job", f"{job.namespace}/{job.name}"
    yield "submitted", clock(job.created)
    if job.ended:
        yield "ended", clock(job.ended)
    yield "target", f"{job.target} ({job.job_kind})"
    for name, text in record.kept.environment.items():
        if text:
            yield name, text
    if job.snapshots:
        yield "snapshots", job.snapshots
    if job.outputs:
        yield "outputs", job.outputs
    yield "report by", f"kitctl {kitctl.__version__}, Python {platform.python_version()}, {platform.system()}"


def _node(node: Any) -> dict[str, str]:
    ranks = f"{node.ranks[0]}–{node.ranks[-1]}" if len(node.ranks) > 1 else "".join(map(str, node.ranks))  # noqa: RUF001
    return {
        "index": str(node.index),
        "state": node.state,
        "ranks": ranks,
        "pod": node.pod,
        "host": node.host,
        "restarts": str(node.restarts),
        "reason": node.reason,
    }


def clock(time: float) -> str:
    """A time of day with its date, in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _policy(style: str, script: str) -> str:
    """A content security policy: nothing is loaded, sent or run, but the page's own style and script."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _json(value: Any) -> str:
    """JSON that ends no element of HTML, whatever texts it has."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _markup(text: str) -> Any:
    from markupsafe import Markup  # noqa: PLC0415 - jinja2's, for this command alone

    return Markup(text)  # noqa: S704 - our own files, and JSON that is escaped


def _printed(value: Any) -> Any:
    """What the template prints: texts of a job without control characters; jinja escapes them after that."""
    return printable.text(value) if type(value) is str else value


def _settings(value: Mapping[str, Any]) -> str:
    import yaml  # noqa: PLC0415 - for this command alone

    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=100).rstrip()


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - half of the time that `kitctl render` takes

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        finalize=_printed,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["yaml"] = _settings
    return made
