"""FSDP2 with replicas, for ranks that go on with other process groups: what holds these, and what a cut step leaves.

A ``DeviceMesh`` knows its groups by name, and a new process group has the names of the last one. So the meshes, tensors
and optimizer states of a living model stay as they are, once the mesh has got what a new one of the next round has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import device_mesh, distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

REPLICATED: Final = "HSDPMeshInfo"  # the class of what FSDP2 knows of a mesh with replicas
OWN_EXCHANGES: Final = ("DefaultAllGather", "DefaultReduceScatter")
RESET_HERE: Final = "2.9."  # versions of torch whose FSDP2 this module takes back: others may have more to reset
PENDING: Final = (  # what a group of parameters has during a step
    *("_all_gather_result", "_all_reduce_state", "_partial_reduce_output", "_post_reduce_event"),
    "_reshard_after_forward_event",
)


class CannotRenewError(RuntimeError):
    """A model cannot go on with other process groups; says why."""


class Barrier(Protocol):
    """A barrier of the ranks of a replica, in two phases; all of it is collective but ``close``."""

    def arrive(self) -> None:
        """Arrive, without waiting; ``wait`` is for the last arrival only, if this is called again before it."""

    def wait(self) -> None:
        """Wait until all have arrived."""

    def close(self) -> None:
        """The barrier is used no more."""


class ReplicatedShards:
    """Modules that ``fully_shard`` has divided among ranks, with replicas: on one mesh of all ranks.

    Args:
        modules: with all of them.
        barrier: makes the barrier of a group's ranks; collective.

    Raises:
        CannotRenewError: they cannot go on with other process groups.
    """

    def __init__(self, modules: Sequence[nn.Module], barrier: Callable[[dist.ProcessGroup], Barrier]) -> None:
        self._modules = [one for module in modules for one in module.modules() if isinstance(one, FSDPModule)]
        try:
            self._mesh = self._only_mesh(modules)
        except AttributeError as error:
            raise CannotRenewError(
                f"torch {torch.__version__} cannot take back a step of FSDP2 that was cut short ({error})"
            ) from error
        self._averages = self._usual = 0  # exchanges of gradients since the last step, and in the one before
        self._make_barrier = barrier
        self._barrier: Barrier | None = None  # of this replica; made in the round's first step
        self._arrived = False

    def watch(self, *, on: bool) -> None:
        """See each average of gradients over the replicas from now on, or no longer."""
        for group in self._groups():
            group._all_reduce_hook = self._averaged if on else None  # noqa: SLF001

    def wait_for_replica(self) -> None:
        """Wait until the ranks that hold the other parts of this replica have all gradients, too. Collective.

        They arrive where gradients are usually complete, while FSDP2 still assigns them: there is little left to wait
        for. If that was too early, as a step has more backward passes than the one before, they arrive again.
        """
        if self._barrier is None:
            self._barrier = self._make_barrier(self._mesh.get_group(1))
        if not self._arrived or self._averages != self._usual:
            self._barrier.arrive()
        self._barrier.wait()
        self._averages, self._usual, self._arrived = 0, self._averages, False

    def _averaged(self, _: object) -> None:
        self._averages += 1
        if self._averages == self._usual and self._barrier:
            self._barrier.arrive()
            self._arrived = True

    def reset(self) -> None:
        """Drop what a step that was cut short has left. Not collective."""
        self._averages = self._usual = 0  # as of a new rank: all ranks of a replica have to arrive as often
        self._arrived = False
        if self._barrier:
            self._barrier.close()
            self._barrier = None
        for state in self._states():
            for group in _groups_of(state):
                group._all_gather_result = None  # noqa: SLF001  the rank would wait for an exchange that has failed
        for module in self._modules:
            state = module._get_fsdp_state()  # noqa: SLF001
            if not hasattr(module, "reset_iter_state"):  # of newer versions of torch
                _reset_iter_state(state)
            elif state._is_root is not False:  # noqa: SLF001
                module.reset_iter_state()

    def check(self, rank: int, size: int) -> None:
        """Look whether this rank can go on as another one, of another number of ranks.

        Raises:
            CannotRenewError: it cannot.
        """
        shards, (_, shard) = self._mesh.size(1), self._mesh.get_coordinate() or (0, 0)
        if size % shards:
            raise CannotRenewError(f"{size} ranks cannot hold replicas of a model in {shards} parts")
        if rank % shards != shard:
            raise CannotRenewError(f"rank {rank} of {size} holds part {rank % shards} of the model, and not {shard}")

    def renew(self) -> None:
        """Put the process groups of a new mesh in place of those of the last one. Collective, as a mesh is."""
        mesh = self._mesh
        ranks = torch.arange(dist.get_world_size()).view(-1, mesh.size(1))
        new = DeviceMesh(mesh.device_type, ranks, mesh_dim_names=mesh.mesh_dim_names)
        vars(mesh).update(vars(new))
        for info in self._mesh_infos():
            info.__post_init__()
        for parameter in self._parameters():
            if hasattr(parameter, "_shard_mesh"):  # in newer versions of torch
                parameter._shard_mesh = parameter._init_shard_mesh()  # noqa: SLF001

    def _only_mesh(self, modules: Sequence[nn.Module]) -> DeviceMesh:
        infos = self._mesh_infos()
        if any(type(info).__name__ != REPLICATED for info in infos) or not infos:
            raise CannotRenewError("the model is sharded without replicas, and each part is on one rank only")
        mesh: DeviceMesh = infos[0].mesh
        tensors = [one for module in modules for one in module.parameters() if isinstance(one, DTensor)]
        if any(one is not mesh for one in [*(info.mesh for info in infos), *(each.device_mesh for each in tensors)]):
            raise CannotRenewError("the model is divided on more than one mesh")
        if any(parameter.is_dtensor for parameter in self._parameters()):
            raise CannotRenewError("the model is divided by tensor parallelism, too")
        if any(_has_own_exchanges(group) for group in self._groups()):
            raise CannotRenewError("the script has set how FSDP2 exchanges gradients or parameters")
        if _is_part(mesh) or mesh.mesh.flatten().tolist() != list(range(dist.get_world_size())):
            raise CannotRenewError("the model's mesh is not one of all ranks in their order")
        own = [size for number, size in enumerate(mesh.shape) if mesh.get_group(number) is not dist.group.WORLD]
        if getattr(mesh, "_flatten_mapping", None) or _groups_made() != 1 + sum(mesh.size() // one for one in own):
            raise CannotRenewError("the script has process groups besides those of the model's mesh")
        if not (hasattr(FSDPModule, "reset_iter_state") or torch.__version__.startswith(RESET_HERE)):
            raise AttributeError("FSDPModule.reset_iter_state")
        return mesh

    def _states(self) -> list[Any]:
        return _distinct(module._get_fsdp_state() for module in self._modules)  # noqa: SLF001

    def _groups(self) -> list[Any]:
        return [group for state in self._states() for group in _groups_of(state)]

    def _parameters(self) -> list[Any]:
        return [parameter for group in self._groups() for parameter in group.fsdp_params]

    def _mesh_infos(self) -> list[Any]:
        holders = [*self._groups(), *self._parameters()]
        infos = _distinct(info for one in holders for info in (one.mesh_info, one.post_forward_mesh_info))
        return [info for info in infos if info is not None]


def _groups_of(state: Any) -> list[Any]:
    """The groups of parameters of a module; older versions of torch have one at most."""
    several = vars(state).get("_fsdp_param_groups")
    return list(filter(None, [state._fsdp_param_group] if several is None else several))  # noqa: SLF001


def _reset_iter_state(state: Any) -> None:
    """What ``FSDPModule.reset_iter_state`` of newer versions of torch does on CPUs, for one module."""
    context, exchanges = state._state_ctx, state._comm_ctx  # noqa: SLF001
    context.iter_forward_root, context.post_backward_final_callback_queued = None, False
    if state._is_root is not None:  # noqa: SLF001  it has run
        exchanges.all_gather_state = exchanges.reduce_scatter_state = None
        exchanges.post_forward_order.clear()
    state._modules_to_run_forward.clear()  # noqa: SLF001
    for group in _groups_of(state):
        vars(group).update(dict.fromkeys(PENDING))
        group._post_forward_indices.clear()  # noqa: SLF001
        group._training_state = type(group._training_state).IDLE  # noqa: SLF001
        for parameter in group.fsdp_params:
            parameter.sharded_param.grad = parameter.unsharded_accumulated_grad = None
            if (whole := vars(parameter).get("_unsharded_param")) is not None:
                whole.grad = None
        group._to_sharded()  # noqa: SLF001
    state._training_state = type(state._training_state).IDLE  # noqa: SLF001


def _is_part(mesh: Any) -> bool:
    """Whether a mesh is a part of another one."""
    if hasattr(mesh, "_root_mesh"):
        return mesh._root_mesh is not None  # noqa: SLF001
    known: Any = device_mesh._mesh_resources  # noqa: SLF001  of older versions of torch
    return known.get_root_mesh(mesh) is not mesh


def _has_own_exchanges(group: Any) -> bool:
    comms = group._all_gather_comm, group._reduce_scatter_comm  # noqa: SLF001
    return tuple(type(one).__name__ for one in comms) != OWN_EXCHANGES or group._all_reduce_hook is not None  # noqa: SLF001


def _groups_made() -> int:
    """How many process groups this process has made since it has the default one, which counts."""
    return int(distributed_c10d._world.group_count)  # noqa: SLF001


def _distinct(values: Iterator[Any]) -> list[Any]:
    return list({id(one): one for one in values}.values())
