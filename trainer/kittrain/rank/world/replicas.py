"""Wraps a replicated module in DDP, and recognizes modules that ``fully_shard`` has sharded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

# Newer versions of torch have a separate parameter for broadcasts in the forward pass.
LOCAL_BUFFERS: Final[dict[str, Any]] = {
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False
}
MAX_NAMES: Final = 3  # of parameters in a message
CommHook = Callable[[Any, Any], Any]  # (state, bucket of gradients) to a future of the averaged bucket


@dataclass(frozen=True, kw_only=True)
class DDPOptions:
    """Options of ``DistributedDataParallel``. All defaults but ``gradient_as_bucket_view`` are torch's.

    Attributes:
        find_unused_parameters: some parameters are unused in some steps, on some or all ranks.
        static_graph: the same parameters are used in every step.
        broadcast_buffers: all ranks get rank 0's buffers at each step. Else the ranks' buffers differ, and as snapshots
            hold those of one rank, resuming is exact only for what does not depend on them.
        bucket_cap_mb: MiB of gradients that are averaged at once; None is torch's default.
        comm_hook: averages a bucket in another way, such as
            ``torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook``. What it keeps is saved
            if it is PowerSGD's, local SGD's, or has ``state_dict`` and ``load_state_dict``; else a note is logged.
        comm_state: the hook's first argument; None is the default process group.
        gradient_as_bucket_view: gradients are views of the buckets, which saves a copy of all of them.
    """

    find_unused_parameters: bool = False
    static_graph: bool = False
    broadcast_buffers: bool = True
    bucket_cap_mb: float | None = None
    comm_hook: CommHook | None = None
    comm_state: Any = None
    gradient_as_bucket_view: bool = True


def replicate(module: nn.Module, options: DDPOptions) -> DistributedDataParallel:
    """Wrap a module in DDP: each backward pass averages gradients; parameters become rank 0's. Collective."""
    replica = DistributedDataParallel(
        module,
        bucket_cap_mb=options.bucket_cap_mb,
        find_unused_parameters=options.find_unused_parameters,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
        **({} if options.broadcast_buffers else LOCAL_BUFFERS),
    )
    if options.comm_hook:
        replica.register_comm_hook(options.comm_state, options.comm_hook)
    return replica


def has_sharded_modules(model: nn.Module) -> bool:
    """Whether ``fully_shard`` was applied to a model or parts of it: then each forward pass is collective."""
    return any(isinstance(module, FSDPModule) for module in model.modules())


def has_sharded_parameters(model: nn.Module) -> bool:
    """Whether a rank holds only a part of a model, also while a forward pass has made it whole."""
    return has_sharded_modules(model) or any(isinstance(one, DTensor) for one in model.parameters())


@dataclass(frozen=True, kw_only=True)
class Part:
    """Which part of the models a rank holds.

    Attributes:
        number: equal on the ranks that hold the same one.
        group: of these ranks; None: all ranks.
    """

    number: int = 0
    group: dist.ProcessGroup | None = None


def part_of(*models: nn.Module) -> Part:
    """The part that this rank holds of models with replicas (HSDP); of others, the whole."""
    for one in (one for model in models for one in model.parameters()):
        if isinstance(one, DTensor) and one.device_mesh.ndim == 1 + one.placements[0].is_replicate():
            mesh = one.device_mesh
            return Part(number=mesh.get_local_rank(mesh.ndim - 1), group=mesh.get_group(0) if mesh.ndim > 1 else None)
    return Part()


def reshard(*models: nn.Module) -> None:
    """Shard the parameters again that a forward pass without a backward pass has left whole (FSDP2); not collective."""
    for module in (module for model in models for module in model.modules()):
        if isinstance(module, FSDPModule):
            module.reshard()


def is_fully_sharded(model: nn.Module) -> bool:
    """Whether ``fully_shard`` was applied to a whole model, so that it averages its gradients.

    Raises:
        ValueError: it was applied to parts only; names parameters whose gradients would not be averaged. Or layers are
            divided by tensor parallelism.
    """
    refuse_tensor_parallelism(model)
    if not has_sharded_modules(model):
        return False
    whole = [name for name, one in model.named_parameters() if one.requires_grad and not isinstance(one, DTensor)]
    if whole:
        names = ", ".join(whole[:MAX_NAMES]) + (", ..." if len(whole) > MAX_NAMES else "")
        raise ValueError(
            f"fully_shard was called for parts of the model only, which leaves out the gradients of {names}: "
            "call fully_shard(model), too, after its parts"
        )
    return True


def refuse_tensor_parallelism(model: nn.Module) -> None:
    """Check that each rank may train on samples of its own.

    Raises:
        ValueError: a layer is divided by tensor parallelism, whose ranks need the same samples.
    """
    sharded = has_sharded_modules(model)
    for name, one in model.named_parameters():
        if isinstance(one, DTensor) and not (sharded and _by_samples_only(one)):
            raise ValueError(
                f"{name} is divided by tensor parallelism, whose ranks need the same samples, and here each rank gets "
                "its own: use Run with a loader whose sampler knows the mesh, and evaluate in the script"
            )


def _by_samples_only(parameter: DTensor) -> bool:
    """Whether a parameter is sharded over all ranks, or over a group of them that has replicas, by ``fully_shard``."""
    replicated = all(placement.is_replicate() for placement in parameter.placements[:-1])
    return replicated and parameter.device_mesh.size() == dist.get_world_size()
