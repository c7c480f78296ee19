"""What the ranks' exit codes mean during a drain."""

from __future__ import annotations

import pytest

from kitjob.report import Progress
from kittrain.agent.report.drain_outcome import HEEDED, Asked, Codes, DrainOutcome, drained_reason
from kittrain.outcome.failures import KILLED, Failure

LOST_PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:1"


def drain_outcome(before: Codes) -> DrainOutcome:
    """With these exit codes when the drain was requested."""
    rules = DrainOutcome(timeout=10.0)
    rules.begin(len(before))
    rules.observe(before, draining=False)
    return rules


@pytest.mark.parametrize(
    ("before", "after", "unfinished"),
    [
        ([None, None], [0, 0], True),
        ([0, None], [0, 0], True),
        ([0, 0], [0, 0], False),
        ([None, None], [0, None], False),  # still running
        ([None, None], [0, 75], False),  # the code says so
        ([None, None], [0, 1], False),
    ],
)
def test_ranks_that_exit_with_0_after_the_request_have_not_finished(
    before: Codes, after: Codes, *, unfinished: bool
) -> None:
    rules = drain_outcome(before)
    rules.observe(after, draining=True)
    assert rules.unfinished(after) == unfinished


def test_a_request_before_the_first_observation_means_unfinished() -> None:
    rules = drain_outcome([0])
    rules.begin(1)
    rules.observe([0], draining=True)
    assert rules.unfinished([0])


@pytest.mark.parametrize(
    ("codes", "draining", "pending"),
    [
        ([None, None], True, True),
        ([None, 0], True, True),
        ([None, 75], True, True),
        ([None, 75], False, True),  # another node is draining
        ([None, 0], False, False),
        ([0, 0], True, False),
        ([None, 1], True, False),  # it failed, so the ranks cannot agree
        ([None, -15], True, False),
    ],
)
def test_ranks_are_waited_for_while_they_may_save(codes: Codes, *, draining: bool, pending: bool) -> None:
    assert drain_outcome(codes).pending(codes, draining=draining) == pending


def test_the_timeout_starts_with_the_first_call_and_is_reset_by_a_new_round() -> None:
    rules = drain_outcome([None])
    assert not rules.timed_out(100.0)
    assert not rules.timed_out(110.0)
    assert rules.timed_out(110.1)
    rules.begin(1)
    assert not rules.timed_out(200.0)


SAVING = Asked(seconds=7.4)
REACHED = Progress(step=304, snapshot_step=171)


def reason(
    code: int, error: str = "", *, late: bool = True, progress: Progress = REACHED, asked: Asked = SAVING
) -> str:
    failure = Failure(rank=3, exit_code=code, error=error, time=0)
    return drained_reason(progress, why="drained by hand", grace=3, late=late, failure=failure, asked=asked)


def test_ranks_that_were_killed_in_a_drain_are_told_with_what_is_lost() -> None:
    told = reason(-9, KILLED)
    assert "killed before they had saved" in told
    assert "at least steps 172 to 304 are lost" in told
    assert "policy.gracePeriod of more than 3s" in told
    elsewhere = reason(-9, KILLED, progress=Progress())
    assert "killed" in elsewhere
    assert "lost" not in elsewhere, "only the node with rank 0 knows"
    assert "lost" not in reason(-9, KILLED, progress=Progress(step=5, steps_per_second=2.0))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Asked(ignoring=[3], steps=90, seconds=7.4), "rank 3 ignores SIGTERM, and was killed after 7 s"),
        (Asked(ignoring=[2], steps=90, seconds=7.4), "rank 3 took 90 more steps after SIGTERM, and was killed after"),
    ],
)
def test_a_rank_that_does_not_heed_the_signal_is_told_with_what_to_do_at_it(asked: Asked, told: str) -> None:
    said = reason(-9, KILLED, asked=asked)
    assert told in said
    assert "at least steps 172 to 304 are lost; fix: " in said
    assert "save and exit" in said
    assert "within policy.gracePeriod (3s)" in said


@pytest.mark.parametrize(
    "asked", [Asked(), Asked(steps=HEEDED, seconds=7.4), Asked(ignoring=[2], seconds=7.4)], ids=["", "agreed", "other"]
)
def test_a_rank_that_may_have_been_about_to_save_is_not_told_to_have_ignored_the_signal(asked: Asked) -> None:
    assert reason(-9, KILLED, asked=asked) == reason(-9, KILLED)
    ignoring = Asked(ignoring=[3], steps=90, seconds=7.4)
    assert reason(1, LOST_PEER, asked=ignoring) == reason(1, LOST_PEER), "it was not killed"


def test_ranks_whose_peers_were_killed_first_are_told_as_killed() -> None:
    assert reason(1, LOST_PEER) == reason(-9, KILLED)


@pytest.mark.parametrize(("code", "late"), [(1, False), (1, True), (-9, False)])
def test_ranks_that_fail_to_save_are_told_with_their_error(code: int, *, late: bool) -> None:
    told = reason(code, "OSError: disk is full", late=late)
    assert "rank 3 failed while it stopped (OSError: disk is full)" in told
    assert "at least steps 172 to 304 are lost" in told


def test_a_peer_that_had_stopped_in_time_is_no_failure() -> None:
    assert reason(1, LOST_PEER, late=False) == "drained by hand"


@pytest.mark.parametrize("code", [75, -15, 143])
def test_ranks_that_saved_or_only_obeyed_the_signal_say_no_more_than_why(code: int) -> None:
    assert reason(code) == "drained by hand"
    assert (
        drained_reason(Progress(step=9), why="drained by hand", grace=3, late=True, failure=None) == "drained by hand"
    )
