"""Records the files that a script loads, which may be its checkpoint: torch's own formats, and safetensors.

Each function is wrapped once its module has been imported; a script that does not use it never imports it.

Why: decision 39.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.files.private_paths import in_private_folder
from kittrain.agent.hooks.watched_calls import watch_calls, watch_results
from kittrain.system.heartbeat_files import LoadedFile
from kittrain.system.imports import after_import

METADATA: Final = ".metadata"  # in a folder of torch.distributed.checkpoint, the file that is written last
SAMPLE: Final = 1 << 16  # bytes at both ends of a file that its digest is made of
UNKNOWN: Final = LoadedFile(name="a file", digest=1, private=False, age=0.0)
Loaded = Callable[[int, LoadedFile], object]  # called with when a file was last changed, in nanoseconds
Read = Callable[[Any, Any], object]  # called with a file and its content


def watch(loaded: Loaded, read: Read = lambda *_: None) -> None:
    """Call both after each file that was loaded, now or once the script imports what loads it.

    Args:
        loaded: of each file, or folder.
        read: of files that Python reads at once, as the script has given them: by a path, or opened.
    """

    def of_file(content: Any, *args: Any, **kwargs: Any) -> None:
        file = args[0] if args else kwargs.get("f") or kwargs["filename"]  # torch's name for it is ``f``
        _record(file, loaded)
        read(file, content)

    def of_folder(reader: Any, *_args: Any, **_kwargs: Any) -> None:
        _record(Path(reader.path, METADATA), loaded)

    def of_folders(module: ModuleType) -> None:
        watch_calls(module.FileSystemReader, "read_metadata", of_folder)

    after_import("torch.serialization", lambda module: watch_results(module, "load", of_file))
    after_import("safetensors.torch", lambda module: watch_results(module, "load_file", of_file))
    after_import("torch.distributed.checkpoint.filesystem", of_folders)


def _record(file: Any, loaded: Loaded) -> None:
    """Record a file, given by its path or opened."""
    descriptor = getattr(file, "fileno", None)
    changed = (os.fstat(descriptor()) if descriptor else Path(file).stat()).st_mtime_ns
    loaded(changed, _facts(file.name if descriptor else file, (time.time_ns() - changed) / 1e9))


def _facts(name: Any, age: float) -> LoadedFile:
    """What is known of a file by its name, which an opened one may not have any more."""
    try:
        path = Path(name)
        private = in_private_folder(path)
        return LoadedFile(name=private or path.name, digest=_digest(path), private=bool(private), age=age)
    except (OSError, TypeError, ValueError):
        return UNKNOWN


def _digest(path: Path) -> int:
    """A checksum of a file's size, and of its first and last bytes; never 0."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(SAMPLE)
        file.seek(max(size - SAMPLE, 0))
        return zlib.crc32(file.read(SAMPLE), zlib.crc32(head, size & 0xFFFFFFFF)) or 1
