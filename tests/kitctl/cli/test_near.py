"""What was likely meant: commands, options and jobs."""

from __future__ import annotations

from typing import Any

import click
import pytest

from kitctl.cli import COMMANDS, cli, near
from kitctl.cli.command import ALIASES
from kitctl.cli.main import main
from tests.kitctl.localjobs import ended_job

HELP = {name: entry.help for name, entry in COMMANDS.items()}


def said(*words: str, capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    assert main(words) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("kill", "cancel (end a job; its logs and snapshots stay) or delete (end a job and delete it)"),
        ("stop", "cancel (end a job; its logs and snapshots stay) or delete (end a job and delete it)"),
        ("rm", "delete (end a job and delete it)"),
        ("KILL", "cancel (end a job; its logs and snapshots stay) or delete (end a job and delete it)"),
        ("get", "list (list jobs)"),
        ("ps", "list (list jobs)"),
        ("describe", "status (show a job's phase, progress, nodes and ranks)"),
        ("run", "submit (run a script or a module on several nodes)"),
        ("launch", "submit (run a script or a module on several nodes)"),
        ("lauch", "submit (run a script or a module on several nodes)"),
        ("sumbit", "submit (run a script or a module on several nodes)"),
        ("explain", "why (say why a job waits, stands still or has failed, with the fix)"),
        ("ssh", "exec (run a command where a rank is)"),
        ("dril", "drill (inject a fault into a running job and measure recovery)"),
    ],
)
def test_an_unknown_command_leads_to_the_one_that_was_meant(word: str, meant: str) -> None:
    assert near.of_command(word, HELP) == f"did you mean {meant}?"


@pytest.mark.parametrize("word", ["top", "events", "why", "checkpoints", "exec-job"])
def test_every_word_leads_somewhere(word: str) -> None:
    assert near.of_command(word, HELP).startswith("did you mean ")


@pytest.mark.parametrize("word", ["kill", "kil", "krill", "till", "skill", "rm", "thrill"])
def test_nobody_is_led_to_a_fault(word: str) -> None:
    assert "drill" not in near.of_command(word, HELP)


def test_words_stand_for_commands_and_options_that_there_are() -> None:
    assert {name for meant in near.WORDS for name in meant.replace(" -w", "").split()} <= COMMANDS.keys()
    spellings = {
        name.removeprefix("--")
        for command in map(loaded, COMMANDS)
        for one in command.params
        if isinstance(one, click.Option)
        for name in one.opts
    }
    assert near.OPTIONS.keys() <= spellings
    aliases = [alias for words in near.OPTIONS.values() for alias in words.split()]
    assert not ALIASES.keys() & set(aliases), "these are accepted"


def loaded(name: str) -> Any:
    command = cli.get_command(click.Context(cli), name)
    assert command
    return command


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("submit", "--gpus", "4"), "did you mean --gpus-per-node?"),
        (("submit", "--num_workers=3"), "did you mean --nodes?"),
        (("submit", "--partition", "a"), "did you mean --queue?"),
        (("submit", "--gpu-per-nod", "4"), "did you mean --gpus-per-node?"),
        (("delete", "--force", "job"), "did you mean --yes?"),
        (("logs", "job", "--lines", "5"), "did you mean --tail?"),
        (("list", "--gpus"), "No such option: --gpus; see kitctl list --help\n"),
    ],
)
def test_an_unknown_option_leads_to_the_one_that_was_meant(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert meant in said(*words, capsys=capsys)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("status", "jbo"), "did you mean job?"),
        (("cancel", "job-kzls"), "did you mean job?"),
        (("doctor", "jbo"), "did you mean job?"),
        (("plot", "jbo"), "did you mean job?"),
        (("status", "zebra"), "fix: kitctl list -A shows all jobs"),
    ],
)
def test_an_unknown_job_leads_to_the_one_that_was_meant(
    words: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended_job("job")
    assert meant in said(*words, "--target", "local", capsys=capsys, code=102)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("status",), "Missing the NAME of a job; kitctl list shows them"),
        (("logs", "-f"), "Missing the NAME of a job; kitctl list shows them"),
        (("list", "jobs"), "unexpected extra argument (jobs); kitctl list takes options only"),
        (("delete", "a", "b"), "unexpected extra argument (b); kitctl delete takes one at a time"),
    ],
)
def test_too_few_and_too_many_names_lead_on(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in said(*words, capsys=capsys)
