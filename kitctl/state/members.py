"""Which ranks and nodes a job has, for those that a user selects by number. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kitctl.base.errors import NotFound
from kitctl.state.facts import JobFacts
from kitctl.state.logs import Filter, Line
from kitctl.state.phase import TERMINAL_PHASES, derive


@dataclass(frozen=True)
class Members:
    """The ranks and nodes of a job."""

    ranks: set[int] = field(default_factory=set)
    nodes: set[int] = field(default_factory=set)

    def add(self, line: Line) -> None:
        """Add who logged a line."""
        self.nodes.add(line.node)
        if (rank := line.rank) is not None:
            self.ranks.add(rank)

    def have(self, selected: Filter) -> bool:
        """Whether all that are selected are among them."""
        return selected.ranks <= self.ranks and selected.nodes <= self.nodes


def check(selected: Filter, job: JobFacts, logged: Callable[[], Members]) -> None:
    """Refuse a rank or a node that the job does not have and never had.

    Args:
        selected: what the user selects.
        job: the job.
        logged: who has logged something, which may be members of a former, larger group; asked only if it matters.

    Raises:
        NotFound: it names those that there are.
    """
    now, most = of(job), _most(job)
    if not most.ranks or most.have(selected):  # before a first group, nothing is known
        return
    before = logged()
    for what, asked, current, possible, had in (
        ("rank", selected.ranks, now.ranks, most.ranks, before.ranks),
        ("node", selected.nodes, now.nodes, most.nodes, before.nodes),
    ):
        if missing := sorted(asked - possible - had):
            those = f"its {what}s are {spans(current | had)}" if len(current | had) > 1 else f"it has only {what} 0"
            raise NotFound(f"job {job.name!r} has no {what} {spans(missing)}", fix=those)


def of(job: JobFacts) -> Members:
    """Those of the last group, and the nodes that are there."""
    group = job.report.nodes if job.report else {}
    ranks = {rank for one in group.values() for rank in range(one.ranks[0], one.ranks[1] + 1)}
    return Members(ranks, {node.index for node in job.nodes} | set(range(job.desired_nodes)) | set(map(int, group)))


def _most(job: JobFacts) -> Members:
    """Those, and of an elastic job that continues those that it may get."""
    now = of(job)
    if not job.report or not now.ranks or derive(job).phase in TERMINAL_PHASES:
        return now
    nodes = int(job.node_range.partition("+")[0].rpartition(":")[2])
    per_node = max(last - first + 1 for first, last in (one.ranks for one in job.report.nodes.values()))
    return Members(now.ranks | set(range(nodes * per_node)), now.nodes | set(range(nodes)))


def spans(numbers: Iterable[int]) -> str:
    """``0-2, 5``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
