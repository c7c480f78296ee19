"""A training in processes that ``multiprocessing`` has started for a rank (``mp.spawn``): its steps are the rank's.

Such a process runs none of a rank's other hooks. The first one that calls an optimizer writes to the rank's heartbeat,
unless the rank trains itself; the others take the same steps. Workers of data loaders call none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks.files import script_loads, script_saves
from kittrain.system.heartbeat import HeartbeatState, ScriptWriter
from kittrain.system.heartbeat_files import LoadedFile
from kittrain.system.imports import after_import

TRAVELS_AS: Final = "kittrain.heartbeat"  # key in what a process passes on to those that multiprocessing starts


class Heartbeat:
    """A rank's file, of which the processes that ``multiprocessing`` starts for it are told."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Callable[[str], Heartbeat], tuple[str]]:
        """Such a process watches itself as soon as it has been sent this."""
        return follow, (self._file,)


def watch(file: Path) -> None:
    """Tell all processes that this rank starts of its heartbeat; to be called before its script runs."""

    def pass_on(module: ModuleType) -> None:
        module.current_process()._config[TRAVELS_AS] = Heartbeat(str(file))  # noqa: SLF001  there is no public name

    after_import("multiprocessing.process", pass_on)


def follow(file: str) -> Heartbeat:
    """Watch the training of this process, which a rank has started."""
    training = ChildTraining(Path(file))
    after_import("torch.optim.optimizer", lambda module: module.register_optimizer_step_post_hook(training.steps))
    script_loads.watch(training.loads)
    script_saves.watch(training.saves, training.stores)
    return Heartbeat(file)


class ChildTraining:
    """Of one process.

    Args:
        heartbeat: the rank's file.
    """

    def __init__(self, heartbeat: Path) -> None:
        self._file = heartbeat
        self._writer: ScriptWriter | None = None  # of the process that writes, from its first step on
        self._begun = False
        self._loaded: tuple[int, LoadedFile] | None = None  # the newest file before that

    def steps(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        """An optimizer has taken a step."""
        if not self._begun:
            self._begun = True
            with suppress(Exception):  # the rank, and its file, may be gone
                self._begin()
        if self._writer:
            self._writer.optimizer_called(id(optimizer))

    def loads(self, changed: int, file: LoadedFile) -> None:
        """A file was loaded."""
        if self._writer:
            self._writer.file_loaded(changed, file)
        elif not self._begun and (self._loaded is None or changed > self._loaded[0]):
            self._loaded = changed, file

    def saves(self, name: str) -> None:
        """A checkpoint was saved to the node's own folder."""
        if self._writer:
            self._writer.file_saved(name)

    def stores(self) -> None:
        """A checkpoint was saved anywhere."""
        if self._writer:
            self._writer.stored()

    def _begin(self) -> None:
        if HeartbeatState.read(self._file).step or not _is_first(Path(f"{self._file}.trains")):
            return
        self._writer = ScriptWriter(self._file)
        self._writer.meets_otherwise()  # what these processes exchange is not counted
        if self._loaded:
            self._writer.file_loaded(*self._loaded)


def _is_first(file: Path) -> bool:
    """Whether this process is the first one that lives; it is named in the file from then on."""
    with suppress(FileExistsError), file.open("x") as made:
        made.write(str(os.getpid()))
        return True
    if Path("/proc", file.read_text() or "none").exists():
        return False
    file.write_text(str(os.getpid()))
    return True
