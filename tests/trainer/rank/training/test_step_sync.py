"""What is sent with each step is read one step later, complete and in order."""

from __future__ import annotations

import math
import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kittrain.job.env import RankEnv
from kittrain.rank.training.step_sync import (
    MessageEncoder,
    PendingMean,
    Step,
    StepMessage,
    StepSync,
    StopRequest,
    all_reduce_message,
    average_message,
)
from kittrain.rank.world.distributed import World
from kittrain.rank.world.order import Cursor

WORLD = World(env=RankEnv(), device=torch.device("cpu"))


def step(number: int) -> Step:
    return Step(number=number, generation=1, cursor=Cursor(0, number), ids=[number], size=1)


def sent(loss: float, message: StepMessage) -> PendingMean:
    return all_reduce_message(torch.tensor(loss), message)


def test_a_step_is_read_after_the_next_one() -> None:
    sync = StepSync(WORLD)
    assert sync.flush() == []
    assert sync.send(step(1), sent(0.5, StepMessage())) == []
    [first] = sync.send(step(2), sent(0.25, StepMessage(stop=True, due=True)))
    assert (first.number, first.loss) == (1, 0.5)
    received = [sync.received]
    [second] = sync.flush()
    assert (second.number, second.loss) == (2, 0.25)
    received.append(sync.received)
    assert received == [StepMessage(), StepMessage(stop=True, due=True)]


def test_snapshot_flags_are_reset_if_no_new_message_arrives() -> None:
    sync = StepSync(WORLD)
    sync.send(step(1), sent(0.5, StepMessage(stop=True, written=True, due=True, copied=True)))
    assert len(sync.flush()) == 1
    assert sync.received == StepMessage(stop=True, written=True, due=True, copied=True)
    assert sync.flush() == []
    assert sync.received == StepMessage(stop=True)


class Unusual(torch.Tensor):
    """A script's own type, which no short cut is taken for."""


@pytest.mark.parametrize(
    "loss",
    [0.5, torch.tensor(0.5), torch.tensor([[0.5]], requires_grad=True), torch.tensor(0.5).as_subclass(Unusual), None],
    ids=["number", "tensor", "matrix", "type", "none"],
)
@pytest.mark.parametrize("size", [1, 4])
def test_a_loss_counts_as_much_as_those_of_the_other_ranks(loss: torch.Tensor | float | None, size: int) -> None:
    world = World(env=RankEnv(world_size=size), device=torch.device("cpu"))
    mean, *others = average_message(loss, StepMessage(stop=True, copied=True), world, samples=7).read()
    assert others == [1, 0, 0, 1, 7]
    assert math.isnan(mean) if loss is None else mean == 0.5 / size


def averaged(size: int, count: int, *, chunks: int = 1) -> StepMessage:
    """What is received if ``count`` ranks set all flags, and DDP averages that: in float32, around a ring."""
    world = World(env=RankEnv(world_size=size), device=torch.device("cpu"))
    all_flags = StepMessage(stop=True, written=True, due=True, copied=True)
    encoder = MessageEncoder(world.device, torch.float32, weight=size)
    every, none = (encoder.encode(one, torch.zeros(())) for one in (all_flags, StepMessage()))
    parts = torch.stack([none, every]).mul_(1 / size).numpy()  # as DDP does, before the sum
    ranks = parts[(np.arange(size) < count).astype(int)]
    rings = [np.add.accumulate(ring, axis=0, dtype=np.float32)[-1] for ring in np.array_split(ranks, chunks)]
    total = np.add.accumulate(rings, axis=0, dtype=np.float32)[-1]
    sync = StepSync(world)
    sync.send(step(1), PendingMean(torch.from_numpy(total.copy())))
    sync.flush()
    return sync.received


@pytest.mark.parametrize("size", [1, 2, 3, 41, 49, 1000, 4096, 10_000, 12_000, 65_537, 99_999, 100_000])
@pytest.mark.parametrize("chunks", [1, 8], ids=["a ring", "rings of rings"])
def test_the_counts_of_ranks_are_exact_for_any_number_of_ranks(size: int, chunks: int) -> None:
    chunks = min(chunks, size)
    assert averaged(size, size, chunks=chunks) == StepMessage(stop=True, written=True, due=True, copied=True)
    assert averaged(size, 0, chunks=chunks) == StepMessage()
    if size > 1:
        for count in (1, size - 1):
            assert averaged(size, count, chunks=chunks) == StepMessage(stop=True, due=True)


@given(size=st.integers(2, 100_000))
def test_a_single_missing_rank_is_noticed_in_a_world_of_any_size(size: int) -> None:
    assert [averaged(size, count).written for count in (size - 1, size)] == [False, True]
    assert averaged(size, 1).stop


def test_signals_are_recorded_and_change_nothing_else() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGINT):
        with StopRequest() as request:
            requested = [request.requested]
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert [*requested, request.requested] == [False, True]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
