"""Deriving a job's state from its facts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from msgspec import structs

from kitctl.state.facts import JobFacts, NodeFacts, QueuePosition
from kitctl.state.phase import derive
from kitjob import record
from kitjob.report import NodeAssignment, PastFailure, Preparation, Progress, Report, Termination


def node(index: int, **more: Any) -> NodeFacts:
    return NodeFacts(**{"index": index, "pod": f"job-{index}", "alive": True, "attempts": 1, "started": 10.0, **more})


def gone(index: int, **more: Any) -> NodeFacts:
    return node(index, **{"alive": False, "ended": 50.0, "signal": 9, "note": "was killed by signal 9", **more})


def facts(*found: NodeFacts, **more: Any) -> JobFacts:
    known: dict[str, Any] = {
        "name": "job",
        "namespace": "default",
        "target": "local",
        "kind": "processes",
        "node_range": "2",
        "desired_nodes": 2,
    }
    return JobFacts(**{**known, "created": 1.0, "nodes": found, **more})


FORMED = Report(
    run="r",
    round=1,
    formed=20.0,
    world_size=4,
    nodes={"0": NodeAssignment(group_rank=1, ranks=(2, 3)), "1": NodeAssignment(group_rank=0, ranks=(0, 1))},
    progress=Progress(step=7, loss=0.5),
)
WAITS = QueuePosition(name="team", state="Waiting")


@pytest.mark.parametrize(
    ("known", "phase"),
    [
        (facts(), "Pending"),
        (facts(node(0), node(1)), "Starting"),
        (facts(node(0), node(1), report=FORMED), "Running"),
        (facts(node(0), gone(1), report=FORMED), "Recovering"),
        (facts(node(0), node(1, attempts=2, started=30.0), report=FORMED), "Recovering"),
        (facts(node(0), node(1), report=Report(formed=20.0, forming=True, nodes=FORMED.nodes)), "Recovering"),
        (facts(gone(0), gone(1), report=FORMED), "Recovering"),
        (facts(node(0), gone(1, signal=None, exit_code=0), report=FORMED), "Running"),
        (facts(gone(0, signal=None, exit_code=0), gone(1, signal=None, exit_code=0), report=FORMED), "Running"),
        (facts(node(0), gone(1, exit_code=75), suspended=True, report=FORMED), "Recovering"),
        (facts(gone(0), gone(1), suspended=True, report=FORMED), "Suspended"),
        (facts(gone(0), gone(1), result="Cancelled"), "Cancelled"),
        (facts(node(0), node(1), result="Succeeded", report=FORMED), "Succeeded"),
    ],
)
def test_phases(known: JobFacts, phase: str) -> None:
    assert derive(known).phase == phase


@pytest.mark.parametrize("result", [None, "Succeeded", "Cancelled"])
def test_an_agents_warning_is_the_reason_of_a_running_job(
    result: Literal["Succeeded", "Cancelled"] | None,
) -> None:
    report = record.replace(FORMED, warning="2 ranks train, without a process group")
    job = derive(facts(node(0), node(1), result=result, report=report))
    assert job.reason == ("" if result == "Cancelled" else "2 ranks train, without a process group")


def test_a_node_that_joins_later_does_not_make_a_running_job_look_broken() -> None:
    job = derive(facts(node(0), node(1), node(2, started=30.0), node_range="2:3", report=FORMED))
    assert job.phase == "Running"
    assert [one.state for one in job.nodes] == ["Running", "Running", "Joining"]


@pytest.mark.parametrize("ahead", [-60.0, 0.0, 60.0])
def test_clock_skew_does_not_make_a_running_job_look_broken(ahead: float) -> None:
    """Node 1's clock is wrong: its kubelet's start time and its agent's join time are both by that clock."""
    nodes = {**FORMED.nodes, "1": NodeAssignment(ranks=(0, 1), joined=15.0 + ahead)}
    report = record.replace(FORMED, nodes=nodes)
    assert derive(facts(node(0), node(1, started=10.0 + ahead), report=report)).phase == "Running"
    assert derive(facts(node(0), node(1, started=16.0 + ahead), report=report)).phase == "Recovering"


