"""Steps whose last backward pass has exchanged nothing, although an earlier one has."""

from __future__ import annotations

import pytest

from kittrain.agent.hooks.notes.unaveraged_steps import UnaveragedSteps
from kittrain.outcome.rank_output import UNAVERAGED, trains_nothing


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (["x---"] * 3, "3 steps of 4 backward passes, of which the last exchanged nothing"),
        (["--x-"] * 9, "9 steps of 4 backward passes, of which the last exchanged nothing"),
        (["---x"] * 9, ""),
        (["----"] * 9, ""),  # without a group, or averaged by hand before the step
        (["x-"] * 9, ""),  # the second may be of a model that is each rank's own
        (["xxxx"] * 9, ""),
        (["x---"] * 2, ""),  # by chance
        ([*(["x---"] * 9), "---x"], ""),  # both ways
        (
            ["x---", "", ""] * 3,
            "3 steps of 4 backward passes, of which the last exchanged nothing",
        ),  # of three optimizers
        ([], ""),
    ],
)
def test_what_each_step_has_exchanged(steps: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    watched = UnaveragedSteps()
    for step in steps:
        for one in step:
            watched.passed(exchanged=one == "x")
        watched.called()
    watched.tell()
    assert capsys.readouterr().err == (f"note: {UNAVERAGED}{told}\n" if told else "")
    if told:
        assert trains_nothing([f"note: {UNAVERAGED}{told}\n"]) == f"{UNAVERAGED}{told}"
