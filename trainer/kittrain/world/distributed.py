"""All ranks as one world: joining it, its device, and the few collectives that the rest of the trainer needs.

Every method of World but ``say`` and ``warn`` is collective: all ranks call it, in the same order. A lone process is a
world of one, without a process group.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from tqdm import tqdm

from kittrain.env import RankEnv, rank_env
from kittrain.system import typed
from kittrain.system.decoders import MalformedError
from kittrain.system.heartbeat import Heart, Phase
from kittrain.system.port import reach
from kittrain.world import exchange
from kittrain.world.replicas import DDPOptions, averages_itself, replicate
from kittrain.world.rng import seed_all
from kittrain.world.timeouts import JOIN_TIMEOUT, step_timeout

T = TypeVar("T")
Problem = tuple[int, str] | None  # of one rank: which type of error, and its text

# Newer versions of torch have it as a public name.
set_timeout = getattr(dist, "set_timeout", None) or distributed_c10d._set_pg_timeout  # noqa: SLF001

LISTEN_PATIENCE: Final = 60.0  # seconds in which a rank 0 that comes late is noticed at once


class DistributedError(Exception):
    """The world cannot be joined as it was asked for; says why."""


@dataclass(frozen=True, kw_only=True)
class World:
    """This rank's view of all ranks."""

    env: RankEnv
    device: torch.device
    heart: Heart = field(default_factory=Heart)

    @property
    def rank(self) -> int:
        """0 to size - 1."""
        return self.env.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.env.world_size

    @property
    def is_main(self) -> bool:
        """Whether this rank speaks and writes for all."""
        return self.rank == 0

    def say(self, text: str) -> None:
        """A line for a person, from rank 0; not collective."""
        if self.is_main:
            tqdm.write(text, file=sys.stdout)  # keeps clear of a progress bar
            sys.stdout.flush()

    def warn(self, text: str) -> None:
        """A warning for a person, from whichever rank has it; not collective."""
        tqdm.write(f"warning: {text}", file=sys.stdout)
        sys.stdout.flush()

    def attempt(self, act: Callable[[], T], *errors: type[Exception]) -> T:
        """What an act gives here, if it succeeds on all ranks; else the lowest failed one's error is raised on all.

        Elsewhere it is of the first of these types that it is an instance of, and has its text.
        """
        result, error = None, None
        try:
            result = act()
        except errors as raised:
            error = raised
        kind = next((index for index, kind in enumerate(errors) if isinstance(error, kind)), None)
        told = None if kind is None else (kind, str(error))
        failed = self.share([one for one in self.gather(told, Problem) if one], list[Problem])
        if failed and failed[0]:
            kind, text = failed[0]
            raise (error if told == failed[0] and error else errors[kind](text))
        return cast("T", result)

    def share(self, value: T | None, kind: Any, *, source: int = 0) -> T:
        """What rank 0, or another source, gave, on every rank. ``kind`` is its type, which no other value has."""
        if not dist.is_initialized():
            return cast("T", value)
        content = typed.dump(value) if self.rank == source else b""
        content = exchange.broadcast(content, self._wire, source=source)
        return cast("T", value if self.rank == source else _told(kind, content, by=source))

    def broadcast(self, tensor: Tensor, *, source: int) -> None:
        """Give a tensor on every rank the values that it has on one of them, in place."""
        if dist.is_initialized():
            dist.broadcast(tensor, src=source)

    def gather(self, value: T, kind: Any) -> list[T]:
        """What each rank gave, by rank, on rank 0; elsewhere an empty list. ``kind`` is the type of each."""
        if not dist.is_initialized():
            return [value]
        contents = exchange.gather(typed.dump(value), self._wire)
        return [value if rank == 0 else _told(kind, content, by=rank) for rank, content in enumerate(contents)]

    def scatter(self, values: Sequence[T], kind: Any) -> T:
        """What rank 0 gave for each rank, by rank; elsewhere what is given does not count."""
        if not dist.is_initialized():
            return values[0]
        content = exchange.scatter([typed.dump(value) for value in values] if self.is_main else [], self._wire)
        return cast("T", values[0] if self.is_main else _told(kind, content, by=0))

    @property
    def _wire(self) -> torch.device:
        """Where what is exchanged has to lie: gloo has it in main memory, also where it is on GPUs."""
        return torch.device("cpu") if dist.get_backend() == "gloo" else self.device

    def sum(self, tensor: Tensor) -> Tensor:
        """The element-wise sum over all ranks, in place."""
        if dist.is_initialized():
            dist.all_reduce(tensor)
        return tensor

    def barrier(self) -> None:
        """Wait for all ranks."""
        if dist.is_initialized():
            dist.barrier()

    def parallel(self, module: nn.Module, options: DDPOptions = DDPOptions()) -> nn.Module:  # noqa: B008  frozen
        """A module whose gradients are averaged over all ranks in each backward pass; parameters become rank 0's.

        A lone process's is as it was, and so is one that ``fully_shard`` has cut: that averages them itself.

        Args:
            module: stays as it is.
            options: what DDP is told.

        Raises:
            ValueError: ``fully_shard`` has cut only parts of it.
        """
        return replicate(module, options) if dist.is_initialized() and not averages_itself(module) else module

    def equalize_buffers(self, model: nn.Module) -> None:
        """Give every rank rank 0's buffers: each rank's batch statistics moved on by themselves since the last step."""
        if dist.is_initialized():
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def synchronize_batchnorm(self, model: nn.Module) -> nn.Module:
        """The model with statistics over the global batch where torch can do it, which is on GPUs only.

        Raises:
            DistributedError: several ranks on CPUs were asked to.
        """
        if self.size == 1:
            return model
        if self.device.type != "cuda":
            raise DistributedError("torch's SyncBatchNorm needs a GPU for each rank; train without it on CPUs")
        synchronized: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return synchronized


