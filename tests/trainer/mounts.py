"""File systems that are as small, or as read-only, as a real one may be. A test that makes one bears ``needs_root``."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def tmpfs(folder: Path, *, size: str) -> Iterator[Path]:
    """One of that size in this new folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def make_read_only(folder: Path) -> None:
    """From now on nothing can be written there."""
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