def test_ranks_are_shown_only_while_the_report_is_current() -> None:
    assert [one.ranks for one in derive(facts(node(0), node(1), report=FORMED)).nodes] == [(2, 3), (0, 1)]
    assert [one.ranks for one in derive(facts(node(0), gone(1), report=FORMED)).nodes] == [(), ()]


def test_a_failed_job_shows_its_cause() -> None:
    failure = Termination(outcome="fatal", reason="rank 1 failed (ValueError: no)", rank=1)
    job = derive(facts(gone(0), gone(1, exit_code=78, termination=failure), result="Failed", failure=failure))
    assert job.reason == "rank 1 failed (ValueError: no)"
    assert job.nodes[1].state == "Failed"
    assert job.finished


def test_the_cause_of_a_failed_job_is_shown_once_with_each_nodes_part() -> None:
    reported = Termination(outcome="fatal", reason="rank 1 failed (exit code 3)", rank=1, node=1)
    unfit = Termination(outcome="fatal", reason="2 GPUs requested", node=0)
    failed = [gone(index, exit_code=78, termination=reported, note=reported.reason) for index in range(2)]
    lost = gone(2, note="was killed by signal 9")
    job = derive(facts(*failed, lost, result="Failed", failure=reported))
    assert job.reason == "node 1: rank 1 failed (exit code 3)"
    assert [one.reason for one in job.nodes] == ["ended with node 1", "rank 1 failed", "was killed by signal 9"]
    alone = derive(facts(gone(0, exit_code=78, termination=unfit), result="Failed", failure=unfit))
    assert [one.reason for one in alone.nodes] == ["failed"]


def test_a_restarted_node_shows_how_its_last_run_ended() -> None:
    again = node(0, attempts=2, before="OOMKilled (exit code 137)")
    lost = gone(1, attempts=2, before="OOMKilled (exit code 137)")
    reasons = [one.reason for one in derive(facts(again, lost, report=FORMED)).nodes]
    assert reasons == ["before: OOMKilled (exit code 137)", "was killed by signal 9"]


def test_a_recovering_job_names_the_node_that_was_lost() -> None:
    assert derive(facts(node(0), gone(1), report=FORMED)).reason == "was killed by signal 9"


def test_a_job_without_a_report_runs_when_its_nodes_do() -> None:
    alive = tuple(NodeFacts(index=index, pod=f"p-{index}", alive=True, attempts=1) for index in range(2))
    known = JobFacts(
        name="j",
        namespace="n",
        target="t",
        kind="IndexedJob",
        node_range="2",
        desired_nodes=2,
        created=0,
        reports=False,
        nodes=alive,
    )
    state = derive(known)
    assert (state.phase, [one.state for one in state.nodes]) == ("Running", ["Running", "Running"])
    assert derive(msgspec.structs.replace(known, nodes=alive[:1])).phase == "Starting"


# -- phases that are easy to get wrong --------------------------------------------------------------------------------

SLOW = record.replace(FORMED, slow={"3": 1.5})
DRAINED = Termination(outcome="drained")
FATAL = Termination(outcome="fatal", reason="rank 1 failed")


@pytest.mark.parametrize(
    ("known", "phase"),
    [
        (facts(report=FORMED), "Recovering"),  # every node was lost, and none left a termination message
        (facts(gone(0, attempts=0), gone(1, attempts=0), report=FORMED), "Recovering"),
        (facts(gone(0, attempts=0), gone(1, attempts=0)), "Pending"),
        (facts(gone(0, attempts=0), gone(1, attempts=0), report=Report()), "Pending"),
        (facts(gone(0), gone(1, attempts=0)), "Recovering"),
        (facts(node(0), node(1, attempts=2)), "Recovering"),
        (facts(suspended=True), "Suspended"),
        (facts(queue=WAITS, report=FORMED), "Pending"),  # preempted
        (facts(node(0), node(1), queue=WAITS, report=FORMED), "Running"),  # not drained yet
        (facts(queue=msgspec.structs.replace(WAITS, state="Stopped"), suspended=True), "Suspended"),
        (facts(queue=WAITS, result="Cancelled"), "Cancelled"),
    ],
)
def test_a_phase_is_not_forgotten_with_the_nodes(known: JobFacts, phase: str) -> None:
    assert derive(known).phase == phase


