"""Notices the checkpoints that a script saves, and those in its node's own folder, where no other node finds them.

Watched are the functions that save, and renames to a checkpoint's name: nothing happens on a step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import PurePath
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.files.private_paths import in_private_folder
from kittrain.agent.hooks.watched_calls import watch_calls
from kittrain.system.imports import after_import

SUFFIXES: Final = frozenset({".pt", ".pth", ".ckpt", ".safetensors", ".distcp"})  # of checkpoints
Saved = Callable[[str], object]  # called with a path relative to the node's own folder
Written = Callable[[Any, Any], object]  # called with a file and its content
Renamed = Callable[[Any, Any], object]  # called with two paths


def watch(
    saved: Saved,
    stored: Callable[[], object],
    written: Written = lambda *_: None,
    renamed: Renamed = lambda *_: None,
) -> None:
    """Watch them.

    Args:
        saved: called after each checkpoint that was saved to this node's own folder; never for hidden files.
        stored: called after each that was saved to a file or a folder, wherever that is.
        written: called after each that was saved to a file, as the script has given it: by a path, or opened.
        renamed: called after each rename.
    """

    def of_file(*args: Any, **kwargs: Any) -> None:
        file = _second(args, kwargs)
        if isinstance(getattr(file, "name", file), str | bytes | os.PathLike):  # not to memory
            stored()
        with suppress(Exception):
            written(file, args[0] if args else kwargs["obj"])
        _record(file, saved)

    def of_rename(*args: Any, **kwargs: Any) -> None:
        path = _second(args, kwargs)
        with suppress(Exception):
            renamed(args[0] if args else kwargs["src"], path)
        if PurePath(os.fsdecode(path)).suffix in SUFFIXES:
            stored()
            _record(path, saved)

    def of_folder(writer: Any, *_args: Any, **_kwargs: Any) -> None:
        stored()
        _record(writer.path, saved)

    after_import("torch.serialization", lambda module: watch_calls(module, "save", of_file))
    after_import("safetensors.torch", lambda module: watch_calls(module, "save_file", of_file))
    after_import("torch.distributed.checkpoint.filesystem", lambda module: _watch_folders(module, of_folder))
    for name in ("replace", "rename"):
        _watch_rename(name, of_rename)


def _second(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The second parameter, by its place or by one of its names."""
    return args[1] if len(args) > 1 else next(kwargs[name] for name in ("f", "filename", "dst") if name in kwargs)


def _record(file: Any, saved: Saved) -> None:
    name = in_private_folder(file.name if hasattr(file, "fileno") else file)
    if name and not any(part.startswith(".") for part in PurePath(name).parts):
        saved(name)


def _watch_folders(module: ModuleType, called: Callable[..., object]) -> None:
    """Wrap the method of torch's writer where it is defined: versions of torch differ in that."""
    for owner in module.FileSystemWriter.__mro__:
        if "write_data" in vars(owner) and owner.__module__ == module.__name__:
            watch_calls(owner, "write_data", called)


def _watch_rename(name: str, called: Callable[..., object]) -> None:
    """Wrap a function of ``os``, which stays pickled by its name, and in the sets that say what it supports."""
    function = getattr(os, name)
    if wrapped := watch_calls(os, name, called):
        wrapped.__module__ = os.__name__
        for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if function in supported:
                supported.add(wrapped)
