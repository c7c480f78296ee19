"""What targets say of jobs that there are not."""

from __future__ import annotations

from typing import NoReturn

import pytest

from kitctl.base.errors import ConflictError, Forbidden
from kitctl.targets.conflicts import alike, check_copies, check_volumes, no_job
from kitjob.job_keys import JobKeys
from kitjob.record import replace
from kitjob.report import MirrorReport, Report
from kitjob.sections import Snapshots

APART = JobKeys(name="apart", snapshots=Snapshots(storage="perNode"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("digits", ["digits-b", "digits-a"]),
        ("digits-a-1", ["digits-a"]),
        ("tran", ["train"]),
        ("zebra", []),
        ("", []),
    ],
)
def test_jobs_whose_names_go_on_come_first_the_newest_before_others(name: str, meant: list[str]) -> None:
    assert alike(name, ["digits-a", "digits-b", "train"]) == meant


def test_a_list_that_may_not_be_read_is_no_second_error() -> None:
    def known() -> NoReturn:
        raise Forbidden("jobs may not be listed")

    error = no_job("rnu", "in namespace 'team'", known)
    assert (error.message, error.fix) == ("no job 'rnu' in namespace 'team'", "kitctl list -A shows all jobs")


def test_two_nodes_that_have_all_copies_are_not_taken_away_at_once() -> None:
    check_copies("apart", APART, nodes=3, now=4)
    check_copies("apart", APART, nodes=8, now=4)
    check_copies("run", JobKeys(name="run"), nodes=1, now=4)
    with pytest.raises(ConflictError, match="two nodes have all copies") as error:
        check_copies("apart", APART, nodes=2, now=4)
    assert error.value.fix == "one node at a time: kitctl scale apart --nodes 3, and on when status shows all copies"


def test_snapshots_that_go_with_their_pods_are_not_deleted_unless_a_mirror_has_them() -> None:
    check_volumes("apart", JobKeys(snapshots=Snapshots(storage="perNode", mirror="s3://bucket/run")), "suspend", None)
    with pytest.raises(ConflictError, match="suspend would delete the snapshots of 'apart'"):
        check_volumes("apart", APART, "suspend", None)


def test_what_is_in_memory_is_not_ended_while_its_mirror_takes_nothing() -> None:
    light = JobKeys(snapshots=Snapshots(storage="memory", mirror="s3://bucket/run"))
    report = Report(mirror=MirrorReport(url="s3://bucket/run", step=40, warning="AccessDenied"))
    check_volumes("light", light, "restart", replace(report, mirror=MirrorReport(url="s3://bucket/run", step=40)))
    check_volumes("run", JobKeys(snapshots=Snapshots(mirror="s3://bucket/run")), "restart", report)
    with pytest.raises(ConflictError, match="its mirror has step 40, and takes no more: AccessDenied") as error:
        check_volumes("light", light, "restart", report)
    assert error.value.fix == "try again once it does; kitctl cancel light stops it all the same"