@pytest.mark.parametrize(
    ("known", "ranks", "slow", "world_size"),
    [
        (facts(node(0), node(1), report=SLOW), [(2, 3), (0, 1)], {"3": 1.5}, 4),
        (facts(node(0), gone(1), report=SLOW), [(), ()], {}, 0),  # Recovering
        (facts(gone(0), gone(1), suspended=True, report=SLOW), [(), ()], {}, 0),
        (facts(node(0), node(1), result="Succeeded", report=SLOW), [(), ()], {}, 0),
        (facts(node(0), node(1), report=record.replace(SLOW, forming=True)), [(), ()], {}, 0),
    ],
)
def test_ranks_and_stragglers_are_those_of_the_current_round(
    known: JobFacts, ranks: list[tuple[int, ...]], slow: dict[str, float], world_size: int
) -> None:
    job = derive(known)
    assert ([one.ranks for one in job.nodes], job.slow, job.world_size) == (ranks, slow, world_size)


@pytest.mark.parametrize(
    ("one", "more", "state", "since"),
    [
        (node(0), {"report": FORMED}, "Running", 10.0),
        (node(0), {}, "Joining", 10.0),
        (gone(0, attempts=0, ended=None), {}, "Pending", None),
        (gone(0, attempts=0, ended=None), {"suspended": True}, "Absent", None),
        (gone(0, attempts=0, ended=None), {"result": "Cancelled"}, "Absent", None),
        (gone(0), {}, "Lost", 50.0),
        (gone(0), {"result": "Cancelled"}, "Stopped", 50.0),
        (gone(0, exit_code=0, signal=None), {}, "Done", 50.0),
        (gone(0, termination=DRAINED), {"suspended": True}, "Drained", 50.0),
        (gone(0, termination=FATAL), {}, "Failed", 50.0),
    ],
)
def test_a_nodes_line(one: NodeFacts, more: dict[str, Any], state: str, since: float | None) -> None:
    nodes = {"0": NodeAssignment(ranks=(0, 1))}
    report = {"report": record.replace(more["report"], nodes=nodes)} if "report" in more else {}
    (line,) = derive(facts(one, **(more | report))).nodes
    assert (line.state, line.since) == (state, since)


def restarted(pod: str, joined: float = 20.0) -> Report:
    one = NodeAssignment(pod=pod, joined=joined, agent_restarts=2, restart_cause="the agent was killed by SIGKILL")
    return Report(run="r", round=3, formed=20.0, nodes={"0": one, "1": NodeAssignment(pod="job-1", joined=20.0)})


def test_restarts_within_a_pod_count_and_are_explained() -> None:
    job = derive(facts(node(0, attempts=2, before="OOMKilled"), node(1), report=restarted("job-0")))
    assert (job.phase, job.restarts, [one.restarts for one in job.nodes]) == ("Running", 3, [3, 0])
    assert job.nodes[0].reason == "before: the agent was killed by SIGKILL"


@pytest.mark.parametrize(("pid", "phase"), [(7, "Running"), (8, "Recovering")])
def test_where_process_ids_are_known_no_clock_decides_who_has_joined(pid: int, phase: str) -> None:
    """The clock was set back by a day between the start of the node and the forming of its group."""
    known = structs.replace(node(0), pid=7, started=90_000.0)
    nodes = {"0": NodeAssignment(ranks=(0, 3), joined=4000.0, pid=pid)}
    report = record.replace(FORMED, nodes=nodes, formed=4000.0)
    assert derive(facts(known, report=report, desired_nodes=1)).phase == phase


@pytest.mark.parametrize(("pod", "joined"), [("another", 20.0), ("job-0", 5.0)])
def test_restarts_within_an_earlier_pod_do_not_count_for_the_current_one(pod: str, joined: float) -> None:
    job = derive(facts(node(0, attempts=2, before="OOMKilled"), node(1), report=restarted(pod, joined)))
    assert (job.nodes[0].restarts, job.nodes[0].reason) == (1, "before: OOMKilled")


