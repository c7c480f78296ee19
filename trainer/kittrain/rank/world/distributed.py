"""Joins the process group, chooses backend and device, and offers the collectives that the trainer needs.

Every method of World but ``print`` and ``warn`` is collective: all ranks call it, in the same order. A lone process is
a world of size 1, without a process group.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.job.env import RankEnv, rank_env
from kittrain.rank.world import exchange
from kittrain.rank.world.replicas import DDPOptions, is_fully_sharded, replicate
from kittrain.rank.world.rng import seed_all
from kittrain.rank.world.rounds import RoundOverError, Rounds, rounds_of
from kittrain.rank.world.step_barrier import CollectiveBarrier
from kittrain.system import progress_bar
from kittrain.system.heartbeat import HeartbeatWriter, Phase
from kittrain.system.host_barrier import HostBarrier
from kittrain.system.port import connect
from kittrain.torch_private.ranks import set_collective_timeout

T = TypeVar("T")

JOIN_TIMEOUT: Final = timedelta(minutes=15)  # imports and a first CUDA context differ by minutes between nodes
STEP_TIMEOUT: Final = timedelta(minutes=5)  # a step, an evaluation's share, or rank 0's publishing of a snapshot
LONGEST_TIMEOUT: Final = timedelta(days=1)  # where hang detection is off
LISTEN_TIMEOUT: Final = 60.0  # seconds to wait for rank 0 before torch does


class DistributedError(Exception):
    """The world cannot be joined as requested, or a rank sent an invalid message."""


@dataclass(frozen=True, kw_only=True)
class World:
    """This rank's view of all ranks.

    Attributes:
        env: of this rank; another one once it has outlived its round.
        device: that it computes on.
        heartbeat: shows its agent what it does.
        rounds: that its process may outlive; None: it has one.
    """

    env: RankEnv
    device: torch.device
    heartbeat: HeartbeatWriter = field(default_factory=HeartbeatWriter)
    rounds: Rounds | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        """0 to size - 1."""
        return self.env.rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.env.world_size

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which prints and writes for all."""
        return self.rank == 0

    def rejoin(self, further: Callable[[], None] | None = None) -> None:
        """Leave the group, whose round is over, and form that of the next round: with another rank and size.

        Args:
            further: makes the groups that a new rank's script makes.

        Raises:
            CannotOutliveError: the script holds a process group of the last round, and ``further`` is not given.
            RuntimeError: the group could not be formed.
        """
        assert self.rounds
        while True:
            told = self.rounds.next(renews=further is not None)
            env = replace(self.env, rank=int(told["RANK"]), world_size=int(told["WORLD_SIZE"]))
            object.__setattr__(self, "env", env)  # scripts hold this object, and ask it for their rank
            with suppress(RoundOverError):
                _form(self.rounds, env, told, further)
                self.heartbeat.beat(Phase.PREPARING)
                return

    def barrier_of(self, group: dist.ProcessGroup) -> HostBarrier | CollectiveBarrier:
        """The barrier of a group's ranks in each step, of a round that this process may outlive.

        Raises:
            BarrierError: the round is over.
        """
        assert self.rounds
        return self.rounds.barrier_of(group, timeout=step_timeout(self.env.job.policy.hang_seconds))

    def print(self, text: str) -> None:
        """Print a line on rank 0 only; not collective."""
        if self.is_main:
            progress_bar.write(text)

    def warn(self, text: str) -> None:
        """Print a warning on this rank; not collective."""
        progress_bar.write(f"warning: {text}")

    def attempt(self, act: Callable[[], T], *errors: type[Exception]) -> T:
        """Call a function on every rank. If any fails with one of these errors, raise the lowest rank's on all of them.

        On the other ranks the error has the same text, and the first of these types that it is an instance of.
        """
        result, error = None, None
        try:
            result = act()
        except errors as raised:
            error = raised
        first = self._first_rank(failed=error is not None)
        if first is None:
            return cast("T", result)
        kind = next((index for index, kind in enumerate(errors) if isinstance(error, kind)), 0)
        own = (kind, str(error))
        kind, text = self.broadcast_value(own, tuple[int, str], source=first)
        raise (error if error and own == (kind, text) else errors[kind](text))

    def _first_rank(self, *, failed: bool) -> int | None:
        """The lowest rank that has failed; None if none has: then this is all that is exchanged."""
        if not dist.is_initialized():
            return self.rank if failed else None
        first = torch.tensor(self.rank if failed else self.size, device=self._comm_device)
        dist.all_reduce(first, dist.ReduceOp.MIN)
        return int(first.item()) if first.item() < self.size else None

    def broadcast_value(self, value: T | None, kind: Any, *, source: int = 0) -> T:
        """The source rank's value, on every rank; ``kind`` is its type, which is checked."""
        if not dist.is_initialized():
            return cast("T", value)
        content = typed.dump(value) if self.rank == source else b""
        content = exchange.broadcast(content, self._comm_device, source=source)
        return cast("T", value if self.rank == source else _decode(kind, content, by=source))

    def broadcast_bytes(self, content: bytes, *, source: int, group: dist.ProcessGroup | None = None) -> bytes:
        """The source rank's content, on every rank; of a group, if one is given."""
        if not dist.is_initialized():
            return content
        return exchange.broadcast(content, self._comm_device, source=source, group=group)

    def broadcast(self, tensor: Tensor, *, source: int, group: dist.ProcessGroup | None = None) -> None:
        """Set a tensor on every rank, of a group if one is given, to its values on one of them, in place."""
        if dist.is_initialized():
            dist.broadcast(tensor, src=source, group=group)

    def gather(self, value: T, kind: Any) -> list[T]:
        """All ranks' values, by rank, on rank 0; an empty list on the others. ``kind`` is the type of each."""
        if not dist.is_initialized():
            return [value]
        contents = exchange.gather(typed.dump(value), self._comm_device)
        return [value if rank == 0 else _decode(kind, content, by=rank) for rank, content in enumerate(contents)]

    def all_gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """All ranks' numbers, of 64 bits, by rank, on every rank; all ranks have as many."""
        return exchange.all_gather(numbers, self._comm_device) if dist.is_initialized() else [list(numbers)]

    def scatter(self, values: Sequence[T], kind: Any) -> T:
        """This rank's entry of rank 0's values; those of the others are ignored."""
        if not dist.is_initialized():
            return values[0]
        content = exchange.scatter([typed.dump(value) for value in values] if self.is_main else [], self._comm_device)
        return cast("T", values[0] if self.is_main else _decode(kind, content, by=0))

    @property
    def _comm_device(self) -> torch.device:
        """The device of tensors in collectives: the CPU for gloo, also if the model is on a GPU."""
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
        """Wrap a module in DDP: each backward pass averages its gradients over all ranks; parameters become rank 0's.

        In a lone process, or after ``fully_shard``, which averages gradients itself, the module is returned unchanged.

        Args:
            module: to wrap; itself unchanged.
            options: of DDP.

        Raises:
            ValueError: ``fully_shard`` was applied to parts of the module only, or it is divided by tensor parallelism.
        """
        return replicate(module, options) if dist.is_initialized() and not is_fully_sharded(module) else module

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Set the buffers of every rank to rank 0's: batch statistics differ after each step."""
        if dist.is_initialized():
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)

    def synchronize_batchnorm(self, model: nn.Module) -> nn.Module:
        """The model with SyncBatchNorm, which computes statistics over the global batch; on GPUs only.

        Raises:
            DistributedError: there are several ranks, on CPUs.
        """
        if self.size == 1:
            return model
        if self.device.type != "cuda":
            raise DistributedError("torch's SyncBatchNorm needs a GPU for each rank; train without it on CPUs")
        synchronized: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return synchronized


