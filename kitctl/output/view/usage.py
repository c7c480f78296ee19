"""What a job's ranks use, as a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kitctl.base import printable
from kitctl.base.quantity import format_bytes, significant
from kitctl.output.view.layout import clipped, table
from kitctl.state.usage import NodeUsage
from kitjob.usage import NodeUse, RankUsage

_HEADER: Final = ("NODE", "RANK", "CPU", "MEMORY", "PROCESSES", "GPU", "GPU BUSY", "GPU MEMORY")
_SPARE: Final = ("PROCESSES", "GPU")


def page(nodes: Sequence[NodeUsage], width: int | None = None) -> list[str]:
    """A row a rank, and of a node with several ranks or a limit one for all of them."""
    rows = [row for one in nodes if one.use.ranks for row in _rows(one.node, one.use)]
    has_gpus = any(rank.gpu is not None for one in nodes for rank in one.use.ranks)
    header = _HEADER if has_gpus else _HEADER[:5]
    lines = table(header, [row[: len(header)] for row in rows], width, _SPARE) if rows else []
    notes = [printable.line(f"node {one.node}: {one.note}") for one in nodes if one.note]
    return [*lines, *(clipped(note, width) if width else note for note in notes)]


def _rows(node: int, use: NodeUse) -> list[list[str]]:
    rows = [[str(node), str(rank.rank), *_used(rank)] for rank in use.ranks]
    if len(use.ranks) == 1 and use.cpu_limit is None and use.memory_limit is None:
        return rows
    cpu, memory = sum(rank.cpu for rank in use.ranks), sum(rank.memory for rank in use.ranks)
    cores = "" if use.cpu_limit is None else f" of {significant(use.cpu_limit)}"
    limit = "" if use.memory_limit is None else f" of {format_bytes(use.memory_limit)}"
    processes = str(sum(rank.processes for rank in use.ranks))
    return [*rows, [str(node), "all", f"{cpu:.2f}{cores}", f"{format_bytes(memory)}{limit}", processes, "", "", ""]]


def _used(rank: RankUsage) -> list[str]:
    known = rank.gpu_memory is not None
    total = f" of {format_bytes(rank.gpu_total)}" if known and rank.gpu_total else ""
    return [
        f"{rank.cpu:.2f}",
        format_bytes(rank.memory),
        str(rank.processes),
        "-" if rank.gpu is None else str(rank.gpu),
        "-" if rank.gpu_busy is None else f"{rank.gpu_busy:.0%}",
        f"{format_bytes(rank.gpu_memory)}{total}" if rank.gpu_memory is not None else "-",
    ]
