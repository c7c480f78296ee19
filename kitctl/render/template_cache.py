"""Compiled templates in the user's cache: compiling them would take a quarter of the time of ``kitctl render``."""

from __future__ import annotations

import os
from contextlib import suppress

from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket

from kitctl.base.errors import UsageError
from kitctl.base.user_folders import user_folder


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
    """The cache of this user; None: it cannot be made, or others may write to it, whose code would then be run."""
    with suppress(OSError, UsageError):  # UsageError: no home
        folder = user_folder("XDG_CACHE_HOME", ".cache") / "kitctl" / "templates"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022):
            return TemplateCache(str(folder))
    return None
