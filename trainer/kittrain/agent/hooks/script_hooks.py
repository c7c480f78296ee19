"""Hooks in a rank's process that show what any script does: its steps, its group, and when it is busy.

A script need not know of them: they are called by torch, change nothing, and cost 7 to 40 microseconds a step, by
machine. They write into the rank's heartbeat file. What they raise is dropped: an optimizer or a model of the script's
own may lack or refuse anything, and the script goes on as without them. ``KIT_SCRIPT_HOOKS=0`` leaves them out.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kittrain.agent.hooks import child_training
from kittrain.agent.hooks.files import (
    own_folders,
    script_loads,
    script_saves,
    trackers,
)
from kittrain.agent.hooks.launching import (
    init_method,
    jax_cluster,
    late_variables,
    own_groups,
    own_launchers,
    own_pools,
)
from kittrain.agent.hooks.launching.started_programs import StartedPrograms
from kittrain.agent.hooks.notes.notes import Notes
from kittrain.agent.hooks.notes.sampler_orders import SamplerOrders
from kittrain.agent.hooks.steps.finite_parameters import FiniteParameters
from kittrain.agent.hooks.steps.hand_made_steps import HandMadeSteps
from kittrain.agent.hooks.steps.last_call import LastCall
from kittrain.agent.hooks.steps.script_evaluations import ScriptEvaluations
from kittrain.agent.hooks.wrapping import in_place_of
from kittrain.system.heartbeat import ScriptWriter
from kittrain.system.imports import after_import
from kittrain.torch_private.early import around_exchanges, collectives_begun, counts_collectives, on_default_group

VARIABLE: Final = "KIT_SCRIPT_HOOKS"
C10D: Final = "torch.distributed.distributed_c10d"
# Packages by which ranks exchange gradients without torch.distributed.
OTHERS: Final = frozenset({"horovod", "mpi4py", "byteps", "bagua", "hivemind", "oneflow", "jax", "tensorflow"})


def install(environ: Mapping[str, str] = os.environ) -> None:
    """Install the hooks: now where torch is imported already, else as soon as the script imports it."""
    if environ.get(VARIABLE) == "0":
        return
    after_import(jax_cluster.MODULE, jax_cluster.register)
    own_pools.watch()
    name = environ.get("KIT_HEARTBEAT_FILE")
    if not name:
        return
    own_groups.watch()
    own_launchers.watch()
    late_variables.watch()  # last: it looks for the caller of what both wrap
    started = init_method.own_address(os.environ)
    after_import(C10D, lambda module: init_method.redirect(module, started))
    with suppress(OSError):  # without a heartbeat the script still runs
        writer = ScriptWriter(Path(name))
        evaluations = ScriptEvaluations(writer.evaluation_begins, writer.evaluation_ends)
        orders = SamplerOrders(writer.samples, lambda: writer.steps, lambda: evaluations.pending)
        notes = Notes(orders, lambda: writer.steps)
        StartedPrograms(lambda: writer.steps).watch()
        after_import(
            "torch.optim.optimizer", lambda module: _watch_optimizers(module, writer, evaluations, orders, notes)
        )
        after_import("torch.optim.optimizer", lambda module: own_folders.watch(module, environ))
        after_import(C10D, lambda module: _watch_groups(module, writer, notes))
        after_import("torch.autograd", lambda module: _watch_backward(module, writer, evaluations, notes))
        after_import("torch.nn.modules.module", evaluations.watch)
        notes.watch()
        script_loads.watch(writer.file_loaded, notes.resumed.loaded)
        script_saves.watch(writer.file_saved, writer.stored, notes.resumed.saved, notes.resumed.renamed)
        trackers.watch(lambda: writer.steps, environ)
        child_training.watch(Path(name))


def _watch_optimizers(
    module: ModuleType,
    writer: ScriptWriter,
    evaluations: ScriptEvaluations,
    orders: SamplerOrders,
    notes: Notes,
) -> None:
    finite = FiniteParameters(writer.not_finite)
    atexit.register(finite.look)
    atexit.register(evaluations.tell)
    known: set[int] = set()

    def first_called(optimizer: Any) -> None:
        known.add(id(optimizer))
        weakref.finalize(optimizer, known.discard, id(optimizer)).atexit = False
        finite.first_called(optimizer)
        size = 0
        with suppress(Exception):
            evaluations.trains(optimizer)
            size = sum(one.nbytes for group in optimizer.param_groups for one in group["params"])
        if not writer.optimized:
            orders.trains()
            writer.trains(size)
            if not OTHERS.isdisjoint(sys.modules):
                writer.meets_otherwise()

    def called(optimizer: Any, _args: object, _kwargs: object) -> None:
        try:  # costs nothing, in contrast to a context
            number = id(optimizer)
            if number not in known:
                first_called(optimizer)
            writer.optimizer_called(number)
            finite.called(optimizer)
            notes.called(optimizer)
        except Exception:  # noqa: BLE001,S110
            pass

    module.register_optimizer_step_post_hook(called)


def _watch_backward(module: ModuleType, writer: ScriptWriter, evaluations: ScriptEvaluations, notes: Notes) -> None:
    """Wrap what ``Tensor.backward`` calls: gradients are averaged in it, so ranks wait for each other there."""
    backward: Callable[..., Any] = module.backward
    running = False
    by_hand = HandMadeSteps()

    @in_place_of(backward)
    def timed_backward(*args: Any, **kwargs: Any) -> Any:
        nonlocal running
        if running:  # within another one, as by activation checkpointing
            return backward(*args, **kwargs)
        running = True
        trains = not evaluations.pending
        tensors = args[0] if args else kwargs.get("tensors", ())
        if trains:
            notes.begins(tensors, keeps_graph=bool(args[2] if len(args) > 2 else kwargs.get("retain_graph")))  # noqa: PLR2004
        else:
            evaluations.backward_begins()
        if not writer.optimized and by_hand.backward_begins(tensors):
            writer.trains(by_hand.size)
            writer.updated_by_hand(by_hand.count)
        if writer.grouped and not plain(args, kwargs):
            writer.meets_otherwise()
        writer.backward_began(before := collectives_begun(sys.modules.get(C10D)))
        try:
            return backward(*args, **kwargs)
        finally:
            running = False
            writer.backward_ended(after := collectives_begun(sys.modules.get(C10D)))
            if trains:
                notes.passed(exchanged=after > before)

    module.backward = timed_backward  # type: ignore[attr-defined]


def plain(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a backward pass starts from a loss: gradients that it is given may be those of another rank's layers."""
    return (args[1] if len(args) > 1 else kwargs.get("grad_tensors")) is None


def _watch_groups(module: ModuleType, writer: ScriptWriter, notes: Notes) -> None:
    """Write the size of each process group that becomes the default one, and at the end what ranks have exchanged."""
    last = LastCall(writer.calls, writer.calls_again, lambda: writer.steps)

    def formed(group: Any) -> None:
        writer.group_formed(group.size())
        last.formed(group.size())
        notes.formed()
        if not counts_collectives(module):
            writer.meets_otherwise()

    def ended() -> None:
        if not counts_collectives(module):  # of groups that were formed later
            writer.meets_otherwise()
        writer.ended(collectives_begun(module))

    atexit.register(ended)
    around_exchanges(module, writer.exchanged, last.begins)
    if not on_default_group(module, formed, ended):
        writer.group_formed(int(os.environ.get("WORLD_SIZE", "1")))  # assume that the ranks form a group
