"""What a job's ranks use, as nodes answered. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kitctl.base.errors import TargetError
from kitjob import typed
from kitjob.decoders import MalformedError
from kitjob.usage import NodeUse

NO_RANKS: Final = "no rank runs: the node starts, ends, or waits for others"


@dataclass(frozen=True, kw_only=True)
class NodeUsage:
    """What one node answered; ``note`` is why it did not, or empty."""

    node: int
    note: str = ""
    use: NodeUse = field(default_factory=NodeUse)


def of_nodes(nodes: Sequence[int], printed: bytes) -> list[NodeUsage]:
    """What ``kittrain.agent.inside.usage`` printed of nodes, in their order.

    Raises:
        TargetError: it is not that.
    """
    try:
        found: list[NodeUse] = typed.load(list[NodeUse], printed)
    except MalformedError as error:
        raise TargetError(f"an answer of unknown form: {error}", fix="its trainer needs kitctl's version") from error
    answered = zip(nodes, found, strict=False)
    return [NodeUsage(node=node, use=use, note="" if use.ranks else NO_RANKS) for node, use in answered]
