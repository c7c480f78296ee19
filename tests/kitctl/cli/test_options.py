from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kitctl.cli import VERBS, cli, values
from kitctl.cli.flags import FLAGS
from kitctl.cli.options import JobCommand, job_options
from kitctl.jobinput import JobInput
from kitctl.shape import Shape
from kitctl.spec import JobSpec


def asked(*arguments: str, env: dict[str, str] | None = None) -> JobInput:
    heard: list[JobInput] = []

    @click.command(cls=JobCommand)
    @job_options
    @click.option("--follow", is_flag=True)
    def command(job: JobInput, follow: bool) -> None:  # noqa: FBT001 - click's way
        del follow
        heard.append(job)

    result = CliRunner(env=env).invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return heard[0]


def flags(*arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    return dict(asked(*arguments, env=env).flags)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--", "train.py", "--epochs", "5"],
        ["train.py", "--epochs", "5"],
        ["--follow", "train.py", "--epochs", "5"],
    ],
)
def test_the_script_ends_kitctls_own_options(arguments: list[str]) -> None:
    assert flags(*arguments) == {"command": ["train.py"], "args": ["--epochs", "5"]}


@pytest.mark.parametrize("arguments", [["-m", "my.module", "--nodes", "5"], ["--", "-m", "my.module", "--nodes", "5"]])
def test_so_does_a_module(arguments: list[str]) -> None:
    assert flags("--nodes", "3", *arguments) == {"nodes": 3, "command": ["-m", "my.module"], "args": ["--nodes", "5"]}


def test_what_follows_the_script_is_handed_on_untouched() -> None:
    tail = ["-m", "x", "--", "--nodes=9", "-e", "A=B", "--help", ""]
    assert flags("train.py", *tail) == {"command": ["train.py"], "args": tail}


def test_an_options_value_is_no_script() -> None:
    assert flags("--name", "-m", "x.py") == {"name": "-m", "command": ["x.py"], "args": []}


@pytest.mark.parametrize("spelling", ["--nodes", "--num-nodes", "--nnodes"])
def test_sizes(spelling: str) -> None:
    assert flags(spelling, "3") == {"nodes": 3}
    assert flags(spelling, "2:4") == {"nodes": "2:4"}


def test_one_flag_may_set_two_fields() -> None:
    amounts = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}
    assert flags("--cpu", "4", "--memory", "8Gi") == {"resources": amounts}


def test_resuming_is_exact_or_of_the_state_alone() -> None:
    assert flags("--resume", "train.py")["resume"] is True
    assert flags("--resume-state", "train.py")["resume"] == "state"
    assert flags("--resume", "--resume-state", "--from-scratch") == {"resume": "state", "fromScratch": True}


def test_variables(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("# a comment\n\nA=file\nB=1e-3\nHERE\n")
    given = ["--env-file", str(path), "-e", "A=flag", "-e", "EMPTY=", "-e", "SUM=1+1=2", "-e", "HERE"]
    expected = {"A": "flag", "B": "1e-3", "HERE": "mine", "EMPTY": "", "SUM": "1+1=2"}
    assert flags(*given, env={"HERE": "mine"}) == {"env": expected}


def test_volumes_and_tolerations() -> None:
    assert values.volumes(["data:/data", "keys:/keys:ro"]) == [
        {"claim": "data", "mountPath": "/data"},
        {"claim": "keys", "mountPath": "/keys", "readOnly": True},
    ]
    assert values.tolerations(["a", "b=c", "d:NoSchedule", "e=f:NoExecute"]) == [
        {"key": "a", "operator": "Exists"},
        {"key": "b", "operator": "Equal", "value": "c"},
        {"key": "d", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "e", "operator": "Equal", "value": "f", "effect": "NoExecute"},
    ]


def test_the_namespace_may_come_from_the_environment() -> None:
    assert flags(env={"KITCTL_NAMESPACE": "team"}) == {"namespace": "team"}
    assert flags("-n", "other", env={"KITCTL_NAMESPACE": "team"}) == {"namespace": "other"}


def test_without_flags_nothing_is_set() -> None:
    assert asked() == JobInput()


def test_every_flag_sets_a_field_that_there_is() -> None:
    for flag in FLAGS:
        for field in flag.fields.split():
            shape: Shape | None = Shape(JobSpec)
            for key in field.split("."):
                assert shape, field
                shape = shape.child(key)
            assert shape, field


def test_every_verb_can_be_imported_and_says_what_its_module_says() -> None:
    for verb in VERBS:
        result = CliRunner().invoke(cli, [verb, "--help"])
        assert result.exit_code == 0, result.output
        assert "Examples:" in result.output


def test_help_of_a_job_is_in_sections() -> None:
    text = CliRunner().invoke(cli, ["render", "--help"]).output
    headings = [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [*dict.fromkeys(flag.section for flag in FLAGS), "Other"]


def test_flags_and_a_file_make_one_job(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: job\nnodes: 2\n")
    result = CliRunner().invoke(cli, ["render", "-f", str(path), "--nodes", "3", "-o", "json"], catch_exceptions=False)
    job = json.loads(result.output)["items"][-1]
    assert (job["metadata"]["name"], job["spec"]["completions"]) == ("job", 3)
