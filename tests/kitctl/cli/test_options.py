from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kitctl.base.field_type import FieldType
from kitctl.cli import COMMANDS, cli, values
from kitctl.cli.command import ALIASES, GROUPS, LongCommand
from kitctl.cli.flags import FLAGS, Flag
from kitctl.cli.options import JobCommand, job_options
from kitctl.input.job_request import JobRequest
from kitctl.input.workloads import WORKLOADS
from kitctl.output.schema import json_schema
from kitctl.render.template_values import DEFAULT_REQUESTS
from kitctl.spec.job_spec import JobSpec


def requested(*arguments: str, env: dict[str, str] | None = None) -> JobRequest:
    received: list[JobRequest] = []

    @click.command(cls=JobCommand)
    @job_options
    @click.option("--follow", is_flag=True)
    def command(job: JobRequest, follow: bool) -> None:  # noqa: FBT001 - click's way
        del follow
        received.append(job)

    result = CliRunner(env=env).invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return received[0]


def flags(*arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    return dict(requested(*arguments, env=env).flags)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--", "train.py", "--epochs", "5"],
        ["train.py", "--epochs", "5"],
        ["--follow", "train.py", "--epochs", "5"],
    ],
)
def test_the_script_ends_the_options_of_kitctl(arguments: list[str]) -> None:
    assert flags(*arguments) == {"command": ["train.py"], "args": ["--epochs", "5"]}


@pytest.mark.parametrize("arguments", [["-m", "my.module", "--nodes", "5"], ["--", "-m", "my.module", "--nodes", "5"]])
def test_a_module_ends_them_too(arguments: list[str]) -> None:
    assert flags("--nodes", "3", *arguments) == {"nodes": 3, "command": ["-m", "my.module"], "args": ["--nodes", "5"]}


def test_everything_after_the_script_is_passed_on_unchanged() -> None:
    tail = ["-m", "x", "--", "--nodes=9", "-e", "A=B", "--help", ""]
    assert flags("train.py", *tail) == {"command": ["train.py"], "args": tail}


def test_the_value_of_an_option_is_not_the_script() -> None:
    assert flags("--name", "-m", "x.py") == {"name": "-m", "command": ["x.py"], "args": []}


def test_numbers_of_nodes() -> None:
    assert flags("--nodes", "3") == {"nodes": 3}
    assert flags("--nodes", "2:4") == {"nodes": "2:4"}


@pytest.mark.parametrize(
    ("alias", "value", "documented"),
    [
        ("--nnodes", "2:4", "--nodes"),
        ("--num-nodes", "3", "--nodes"),
        ("--num_nodes", "3", "--nodes"),
        ("--nproc-per-node", "4", "--procs-per-node"),
        ("--nproc_per_node", "4", "--procs-per-node"),
        ("--gpus_per_node", "4", "--gpus-per-node"),
        ("--selector", "a=b", "--node-selector"),
        ("--node_selector", "a=b", "--node-selector"),
        ("--pvc", "data", "--claim"),
        ("--mem", "8Gi", "--memory"),
        ("--priority-class", "high", "--priority"),
        ("--max_restarts", "1", "--max-restarts"),
    ],
)
def test_spellings_of_other_tools_are_accepted(alias: str, value: str, documented: str) -> None:
    expected = flags(documented, value, "-m", "my.module")
    assert expected["command"] == ["-m", "my.module"]
    assert flags(alias, value, "-m", "my.module") == expected
    assert flags(f"{alias}={value}", "-m", "my.module") == expected
    assert alias not in help_of("submit").split()


def test_every_alias_belongs_to_a_documented_option() -> None:
    documented = {spelling for flag in FLAGS for spelling in flag.spellings.split()}
    assert {f"--{name}" for name in ALIASES.values()} <= documented
    assert not {f"--{alias}" for alias in ALIASES} & documented


def test_aliases_work_for_other_commands_too() -> None:
    result = CliRunner().invoke(cli, ["scale", "job", "--nnodes", "0"])
    assert "0 is not in the range" in result.output


def test_one_flag_may_set_two_fields() -> None:
    amounts = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}
    assert flags("--cpu", "4", "--memory", "8Gi") == {"resources": amounts}


def test_resume_modes() -> None:
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
    assert requested() == JobRequest()


def test_every_flag_sets_an_existing_field() -> None:
    for flag in FLAGS:
        for field in flag.paths:
            field_type: FieldType | None = FieldType(JobSpec)
            for key in field.split("."):
                assert field_type, field
                field_type = field_type.child(key)
            assert field_type, field


def commands() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, part) for part in command.commands)


