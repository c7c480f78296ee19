"""What looks wrong although the ranks run: logged once, and told while it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kittrain.agent.report.warnings_seen import WarningsSeen
from kittrain.system.sample_orders import SampleOrder
from tests.trainer.agent.report.ranks import SteppedRanks


def test_ranks_that_went_on_in_the_background_are_told_until_the_next_round() -> None:
    warnings = WarningsSeen(lambda _: None)
    warnings.gone_on([0, 2])
    assert warnings.seen == "ranks 0, 2 have gone on in the background, after exit code 0"
    warnings.gone_on([1])
    assert warnings.seen.startswith("rank 1 has gone on")
    warnings.begin()
    assert warnings.seen == ""


class RanksWithNaN(SteppedRanks):
    """Ranks whose parameters and output show a NaN."""

    not_finite: ClassVar[int] = 7
    printed_loss: ClassVar[str] = "as rank 0 prints: loss nan"


def test_each_doubt_is_logged_once_and_what_is_printed_holds_over_rounds() -> None:
    lines: list[str] = []
    warnings = WarningsSeen(lines.append)
    for _ in range(3):
        warnings.observe(RanksWithNaN(), training_alone=0, world=2)
    assert warnings.seen == "the parameters are not finite, as seen at step 7"
    assert warnings.printed == "the loss is not finite, as rank 0 prints: loss nan"
    assert lines == [f"warning: {warnings.seen}", f"warning: {warnings.printed}"]
    warnings.begin()
    assert (warnings.seen, warnings.printed) == ("", "the loss is not finite, as rank 0 prints: loss nan")
    warnings.observe(SteppedRanks(), training_alone=0, world=2)
    assert warnings.printed == ""


class SeparateRanks(SteppedRanks):
    """Ranks that have never joined a group."""

    group: ClassVar[int] = 0


def test_ranks_that_train_alone_are_told_while_they_do_and_logged_once() -> None:
    lines: list[str] = []
    warnings = WarningsSeen(lines.append)
    for alone in (2, 0, 2):
        warnings.observe(SeparateRanks(), training_alone=alone, world=2)
        assert bool(warnings.seen) is (alone == 2)
    assert lines == [f"warning: {warnings.seen}"]


def test_ranks_that_do_not_divide_the_data_are_told_and_logged_once() -> None:
    lines: list[str] = []
    warnings = WarningsSeen(lines.append)
    order = SampleOrder(rank=0, parts=2, part=0, samples=9, seed=0, shuffle=True)
    orders = [order, replace(order, rank=1, part=1, seed=1)]
    for _ in range(2):
        warnings.observe(SteppedRanks(), training_alone=0, world=2, orders=orders)
    assert warnings.seen.startswith(
        "the DistributedSampler of rank 0 has seed=0, that of rank 1 seed=1: they do not divide"
    )
    assert lines == [f"warning: {warnings.seen}"]
    warnings.observe(SteppedRanks(), training_alone=0, world=2, orders=[order])
    assert warnings.seen == ""
