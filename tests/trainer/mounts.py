"""Mounts small or read-only file systems. Tests that use it need the marker ``needs_root``."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def tmpfs(folder: Path, *, size: str) -> Iterator[Path]:
    """Mount a tmpfs of this size on a new folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def make_read_only(folder: Path) -> None:
    """Remount a file system read-only."""
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
