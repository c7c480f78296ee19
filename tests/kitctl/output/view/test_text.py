"""Text output of `status` and `list`."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.output.view.columns import columns
from kitctl.output.view.layout import cells
from kitctl.output.view.text import Look, failure_lines, job_list, job_page, progress_line
from kitctl.state.facts import OWN_MEMORY, OWN_VOLUMES
from kitctl.state.phase import JobState, NodeState
from kitjob import record
from kitjob.report import (
    CopiesReport,
    MirrorReport,
    PastFailure,
    Progress,
    RecoveryTimings,
    Standstill,
    Termination,
    Trend,
)

RUNNING = JobState(
    name="digits",
    namespace="default",
    target="local",
    job_kind="processes",
    phase="Running",
    reason="",
    node_range="2",
    ready_nodes=2,
    world_size=4,
    restarts=1,
    created=100.0,
    ended=None,
    progress=Progress(
        step=120,
        total_steps=450,
        epoch=2,
        epochs=5,
        loss=0.12345,
        samples_per_second=812.4,
        eta_seconds=42.0,
        snapshot_step=100,
    ),
    failure=None,
    nodes=(
        NodeState(index=0, state="Running", ranks=(2, 3), pod="digits-0", host="a", restarts=1, since=150.0, reason=""),
        NodeState(index=1, state="Running", ranks=(0, 1), pod="digits-1", host="b", restarts=0, since=101.0, reason=""),
    ),
    snapshots="/snapshots",
)


def test_a_recovery_that_no_agent_has_measured_has_no_seconds() -> None:
    recovery = RecoveryTimings(cause="all nodes were started again; resumed at step 100: 80 steps lost")
    page = job_page(msgspec.structs.replace(RUNNING, last_recovery=recovery), now=200.0)
    assert "Recovery   all nodes were started again; resumed at step 100: 80 steps lost" in page


def test_status_shows_stragglers_and_the_last_recovery() -> None:
    recovery = RecoveryTimings(cause="node 1, pod digits-1 is lost", stop=0.02, form=0.1, first_step=1.5)
    job = msgspec.structs.replace(RUNNING, slow={"3": 1.8, "7": 1.42}, last_recovery=recovery)
    page = job_page(job, now=200.0)
    assert "Slow       rank 3 takes 1.8 x the others' step, rank 7 takes 1.4 x the others' step" in page
    assert "Recovery   in 1.6 s (stop 0.0, form 0.1, first step 1.5) after: node 1, pod digits-1 is lost" in page


def test_the_status_of_a_job() -> None:
    assert job_page(RUNNING, now=200.0) == [
        "Job        default/digits",
        "Phase      Running",
        "Runs on    local (processes)",
        "Nodes      2 of 2 up, 4 ranks, 1 restart",
        "Progress   epoch 2/5  step 120/450 (26 %)  loss 0.1235  812 samples/s  42s left",
        "Snapshot   step 100, in /snapshots",
        "Age        1m40s",
        "",
        "NODE   STATE     RANKS   POD        HOST   RESTARTS   SINCE   REASON",
        "0      Running   2-3     digits-0   a      1          50s",
        "1      Running   0-1     digits-1   b      0          1m39s",
    ]


def test_for_a_script_with_its_own_loop_no_snapshots_are_shown() -> None:
    page = job_page(replace(RUNNING, progress=Progress(step=30, steps_per_second=17.42)), now=200.0)
    assert not any(line.startswith("Snapshot") for line in page)


def test_a_job_that_reports_no_steps_is_not_said_to_lack_a_snapshot() -> None:
    page = job_page(replace(RUNNING, progress=Progress()), now=200.0)
    assert not any(line.startswith("Snapshot") for line in page), "a plain script saves in its own way"
    known = job_page(replace(RUNNING, progress=Progress(snapshot_step=7)), now=200.0)
    assert "Snapshot   step 7, in /snapshots" in known


@pytest.mark.parametrize("step", [None, 0])  # no snapshot yet, in two spellings
def test_a_job_without_a_snapshot_is_reported(step: int | None) -> None:
    progress = record.replace(RUNNING.progress, snapshot_step=step)
    assert "Snapshot   none yet, in /snapshots" in job_page(replace(RUNNING, progress=progress), now=200.0)


def test_the_age_of_the_last_snapshot_and_a_slow_store_are_shown() -> None:
    progress = record.replace(RUNNING.progress, snapshot_step=300, snapshot_time=100.0, writing_step=400)
    slow = replace(RUNNING, progress=record.replace(progress, writing_since=127.0))
    assert "Snapshot   step 300 (1m40s ago), writing step 400 for 1m13s, in /snapshots" in job_page(slow, now=200.0)
    assert "Snapshot   step 300 (31s ago), in /snapshots" in job_page(slow, now=131.0), "that is how long one may take"
    ended = job_page(replace(slow, phase="Succeeded", ended=190.0), now=200.0)
    assert "Snapshot   step 300, in /snapshots" in ended


def test_a_failed_job_shows_the_first_failure_s_traceback() -> None:
    failure = Termination(
        outcome="fatal", reason="rank 1 failed", rank=1, node=0, traceback="Traceback:\n  x\nValueError: no\n"
    )
    page = job_page(replace(RUNNING, phase="Failed", reason="rank 1 failed", failure=failure), now=200.0)
    assert page[1:3] == ["Phase      Failed", "Why        rank 1 failed"]
    assert page[-4:] == ["Traceback of rank 1 on node 0:", "  Traceback:", "    x", "  ValueError: no"]
    assert not [line for line in page if line.startswith("Fix")]


def test_a_failed_job_without_a_traceback_shows_its_last_lines_and_the_fix() -> None:
    failure = Termination(outcome="fatal", rank=1, node=0, error="exit code 3", fix="do it", lines=("a", "no data"))
    page = job_page(replace(RUNNING, phase="Failed", reason="at last", failure=failure), now=200.0)
    assert page[1:4] == ["Phase      Failed: at last", "Why        rank 1: exit code 3", "Fix        do it"]
    assert page[-3:] == ["Last lines of rank 1 on node 0:", "  a", "  no data"]
    assert failure_lines(Termination(outcome="fatal", node=0, error="exit code 3")) == failure_lines(None) == []


def test_what_follows_from_a_cause_is_told_after_it_and_not_before() -> None:
    cause, rest = "2 ranks train in a process group, and exchange no gradients", "each has a model of its own"
    reason = f"{cause}: {rest}"
    node = msgspec.structs.replace(RUNNING.nodes[0], state="Done", reason=f"all ranks succeeded, but {reason}")
    page = job_page(replace(RUNNING, phase="Succeeded", reason=reason, nodes=(node,)), now=200.0)
    assert page[1:3] == ["Phase      Succeeded", f"Why        {reason}"]
    assert page[-1].endswith("as above")
    assert "\n".join(page).count(rest) == 1


def test_a_page_says_no_sentence_twice() -> None:
    error = "ValueError: no such shard"
    past = PastFailure(time=1.0, node=1, rank=1, cause=error)
    recovery = RecoveryTimings(cause=f"node 1: rank 1 failed ({error}), restart 1 of 2", stop=0.1)
    failure = Termination(
        outcome="fatal", reason=f"rank 1 failed ({error}), no restart left of 2", rank=1, node=1, error=error,
        traceback=f'Traceback:\n  File "/a/train.py", line 7\n{error}\n',
    )  # fmt: skip
    failed = replace(RUNNING, phase="Failed", reason=f"node 1: {failure.reason}", failure=failure)
    page = job_page(replace(failed, failures=(past, past), last_recovery=recovery), now=200.0)
    assert "\n".join(page).count(error) == 1
    assert page[1:3] == [
        "Phase      Failed: node 1: rank 1 failed, no restart left of 2",
        f"Why        rank 1: {error}",
    ]
    assert "Failures   rank 1 of node 1, 2 times (as above)" in page
    waits = 'FailedMount: a volume "cfg" is busy'
    node = NodeState(
        index=0, state="Pending", ranks=(), pod="x-0", host="", restarts=0, since=None, reason=waits
    )  # fmt: skip
    page = job_page(replace(RUNNING, phase="Pending", reason=waits, nodes=(node,)), now=200.0)
    assert "\n".join(page).count(waits) == 1
    assert page[1].split() == ["Phase", "Pending"]
    assert page[-1].endswith("as above")
    scheduler = "Unschedulable: 0/4 nodes are available: 2 Insufficient nvidia.com/gpu, 2 Insufficient memory."
    nodes = tuple(msgspec.structs.replace(node, index=index, reason=scheduler) for index in (0, 1))
    page = job_page(replace(RUNNING, phase="Pending", reason=scheduler, nodes=nodes), now=200.0)
    assert "\n".join(page).count("Insufficient memory") == 1, "also where the cause has words of its own"
    assert page[2].startswith("Why")


def test_status_shows_the_number_and_causes_of_failures() -> None:
    nodata = PastFailure(time=1.0, node=1, rank=1, cause="exit code 3: no data")
    other = PastFailure(time=2.0, node=0, rank=0, cause="KeyError: 'x'")
    page = job_page(replace(RUNNING, failures=(nodata, other, nodata)), now=200.0)
    assert "Failures   rank 1 of node 1, 2 times (exit code 3: no data); rank 0 of node 0 (KeyError: 'x')" in page
    many = tuple(PastFailure(node=0, rank=0, cause=str(number)) for number in range(4))
    page = job_page(replace(RUNNING, failures=many), now=200.0)
    assert "Failures   ...; rank 0 of node 0 (1); rank 0 of node 0 (2); rank 0 of node 0 (3)" in page


def test_the_copy_in_a_bucket_is_shown_with_what_is_not_there_yet() -> None:
    there = MirrorReport(url="s3://bucket/run", step=120, size=3 << 20)
    assert "Mirror     step 120, 3 MiB in s3://bucket/run" in job_page(replace(RUNNING, mirror=there), now=200.0)
    late = record.replace(there, behind=2, behind_bytes=1 << 20, behind_since=188.0, warning="it is full")
    told = "step 120, 3 MiB in s3://bucket/run; 2 snapshots (1 MiB, 12s old) not yet; warning: it is full"
    assert f"Mirror     {told}" in job_page(replace(RUNNING, mirror=late), now=200.0)
    none = MirrorReport(url="s3://bucket/run")
    assert "Mirror     nothing of this run is in s3://bucket/run yet" in job_page(
        replace(RUNNING, mirror=none), now=200.0
    )


@pytest.mark.parametrize(
    ("copies", "line"),
    [
        (CopiesReport(step=4120, have=2, wanted=2, copied_step=4120), "2 of 2, step 4120"),
        (CopiesReport(step=4120, have=1, wanted=2, copied_step=4000), "1 of 2, step 4120; step 4000 has all"),
        (CopiesReport(step=20, have=1, wanted=2), "1 of 2, step 20; no snapshot has all"),
        (CopiesReport(warning="no space"), "none yet; warning: no space"),
        (CopiesReport(wanted=2, copied_step=4000), "no snapshot is whole any more; step 4000 had all"),
    ],
)
def test_copies_on_other_nodes_are_told(copies: CopiesReport, line: str) -> None:
    page = job_page(replace(RUNNING, copies=copies), now=200.0)
    assert f"Copies     {line}" in [one.rstrip() for one in page]


@pytest.mark.parametrize(
    ("where", "pod", "line"),
    [
        (OWN_VOLUMES, "x-0", "Snapshot   step 100, in a volume of each node, until its pod is deleted"),
        (OWN_VOLUMES, "", "Snapshot   step 100 was in a volume of each node, and is gone with it"),
        (OWN_MEMORY, "x-0", "Snapshot   step 100 was in the memory of each node, and is gone with it"),
    ],
)
def test_snapshots_of_nodes_that_have_ended_are_gone_with_what_they_were_in(where: str, pod: str, line: str) -> None:
    nodes = tuple(msgspec.structs.replace(node, state="Done", pod=pod) for node in RUNNING.nodes)
    copies = CopiesReport(step=100, have=2, wanted=2, copied_step=100)
    ended = replace(RUNNING, phase="Succeeded", ready_nodes=0, nodes=nodes, snapshots=where, copies=copies, ended=190.0)
    page = {one.rstrip() for one in job_page(ended, now=200.0)}
    assert line in page
    assert ("Copies     2 of 2, step 100" in page) == (where == OWN_VOLUMES and pod != "")


def test_the_list_has_one_line_per_job() -> None:
    assert job_list([RUNNING], now=200.0) == [
        "NAME     PHASE     NODES   RANKS   STEP   LAST STEP   LOSS     RESTARTS   AGE",
        "digits   Running   2/2     4       120    -           0.1235   1          1m40s",
    ]


def test_unknown_facts_are_left_out() -> None:
    assert progress_line(Progress()) == ""
    assert progress_line(Progress(step=3)) == "step 3"
    own_loop = Progress(step=30, steps_per_second=17.42, resumed_at=150.0)
    assert progress_line(own_loop) == "step 30 since the ranks started  17.4 steps/s"
    resumed = record.replace(own_loop, resumed_from=100)
    assert progress_line(resumed) == "step 130, 30 since the ranks started  17.4 steps/s"
    assert progress_line(Progress(step=130, resumed_from=100)) == "step 130"
    assert msgspec.structs.replace(RUNNING, progress=resumed).steps == "step 130"
    assert not [line for line in job_page(replace(RUNNING, progress=Progress()), now=200.0) if "Progress" in line]


@given(st.lists(st.tuples(st.text("ab ", max_size=5), st.text("ab", min_size=1, max_size=5)), max_size=5))
def test_columns_are_aligned(rows: list[tuple[str, str]]) -> None:
    lines = columns(("FIRST", "SECOND"), rows)
    place = lines[0].index("SECOND")
    assert [line[place:] for line in lines[1:]] == [second for _, second in rows]
    assert all(line == line.rstrip() for line in lines)


def replace(job: JobState, **changes: object) -> JobState:
    fields = {name: getattr(job, name) for name in job.__struct_fields__}
    return JobState(**{**fields, **changes})


def test_where_ranks_are_that_take_no_step() -> None:
    still = msgspec.structs.replace(RUNNING, standstill=Standstill(since=900.0, what="rank 1 sleeps at h.py:5"))
    assert "No step    for 1m40s: rank 1 sleeps at h.py:5" in job_page(still, 1000.0)
    assert job_list([still], 1000.0)[1].split()[5] == "1m40s", "the age of the last step"
    assert job_list([still], 1000.0, Look(wide=True))[1].endswith("no step for 1m40s: rank 1 sleeps at h.py:5")
    assert not [line for line in job_page(RUNNING, 1000.0) if "No step" in line]


def test_the_age_of_the_last_step_is_that_of_a_job_that_trains() -> None:
    trains = msgspec.structs.replace(RUNNING, last_step=197.0)
    assert job_list([trains], now=200.0)[1].split()[4:6] == ["120", "3s"]
    for ended in (replace(trains, phase="Succeeded"), replace(trains, phase="Recovering")):
        assert job_list([ended], now=200.0)[1].split()[4:6] == ["120", "-"]


def test_loss_and_throughput_are_drawn_in_a_terminal_that_can_show_them() -> None:
    trend = Trend(seconds=1.0, loss=(2.5, 2.0, 1.0, 0.5), speed=(700.0, 800.0, 800.0, 812.0))
    job = msgspec.structs.replace(RUNNING, trend=trend)
    page = job_page(job, 200.0, Look(width=80))
    assert "Loss       █▇▃▁  0.5 to 2.5" in page
    assert "Speed      ▁███  700 to 812" in page
    for look in (Look(), Look(width=80, unicode=False)):
        assert not [line for line in job_page(job, 200.0, look) if line.startswith(("Loss", "Speed"))]
    flat = msgspec.structs.replace(RUNNING, trend=Trend(seconds=1.0, loss=(1.0, 1.0), speed=()))
    assert not [line for line in job_page(flat, 200.0, Look(width=80)) if line.startswith(("Loss", "Speed"))]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_no_line_of_a_page_is_wider_than_the_terminal(width: int) -> None:
    reason = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. 数据文件不存在 " * 3
    node = NodeState(
        index=0, state="Pending", ranks=(0, 1), pod="digits-kzls-0-x7x9q", host="gke-pool-a-1234", restarts=3,
        since=20.0, reason=reason,
    )  # fmt: skip
    nodes = tuple(msgspec.structs.replace(node, index=at, pod=f"digits-kzls-{at}-x") for at in range(12))
    job = replace(RUNNING, reason=reason, nodes=nodes, snapshots="/very/long/" + "folder" * 30, standstill=STILL)
    for line in [*job_page(job, 200.0, Look(width=width)), *job_list([job], 200.0, Look(width=width))]:
        assert cells(line) <= width, line
    whole = "".join("".join(job_page(job, 200.0, Look(width=width))).split())
    assert "".join(reason.split()) in whole, "nothing is cut off"


STILL = Standstill(since=100.0, what="rank 1 sleeps at h.py:5, rank 0 waits in all_reduce of its backward pass")
