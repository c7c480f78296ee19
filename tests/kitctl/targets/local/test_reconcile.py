"""The supervisor's decisions, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.spec.job_spec import JobSpec
from kitctl.targets.local.reconcile import (
    STARTS,
    Finish,
    Observed,
    Start,
    Stop,
    describe,
    failed_to_start,
    pause,
    reconcile,
)
from kitctl.targets.local.records import Desired, Exited, Started
from kitjob.report import Termination
from kitjob.sections import Policy

NOW = 1000.0
THREE = JobSpec(name="job", nodes=3)
ELASTIC = JobSpec(name="job", nodes="2:4")


def node(index: int, *, code: int | None = None, signal: int | None = None, **more: Any) -> Observed:
    """A node that ended with an exit code, by a signal, or with neither recorded."""
    exited = Exited(time=NOW - 60, code=code, signal=signal) if code is not None or signal else None
    started = Started(time=NOW - 90, pid=1, restarts=0)
    fields: dict[str, Any] = {
        "index": index,
        "alive": False,
        "attempts": 1,
        "started": started,
        "exited": exited,
        **more,
    }
    return Observed(**fields)


def running(index: int, **more: Any) -> Observed:
    return node(index, **{"alive": True, **more})


def absent(index: int) -> Observed:
    return Observed(index=index, alive=False)


def decide(spec: JobSpec, seen: list[Observed], /, *, created: float = NOW, **wanted: Any) -> list[object]:
    return list(reconcile(spec, Desired(**{"nodes": spec.max_nodes, **wanted}), seen, NOW, created))


def test_a_new_job_starts_all_its_nodes() -> None:
    assert decide(THREE, [absent(0), absent(1), absent(2)]) == [Start(0), Start(1), Start(2)]


def test_nothing_to_do_while_all_run() -> None:
    assert decide(THREE, [running(0), running(1), running(2)]) == []


@pytest.mark.parametrize(
    "lost",
    [node(1, signal=9), node(1, code=75), node(1, code=76), node(1, code=1), node(1)],
    ids=["killed", "drained", "retryable", "unknown code", "killed with its shim"],
)
def test_a_lost_node_is_started_again(lost: Observed) -> None:
    assert decide(THREE, [running(0), lost, running(2)]) == [Start(1)]


def test_the_restart_delay_of_a_node_grows_with_each_loss() -> None:
    pauses = [pause(node(0, signal=9, consecutive_losses=row)) for row in range(1, 9)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    soon = node(1, signal=9, consecutive_losses=5, exited=Exited(time=NOW - 0.5, signal=9))
    assert decide(THREE, [running(0), soon, running(2)]) == []


def test_a_drained_node_is_restarted_at_once() -> None:
    assert pause(node(0, code=75, consecutive_losses=3)) == 0


def test_a_fatal_node_stops_the_others_then_fails_the_job_with_the_first_failure() -> None:
    first = Termination(outcome="fatal", reason="first", time=10.0)
    second = Termination(outcome="fatal", reason="second", time=11.0)
    fatal = [node(1, code=78, termination=second), node(2, code=78, termination=first)]
    assert decide(THREE, [running(0), *fatal]) == [Stop(0)]
    (finish,) = decide(THREE, [node(0, code=75), *fatal])
    assert isinstance(finish, Finish)
    assert (finish.result.phase, finish.result.failure) == ("Failed", first)


def test_a_stopped_node_is_killed_after_its_grace_period() -> None:
    spec = JobSpec(name="job", nodes=2, policy=Policy(grace_period="30s"))
    patient = [running(0, stopping_since=NOW - 29), running(1, stopping_since=NOW - 31)]
    assert decide(spec, patient, cancelled=True) == [Stop(1, hard=True)]


def test_success_needs_every_node_of_a_fixed_size() -> None:
    done = [node(0, code=0), node(1, code=0)]
    assert decide(THREE, [*done, running(2)]) == []
    assert decide(THREE, [*done, node(2, signal=9)]) == [Start(2)]
    (finish,) = decide(THREE, [*done, node(2, code=0)])
    assert isinstance(finish, Finish)
    assert finish.result.phase == "Succeeded"


def test_an_elastic_job_that_never_got_its_last_node_succeeds() -> None:
    some = [node(0, code=0), node(1, code=0)]
    assert decide(ELASTIC, [*some, running(2), node(3, signal=9)]) == []
    (finish,) = decide(ELASTIC, [*some, node(2, signal=9), absent(3)])
    assert isinstance(finish, Finish)
    assert finish.result.phase == "Succeeded"


def test_scaling_down_drains_the_highest_nodes() -> None:
    assert decide(ELASTIC, [running(i) for i in range(4)], nodes=2) == [Stop(2), Stop(3)]


def test_scaling_up_starts_the_missing_ones() -> None:
    assert decide(ELASTIC, [running(0), running(1), node(2, code=75), absent(3)], nodes=4) == [Start(2), Start(3)]


def test_suspending_stops_all_and_starts_none() -> None:
    assert decide(THREE, [running(0), node(1, signal=9), running(2)], suspended=True) == [Stop(0), Stop(2)]
    assert decide(THREE, [node(i, code=75) for i in range(3)], suspended=True) == []


def test_cancelling_ends_the_job_only_when_nothing_runs() -> None:
    assert decide(THREE, [running(0), node(1, code=75), node(2, code=75)], cancelled=True) == [Stop(0)]
    (finish,) = decide(THREE, [node(i, code=75) for i in range(3)], cancelled=True)
    assert isinstance(finish, Finish)
    assert finish.result.phase == "Cancelled"


def test_a_restart_replaces_earlier_nodes_and_resets_their_failures() -> None:
    nodes = [running(0), node(1, code=78), node(2, code=0)]
    assert decide(THREE, nodes, restarts=1) == [Stop(0), Start(1), Start(2)]


def test_a_killed_node_says_so_and_what_it_had_not_recovered_from() -> None:
    said = Termination(time=1, outcome="retryable", node=0, reason="rank 0 failed (exit code 1), restart 1 of 3")
    assert describe(node(0, signal=9)) == "was killed by signal 9"
    assert describe(node(0, signal=9, termination=said)) == f"was killed by signal 9 after: {said.reason}"
    assert describe(node(0, code=1, termination=said)) == said.reason
    assert describe(node(0, code=1)) == "its agent ended with exit code 1"
    assert describe(node(0, code=1, said="ImportError: x")) == "its agent ended with exit code 1: ImportError: x"
    assert describe(node(0)) == "was killed together with its shim"


def test_an_agent_that_cannot_start_fails_the_job_and_says_what_its_log_ends_with() -> None:
    never = node(1, code=1, failed_starts=STARTS, said="ImportError: no ssl")
    assert decide(THREE, [running(0), replace(never, failed_starts=STARTS - 1), running(2)]) == [Start(1)]
    assert decide(THREE, [running(0), never, running(2)]) == [Stop(0), Stop(2)]
    (finish,) = decide(THREE, [node(0, code=75), never, node(2, code=75)])
    assert isinstance(finish, Finish)
    assert finish.result.failure is not None
    assert finish.result.failure.reason == (
        "node 1: its agent ended with exit code 1: ImportError: no ssl; started 5 times in a row"
    )


def test_only_an_end_without_a_message_and_with_a_code_of_no_agent_is_a_failed_start() -> None:
    said = Termination(outcome="retryable")
    assert failed_to_start(Exited(time=NOW, code=1), None)
    assert failed_to_start(Exited(time=NOW, code=127), None)
    assert not failed_to_start(Exited(time=NOW, code=1), said)
    assert not any(failed_to_start(Exited(time=NOW, code=code), None) for code in (0, 75, 76, 78))
    assert not failed_to_start(Exited(time=NOW, signal=9), None)
    assert not failed_to_start(None, None)


def test_too_many_losses_fail_the_job() -> None:
    spec = JobSpec(name="job", nodes=2, policy=Policy(backoff_limit=3))
    (finish,) = decide(spec, [node(0, signal=9, losses=3), node(1, signal=9, losses=1)])
    assert isinstance(finish, Finish)
    assert finish.result.failure is not None
    assert "killed by signal 9" in finish.result.failure.reason


def test_the_deadline_fails_the_job() -> None:
    spec = JobSpec(name="job", nodes=1, policy=Policy(deadline="10m"))
    assert decide(spec, [running(0)], created=NOW - 599) == []
    assert decide(spec, [running(0)], created=NOW - 601) == [Stop(0)]


@pytest.mark.parametrize("moved", [-86400.0, 86400.0])
def test_a_clock_that_is_set_delays_no_start(moved: float) -> None:
    lost = node(0, exited=Exited(time=NOW - moved, signal=9), losses=1, consecutive_losses=1)
    assert decide(JobSpec(name="job", nodes=1), [lost]) == [Start(0)]


ANY_NODE = st.one_of(
    st.builds(absent, st.just(0)),
    st.builds(running, st.just(0), stopping_since=st.one_of(st.none(), st.floats(NOW - 200, NOW))),
    st.builds(node, st.just(0), code=st.sampled_from([0, 1, 75, 76, 78]), consecutive_losses=st.integers(0, 9)),
    st.builds(node, st.just(0), signal=st.sampled_from([9, 15]), consecutive_losses=st.integers(0, 9)),
)


@given(
    seen=st.lists(ANY_NODE, min_size=4, max_size=4),
    wanted=st.builds(Desired, nodes=st.integers(2, 4)),
    stop=st.booleans(),
)
def test_no_node_is_started_twice_or_left_running(seen: list[Observed], wanted: Desired, *, stop: bool) -> None:
    nodes = [replace(node, index=index) for index, node in enumerate(seen)]
    actions = decide(ELASTIC, nodes, nodes=wanted.nodes, suspended=stop)
    started = {action.index for action in actions if isinstance(action, Start)}
    assert not started & {node.index for node in nodes if node.alive}
    assert all(index < wanted.nodes for index in started)
    assert not (stop and started)
    if any(isinstance(action, Finish) for action in actions):
        assert len(actions) == 1
        assert not any(node.alive for node in nodes)


def test_a_job_with_spares_starts_them_and_ends_well_without_them() -> None:
    spec = JobSpec(name="job", nodes="2+1")
    assert decide(spec, [absent(0), absent(1), absent(2)], nodes=3) == [Start(0), Start(1), Start(2)]
    done = [node(0, code=0), node(1, code=0), node(2, signal=9)]
    assert decide(spec, [done[0], running(1), done[2]], nodes=3) == []  # a lost spare is not started again at the end
    (finish,) = decide(spec, done, nodes=3)
    assert isinstance(finish, Finish)
    assert finish.result.phase == "Succeeded"
