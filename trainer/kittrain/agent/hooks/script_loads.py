"""Records the files that a script loads, which may be its checkpoint: torch's own formats, and safetensors.

Each function is wrapped once its module has been imported; a script that does not use it never imports it.

Why: decision 39.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.system.imports import after_import

METADATA: Final = ".metadata"  # in a folder of torch.distributed.checkpoint, the file that is written last
Loaded = Callable[[int], object]  # called with when a file was last changed, in nanoseconds


def watch(loaded: Loaded) -> None:
    """Call ``loaded`` after each file that was loaded, now or once the script imports what loads it."""

    def of_torch(module: ModuleType) -> None:
        _watch(module, "load", _file, loaded)

    def of_safetensors(module: ModuleType) -> None:
        _watch(module, "load_file", _file, loaded)

    def of_folders(module: ModuleType) -> None:
        _watch(module.FileSystemReader, "read_metadata", _metadata, loaded)

    after_import("torch.serialization", of_torch)
    after_import("safetensors.torch", of_safetensors)
    after_import("torch.distributed.checkpoint.filesystem", of_folders)


def _watch(owner: Any, name: str, file_of: Callable[..., Any], loaded: Loaded) -> None:
    """Wrap a function of a module or a class; the file is taken from its arguments."""
    load: Callable[..., Any] | None = getattr(owner, name, None)
    if load is None:  # another version, or a module of the script's own by this name
        return

    @functools.wraps(load)
    def load_and_record(*args: Any, **kwargs: Any) -> Any:
        result = load(*args, **kwargs)
        with suppress(Exception):  # a buffer or another library's stream, not a file
            loaded(_changed(file_of(*args, **kwargs)))
        return result

    for holder in (owner, *_packages(owner)):
        if vars(holder).get(name) is load:
            setattr(holder, name, load_and_record)


def _packages(owner: Any) -> Iterator[ModuleType]:
    """The packages around a module that are imported already: they may have the same function."""
    package = getattr(owner, "__package__", "")
    if package in sys.modules:
        yield sys.modules[package]


def _file(*args: Any, **kwargs: Any) -> Any:
    """The first parameter; torch's name for it is ``f``."""
    return args[0] if args else kwargs.get("f") or kwargs["filename"]


def _metadata(reader: Any, *_args: Any, **_kwargs: Any) -> Path:
    return Path(reader.path, METADATA)


def _changed(file: Any) -> int:
    """When a file, given by its path or opened, was last changed, in nanoseconds."""
    descriptor = getattr(file, "fileno", None)
    return (os.fstat(descriptor()) if descriptor else Path(file).stat()).st_mtime_ns
