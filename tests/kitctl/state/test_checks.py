"""Running and printing checks, and the checks of an existing job."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest

from kitctl.base.errors import Forbidden, TargetError
from kitctl.output.view.doctor import lines
from kitctl.state.checks import CheckWarning, Finding, run_checks
from kitctl.state.facts import JobFacts, NodeFacts
from kitctl.state.running_job import check_job
from kitjob import record
from kitjob.report import NodeAssignment, Progress, Report, Standstill, Termination


def ends(error: Exception | None) -> str:
    if error:
        raise error
    return "fine"


def verdicts(*errors: Exception | None, first: str = "") -> list[str]:
    checks = [(str(number), partial(ends, error)) for number, error in enumerate(errors)]
    return [finding.verdict for finding in run_checks(checks, first=first)]


def test_a_checks_error_is_its_verdict() -> None:
    assert verdicts(None, CheckWarning("hm"), TargetError("no"), Forbidden("not you"), None) == [
        *("ok", "warning", "problem", "unknown", "ok")
    ]


def test_if_the_first_check_fails_no_other_is_run() -> None:
    assert verdicts(TargetError("no answer"), None, first="0") == ["problem"]
    assert verdicts(CheckWarning("slow"), None, first="0") == ["warning", "ok"]


def test_a_bug_in_one_check_does_not_prevent_the_others() -> None:
    assert verdicts(ZeroDivisionError(), None) == ["unknown", "ok"]
    (finding,) = run_checks([("odd", partial(ends, ValueError("'1x' is not a quantity")))])
    assert finding.what == "the check itself failed: ValueError: '1x' is not a quantity"
    assert "bug" in finding.fix


def test_a_fix_is_printed_below_its_finding() -> None:
    printed = [*lines([Finding(check="quota", verdict="problem", what="too little", fix="ask for less")])]
    assert printed == ["quota         PROBLEM too little", "                      fix: ask for less"]
    assert [*lines([Finding(check="queue", verdict="ok", what="none")])] == ["queue         ok      none"]


def node(index: int, **facts: Any) -> NodeFacts:
    known: dict[str, Any] = {"index": index, "pod": f"job-{index}", "alive": True, "attempts": 1, "started": 1.0}
    return NodeFacts(**known | facts)


def facts(*given: NodeFacts, progress: Progress | None = None, **more: Any) -> JobFacts:
    report = Report(
        formed=5.0,
        world_size=2,
        nodes={str(index): NodeAssignment(ranks=(index, index), host=f"worker-{index}") for index in range(2)},
        progress=progress or Progress(step=40, snapshot_step=20, snapshot_seconds=1.5),
    )
    known: dict[str, Any] = {"name": "job", "namespace": "n", "target": "t", "kind": "IndexedJob"}
    known |= {"node_range": "2", "desired_nodes": 2}
    known |= {"created": 0.0, "report": report, "snapshots": "claim c", "nodes": given or (node(0), node(1))}
    return JobFacts(**known | more)


def reported() -> Report:
    report = facts().report
    assert report is not None
    return report


def found(job: JobFacts) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_job(job, 1000.0)}


def test_a_training_job_has_no_warnings() -> None:
    findings = found(facts())
    assert {finding.verdict for finding in findings.values()} == {"ok"}
    assert findings["phase"].what == "running"
    assert findings["nodes"].what == "2 of 2 run"
    assert findings["progress"].what == "step 40, the last snapshot is of step 20"


ABSENT: Final = (node(0, alive=False, attempts=0), node(1, alive=False, attempts=0))
SLOW: Final = Progress(step=9, snapshot_step=5, snapshot_seconds=16.0)
WRONG: Final = {
    "phase: failed: rank 1 failed": facts(
        result="Failed", failure=Termination(outcome="fatal", reason="rank 1 failed")
    ),
    "phase: pending: waits in a queue": facts(*ABSENT, report=None, note="waits in a queue"),
    "nodes: 1 of 2 do not run: node 1: lost": facts(node(0), node(1, alive=False, note="not confirmed")),
    "restarts: 3, most of them (3) of node 1 on worker-1": facts(node(0), node(1, attempts=4)),
    "progress: it cannot report: status shows no steps and ranks": facts(reports=False),
    "progress: step 9, and no snapshot yet": facts(progress=Progress(step=9)),
    "grace period: 30 s, and a snapshot takes 16.0 s: the last one may not be finished": facts(progress=SLOW),
}


@pytest.mark.parametrize("expected", WRONG)
def test_a_jobs_problems_are_reported(expected: str) -> None:
    check, _, what = expected.partition(": ")
    finding = found(WRONG[expected])[check]
    assert finding.what == what
    assert finding.verdict == ("problem" if "failed" in what else "warning")


def test_the_cause_of_a_failed_job_and_its_fix_are_shown() -> None:
    termination = Termination(
        outcome="fatal", reason="rank 1 failed (exit code 3: no data)", error="exit code 3: no data", fix="get it"
    )
    finding = found(facts(result="Failed", failure=termination))["phase"]
    assert (finding.what, finding.fix) == ("failed: exit code 3: no data (rank 1 failed)", "get it")
    assert finding.then == "kitctl submit --name job --replace --resume ... continues from its last snapshot"
    unknown = found(facts(result="Failed", failure=record.replace(termination, rank=1, fix="")))
    assert unknown["phase"].what == "failed: rank 1: exit code 3: no data (rank 1 failed)"
    assert unknown["phase"].fix == "see kitctl logs job --rank 1"
    assert {"nodes", "progress"}.isdisjoint(unknown), "nothing of an ended job is well because it ended"


def test_a_job_that_does_not_move_is_not_said_to_be_well() -> None:
    still = Standstill(since=900.0, what="rank 1 sleeps at h.py:5")
    report = record.replace(reported(), standstill=still)
    stands = found(facts(report=report))
    assert (stands["phase"].verdict, stands["phase"].what) == (
        "warning", "running: no step for 1m40s: rank 1 sleeps at h.py:5",
    )  # fmt: skip
    assert stands["progress"].verdict == "warning"
    rubbish = found(facts(report=record.replace(reported(), warning="the loss is nan since step 1")))
    assert (rubbish["phase"].verdict, rubbish["phase"].what) == ("warning", "running: the loss is nan since step 1")
    ended = found(facts(result="Succeeded", report=record.replace(reported(), warning="the loss is nan")))
    assert (ended["phase"].verdict, ended["phase"].what) == ("warning", "succeeded: the loss is nan")
    stopped = found(facts(*ABSENT, suspended=True, report=None))["phase"]
    assert (stopped.verdict, stopped.then) == ("warning", "kitctl resume job starts it again")


def test_the_fix_of_a_short_grace_period_would_be_long_enough() -> None:
    assert "33s" in found(facts(progress=SLOW))["grace period"].fix
    assert found(facts(progress=SLOW, grace_seconds=33.0))["grace period"].verdict == "ok"


def test_of_many_lost_nodes_only_the_first_are_named() -> None:
    lost = [node(index, alive=False, note="gone") for index in range(1, 9)]
    message = found(facts(node(0), *lost))["nodes"].what
    assert message == "8 of 9 do not run: node 1: lost; node 2: lost; node 3: lost; and 5 more"
