"""What is told with each step comes out one step later, complete and in order."""

from __future__ import annotations

import os
import signal

import torch

from trainer.env import RankEnv
from trainer.training.pulse import Mean, Pulse, Step, StopRequest, Word, added_up
from trainer.world.distributed import World
from trainer.world.order import Cursor

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


def test_signals_are_noted_and_change_nothing_else() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGINT):
        with StopRequest() as request:
            asked = [request.asked]
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)
            assert [*asked, request.asked] == [False, True]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
