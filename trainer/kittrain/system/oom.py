"""Detects kills by the kernel's OOM killer, from its counters for the container and the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVENTS: Final = ("memory.events", "memory.oom_control")  # cgroup v2, v1
LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
UNLIMITED: Final = 1 << 60  # bytes; cgroup v1 shows "no limit" as nearly 2**63


@dataclass(frozen=True, kw_only=True)
class OOMKills:
    """The number of OOM kills so far; 0 where the counter is not available.

    Attributes:
        group: in this process's cgroup, which in a container is the container's.
        host: on the whole host.
        limit: the cgroup's memory limit in bytes; 0 if there is none.
    """

    group: int = 0
    host: int = 0
    limit: int = 0

    @classmethod
    def now(cls, root: Path = Path("/")) -> OOMKills:
        """Read the counters; ``root`` is where /proc and /sys are mounted."""
        folder = next(_folders(root), None)
        return cls(
            group=max((_count(folder / name) for name in EVENTS), default=0) if folder else 0,
            host=_count(root / "proc" / "vmstat"),
            limit=_limit(folder) if folder else 0,
        )

    def since(self, before: OOMKills) -> str:
        """Explain a SIGKILL since ``before``; empty if the counters do not explain it."""
        if self.group > before.group:
            return f"out of memory: the limit is {format_bytes(self.limit)}" if self.limit else "out of memory"
        if self.host > before.host:
            return "most likely out of memory: the kernel has OOM-killed processes on this host meanwhile"
        return ""


def format_bytes(count: int) -> str:
    """Format bytes: ``64 MiB``, ``1.5 GiB``."""
    small = count < 1 << 30
    return f"{count / (1 << 20):.0f} MiB" if small else f"{count / (1 << 30):.1f} GiB"


def _folders(root: Path) -> Iterator[Path]:
    """Candidates for the cgroup's folder: a container sees its cgroup as the root, or by its path on the host."""
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
    """The value of ``oom_kill`` in a file of names and numbers."""
    pairs = (line.split() for line in _read(path).splitlines())
    return next((int(pair[1]) for pair in pairs if pair[:1] == ["oom_kill"]), 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