def test_restarts_are_those_of_all_nodes() -> None:
    job = derive(facts(node(0, attempts=2), node(1, attempts=3), gone(2, attempts=0)))
    assert (job.restarts, [one.restarts for one in job.nodes]) == (3, [1, 2, 0])


INSTALLS = {1: Preparation(pod="job-1", since=11.0, what="installing requirements")}


@pytest.mark.parametrize(
    ("known", "reason", "of_node"),
    [
        (facts(node(0), node(1), preparing=INSTALLS), "installing requirements", "installing requirements"),
        (facts(gone(0, attempts=0, note="Unschedulable"), node(1), preparing=INSTALLS), "Unschedulable", None),
        (facts(node(0), node(1, started=12.0), preparing=INSTALLS), "", ""),  # of a process before this one
        (facts(node(0), node(1, pod="job-1-b"), preparing=INSTALLS), "", ""),
        (facts(node(0), gone(1), preparing=INSTALLS), "was killed by signal 9", "was killed by signal 9"),
        (facts(node(0), node(1), preparing=INSTALLS, report=FORMED), "", ""),  # it has joined since
        (facts(node(0), node(1), preparing=INSTALLS, result="Cancelled"), "", None),
    ],
)
def test_what_a_node_does_before_it_joins_is_shown_while_it_does_so(
    known: JobFacts, reason: str, of_node: str | None
) -> None:
    job = derive(known)
    assert job.reason == reason
    if of_node is not None:
        assert job.nodes[1].reason == of_node


def test_a_node_that_prepares_to_join_a_running_job_shows_it_itself() -> None:
    late = {2: Preparation(pod="job-2", since=31.0, what="installing requirements")}
    job = derive(facts(node(0), node(1), node(2, started=30.0), node_range="2:3", report=FORMED, preparing=late))
    assert (job.phase, job.reason) == ("Running", "")
    assert [one.reason for one in job.nodes] == ["", "", "installing requirements"]


UNREACHED = "waiting for node 0 at job-0.job:29400 (timed out)"


@pytest.mark.parametrize(
    ("known", "since", "reason"),
    [
        (facts(node(0), node(1)), 70.0, f"node 1 is {UNREACHED}"),
        (facts(node(0, started=40.0), node(1)), 70.0, ""),  # node 0 may be on its way
        (facts(gone(0, attempts=0, note="Unschedulable"), node(1)), 70.0, "Unschedulable"),
        (facts(node(0), node(1), report=FORMED), 70.0, ""),  # it was there
        (facts(node(0), node(1, started=60.0), report=FORMED), 100.0, f"node 1 is {UNREACHED}"),  # in another's place
    ],
)
def test_a_node_that_does_not_reach_node_0_is_told_once_that_runs(known: JobFacts, since: float, reason: str) -> None:
    said = {1: Preparation(pod="job-1", since=since, what=UNREACHED)}
    assert derive(structs.replace(known, preparing=said)).reason == reason


FAILED = Termination(outcome="retryable", reason="rank 1 failed (E), restart 1 of 3", rank=1, node=1, time=30)
LOST = Termination(outcome="retryable", reason="rank 0 lost its peers (gone)", rank=0, node=0, time=31)


@pytest.mark.parametrize(
    ("resumed", "past", "reason"),
    [
        (None, (), "before: node 1: rank 1 failed (E), restart 1 of 3"),
        (29.0, (), "before: node 1: rank 1 failed (E), restart 1 of 3"),
        (32.0, (), ""),  # it has taken a step since
        (
            None,
            (PastFailure(time=30.0, node=1, rank=1, cause="E"),),
            "before: node 1: rank 1 failed (E), restart 1 of 3",
        ),
    ],
)
@pytest.mark.parametrize("forming", [True, False])
def test_the_first_failure_is_told_while_the_job_recovers(
    resumed: float | None, past: tuple[PastFailure, ...], reason: str, *, forming: bool
) -> None:
    progress = Progress(step=7, resumed_at=resumed)
    report = record.replace(FORMED, progress=progress, failures=past, forming=forming)
    job = derive(facts(node(0, termination=LOST), node(1, termination=FAILED), report=report))
    assert (job.phase, job.reason) == ("Recovering" if forming else "Running", reason)
    assert job.nodes[1].reason == "before: rank 1 failed (E), restart 1 of 3"


