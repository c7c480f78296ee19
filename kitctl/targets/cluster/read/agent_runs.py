"""Runs of a node's agent: which of them have lines that no pod holds any more. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from kitctl.kinds import of_object
from kitctl.state.logs import Line
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.read import job_facts
from kitjob.report import NodeAssignment, Report


class AgentRun(msgspec.Struct, frozen=True):
    """One run of an agent with a log copy (``kittrain.helper.log_copies --list``); ``started`` in Unix seconds."""

    node: int
    started: float
    pod: str
    file: str


@dataclass(frozen=True, kw_only=True)
class ReadLog:
    """What was read of a pod's log: all of it (``whole``), or the lines up to ``last``; None: no line."""

    pod: str
    started: float
    whole: bool = True
    last: Line | None = None


def read_log(pod: Object, *, whole: bool = True, last: Line | None = None) -> ReadLog:
    """The record of a pod's log that was read."""
    return ReadLog(pod=pod["metadata"]["name"], started=job_facts.started_at(pod) or 0.0, whole=whole, last=last)


def unread_runs(runs: Iterable[AgentRun], read: Sequence[ReadLog]) -> list[tuple[AgentRun, Line | None]]:
    """The runs that were not read to their end, each with its last line that was read.

    A run belongs to the latest pod of its name that started before it: several pods may have one name, in turn.
    """
    found = []
    for run in runs:
        logs = [one for one in read if one.pod == run.pod and one.started <= run.started]
        latest = max(logs, key=lambda one: one.started, default=None)
        if latest is None or not latest.whole:
            found.append((run, latest.last if latest else None))
    return found


def lines_after(lines: Iterable[Line], last: Line | None) -> Iterator[Line]:
    """The lines of a log copy after ``last``, the last line that was read from the pod.

    The agent writes a line to the copy a moment before the kubelet gives it a time. So ``last`` is the latest line of
    the copy that has its text and is not newer.
    """
    earlier: list[Line] = []
    found = False
    rest = iter(lines)
    for line in rest:
        if last is None or line.time > last.time:
            yield from earlier if found else ()
            yield line
            break
        if line.text == last.text:
            found, earlier = True, []
        else:
            earlier.append(line)
    else:
        yield from earlier if found else ()
    yield from rest


def count_missing(job: Object, pods: Iterable[Object], report: Report | None) -> int:
    """How many runs of agents have no pod any more that holds their lines, as far as the API server knows."""
    starts: dict[str, list[float]] = defaultdict(list)
    ended = exist = 0
    for pod in pods:
        exist += 1
        if job_facts.has_logs(pod) and not job_facts.loses_logs(pod):
            starts[str(job_facts.node_index(pod))].append(job_facts.started_at(pod) or 0.0)
            ended += not job_facts.is_running(pod)
    nodes = report.nodes if report else {}
    missing = sum(_count_missing_of(node, starts[index]) for index, node in nodes.items())
    if not nodes and not exist and job_facts.has_started(job):
        return 1
    return max(missing, of_object(job).failed_pods(job) - ended)


def _count_missing_of(node: NodeAssignment, starts: Sequence[float]) -> int:
    """For one node: ``agent_runs`` counts its runs up to ``joined``; pods may have started since."""
    return max(max(node.agent_runs, 1) - sum(start <= node.joined for start in starts), 0)
