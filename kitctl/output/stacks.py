"""The object of ``stacks``: where each rank of a job is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kitctl.output.base import Document, Part, part_of
from kitjob import stacks

if TYPE_CHECKING:
    from kitjob.stacks import RankStack as _Stack
else:  # as a part of documents
    _Stack: Final = part_of(stacks.RankStack)


class NodeStacks(Part, frozen=True, kw_only=True):
    """The ranks of one node."""

    node: int
    """Index of the node."""
    note: str
    """Why the node has not answered. Empty: it has."""
    ranks: tuple[_Stack, ...]
    """Its ranks."""


class StackReport(Document, frozen=True, kw_only=True, tag="StackReport"):
    """The stacks that ``stacks`` prints, all of about the same moment."""

    nodes: tuple[NodeStacks, ...]
    """The nodes that were asked."""
