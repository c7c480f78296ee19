"""Compiled templates in the user's cache: compiling them would take a quarter of the time of ``kitctl render``."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket


class TemplateCache(FileSystemBytecodeCache):
    """A cache that does without its folder when that cannot be written, or is full."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a template's code; an entry of another template or Python is ignored."""
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a template's code."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


def user_cache() -> TemplateCache | None:
    """The cache of this user, whom nobody else may have it written for; None: it cannot be made."""
    with suppress(OSError, RuntimeError):  # RuntimeError: no home
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kitctl" / "templates"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid():
            return TemplateCache(str(folder))
    return None
