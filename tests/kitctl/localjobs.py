"""Job folders of the local target, as a run leaves them, without processes."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias

from kitctl.spec.job_spec import JobSpec
from kitctl.targets.local.folder import JobFolder, create, state_home, write
from kitctl.targets.local.records import Desired, Result, Started, SubmittedJob
from kitjob.report import Report, Termination

Phase: TypeAlias = Literal["Succeeded", "Failed", "Cancelled"]


def running_job(name: str, *, report: Report | None = None, lines: tuple[str, ...] = (), **spec: Any) -> JobFolder:
    """A job of one node that has logged ``lines``, one per second. The caller acts as its supervisor."""
    given = JobSpec(**{"name": name, "namespace": "default"} | spec)
    job = SubmittedJob(spec=given, run="run", created=100.0, folder="/", python=sys.executable, version="0")
    folder = create(state_home() / "jobs" / job.spec.namespace / name, job, Desired(nodes=1))
    node = folder.node(0)
    node.path.mkdir(parents=True)
    for line in lines:
        append_line(folder, line)
    write(node.path / "1.start.json", Started(time=101.0, pid=1, restarts=0))
    if report:
        write(folder.report_path, report)
    return folder


def ended_job(name: str, phase: Phase = "Succeeded", *, failure: Termination | None = None, **known: Any) -> JobFolder:
    """The same job after its end."""
    folder = running_job(name, **known)
    folder.write(Result(phase=phase, time=160.0, failure=failure))
    return folder


def append_line(folder: JobFolder, line: str) -> None:
    """Append a line to its node's log, a second after the previous one."""
    with folder.node(0).log(1).open("a+", encoding="utf-8", newline="") as log:
        log.seek(0)
        log.write(f"2026-01-01T00:00:{log.read().count(chr(10)):02}.000000Z {line}\n")