def _told(kind: Any, content: bytes, *, by: int) -> Any:
    """What another rank told.

    Raises:
        DistributedError: it is something else.
    """
    try:
        return typed.load(kind, content)
    except MalformedError as error:
        raise DistributedError(f"rank {by} tells what no rank would: {error}") from error


@contextmanager
def join(*, seed: int = 0, env: RankEnv | None = None) -> Iterator[World]:
    """Join the world that the environment describes, and leave it at the end.

    All ranks are seeded alike, so that all build the same model.

    Raises:
        DistributedError: the backend asked for cannot work here; names the cause.
    """
    env = env or rank_env()
    backend, device = choose(env, gpus=torch.cuda.device_count())
    if device.type == "cuda":
        torch.cuda.set_device(device)
    seed_all(seed)
    if not env.distributed:
        yield World(env=env, device=device)
        return
    heart = Heart(env.heartbeat_file)
    heart.beat(Phase.JOINING)
    eager = device if backend == "nccl" else None  # NCCL connects now, where a failure is easy to place
    if env.rank:
        await_rank_0()
    dist.init_process_group(backend, timeout=JOIN_TIMEOUT, device_id=eager)
    set_timeout(step_timeout(env.hang_timeout))
    heart.beat(Phase.PREPARING)
    yield World(env=env, device=device, heart=heart)
    dist.destroy_process_group()  # but not after an error: it could wait for ranks that are gone


def await_rank_0(environ: Mapping[str, str] = os.environ) -> None:
    """Wait until rank 0 listens: torch, refused once, looks again after half a second or more, at random."""
    with suppress(TimeoutError, KeyError):  # torch tells what is wrong, in its own words
        address = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        reach(*address, deadline=time.monotonic() + LISTEN_PATIENCE).close()


def choose(env: RankEnv, *, gpus: int) -> tuple[str, torch.device]:
    """Backend and device of a rank: NCCL with a GPU for each rank of this node, gloo with none, never a mixture.

    A job that asks for GPUs and for gloo by name computes on GPUs, which several ranks may share: NCCL refuses that.

    Args:
        env: what was asked for.
        gpus: how many this process sees.

    Raises:
        DistributedError: NCCL was asked for without GPUs, or there are too few for this node's ranks.
    """
    if env.backend == "gloo" and gpus and env.gpus_per_node:
        return "gloo", torch.device("cuda", env.local_rank % gpus)
    if env.backend == "gloo" or (env.backend == "auto" and gpus == 0):
        return "gloo", torch.device("cpu")
    if gpus < env.local_world_size:
        raise DistributedError(
            f"{env.local_world_size} ranks on this node see {gpus} GPUs, and backend {env.backend} needs one for each: "
            "start fewer ranks (procsPerNode), or set `backend: gloo`, with which ranks share GPUs, or train on CPUs "
            "where gpusPerNode is 0"
        )
    return "nccl", torch.device("cuda", env.local_rank)
