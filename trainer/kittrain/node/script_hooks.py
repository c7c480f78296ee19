"""Hooks in a rank's process that show what any script does: its optimizer steps, its group, and what it goes on from.

A script need not know of them: they are called by torch, change nothing, and cost a few microseconds a step. They write
into the rank's heartbeat file. ``KIT_SCRIPT_HOOKS=0`` leaves them out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Final

from kittrain.node import init_method, jax_cluster, late_variables, script_loads
from kittrain.system.heartbeat import ScriptWriter
from kittrain.system.imports import after_import
from kittrain.torch_private.early import on_default_group

VARIABLE: Final = "KIT_SCRIPT_HOOKS"


def install(environ: Mapping[str, str] = os.environ) -> None:
    """Install the hooks: now where torch is imported already, else as soon as the script imports it."""
    if environ.get(VARIABLE) == "0":
        return
    after_import(jax_cluster.MODULE, jax_cluster.register)
    name = environ.get("KIT_HEARTBEAT_FILE")
    if not name:
        return
    late_variables.watch()
    started = init_method.own_address(os.environ)
    after_import("torch.distributed.distributed_c10d", lambda module: init_method.redirect(module, started))
    with suppress(OSError):  # without a heartbeat the script still runs
        writer = ScriptWriter(Path(name))
        after_import("torch.optim.optimizer", lambda module: _watch_optimizers(module, writer))
        after_import("torch.distributed.distributed_c10d", lambda module: _watch_groups(module, writer))
        script_loads.watch(writer.file_loaded)


def _watch_optimizers(module: ModuleType, writer: ScriptWriter) -> None:
    def called(optimizer: object, _args: object, _kwargs: object) -> None:
        writer.optimizer_called(id(optimizer))

    module.register_optimizer_step_post_hook(called)


def _watch_groups(module: ModuleType, writer: ScriptWriter) -> None:
    """Write the size of each process group that becomes the default one."""
    if not on_default_group(module, lambda group: writer.group_formed(group.size())):
        writer.group_formed(int(os.environ.get("WORLD_SIZE", "1")))  # assume that the ranks form a group