def _decode(kind: Any, content: bytes, *, by: int) -> Any:
    """Decode a value from another rank.

    Raises:
        DistributedError: it is not valid.
    """
    try:
        return typed.load(kind, content)
    except MalformedError as error:
        raise DistributedError(f"rank {by} sent an invalid message: {error}") from error


@contextmanager
def join(*, seed: int = 0, env: RankEnv | None = None) -> Iterator[World]:
    """Join the process group that the environment describes; leave it on exit.

    All ranks get the same seed, so that they build the same model.

    Raises:
        DistributedError: the requested backend cannot work here.
    """
    env = env or rank_env()
    backend, device = choose_backend(env, gpus=torch.cuda.device_count())
    if device.type == "cuda":
        torch.cuda.set_device(device)
    seed_all(seed)
    if not env.distributed:
        yield World(env=env, device=device)
        return
    heartbeat = HeartbeatWriter(env.heartbeat_file)
    heartbeat.beat(Phase.JOINING)
    if rounds := rounds_of(env, device, backend, heartbeat):
        rounds.start()
        _form(rounds, env, os.environ)
        heartbeat.beat(Phase.PREPARING)
        yield World(env=env, device=device, heartbeat=heartbeat, rounds=rounds)
        dist.destroy_process_group()
        return
    eager = device if backend == "nccl" else None  # makes NCCL connect now, so that it fails here and not later
    if env.rank:
        wait_for_rank_0()
    dist.init_process_group(backend, timeout=JOIN_TIMEOUT, device_id=eager)
    set_collective_timeout(step_timeout(env.job.policy.hang_seconds))
    heartbeat.beat(Phase.PREPARING)
    yield World(env=env, device=device, heartbeat=heartbeat)
    dist.destroy_process_group()  # not after an error: it might wait for ranks that have ended


