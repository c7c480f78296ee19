"""Jobs of the local target without processes: their folders alone, as a run would have left them."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias

from kitctl.facts import Report, Termination
from kitctl.spec import JobSpec
from kitctl.targets.local.folder import JobFolder, create, state_home, write
from kitctl.targets.local.records import Desired, Job, Result, Started

Phase: TypeAlias = Literal["Succeeded", "Failed", "Cancelled"]


def running_job(name: str, *, report: Report | None = None, lines: tuple[str, ...] = (), **spec: Any) -> JobFolder:
    """A job of one node; ``lines`` are what that has logged, a second each. It is for the caller to supervise it."""
    given = JobSpec(**{"name": name, "namespace": "default"} | spec)
    job = Job(spec=given, run="run", created=100.0, folder="/", python=sys.executable, version="0")
    folder = create(state_home() / "jobs" / job.spec.namespace / name, job, Desired(nodes=1))
    node = folder.node(0)
    node.path.mkdir(parents=True)
    for line in lines:
        say(folder, line)
    write(node.path / "1.start.json", Started(time=101.0, pid=1, restarts=0))
    if report:
        write(folder.report_path, report)
    return folder


def ended_job(name: str, phase: Phase = "Succeeded", *, failure: Termination | None = None, **known: Any) -> JobFolder:
    """The same, once it has ended."""
    folder = running_job(name, **known)
    folder.write(Result(phase=phase, time=160.0, failure=failure))
    return folder


def say(folder: JobFolder, line: str) -> None:
    """Have its node log a line, a second after the one before."""
    with folder.node(0).log(1).open("a+", encoding="utf-8", newline="") as log:
        log.seek(0)
        log.write(f"2026-01-01T00:00:{log.read().count(chr(10)):02}.000000Z {line}\n")
