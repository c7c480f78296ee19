"""Job folders of the local target, as a run leaves them, without processes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from kitctl.spec.job_spec import JobSpec
from kitctl.targets.local import launch
from kitctl.targets.local.folder import JobFolder, create, state_home, write
from kitctl.targets.local.records import Desired, Result, Started, SubmittedJob
from kitjob import timeline
from kitjob.report import Report, Termination
from kitjob.timeline import AgentState, Event, Line, Row, Writer

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


def write_history(folder: JobFolder, lines: Sequence[Line] = ()) -> None:
    """What node 0's agent has written of the job's run: from 102 s to 159 s, or other lines."""
    near = launch.snapshot_dir(folder.job.spec, state_home())
    assert near
    path = near / "history" / folder.job.run / "node-0" / "0000000102000-1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(timeline.content(lines or PAST))


PAST: Final[Sequence[Line]] = (
    Writer(node=0, id="0000000102000-1", time=102.0),
    AgentState(time=102.0, state="code"),
    Event(time=102.0, what="started", node=0),
    AgentState(time=103.0, state="start"),
    AgentState(time=104.0, state="join"),
    Event(time=105.0, what="joined", node=0, round=1, world=1, nodes=1),
    AgentState(time=105.0, state="ranks"),
    Event(time=109.0, what="first step", node=0, round=1, world=1),
    Row(time=109.0, seconds=4.0, round=1, world=1, step=1, phases={"STARTING": 3.0, "FORWARD": 1.0}),
    *(
        Row(
            time=110.0 + second,
            seconds=1.0,
            round=1,
            world=1,
            step=10 * second + 10,
            steps=10,
            phases={"DATA": 0.1, "FORWARD": 0.6, "BACKWARD": 0.3},
            busy=0.7,
            memory=10**9,
            loss=2.0 / (second + 1),
            samples_per_second=400.0,
            epoch=1,
        )
        for second in range(49)
    ),
    Event(time=130.0, what="snapshot", node=0, step=200, seconds=0.5, parts={"stall": 0.01}),
    AgentState(time=158.0, state="exit"),
    Event(time=159.0, what="ended", node=0, outcome="done"),
)