def _form(rounds: Rounds, env: RankEnv, address: Mapping[str, str], further: Callable[[], None] | None = None) -> None:
    """Form a round's groups. An error that comes because the round is over is a ``RoundOverError``."""
    try:
        rounds.form(env, address, timeout=JOIN_TIMEOUT)
        if further:
            rounds.meet_for_groups(env.world_size)
            further()
    except RuntimeError as error:
        if not rounds.ended_by(error):
            raise
        raise RoundOverError(str(error)) from error
    set_collective_timeout(step_timeout(env.job.policy.hang_seconds))


def wait_for_rank_0(environ: Mapping[str, str] = os.environ) -> None:
    """Wait until rank 0 listens, as torch would retry only after a random time of half a second or more."""
    with suppress(TimeoutError, KeyError):  # torch raises its own error then
        address = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        connect(*address, deadline=time.monotonic() + LISTEN_TIMEOUT).close()


def choose_backend(env: RankEnv, *, gpus: int) -> tuple[str, torch.device]:
    """Backend and device of a rank: NCCL with a GPU for each rank of this node, or gloo without GPUs.

    A job that requests GPUs and, explicitly, gloo computes on GPUs, which several ranks may share. NCCL cannot do that.

    Args:
        env: has the requested backend and GPUs.
        gpus: number of GPUs visible to this process.

    Raises:
        DistributedError: NCCL was requested without GPUs, or there are fewer GPUs than ranks on this node.
    """
    if env.backend == "gloo" and gpus and env.job.gpus_per_node:
        return "gloo", torch.device("cuda", env.local_rank % gpus)
    if env.backend == "gloo" or (env.backend == "auto" and gpus == 0):
        return "gloo", torch.device("cpu")
    if gpus < env.local_world_size:
        raise DistributedError(
            f"{env.local_world_size} ranks on this node see {gpus} GPUs, and backend {env.backend} needs one per rank: "
            "start fewer ranks (procsPerNode), share GPUs with `backend: gloo`, or train on CPUs with gpusPerNode 0"
        )
    return "nccl", torch.device("cuda", env.local_rank)


def step_timeout(hang_timeout: float | None) -> timedelta:
    """The timeout of a collective, at least the job's hang timeout in seconds (None: the job does not set one)."""
    requested = min(hang_timeout or 0.0, LONGEST_TIMEOUT.total_seconds())
    return max(STEP_TIMEOUT, timedelta(seconds=requested))