def help_of(*words: str, option: str = "--help") -> str:
    result = CliRunner().invoke(cli, [*words, option], terminal_width=100)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_the_help_of_every_command_has_examples_and_groups(words: tuple[str, ...]) -> None:
    text = help_of(*words)
    assert "Examples:" in text
    assert f"kitctl {' '.join(words)}" in text.partition("Examples:")[2]
    assert "\nOptions:\n" not in text or words in {("snapshots",), ("config",)}


@pytest.mark.parametrize("words", [*commands()], ids=" ".join)
def test_help_fits_a_terminal_and_help_all_has_every_option(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": "80"}).output
    assert sum(max(1, -(-len(line) // 80)) for line in shown.splitlines()) <= 40  # as the terminal wraps them
    command = cli.get_command(click.Context(cli), words[0])
    if isinstance(command, LongCommand):
        options, _, examples = shown.partition("Examples:")
        assert not [line for line in options.splitlines() if line.startswith("   ")]  # each has one line
        assert max(map(len, examples.splitlines())) <= 80
        told = help_of(*words, option="--help-all")
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert max(option.opts, key=len) in told


def groups() -> Iterator[tuple[str, click.Group]]:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if isinstance(command, click.Group):
            yield name, command


@pytest.mark.parametrize("words", [(), *((name,) for name, _ in groups())], ids=" ".join)
@pytest.mark.parametrize("columns", ["80", "100"])
def test_the_help_of_a_group_cuts_no_description(words: tuple[str, ...], columns: str) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": columns}).output
    lines = [line for line in shown.splitlines() if not line.startswith("Usage:")]
    assert len(lines) > 10
    assert not [line for line in lines if line.endswith("...")]


def test_the_help_of_a_verb_in_its_group_has_at_most_50_characters() -> None:
    verbs = [verb for _, group in groups() for verb in group.commands.values()]
    assert len(verbs) == 7
    assert all(verb.short_help and len(verb.short_help) <= 50 for verb in verbs)


def test_the_short_help_of_upload_leaves_out_what_does_not_matter_to_it() -> None:
    beside = {"--nodes", "--gpus-per-node", "--procs-per-node", "--memory", "--resume"}
    assert not [name for name in beside if name in help_of("upload")]
    assert all(name in help_of("upload", option="--help-all") for name in beside)
    assert all(name in help_of("submit") for name in beside)


@pytest.mark.parametrize("words", [(), ("submit",), ("init",)])
def test_help_names_every_workload(words: tuple[str, ...]) -> None:
    told = help_of(*words, option="--help-all" if words == ("submit",) else "--help")
    assert [name for name in WORKLOADS if name not in told] == []
    assert "{" not in told.partition("Examples:")[2]


def test_the_options_of_a_job_are_shown_in_groups() -> None:
    all_help = help_of("submit", option="--help-all")
    headings = [line[:-1] for line in all_help.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [group for group in GROUPS if group not in {"Fault", "Filter"}]


def defaults(section: str) -> dict[str, Any]:
    """The defaults of a section of the job file, by key; of nested sections, too."""
    return {
        key: defaults(field["$ref"].rpartition("/")[2]) if "$ref" in field else field["default"]
        for key, field in json_schema()["$defs"][section]["properties"].items()
        if key != "resources"
    }


# Defaults that the help describes in prose.
WORDS = {
    "--name": "from the script's name",
    "--namespace": "the context's",
    "--memory": "512Mi, no limit",
    "--storage-class": "the cluster's",
    "--claim": "a new one",
    "--priority": "the cluster's",
    "--ttl": "never",
    "--interface": "from the route to node 0",
    "--pod-overlay": "none",
}


@pytest.mark.parametrize(
    "flag", [flag for flag in FLAGS if flag.metavar and not flag.repeatable], ids=lambda flag: flag.parameter
)
def test_help_shows_the_default_of_the_spec(flag: Flag) -> None:
    value: Any = {**defaults("JobSpec"), "resources": {"requests": DEFAULT_REQUESTS}}
    for key in flag.paths[0].split("."):
        value = value[key]
    expected = WORDS.get(f"--{flag.parameter.replace('_', '-')}") or ("none" if value in (None, "", {}) else str(value))
    assert flag.default == expected
    assert f"[default: {expected}]" in " ".join(help_of("submit", option="--help-all").split())


def test_flags_and_a_file_make_one_job(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: job\nnodes: 2\n")
    result = CliRunner().invoke(cli, ["render", "-f", str(path), "--nodes", "3", "-o", "json"], catch_exceptions=False)
    job = json.loads(result.output)["items"][-1]
    assert (job["metadata"]["name"], job["spec"]["completions"]) == ("job", 3)
