"""Gradients that a loop has added up, and that no step of an optimizer has used at its end."""

from __future__ import annotations

import pytest

from kittrain.agent.hooks.notes.left_gradients import LeftGradients
from kittrain.outcome.rank_output import LEFT_GRADIENTS, trains_nothing


@pytest.mark.parametrize(
    ("passes", "told"),
    [
        ("bbbbs" * 3, ""),
        ("bbbbs" * 2 + "bb", "2 backward passes; others have used 4 each"),
        ("bbbbs" + "bb" + "bbbbs" + "bb", "2 backward passes; others have used 4 to 6 each"),  # left in each epoch
        (2 * "bbsbbsbz" + "bbsb", "backward pass; others have used 2 each"),  # and discarded before the next one
        (2 * "bbsbbsbz" + "bbs", ""),
        ("bs" * 9, ""),
        ("bs" * 9 + "b", ""),  # an adversarial example
        ("bbs" + "bs" + "b", ""),  # two losses now and then
        ("bbss" * 3 + "b", "backward pass; others have used 2 each"),  # of two optimizers
        ("bss" * 3 + "b", ""),
        ("bbbb", ""),  # no optimizer of torch's
        ("bbs" * 3 + "bb", ""),  # a step that a scaler has skipped
        ("bbs" * 3 + "bbbb", ""),
        ("", ""),
    ],
)
def test_gradients_that_are_left_are_told_of_loops_that_accumulate(
    passes: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left = LeftGradients()
    for one in passes:
        {"b": left.passed, "s": left.called, "z": left.discarded}[one]()
    left.tell()
    assert capsys.readouterr().err == (f"note: {LEFT_GRADIENTS}{told}\n" if told else "")
    if told:
        assert trains_nothing([f"note: {LEFT_GRADIENTS}{told}\n"]) == f"{LEFT_GRADIENTS}{told}"
