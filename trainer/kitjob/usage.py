"""What the trainer prints of its ranks' use of a node (``python -m kittrain.agent.inside.usage``) and kitctl reads."""

from __future__ import annotations

from kitjob.record import Record


class RankUsage(Record):
    """What a rank uses, with the processes that it has started, such as those that load data."""

    rank: int
    """The rank."""
    pid: int
    """Its process id, on its machine or in its pod."""
    cpu: float = 0.0
    """Cores that it kept busy in the last moment."""
    memory: int = 0
    """Bytes of main memory that it holds; what processes share is counted once where the system tells."""
    processes: int = 1
    """Processes, itself included."""
    gpu: int | None = None
    """Index of its GPU on the node. Null: none, or unknown."""
    gpu_busy: float | None = None
    """Share of the last moment in which its GPU worked. Null: unknown."""
    gpu_memory: int | None = None
    """Bytes of its GPU's memory in use, by whomever. Null: unknown."""
    gpu_total: int | None = None
    """Bytes of memory that its GPU has. Null: unknown."""


class NodeUse(Record):
    """What a node's ranks use."""

    ranks: tuple[RankUsage, ...] = ()
    """Its ranks."""
    cpu_limit: float | None = None
    """Cores that the node may use. Null: no limit, or unknown."""
    memory_limit: int | None = None
    """Bytes that it may use. Null: no limit, or unknown."""
