"""The world of a process group that a script has joined itself."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist

from kittrain.job.env import RankEnv, rank_env
from kittrain.rank.world.distributed import DistributedError, World
from kittrain.system.heartbeat import HeartbeatWriter, Phase


def attach(*, env: RankEnv | None = None) -> World:
    """The world of the script's own process group, which remains the script's to leave. Seeds and timeouts stay.

    The device is the CPU for gloo alone, else the current GPU: call ``torch.cuda.set_device`` before. A single process
    needs no group.

    Raises:
        DistributedError: there are several ranks and no group.
    """
    env = env or rank_env()
    if not dist.is_initialized():
        if env.distributed:
            raise DistributedError("there is no process group: call init_process_group, or use join()")
        return World(env=env, device=_device("nccl"))
    env = replace(env, rank=dist.get_rank(), world_size=dist.get_world_size())
    heartbeat = HeartbeatWriter(env.heartbeat_file)
    heartbeat.beat(Phase.PREPARING)
    return World(env=env, device=_device(dist.get_backend()), heartbeat=heartbeat)


def _device(backend: str) -> torch.device:
    """Where the tensors of collectives are: a group with several backends has NCCL for GPUs."""
    if backend == "gloo" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
