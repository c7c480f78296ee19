"""The object of ``logs``: one line."""

from __future__ import annotations

from kitctl.output.base import Document


class LogLine(Document, frozen=True, kw_only=True, tag="LogLine"):
    """A line of a job's log. ``logs`` prints one such object per line of output."""

    time: float | None
    """When it was printed. Null: unknown."""
    node: int
    """The node that printed it."""
    rank: int | None
    """The rank that printed it. Null: the node's agent, or a program that does not name its rank."""
    text: str
    """The line, without the prefix that names its rank or agent."""
