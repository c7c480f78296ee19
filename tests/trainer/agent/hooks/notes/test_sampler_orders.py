"""Which sampler a rank trains with, and whether its epochs have the same order; evaluations do not count."""

from __future__ import annotations

import gc
import types
from typing import Any

import pytest
from torch.utils.data import DataLoader, DistributedSampler

from kittrain.agent.hooks.notes.sampler_orders import SamplerOrders
from kittrain.outcome.rank_output import REPLAYED, SAME_ORDER, trains_nothing


class Script:
    """A script of two ranks, of which this is one; its steps are counted."""

    def __init__(self) -> None:
        self.steps = 0
        self.evaluates = False
        self.found: list[Any] = []
        self.orders = SamplerOrders(self.found.append, lambda: self.steps, lambda: self.evaluates)
        own = {"__iter__": DistributedSampler.__iter__, "set_epoch": DistributedSampler.set_epoch}
        self.kind: Any = type("DistributedSampler", (DistributedSampler,), own)
        self.orders.watch(types.SimpleNamespace(DistributedSampler=self.kind))  # type: ignore[arg-type]

    def sampler(self, **given: Any) -> Any:
        return self.kind([*range(8)], num_replicas=given.pop("num_replicas", 2), rank=0, **given)

    def epoch(self, sampler: Any) -> None:
        for _ in DataLoader(sampler.dataset, sampler=sampler):
            if not self.steps:
                self.orders.trains()
            self.steps += 1


@pytest.fixture
def script() -> Script:
    return Script()


def test_the_sampler_of_the_first_step_is_taken(script: Script) -> None:
    looks, trains = script.sampler(seed=1), script.sampler(seed=2)
    assert [*looks]
    script.epoch(trains)
    script.epoch(looks)
    assert script.found == [trains]


def test_a_sampler_whose_epochs_have_one_order_is_told_at_the_end(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    sampler = script.sampler()
    for _ in range(3):
        script.epoch(sampler)
    script.orders.tell()
    told = capsys.readouterr().err
    assert told == f"note: {SAME_ORDER} in all 3 passes: set_epoch was not called\n"
    assert trains_nothing([f"{told}"]).startswith(SAME_ORDER)


def test_a_sampler_may_be_gone_at_the_end_of_the_script(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        sampler = script.sampler()
        for _ in range(2):
            script.epoch(sampler)

    main()
    gc.collect()
    script.orders.tell()
    assert f"{SAME_ORDER} in all 2 passes" in capsys.readouterr().err


def test_healthy_samplers_are_told_nothing(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    once, ordered, epochs, alone = (
        script.sampler(),
        script.sampler(shuffle=False),
        script.sampler(),
        script.sampler(num_replicas=1),  # as a copy of the library's loop has it
    )
    script.epoch(once)
    for epoch in range(3):
        epochs.set_epoch(epoch)
        for one in (epochs, ordered, alone):
            script.epoch(one)
    script.orders.tell()
    assert capsys.readouterr().err == ""


def test_a_sampler_that_only_evaluates_does_not_count(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    evaluates, trains = script.sampler(), script.sampler()
    for epoch in range(3):
        trains.set_epoch(epoch)
        for step, _ in enumerate(trains):
            script.steps += 1
            if step == 1:
                script.evaluates = True
                assert [*evaluates]
                script.evaluates = False
        assert [*evaluates]  # without a step in it
    script.orders.tell()
    assert capsys.readouterr().err == ""


def test_a_sampler_that_lacks_what_torchs_has_is_left_alone(script: Script) -> None:
    sampler = script.sampler(shuffle=False)
    del sampler.epoch  # as of a class of the script's own
    script.epoch(sampler)
    assert (script.steps, script.found) == (4, [])


def replayed(script: Script, sampler: Any, epochs: int) -> None:
    """As ``itertools.cycle(loader)`` does."""
    batches = [*DataLoader(sampler.dataset, sampler=sampler)]
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        script.steps += len(batches)


def test_batches_of_one_pass_that_come_again_are_told(script: Script, capsys: pytest.CaptureFixture[str]) -> None:
    replayed(script, script.sampler(), 4)
    script.orders.tell()
    told = f"{REPLAYED}, and set_epoch called for 3 more epochs: its batches came again"
    assert capsys.readouterr().err == f"note: {told}\n"
    assert trains_nothing([f"note: {told}"]) == told


def test_an_epoch_that_is_set_without_a_pass_or_without_steps_is_told_nothing(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    ordered, ahead, sought, once = (
        script.sampler(shuffle=False),
        script.sampler(),
        script.sampler(),
        script.sampler(),
    )
    replayed(script, ordered, 4)
    for epoch in range(3):
        ahead.set_epoch(epoch)
        script.epoch(ahead)
        ahead.set_epoch(epoch + 1)  # before the next pass, and again at its beginning
    script.epoch(sought)
    for epoch in range(3):
        sought.set_epoch(epoch)  # to where a run resumes
    replayed(script, once, 2)  # one more epoch than was read
    once.set_epoch(2)  # and one in which nothing is trained
    script.orders.tell()
    assert capsys.readouterr().err == ""


def test_passes_that_begin_in_the_mode_of_the_evaluation_before_are_passes(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop that calls model.train() for each batch, or once it has begun the pass, as Lightning's does."""
    sampler = script.sampler()
    for epoch in range(5):
        sampler.set_epoch(epoch)
        script.epoch(sampler)
        script.evaluates = True
    script.orders.tell()
    assert capsys.readouterr().err == ""
