"""Simulates file systems that fail, for tests."""

from __future__ import annotations

import io
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

UNREADABLE: Final = "/proc/self/mem"  # reading its start fails with EIO, through a symbolic link, too


@contextmanager
def short_retries() -> Iterator[None]:
    """Retries of a failing file system are short."""
    with patch("kittrain.system.storage.DELAYS", (0.01,) * 5):
        yield


@contextmanager
def failing(folder: Path, number: int, *, times: int = 1_000_000) -> Iterator[list[Path]]:
    """The first reading system calls below a folder fail with that errno; yields their paths."""
    failed: list[Path] = []

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def fail(path: Any, *args: Any, **kwargs: Any) -> Any:
            below = isinstance(path, (str, os.PathLike)) and Path(path).is_relative_to(folder)
            if below and len(failed) < times:
                failed.append(Path(path))
                raise OSError(number, os.strerror(number), str(path))
            return call(path, *args, **kwargs)

        return fail

    with ExitStack() as stack:
        for module, name in ((os, "listdir"), (os, "open"), (io, "open")):
            stack.enter_context(patch.object(module, name, wrapped(getattr(module, name))))
        yield failed


@contextmanager
def no_free_descriptors() -> Iterator[Callable[[], None]]:
    """The process can open no more files (EMFILE) until it calls the yielded function."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull, "rb") as probe:  # noqa: PTH123 - its number is the lowest free one
        lowest = probe.fileno()

    def release() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield release
    finally:
        release()
