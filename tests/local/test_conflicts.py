"""Rejected requests leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_second_job_of_the_same_name_is_an_error_and_the_first_continues(kit: Kit) -> None:
    words = ["-m", "kittrain.workloads.toy", "100", "--step-time", "0.1"]
    kit.run("submit", "--name", "mine", *words)
    run = kit.job("mine").job.run
    output = kit.run("submit", "--name", "mine", *words, exit_code=2)
    assert "job 'mine' already exists (running)" in output
    assert "kitctl delete mine" in output
    assert kit.job("mine").job.run == run
    assert kit.run("list", "-o", "name") == "mine\n"


def test_a_script_that_does_not_exist_is_refused_before_anything_is_written(kit: Kit) -> None:
    output = kit.run("submit", "--nodes", "2", "absent.py", exit_code=2)
    assert "absent.py does not exist" in output
    assert "no jobs" in kit.run("list", "-A")


@pytest.mark.parametrize("command", ["status", "logs", "wait", "suspend", "resume", "restart", "cancel", "delete"])
def test_a_missing_job_is_exit_code_102(kit: Kit, command: str) -> None:
    assert kit.run(command, "absent", exit_code=102).startswith("error: no job 'absent'")


def test_invalid_arguments_are_exit_code_2(kit: Kit) -> None:
    assert "not a regular expression" in kit.run("logs", "absent", "--include", "[", exit_code=2)
    assert "not a duration" in kit.run("logs", "absent", "--since", "soon", exit_code=2)
