"""What `kitctl wait` prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest

from kitctl.api.job import Job
from kitctl.base.errors import JobCancelled, JobNotFound
from kitctl.cli.commands.wait import Changes, wait_until_end
from kitctl.state.facts import JobFacts, NodeFacts
from kitctl.state.phase import derive
from kitctl.state.why.explain import Explanation
from kitjob.report import NodeAssignment, Report

PENDING = JobFacts(
    name="run",
    namespace="team",
    target="here",
    kind="IndexedJob",
    node_range="1",
    desired_nodes=1,
    created=0.0,
    nodes=(),
)


QUOTA: Final = 'pods "run-0" is forbidden: exceeded quota: small'


def told(capsys: pytest.CaptureFixture[str], *known: JobFacts) -> list[str]:
    """What waiting prints while a job has these states."""
    states = iter(known)
    target: Any = SimpleNamespace(poll_seconds=0.0, job=lambda _namespace, _name: next(states))
    with suppress(JobCancelled):
        wait_until_end(Job(target=target, namespace="team", name="run"), None)
    return capsys.readouterr().err.splitlines()


def pending(note: str) -> JobFacts:
    return msgspec.structs.replace(PENDING, note=note)


CANCELLED: Final = msgspec.structs.replace(PENDING, result="Cancelled")


def test_each_change_of_phase_or_cause_is_printed_once_with_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    quota = pending(QUOTA)
    cause, fix, then = "the namespace's quota small is used up", "fix", "then"
    first, second, third, fourth, last = told(capsys, PENDING, PENDING, quota, quota, PENDING, quota, CANCELLED)
    assert (first, second, last) == ("run: Pending", f"run: Pending ({cause})", "run: Cancelled")
    assert third.startswith(f"  {fix}: ")
    assert fourth.startswith(f"  {then}: it starts by itself")


@pytest.mark.parametrize(
    "notes",
    [
        [
            'ErrImagePull: rpc error: failed to pull image "no/such:1"',
            'ImagePullBackOff: rpc error: failed to pull image "no/such:1"',
        ],
        [f'FailedCreate: Error creating: pods "run-{at}-{tail}" is odd' for at, tail in ((0, "x7x9q"), (1, "mmmmm"))],
        [f"0/{nodes} nodes are available: {nodes} are strange" for nodes in (3, 4)],
    ],
)
def test_flips_of_a_pull_pods_names_and_counts_are_no_other_cause(
    notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = told(capsys, *map(pending, notes * 3), CANCELLED)
    assert len([line for line in lines if line.startswith("run: Pending")]) == 1


def test_another_cause_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, pending("exit code 3: a"), pending("exit code 4: a"), pending("odd"), CANCELLED)
    assert len([line for line in lines if line.startswith("run: Pending")]) == 3


def test_the_cause_of_a_failure_without_another_try_is_left_to_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    retried = pending("rank 1 failed (ValueError: no), restart 1 of 1")
    last = pending("rank 0 failed (KeyError: 'x'), no restart left of 1")
    lines = told(capsys, retried, last, CANCELLED)
    assert lines[0] == "run: Pending (rank 1: ValueError: no)"
    assert not [line for line in lines if "KeyError" in line]


def test_what_a_start_takes_long_for_is_printed_once_though_it_is_no_cause(capsys: pytest.CaptureFixture[str]) -> None:
    node = NodeFacts(index=0, pod="run-0", alive=True, attempts=1, started=10.0)
    starting = msgspec.structs.replace(PENDING, nodes=(node,))
    installs, fetches, goes_on = (
        msgspec.structs.replace(starting, nodes=(msgspec.structs.replace(node, note=note),))
        for note in ("installing requirements", "init container fetch has run for 65 s", "")
    )
    longer = msgspec.structs.replace(
        starting, nodes=(msgspec.structs.replace(node, note="init container fetch has run for 70 s"),)
    )
    lines = told(capsys, starting, installs, installs, fetches, longer, goes_on, CANCELLED)
    assert [line.removeprefix("run: ") for line in lines] == [
        "Starting",
        "Starting (installing requirements)",
        "Starting (init container fetch has run for 65 s)",
        "Cancelled",
    ]


def test_what_may_do_harm_later_is_printed_once_without_a_fix(capsys: pytest.CaptureFixture[str]) -> None:
    note = "rank 0 has saved a/b.pt to its node's own folder: it is gone with its pod; use --outputs a"
    node = NodeFacts(index=0, pod="run-0", alive=True, attempts=1, started=10.0)
    known: dict[str, Any] = {"run": "r", "round": 1, "formed": 20.0, "world_size": 1, "nodes": {"0": NodeAssignment()}}
    trains, saves = (
        msgspec.structs.replace(PENDING, nodes=(node,), report=Report(**known, warning=warning))
        for warning in ("", note)
    )
    lines = told(capsys, trains, saves, saves, trains, saves, CANCELLED)
    assert [line.removeprefix("run: ") for line in lines] == ["Running", note, "Cancelled"]


def test_a_job_that_is_deleted_meanwhile_is_said_to_have_been_there(capsys: pytest.CaptureFixture[str]) -> None:
    def states() -> Iterator[JobFacts]:
        yield PENDING
        raise JobNotFound("no job 'run' in namespace 'team'", fix="kitctl list -A shows all jobs")

    known = states()
    target: Any = SimpleNamespace(poll_seconds=0.0, job=lambda _namespace, _name: next(known))
    with pytest.raises(JobNotFound, match="job 'run' was pending when last seen, and has been deleted"):
        wait_until_end(Job(target=target, namespace="team", name="run"), None)
    assert capsys.readouterr().err == "run: Pending\n"


def test_what_was_told_of_a_running_job_stands_at_its_end_again() -> None:
    running = msgspec.structs.replace(derive(PENDING), phase="Running")
    found = Explanation(cause="2 ranks train without a process group", fix="", go_on="", fact="", evidence=())
    changes = Changes()
    told = [*changes.lines(running, found), *changes.lines(running, found)]
    assert told == ["run: Running (2 ranks train without a process group)"]
    ended = msgspec.structs.replace(running, phase="Succeeded")
    assert [*changes.lines(ended, found)] == ["run: Succeeded (2 ranks train without a process group)"]
