"""The object of ``top``: what each rank of a job uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kitctl.output.base import Document, Part, part_of
from kitjob import usage

if TYPE_CHECKING:
    from kitjob.usage import NodeUse as _Use
else:  # as a part of documents
    _Use: Final = part_of(usage.NodeUse)


class NodeUsage(Part, frozen=True, kw_only=True):
    """The ranks of one node."""

    node: int
    """Index of the node."""
    note: str
    """Why the node has not answered. Empty: it has."""
    use: _Use
    """What its ranks use."""


class UsageReport(Document, frozen=True, kw_only=True, tag="UsageReport"):
    """What ``top`` prints, all of about the same moment."""

    nodes: tuple[NodeUsage, ...]
    """The nodes that were asked."""
