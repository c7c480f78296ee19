"""A job's nodes as rows: those that are alike together, the rarest first. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from kitctl.base.quantity import duration, pluralize
from kitctl.output.view.layout import table, wrapped
from kitctl.state.members import spans
from kitctl.state.phase import NodeState

HEADER: Final = ("NODE", "STATE", "RANKS", "POD", "HOST", "RESTARTS", "SINCE", "REASON")
SPARE: Final = ("HOST", "POD", "SINCE", "RESTARTS", "RANKS")  # what a narrow terminal lacks, the first first
MAX_SINGLE_NODES: Final = 8  # nodes that are shown one by one
MOST_ROWS: Final = 16  # of nodes that are alike
LONGEST: Final = 24  # characters of numbers


class Group(NamedTuple):
    """Nodes that are alike."""

    nodes: Sequence[NodeState]
    reason: str


def node_table(nodes: Sequence[NodeState], now: float, *, wide: bool = False, width: int | None = None) -> list[str]:
    """The nodes; many of them folded, unless all are wanted (``wide``)."""
    if wide or len(nodes) <= MAX_SINGLE_NODES:
        return table(HEADER, [_row([node], node.reason, now) for node in nodes], width, SPARE)
    folded = groups(nodes)
    rows = table(HEADER, [_row(*one, now) for one in folded], width, SPARE)
    hint = f"(-o wide shows {len(nodes)} nodes one by one)"
    return rows if len(folded) == len(nodes) else [*rows, "", *(wrapped(hint, width) if width else [hint])]


def groups(nodes: Sequence[NodeState]) -> list[Group]:
    """Nodes in one state for one reason together; the fewest first, which is where to look.

    If there are more than ``MOST_ROWS``, the reasons of a state are one, until there are not.
    """
    by_reason: dict[str, dict[str, list[NodeState]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        by_reason[node.state][node.reason.replace(node.pod, "its pod") if node.pod else node.reason].append(node)
    found = {state: [Group(one, one[0].reason) for one in reasons.values()] for state, reasons in by_reason.items()}
    while sum(map(len, found.values())) > MOST_ROWS and any(len(one) > 1 for one in found.values()):
        state = max(found, key=lambda one: len(found[one]))
        found[state] = [_joined(found[state])]
    return sorted(
        (one for some in found.values() for one in some), key=lambda one: (len(one.nodes), one.nodes[0].index)
    )


def _joined(found: Sequence[Group]) -> Group:
    """As one, with the reason of most."""
    usual = max(found, key=lambda one: len(one.nodes))
    nodes = sorted((node for one in found for node in one.nodes), key=lambda node: node.index)
    return Group(nodes, f"{usual.reason or 'no reason known'} (and {pluralize(len(found) - 1, 'other reason')})")


def _row(nodes: Sequence[NodeState], reason: str, now: float) -> list[str]:
    first = nodes[0]
    hosts = Counter(node.host for node in nodes if node.host)
    return [
        _numbers([node.index for node in nodes]),
        first.state,
        _numbers([rank for node in nodes for rank in node.ranks]),
        first.pod if len(nodes) == 1 else pluralize(len(nodes), "pod"),
        "-" if not hosts else next(iter(hosts)) if len(hosts) == 1 else pluralize(len(hosts), "host"),
        str(sum(node.restarts for node in nodes)),
        _since([node.since for node in nodes if node.since is not None], now),
        reason,
    ]


def _numbers(numbers: Sequence[int]) -> str:
    """``0-6, 8-999``; of many the first, and how many there are."""
    text = spans(numbers) or "-"
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 10].rpartition(',')[0]}, ... ({len(numbers)})"


def _since(times: Sequence[float], now: float) -> str:
    """``50s``, or ``50s-2m10s`` of several."""
    if not times:
        return "-"
    newest, oldest = duration(now - max(times)), duration(now - min(times))
    return newest if newest == oldest else f"{newest}-{oldest}"