def test_what_ended_the_last_group_is_told_until_anything_says_more() -> None:
    failed = record.replace(FORMED, forming=True, ended_by="the ranks of node 1, pod job-1 have failed")
    assert derive(facts(node(0), node(1), report=failed)).reason == "", "their node tells why in a moment"
    lost = record.replace(FORMED, forming=True, ended_by="node 1, pod job-1 is lost")
    assert derive(facts(node(0), node(1), report=lost)).reason == "node 1, pod job-1 is lost"
    assert (
        derive(facts(node(0), node(1, note="machine m-1 does not answer"), report=lost)).reason
        == "machine m-1 does not answer"
    )
    assert not derive(facts(node(0), node(1), report=record.replace(lost, forming=False))).reason


def test_what_ends_a_job_is_known_whole_before_its_other_nodes_have_ended() -> None:
    last = record.replace(FAILED, outcome="fatal", error="E", traceback="at train.py:3")
    stepped = record.replace(FORMED, progress=Progress(step=7, resumed_at=last.time + 0.9))
    for report in (FORMED, stepped):
        assert derive(facts(node(0), gone(1, termination=last), report=report)).last_failure == last
    before = gone(1, termination=FAILED)  # of a pod that is replaced
    assert derive(facts(node(0), before, report=FORMED)).last_failure is None


def test_a_failure_of_a_pod_that_still_runs_is_told_from_the_report() -> None:
    report = record.replace(FORMED, failures=(PastFailure(time=19.0, node=1, rank=2, cause="ValueError: no"),))
    assert derive(facts(node(0), node(1), report=report)).reason == "before: node 1: rank 2 failed (ValueError: no)"


@pytest.mark.parametrize(
    ("steps", "notes", "told"),
    [
        (7, ("", ""), ""),
        (None, ("", ""), "no optimizer step was seen"),
        (
            7,
            ("", "rank 1 printed a traceback, and ended with exit code 0: KeyError: 'x'"),
            "rank 1 printed a traceback, and ended with exit code 0: KeyError: 'x'",
        ),
        (None, ("rank 0 printed a", "rank 1 printed b"), "no optimizer step was seen; rank 0 printed a"),
        (None, ("", "rank 1 printed last: bye"), "no optimizer step was seen; rank 1 printed last: bye"),
        (None, ("rank 0 printed last: bye", "rank 1 printed a"), "no optimizer step was seen; rank 1 printed a"),
        (7, ("rank 0 printed last: bye", "rank 1 printed a"), "rank 1 printed a"),
        (7, ("rank 0 printed a: printed last: b", ""), "rank 0 printed a: printed last: b"),
    ],
)
def test_what_was_seen_of_a_job_that_has_succeeded_is_a_note(
    steps: int | None, notes: tuple[str, str], told: str
) -> None:
    ends = [
        Termination(outcome="done", reason="all ranks succeeded", node=index, note=notes[index]) for index in (0, 1)
    ]
    nodes = [gone(index, signal=None, note="", exit_code=0, termination=end) for index, end in enumerate(ends)]
    known = facts(*nodes, report=record.replace(FORMED, progress=Progress(step=steps)), ended=50.0)
    assert derive(structs.replace(known, result="Succeeded")).note == told
    assert derive(structs.replace(known, result="Cancelled")).note == ""
    assert derive(structs.replace(known, result="Succeeded", nodes=())).note == "", "nothing is known of its end"


def test_a_spare_is_neither_lost_nor_joining_and_does_not_count_as_up() -> None:
    guarded = record.replace(FORMED, spares=(2, 3))
    job = derive(facts(node(0), node(1), node(2, started=30.0), gone(3), node_range="2+2", report=guarded))
    assert (job.phase, job.ready_nodes, job.spares) == ("Running", 2, (2,))
    assert [one.state for one in job.nodes] == ["Running", "Running", "Spare", "Lost"]
    recovering = derive(facts(node(0), gone(1), node(2), node_range="2+2", report=guarded))
    assert (recovering.phase, recovering.spares, recovering.nodes[2].state) == ("Recovering", (), "Joining")
