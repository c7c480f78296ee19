"""How many steps a restart of a script with its own loop has thrown away."""

from __future__ import annotations

import pytest

from kittrain.agent.report.steps_taken import LONGEST, StepsTaken

SECOND = 1_000_000_000


def trained(seconds: int, *, per_second: int = 10) -> StepsTaken:
    """A first start, from second 1000 on."""
    taken = StepsTaken()
    for tick in range(seconds * 4 + 1):
        taken.add(tick * per_second // 4, 1000 * SECOND + tick * SECOND // 4, 0)
    return taken


@pytest.mark.parametrize(
    ("loaded", "resumed", "lost", "text"),
    [
        (0, 0, 280, "resumed at step 0: 280 steps lost"),
        (900, 0, 280, "resumed at step 0: 280 steps lost"),  # weights from before the run
        (1010, 100, 180, "resumed at about step 100: about 180 steps lost"),
        (1028, 280, 0, ""),
        (1100, 280, 0, ""),  # saved after the last step, or by another node's clock
    ],
)
def test_what_is_loaded_shows_where_a_script_resumes(loaded: int, resumed: int, lost: int, text: str) -> None:
    taken = trained(28)
    taken.restart(taken.marks)
    assert not taken.add(1, 1031 * SECOND, 0), "torch may load only after a first step"
    assert taken.unknown, "so how many steps are lost is not told yet"
    assert taken.facts == {}
    assert taken.add(2, 1032 * SECOND, loaded * SECOND)
    assert taken.resumed_from == pytest.approx(resumed, abs=2)
    assert taken.lost == pytest.approx(lost, abs=2)
    assert taken.facts == {"resumed_from": taken.resumed_from}
    if not resumed:
        assert str(taken) == text
    assert not taken.add(3, 1033 * SECOND, loaded * SECOND), "it is told once"


def test_steps_count_over_several_restarts() -> None:
    taken = trained(10)
    taken.restart(taken.marks)
    taken.add(2, 1020 * SECOND, 1005 * SECOND)
    taken.add(30, 1023 * SECOND, 1005 * SECOND)  # 50 + 30
    taken.restart(taken.marks)
    taken.restart(taken.marks)  # without a step in between
    taken.add(5, 1030 * SECOND, 1023 * SECOND)
    assert taken.resumed_from == pytest.approx(80, abs=2)
    assert taken.lost == 0
    taken.restart(taken.marks)
    taken.add(5, 1040 * SECOND, 0)
    assert taken.resumed_from == 0
    assert taken.lost == pytest.approx(85, abs=2)


def test_the_same_file_is_loaded_again() -> None:
    taken, found = trained(10), []
    for start in (1020, 1040, 1060):
        taken.restart(taken.marks)
        for step in range(2, 60):
            taken.add(step, (start + step) * SECOND, 1005 * SECOND + 100_000_000)
        found.append(taken.resumed_from)
    assert found == [pytest.approx(51, abs=1)] * 3


def test_the_first_start_resumes_nothing() -> None:
    taken = StepsTaken()
    taken.restart([])
    assert not taken.add(5, 1000 * SECOND, 900 * SECOND)
    assert taken.facts == {}


def test_a_long_run_has_few_marks() -> None:
    taken = trained(4000)
    assert len(taken.marks) <= LONGEST
    assert taken.marks[-1][1] == 40_000


@pytest.mark.parametrize(
    ("saves", "told"),
    [
        (True, "the script has loaded nothing that it saved in this run"),
        (False, "the script was not seen to save a checkpoint"),
    ],
)
def test_a_script_that_begins_anew_is_told_whether_it_could_do_better(*, saves: bool, told: str) -> None:
    taken = trained(10)
    taken.restart(taken.marks, may_save=saves)
    assert (taken.before, taken.anew) == (0, "")
    taken.add(2, 1020 * SECOND, 0)
    assert taken.anew == f"resumed at step 0: 100 steps lost; {told}"
    taken.restart(taken.marks, may_save=saves)
    taken.add(2, 1040 * SECOND, 1021 * SECOND)
    assert (taken.before, taken.anew) == (2, "")


def test_of_a_file_that_the_script_was_seen_to_save_the_step_is_known() -> None:
    taken = trained(28)
    taken.saved(97, 1009 * SECOND + 700_000_000)
    taken.saved(97, 1009 * SECOND + 900_000_000)  # seen again
    taken.saved(197, 1019 * SECOND + 700_000_000)
    assert [steps for _, steps in taken.saves] == [97, 197]
    for loaded, text in ((1019.65, "resumed at step 197: 83 steps lost"), (1012.0, "resumed at about step 119:")):
        again = StepsTaken()
        again.restart(taken.marks, taken.saves)
        again.add(2, 1032 * SECOND, int(loaded * SECOND))
        assert str(again).startswith(text)
    assert [steps for _, steps in again.saves] == [97], "what was lost is saved again"
    again.saved(10, 1034 * SECOND)
    assert again.saves[-1][1] == 129, "of the run, and not of the ranks"


def test_few_saves_are_kept() -> None:
    taken = StepsTaken()
    for step in range(500):
        taken.saved(step, step * SECOND)
    assert len(taken.saves) <= LONGEST
    assert taken.saves[-1] == (499 * SECOND, 499)
