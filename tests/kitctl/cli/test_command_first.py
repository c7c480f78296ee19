"""Options in front of the command, where kubectl's users write them."""

from __future__ import annotations

import click
import pytest

from kitctl.cli import _WITH_COMMANDS, COMMANDS, cli
from kitctl.cli.main import main
from tests.kitctl.localjobs import ended_job


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "local", "-n", "default", "status", "job"),
        ("--target=local", "status", "job", "-n", "default"),
        ("-ndefault", "--target=local", "status", "job"),
        ("--namespace", "default", "--target", "local", "status", "-o", "wide", "job"),
    ],
)
def test_where_a_job_runs_may_be_said_first(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    ended_job("job")
    assert main(words) == 0
    assert "default/job" in capsys.readouterr().out


def test_it_goes_to_the_command_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "local", "-n", "team", "snapshots", "list", "job"]) == 102
    assert "no job 'job' on this machine" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("-A", "list"), ("--wide", "status", "job"), ("-n",), ("-n", "team")])
def test_other_options_come_after_it(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert f"options come after the command: kitctl COMMAND {words[0]}" in capsys.readouterr().err


def test_a_value_that_names_a_command_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "local", "-n", "status", "list"]) == 0
    assert "no jobs in namespace 'status'" in capsys.readouterr().err


def test_commands_that_are_groups_are_known_without_an_import() -> None:
    context = click.Context(cli)
    groups = {name for name in COMMANDS if isinstance(cli.get_command(context, name), click.Group)}
    assert groups == _WITH_COMMANDS
