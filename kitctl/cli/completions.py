"""What a shell completes: values of options, files, jobs and their ranks. Imported by the process that completes alone.

A completion asks nobody for longer than a moment, and prints nothing: what cannot be had is not offered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from kitctl.base.deadline import within
from kitctl.base.errors import KitError
from kitctl.cli import settings

if TYPE_CHECKING:
    from kitctl.api.client import Client
    from kitctl.base.field_type import FieldType
    from kitctl.cli.flags import Flag
    from kitctl.state.facts import JobFacts
    from kitctl.state.phase import JobState

SECONDS: Final = 3.0  # to ask a cluster; what is imported for that takes none of it
FILES: Final = (CompletionItem("", type="file"),)  # the shell completes them itself
FOLDERS: Final = (CompletionItem("", type="dir"),)


def of_flag(flag: Flag, incomplete: str) -> list[CompletionItem]:
    """Values of a flag that describes a job."""
    if "DIR" in flag.metavar:
        return [*FOLDERS]
    if flag.metavar.startswith(("FILE", "PATH")):
        return [*FILES]
    if flag.fields == "env":
        return _matching(os.environ, incomplete)
    return _matching(_choices(flag), incomplete)


def keys(incomplete: str) -> list[CompletionItem]:
    """Keys of the job file for ``--set``; after ``=`` the values of a key that has few."""
    from kitctl.base.field_type import FieldType
    from kitctl.spec.job_spec import JobSpec

    found = dict(_leaves(FieldType(JobSpec)))
    key, sign, _ = incomplete.partition("=")
    if sign:
        return _matching((f"{key}={value}" for value in _values(found.get(key))), incomplete)
    return _matching((f"{one}=" for one in found), incomplete)


def workloads(incomplete: str) -> list[CompletionItem]:
    """Kitctl's own workloads."""
    from kitctl.input.workloads import WORKLOADS

    return _matching(WORKLOADS, incomplete)


def phases(incomplete: str) -> list[CompletionItem]:
    """Phases of a job."""
    from kitctl.state.phase import Phase

    return _matching(get_args(Phase), incomplete)


def jobs(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Jobs of the target and the namespace that were given so far."""
    with suppress(KitError, TimeoutError):
        client = _client(context.params)

        def ask() -> list[JobState]:
            return client.jobs(context.params.get("namespace"))

        return [CompletionItem(job.name, help=job.phase) for job in within(SECONDS, ask) if _fits(job.name, incomplete)]
    return []


def _client(given: Mapping[str, Any]) -> Client:
    """The client for options as they were given so far; it prints nothing."""
    target, context, kubeconfig = (given.get(name) for name in ("target", "context", "kubeconfig"))
    return settings.client(target, context, kubeconfig, notify=lambda _: None)


def members(context: click.Context, what: Literal["ranks", "nodes"], incomplete: str) -> list[CompletionItem]:
    """Ranks or nodes of the job that was named before."""
    from kitctl.state import members as of_job

    name = context.params.get("name") or next(iter(context.args), "")  # before an option without its value
    if not name:
        return []
    with suppress(KitError, TimeoutError):
        client = _client(context.params)

        def ask() -> JobFacts:
            return client.target.job(context.params.get("namespace") or client.namespace, name)

        return _matching(map(str, sorted(getattr(of_job.of(within(SECONDS, ask)), what))), incomplete)
    return []


def _choices(flag: Flag) -> Iterable[str]:
    from kitctl.base.field_type import FieldType
    from kitctl.kinds import AUTO, all_kinds
    from kitctl.spec.job_spec import JobSpec

    if flag.fields == "kind":
        return (AUTO, *all_kinds())
    field: FieldType | None = FieldType(JobSpec)
    for key in flag.paths[0].split("."):
        field = field.child(key) if field else None
    return _values(field)


def _values(field: FieldType | None) -> Iterable[str]:
    """The values of a field that has few, or those that are words."""
    if field is None:
        return ()
    if get_origin(field.type) is Literal:
        return [str(value) for value in get_args(field.type)]
    return ("true", "false") if field.type is bool else ()


def _leaves(field: FieldType, path: str = "") -> Iterator[tuple[str, FieldType]]:
    """Each key that has a value of its own, with its sections."""
    for key, child in field.fields.items():
        where = f"{path}.{key}" if path else key
        if child.fields:
            yield from _leaves(child, where)
        else:
            yield where, child


def _matching(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if _fits(word, incomplete)]


def _fits(word: str, incomplete: str) -> bool:
    return word.startswith(incomplete)
