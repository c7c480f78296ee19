"""``kitctl config``: the user's settings, what each key means, and where its value comes from."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from kitctl.cli import settings
from kitctl.cli.command import Command
from kitctl.cli.common import echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.shell_completion import CompletionItem

    from kitctl.base.field_type import FieldType
    from kitctl.cli.flags import Flag

EPILOG = """\b
Examples:
  kitctl config explain snapshots.keep
  kitctl config explain --gpus-per-node
  kitctl config show --profile research
"""
_BY_NAMESPACE = {
    "image": "on a cluster, auto is `image` of the namespace's ConfigMap kitctl-defaults, if it has one, "
    "else, of a TrainJob, the image of its runtime, if that has one; the ConfigMap's `mirror` is put before names "
    "without a registry",
    "imagePullSecrets": "on a cluster also `imagePullSecrets` of the namespace's ConfigMap kitctl-defaults",
}


@click.group(epilog=EPILOG)
def command() -> None:
    """Show your settings: profiles, variables, and what each key of a job means."""


def _examples(*lines: str) -> str:
    return "\n".join(["\b", "Examples:", *(f"  kitctl config {line}" for line in lines)])


def _complete_keys(_context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kitctl.cli import completions

    found = completions.keys(incomplete)
    for item in found:
        item.value = str(item.value).removesuffix("=")
    return found


@command.command(
    cls=Command,
    short_help="Explain a key of the job file, and its value now",
    epilog=_examples("explain snapshots.keep", "explain --shm"),
    context_settings={"ignore_unknown_options": True},
)
@click.argument("key", metavar="KEY|--FLAG", type=click.UNPROCESSED, shell_complete=_complete_keys)
def explain(key: str) -> None:
    """Explain a key of the job file: what it means, its type, its default, and where its value comes from."""
    from kitctl.base.errors import SpecError
    from kitctl.base.field_type import FieldType
    from kitctl.cli.flags import FLAGS
    from kitctl.spec.job_spec import JobSpec

    path = next((one.paths[0] for one in FLAGS if key in one.spellings.split()), key)
    field, fact = FieldType(JobSpec), _schema()
    for part in path.split("."):
        if (child := field.child(part)) is None:
            raise SpecError([field.unknown(path, part)])
        field, fact = child, _below(fact, part)
    rows = [*_rows(path, field, fact, next((one for one in FLAGS if path in one.paths), None))]
    width = max(len(name) for name, _ in rows) + 3
    echo("\n".join(f"{name:<{width}}{text}" for name, text in rows))


@command.command(
    cls=Command,
    short_help="Show the profile, and what it and variables set",
    epilog=_examples("show", "show --profile research"),
)
def show() -> None:
    """Show the profile in use and every setting that differs from kitctl's own, with its source."""
    from kitctl.cli.flags import FLAGS
    from kitctl.input import profiles

    ours = settings.profile()
    echo(f"profile   {ours.name or 'none'}")
    echo(f"file      {ours.path or profiles.folder() / 'config.toml'}" + ("" if ours.path else " (does not exist)"))
    found = {key: (json.dumps(value), f"profile {ours.name}") for key, value in _leaves({**ours.target, **ours.job})}
    for flag in FLAGS:
        name = settings.variable(flag.parameter)
        if value := _environ(name):
            found |= dict.fromkeys(flag.paths, (value, f"${name}"))
    for key in settings.SHARED:
        if value := _environ(settings.variable(key)):
            found[key] = (value, f"${settings.variable(key)}")
    if found:
        width = max(map(len, found)) + 3
        echo("\n" + "\n".join(f"{key:<{width}}{value}   ({source})" for key, (value, source) in sorted(found.items())))


def _rows(path: str, field: FieldType, fact: dict[str, Any], flag: Flag | None) -> Iterator[tuple[str, str]]:
    yield path, " ".join(str(fact.get("description", "")).split())
    if hint := field.hint:
        yield "Value", hint
    if "default" in fact:
        yield "Default", _shown(fact["default"])
    if flag:
        yield "Flag", f"{flag.spellings} {flag.metavar}".strip()
        yield "Variable", settings.variable(flag.parameter)
    if path in _BY_NAMESPACE:
        yield "Namespace", _BY_NAMESPACE[path]
    yield "Now", _now(path, fact, flag)


def _now(path: str, fact: dict[str, Any], flag: Flag | None) -> str:
    """The value where neither a flag nor a job file sets it, and its source."""
    if flag and (given := _environ(settings.variable(flag.parameter))):
        return f"{given}, from ${settings.variable(flag.parameter)}"
    ours = settings.profile()
    value: Any = ours.job
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is not None:
        return f"{_shown(value)}, from profile {ours.name} in {ours.path}"
    return f"{_shown(fact.get('default'))}, built in, unless a job file or a flag sets it"


def _schema() -> dict[str, Any]:
    from kitctl.output.schema import json_schema

    whole = json_schema()
    return {"whole": whole, **whole["$defs"]["JobSpec"]}


def _below(fact: dict[str, Any], part: str) -> dict[str, Any]:
    whole = fact["whole"]
    found = fact.get("properties", {}).get(part) or fact.get("additionalProperties") or {}
    section = whole["$defs"][found["$ref"].rpartition("/")[2]] if "$ref" in found else {}
    return {**section, **found, "whole": whole}


def _shown(value: Any) -> str:
    return "none" if value in (None, "", {}, []) else value if isinstance(value, str) else json.dumps(value)


def _environ(name: str) -> str:
    return os.environ.get(name, "")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}" if path else key)
    else:
        yield path, value
