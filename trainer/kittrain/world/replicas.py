"""A module that all ranks hold alike: what DDP is told about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

# Newer versions of torch make buffers alike at the beginning, under a name of its own.
OWN_BUFFERS: Final[dict[str, Any]] = {
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False
}
SHOWN: Final = 3  # names of parameters in a message
CommHook = Callable[[Any, Any], Any]  # from its state and a bucket of gradients, a future of the averaged bucket


@dataclass(frozen=True, kw_only=True)
class DDPOptions:
    """What ``DistributedDataParallel`` is told; torch documents each. Defaults are torch's but for the last of these.

    Attributes:
        find_unused_parameters: some parameters have no part in some steps' loss, on some or all ranks.
        static_graph: the same parameters have a part in every step's loss.
        broadcast_buffers: rank 0's buffers are everybody's at each step. Without, ranks' buffers differ, and snapshots
            hold one rank's: resuming is then exact for what does not depend on them.
        bucket_cap_mb: MiB of gradients that are averaged at once; None leaves it to torch.
        comm_hook: averages a bucket in another way, such as
            ``torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook``. What it remembers from
            step to step is in no snapshot.
        comm_state: the hook's first argument; None is the default process group.
        gradient_as_bucket_view: gradients are parts of the buckets, which saves a copy of all of them.
    """

    find_unused_parameters: bool = False
    static_graph: bool = False
    broadcast_buffers: bool = True
    bucket_cap_mb: float | None = None
    comm_hook: CommHook | None = None
    comm_state: Any = None
    gradient_as_bucket_view: bool = True


def replicate(module: nn.Module, options: DDPOptions) -> DistributedDataParallel:
    """A module whose gradients all ranks average in each backward pass; its parameters become rank 0's. Collective."""
    replica = DistributedDataParallel(
        module,
        bucket_cap_mb=options.bucket_cap_mb,
        find_unused_parameters=options.find_unused_parameters,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
        **({} if options.broadcast_buffers else OWN_BUFFERS),
    )
    if options.comm_hook:
        replica.register_comm_hook(options.comm_state, options.comm_hook)
    return replica


def sharded(model: nn.Module) -> bool:
    """Whether ``fully_shard`` has cut a model, or parts of it: then its ranks need each other in each forward pass."""
    return any(isinstance(module, FSDPModule) for module in model.modules())


def averages_itself(model: nn.Module) -> bool:
    """Whether ``fully_shard`` has cut a model, so that each backward pass averages its gradients.

    Raises:
        ValueError: only parts of it were cut; names what nobody would average.
    """
    if not sharded(model):
        return False
    whole = [name for name, one in model.named_parameters() if one.requires_grad and not isinstance(one, DTensor)]
    if whole:
        names = ", ".join(whole[:SHOWN]) + (", ..." if len(whole) > SHOWN else "")
        raise ValueError(
            f"fully_shard was called for parts of the model only, and nobody would average the gradients of {names}: "
            "call fully_shard(model), too, after its parts"
        )
    return True
