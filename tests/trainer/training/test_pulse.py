"""What is told with each step comes out one step later, complete and in order."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kittrain.env import RankEnv
from kittrain.training.pulse import Mean, Pulse, Step, StopRequest, Word, added_up
from kittrain.world.distributed import World
from kittrain.world.order import Cursor

WORLD = World(env=RankEnv(), device=torch.device("cpu"))


def step(number: int) -> Step:
    return Step(number=number, generation=1, cursor=Cursor(0, number), ids=[number], size=1)


def told(loss: float, word: Word) -> Mean:
    return added_up(torch.tensor(loss), word)


def test_a_step_is_known_behind_the_next_one() -> None:
    pulse = Pulse(WORLD)
    assert pulse.flush() is None
    assert pulse.send(step(1), told(0.5, Word())) is None
    first = pulse.send(step(2), told(0.25, Word(stop=True, due=True)))
    assert first is not None
    assert (first.number, first.loss) == (1, 0.5)
    heard = [pulse.heard]
    second = pulse.flush()
    assert second is not None
    assert (second.number, second.loss) == (2, 0.25)
    heard.append(pulse.heard)
    assert heard == [Word(), Word(stop=True, due=True)]


def test_what_was_heard_of_snapshots_is_forgotten_where_nothing_new_is_told() -> None:
    pulse = Pulse(WORLD)
    pulse.send(step(1), told(0.5, Word(stop=True, written=True, due=True, kept=True)))
    assert pulse.flush() is not None
    assert pulse.heard == Word(stop=True, written=True, due=True, kept=True)
    assert pulse.flush() is None
    assert pulse.heard == Word(stop=True)


def averaged(size: int, told: int, *, chunks: int = 1) -> Word:
    """What is heard where so many of all ranks say everything, and DDP averages that: in float32, around a ring."""
    world = World(env=RankEnv(world_size=size), device=torch.device("cpu"))
    everything = Word(stop=True, written=True, due=True, kept=True)
    loud, silent = (word.beside(torch.zeros(()), torch.float32, share=size) for word in (everything, Word()))
    parts = torch.stack([silent, loud]).mul_(1 / size).numpy()  # as DDP does, before they are added up
    ranks = parts[(np.arange(size) < told).astype(int)]
    rings = [np.add.accumulate(ring, axis=0, dtype=np.float32)[-1] for ring in np.array_split(ranks, chunks)]
    total = np.add.accumulate(rings, axis=0, dtype=np.float32)[-1]
    pulse = Pulse(world)
    pulse.send(step(1), Mean(torch.from_numpy(total.copy())))
    pulse.flush()
    return pulse.heard


@pytest.mark.parametrize("size", [1, 2, 3, 41, 49, 1000, 4096, 10_000, 12_000, 65_537, 99_999, 100_000])
@pytest.mark.parametrize("chunks", [1, 8], ids=["a ring", "rings of rings"])
def test_ranks_agree_however_many_they_are(size: int, chunks: int) -> None:
    chunks = min(chunks, size)
    assert averaged(size, size, chunks=chunks) == Word(stop=True, written=True, due=True, kept=True)
    assert averaged(size, 0, chunks=chunks) == Word()
    if size > 1:
        for told in (1, size - 1):
            assert averaged(size, told, chunks=chunks) == Word(stop=True, due=True)


@given(size=st.integers(2, 100_000))
def test_one_that_is_missing_is_missed_in_a_world_of_any_size(size: int) -> None:
    assert [averaged(size, told).written for told in (size - 1, size)] == [False, True]
    assert averaged(size, 1).stop


def test_signals_are_noted_and_change_nothing_else() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGINT):
        with StopRequest() as request:
            asked = [request.asked]
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert [*asked, request.asked] == [False, True]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
