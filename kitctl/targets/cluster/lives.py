"""The lives of a job's nodes, in pods and as kept on the claim: whose lines are no longer with a pod. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from kitctl.facts import NodeAssignment, Report
from kitctl.logs import Line
from kitctl.targets.cluster import facts
from kitctl.targets.cluster.resources import Object


class Life(msgspec.Struct, frozen=True):
    """One life of a node whose lines were kept, as ``kittrain.log_copies --list`` tells; ``begun`` in Unix seconds."""

    node: int
    begun: float
    pod: str
    file: str


@dataclass(frozen=True, kw_only=True)
class Read:
    """What was read from a pod: all of it, or all until ``last`` (which may be None: nothing)."""

    pod: str
    started: float
    whole: bool = True
    last: Line | None = None


def of_pod(pod: Object, *, whole: bool = True, last: Line | None = None) -> Read:
    """A pod that has run, as something that was read."""
    return Read(pod=pod["metadata"]["name"], started=facts.started(pod) or 0.0, whole=whole, last=last)


def unread(lives: Iterable[Life], read: Sequence[Read]) -> list[tuple[Life, Line | None]]:
    """The lives that were not read to their end, each with its last line that was read.

    A pod of a life has its name, and started before it; pods of one name follow each other.
    """
    found = []
    for life in lives:
        its = [one for one in read if one.pod == life.pod and one.started <= life.begun]
        latest = max(its, key=lambda one: one.started, default=None)
        if latest is None or not latest.whole:
            found.append((life, latest.last if latest else None))
    return found


def after(lines: Iterable[Line], last: Line | None) -> Iterator[Line]:
    """What follows a line that was read from a pod, in what was kept of it.

    A line is kept a moment before its kubelet gives it its time. So of all lines that may have been read, the last one
    of that text is the one.
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


def lost(job: Object, pods: Iterable[Object], report: Report | None) -> int:
    """How many lives of nodes have no pod any more that has their lines, as far as that can be seen."""
    starts: dict[str, list[float]] = defaultdict(list)
    ended = 0
    for pod in pods:
        if facts.has_logs(pod) and not facts.loses_logs(pod):
            starts[str(facts.index(pod))].append(facts.started(pod) or 0.0)
            ended += not facts.running(pod)
    seats = report.nodes if report else {}
    gone = sum(_lost_of(place, starts[node]) for node, place in seats.items())
    if not seats and not starts and facts.begun(job):
        return 1
    return max(gone, job.get("status", {}).get("failed", 0) - ended if job["kind"] == "Job" else 0)


def _lost_of(place: NodeAssignment, starts: Sequence[float]) -> int:
    """Of one node: its seat counts the lives until it was taken, and pods may have started since."""
    return max(max(place.lives, 1) - sum(start <= place.joined for start in starts), 0)
