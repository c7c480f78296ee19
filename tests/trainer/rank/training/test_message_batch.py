"""Short steps share an exchange: every rank reads every step's mean, in order, at the same steps as the others."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from kittrain.job.env import RankEnv
from kittrain.rank.training import message_batch
from kittrain.rank.training.message_batch import MOST_STEPS, MessageBatch
from kittrain.rank.training.step_sync import Step, StepMessage, StepSync
from kittrain.rank.world.distributed import World, join
from kittrain.rank.world.order import Cursor
from tests.trainer.nodes import free_port
from tests.trainer.worlds import finish, fork, placed

NOTHING = StepMessage()


def step(number: int) -> Step:
    return Step(number=number, generation=1, cursor=Cursor(0, number), ids=[], size=0)


def alone(size: int = 2) -> World:
    """Rank 0 of a world without a group: its sums are its own numbers."""
    return World(env=RankEnv(world_size=size), device=torch.device("cpu"))


class Clock:
    """Seconds that pass as the test wants."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(message_batch, "time", found)
    return found


def exchanges(clock: Clock, seconds: Iterator[float], *, most: int = MOST_STEPS) -> list[int]:
    """How many steps each exchange has, if the steps take so long."""
    batch, sync, sizes = MessageBatch(alone(), StepMessage, most=most), StepSync(alone()), [0]
    for number, took in enumerate(seconds, start=1):
        clock.now += took
        mean = batch.add(1.0, 4)
        sync.send(step(number), mean)
        sizes[-1] += 1
        if mean.sent:
            sizes.append(0)
    return sizes[:-1]


def test_as_many_steps_share_an_exchange_as_fit_into_its_time(clock: Clock) -> None:
    assert exchanges(clock, iter([0.001] * 60)) == [1, 1, *[MOST_STEPS] * 3]
    assert exchanges(clock, iter([0.001] * 60), most=5) == [1, 1, *[5] * 11]
    assert exchanges(clock, iter([0.008] * 9)) == [1, 1, 2, 2, 2]
    assert exchanges(clock, iter([0.5] * 9)) == [1] * 9


def test_steps_that_become_long_have_their_own_exchange_again(clock: Clock) -> None:
    assert exchanges(clock, iter([0.001] * 34 + [1.0] * 40))[:9] == [1, 1, 16, 16, 16, 2, 1, 1, 1]


def test_an_evaluation_between_two_steps_is_no_reason_to_exchange_more_often(clock: Clock) -> None:
    steps = [0.001] * 100
    for evaluation in (10, 45, 80):
        steps[evaluation] = 1.0
    assert exchanges(clock, iter(steps)) == [1, 1, *[MOST_STEPS] * 6]
    steps[11] = 1.0
    assert exchanges(clock, iter(steps))[:5] == [1, 1, 16, 2, 1], "two long ones of an exchange count"


@pytest.mark.parametrize("most", [-1, 0, 1])
def test_where_only_one_step_may_share_it_each_has_its_own(clock: Clock, most: int) -> None:
    assert exchanges(clock, iter([0.001] * 9), most=most) == [1] * 9


def test_a_flush_exchanges_what_is_not_sent_and_later_steps_go_on(clock: Clock) -> None:
    batch, sync = MessageBatch(alone(), StepMessage, most=MOST_STEPS), StepSync(alone())
    read = []
    for number in range(1, 41):
        clock.now += 0.001
        read += sync.send(step(number), batch.add(float(number), number))
        if number in {7, 8, 30}:
            read += sync.flush()
            assert read[-1].number == number
    read += sync.flush()
    assert [(one.number, one.loss, one.size) for one in read] == [(n, n / 2, n) for n in range(1, 41)]


def test_flags_are_those_of_the_moment_when_they_are_sent_and_hold_for_one_step(clock: Clock) -> None:
    asked = [NOTHING]
    batch, sync = MessageBatch(alone(1000), lambda: asked[0], most=4), StepSync(alone(1))
    received = []
    for number in range(1, 15):
        clock.now += 0.001
        asked[0] = StepMessage(written=True) if number in {6, 9} else NOTHING
        sync.send(step(number), batch.add(0.0, 0))
        received.append(sync.received.written)
    # Exchanges end with the steps 1, 2, 6 and 10: step 9 sends nothing, and what was sent with step 6 is read at 7.
    assert [number for number, one in enumerate(received, start=1) if one] == [7]


def test_a_loss_that_is_not_given_or_not_finite_spoils_no_other(clock: Clock) -> None:
    batch, sync, read = MessageBatch(alone(), StepMessage, most=8), StepSync(alone()), []
    losses = [2.0, 4.0, None, math.inf, torch.tensor(6.0), torch.tensor([[8.0]], requires_grad=True), 10.0, 12.0]
    for number, loss in enumerate(losses, start=1):
        clock.now += 0.001
        read += sync.send(step(number), batch.add(loss, 0))
    read += sync.flush()
    means = [one.loss for one in read]
    assert math.isnan(means.pop(2))
    assert means == [1.0, 2.0, math.inf, 3.0, 4.0, 5.0, 6.0]
    assert {one.size for one in read} == {0}


STEPS = 400


@pytest.mark.slow
def test_all_ranks_read_the_same_at_the_same_steps_whatever_each_one_s_speed(tmp_path: Path) -> None:
    """One rank is slower at some steps, and asks to stop in the middle; rank 0's clock is the only one that counts."""
    port, size = free_port(), 3
    ranks = [fork(be_rank, placed(rank, size, port), str(tmp_path)) for rank in range(size)]
    assert [finish(rank) for rank in ranks] == [0] * size
    first, *others = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(size)]
    assert others == [first, first]
    assert first["means"] == [[number, number * 2.0, 6] for number in range(1, STEPS + 1)]
    assert first["exchanges"] < STEPS / 3
    [stop, *_] = [number for number, stopping in enumerate(first["stopping"], start=1) if stopping]
    assert 200 < stop <= 200 + 2 * MOST_STEPS


def be_rank(env: Mapping[str, str], folder: str) -> None:
    os.environ.update({**env, "KIT_BACKEND": "gloo"})
    with join() as world:
        number, sent = 0, 0

        def message() -> StepMessage:
            nonlocal sent
            sent += 1
            return StepMessage(stop=world.rank == 1 and number >= 200)

        batch, sync = MessageBatch(world, message, most=MOST_STEPS), StepSync(world)
        read: list[Step] = []
        stopping = []
        for number in range(1, STEPS + 1):
            time.sleep(0.01 if world.rank == 2 and number % 50 == 0 else 0.0005)
            read += sync.send(step(number), batch.add(number * (world.rank + 1.0), 1 + world.rank))
            stopping.append(sync.received.stop)
            if number % 70 == 0:
                read += sync.flush()
        read += sync.flush()
        means = [(one.number, one.loss, one.size) for one in read]
        found = {"means": means, "stopping": stopping, "exchanges": sent}
        (Path(folder) / str(world.rank)).write_text(json.dumps(found))
