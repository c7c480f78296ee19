"""What targets say of jobs that there are not."""

from __future__ import annotations

from typing import NoReturn

import pytest

from kitctl.base.errors import Forbidden
from kitctl.targets.conflicts import alike, no_job


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
