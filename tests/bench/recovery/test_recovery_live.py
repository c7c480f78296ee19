from __future__ import annotations

import pytest

from bench.recovery.faults import NODES
from bench.recovery.recovery_live import AFTERWARDS, pause_after

BEFORE = [0.05 * number for number in range(20)]  # the last one at 0.95
AFTER = [1.30 + 0.05 * number for number in range(AFTERWARDS * NODES)]


@pytest.mark.parametrize("moment", [0.93, 0.96])  # a step that was nearly done ends after the fault
def test_the_pause_is_from_the_last_step_before_a_fault_to_the_next_one(moment: float) -> None:
    assert pause_after([*AFTER, *BEFORE], moment) == pytest.approx(0.35)


def test_a_pause_is_not_over_before_the_ranks_train_again() -> None:
    assert pause_after(BEFORE, 0.96) is None
    assert pause_after([*BEFORE, *AFTER[:-1]], 0.96) is None
    assert pause_after([], 0.96) is None
