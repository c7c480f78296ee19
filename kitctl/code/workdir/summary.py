"""Summarizes in a line which files of a folder are sent, and which are not. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.base.quantity import format_bytes
from kitctl.code.code_tree import SentFolder

NAMED: Final = 3  # examples of what is left out for a reason


def sent(workdir: SentFolder, where: str) -> str:
    """How much is sent to which place, and what is left out, by reason and with examples."""
    if workdir.key == "requirements":
        wheels = len(workdir.tree.files) - 1
        also = f" and {_count(wheels, 'wheel')}" if wheels else ""
        total = f"requirements of {workdir.folder}{also} ({format_bytes(workdir.tree.size)}) sent to {where}"
        return total + _left_out(workdir)
    files, links = len(workdir.tree.files), len(workdir.tree.links)
    more = f" and {_count(links, 'link')}" if links else ""
    total = f"{_count(files, 'file')}{more} ({format_bytes(workdir.tree.size)}) of {workdir.folder} sent to {where}"
    return total + _left_out(workdir)


def _left_out(workdir: SentFolder) -> str:
    reasons = [f"{len(paths)} {reason} ({_some(paths)})" for reason, paths in sorted(workdir.left_out.items())]
    return f"; left out: {', '.join(reasons)}" if reasons else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _some(paths: tuple[str, ...]) -> str:
    more = ", ..." if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more
