"""How often a pod's agent is restarted, and after which delay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kittrain.outcome.failures import NO_SNAPSHOT
from kittrain.outcome.restarts import GIVE_UP_AFTER, LONG_LIFE, MAX_DELAY, MAX_RESTARTS, RestartBudget

Snapshot = tuple[int, int] | None
OLD: Snapshot = (1, 100)
NEW: Snapshot = (1, 101)


def used_up() -> RestartBudget:
    budget = RestartBudget(OLD)
    for _ in range(MAX_RESTARTS):
        assert budget.charge(OLD, lived=1.0, gave_up=False) is not None
    return budget


def test_the_first_restart_comes_at_once_and_the_delay_is_bounded() -> None:
    budget = RestartBudget(NO_SNAPSHOT)
    delays = [budget.charge(NO_SNAPSHOT, lived=1.0, gave_up=False) for _ in range(MAX_RESTARTS)]
    assert delays[:3] == [0.0, 0.1, 0.2]
    assert delays[-1] == MAX_DELAY
    assert budget.charge(NO_SNAPSHOT, lived=1.0, gave_up=False) is None
    assert budget.total == MAX_RESTARTS


def test_a_new_snapshot_refills_the_budget() -> None:
    budget = used_up()
    assert budget.charge(NEW, lived=1.0, gave_up=False) == 0.0
    assert (budget.count, budget.total) == (1, MAX_RESTARTS + 1)


def test_storage_that_does_not_answer_is_no_progress_and_hides_none() -> None:
    assert used_up().charge(None, lived=1.0, gave_up=False) is None
    budget = RestartBudget(OLD)
    budget.charge(None, lived=1.0, gave_up=False)
    budget.charge(OLD, lived=1.0, gave_up=False)
    assert budget.count == 2
    budget.charge(NEW, lived=1.0, gave_up=False)
    assert budget.count == 1


def test_an_agent_that_gives_up_late_ends_its_pod_unless_it_made_progress() -> None:
    assert RestartBudget(OLD).charge(OLD, lived=GIVE_UP_AFTER, gave_up=True) is None
    assert RestartBudget(OLD).charge(NEW, lived=GIVE_UP_AFTER, gave_up=True) == 0.0
    assert RestartBudget(OLD).charge(OLD, lived=GIVE_UP_AFTER / 2, gave_up=True) == 0.0
    assert RestartBudget(OLD).charge(OLD, lived=GIVE_UP_AFTER, gave_up=False) == 0.0


def test_exits_that_are_far_apart_are_no_crash_loop() -> None:
    assert used_up().charge(OLD, lived=LONG_LIFE, gave_up=False) == 0.0
    assert used_up().charge(OLD, lived=LONG_LIFE, gave_up=True) is None


ends = st.tuples(st.sampled_from([None, NO_SNAPSHOT, OLD]), st.floats(0.0, LONG_LIFE, exclude_max=True), st.booleans())


@given(st.lists(ends, min_size=MAX_RESTARTS + 2, max_size=MAX_RESTARTS + 20))
def test_without_progress_the_pod_ends(series: list[tuple[Snapshot, float, bool]]) -> None:
    budget = RestartBudget(OLD)
    delays = [budget.charge(newest, lived=lived, gave_up=gave_up) for newest, lived, gave_up in series]
    granted = [delay for delay in delays if delay is not None]
    assert len(granted) <= MAX_RESTARTS
    assert all(0.0 <= delay <= MAX_DELAY for delay in granted)
