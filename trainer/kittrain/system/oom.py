"""Whether the kernel has ended processes for want of memory: its counters, of this container and of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVENTS: Final = ("memory.events", "memory.oom_control")  # of version 2 and version 1 of control groups
LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
UNLIMITED: Final = 1 << 60  # bytes; version 1 writes no limit as nearly 2**63


@dataclass(frozen=True, kw_only=True)
class Kills:
    """How many processes were ended so far; 0 where that cannot be seen.

    Attributes:
        group: of this process's control group, which in a container is the container.
        machine: of all.
        limit: of the control group's memory, in bytes; 0 if it has none.
    """

    group: int = 0
    machine: int = 0
    limit: int = 0

    @classmethod
    def now(cls, root: Path = Path("/")) -> Kills:
        """As the kernel counts them; ``root`` is where its file systems are mounted."""
        folder = next(_folders(root), None)
        return cls(
            group=max((_count(folder / name) for name in EVENTS), default=0) if folder else 0,
            machine=_count(root / "proc" / "vmstat"),
            limit=_limit(folder) if folder else 0,
        )

    def since(self, before: Kills) -> str:
        """What they say of a process that was killed in between; empty if nothing."""
        if self.group > before.group:
            return f"out of memory: the limit is {size(self.limit)}" if self.limit else "out of memory"
        if self.machine > before.machine:
            return "most likely out of memory: the kernel has ended processes of this machine for that meanwhile"
        return ""


def size(count: int) -> str:
    """Bytes for a person: ``64 MiB``, ``1.5 GiB``."""
    small = count < 1 << 30
    return f"{count / (1 << 20):.0f} MiB" if small else f"{count / (1 << 30):.1f} GiB"


def _folders(root: Path) -> Iterator[Path]:
    """Where the control group's files are: a container sees its own one as the root, or by its path on the machine."""
    mount = root / "sys" / "fs" / "cgroup"
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names not in {"", "memory"}:
            continue
        base = mount / names
        for folder in (base / path.lstrip("/"), base):
            if any((folder / name).is_file() for name in EVENTS):
                yield folder


def _limit(folder: Path) -> int:
    texts = [_read(folder / name).strip() for name in LIMITS]
    found = max((int(text) for text in texts if text.isdigit()), default=0)
    return found if found < UNLIMITED else 0


def _count(path: Path) -> int:
    """The number behind ``oom_kill`` in a file of names and numbers."""
    pairs = (line.split() for line in _read(path).splitlines())
    return next((int(pair[1]) for pair in pairs if pair[:1] == ["oom_kill"]), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
