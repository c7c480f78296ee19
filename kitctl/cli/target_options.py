"""The options that select a target and a job, and the objects that commands get for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kitctl.cli import hints, settings
from kitctl.cli.command import option
from kitctl.cli.common import info

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kitctl.api.client import Client

F = TypeVar("F", bound=Callable[..., Any])


def target_options(function: F) -> F:
    """``--target``, ``--context`` and ``--kubeconfig``: the command gets ``connect``, which returns the client."""

    @functools.wraps(function)
    def command(*, target: str | None, context: str | None, kubeconfig: str | None, **rest: Any) -> Any:
        return function(connect=functools.partial(settings.client, target, context, kubeconfig), **rest)

    decorated: F = _decorated(command, _TARGET)
    return decorated


def named_job(function: F) -> F:
    """``NAME``, ``-n`` and the target's options: the command gets them as one argument, ``job``."""

    @functools.wraps(function)
    def command(*, name: str, namespace: str | None, connect: Callable[[], Client], **rest: Any) -> Any:
        hints.about(name)
        return function(job=connect().job(name, namespace), **rest)

    name = click.argument("name", shell_complete=_complete_jobs, callback=_job_name)
    decorated: F = _decorated(target_options(command), (name, namespace_option))
    return decorated


def job_or_mirror(function: F) -> F:
    """As ``named_job``, but ``NAME`` may be an object store's address; the command gets ``name`` and ``connect``."""

    def check(context: click.Context, argument: click.Parameter, given: str) -> str:
        return _address(given) if is_mirror(given) else _job_name(context, argument, given)

    name = click.argument("name", metavar="NAME|s3://...", shell_complete=_complete_jobs, callback=check)
    decorated: F = _decorated(target_options(function), (name, namespace_option))
    return decorated


def is_mirror(name: str) -> bool:
    """Whether this names the copy of snapshots in an object store, and no job."""
    return name.startswith("s3://")


def _address(given: str) -> str:
    """A mirror's address, checked before an object store is asked, which would tell of credentials first."""
    from kitjob.fields import is_mirror_url

    address = given.rstrip("/")
    if not is_mirror_url(address):
        bucket, _, prefix = given.removeprefix("s3://").partition("/")
        wrong = (
            "it lacks the bucket" if not bucket else "it lacks the prefix" if not prefix.strip("/") else "no such name"
        )
        raise click.BadParameter(
            f"{given!r}: {wrong}; a mirror's address is s3://BUCKET/PREFIX, as in snapshots.mirror"
        )
    return address


def member_option(spelling: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    """``--rank N`` or ``--node N``: of the job that is named."""

    def complete(context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from kitctl.cli import completions

        return completions.members(context, "ranks" if spelling == "--rank" else "nodes", incomplete)

    number = click.IntRange(min=0)
    return option(spelling, *names, type=number, metavar="N", shell_complete=complete, **attributes)


def job_or_all(function: F) -> F:
    """``[NAME]``: the command gets ``name``, perhaps None."""

    def check(context: click.Context, argument: click.Parameter, given: str | None) -> str | None:
        return given and _job_name(context, argument, given)

    return click.argument("name", required=False, shell_complete=_complete_jobs, callback=check)(function)


def job_names(function: F) -> F:
    """``NAME...``: the command gets ``names``."""

    def check(context: click.Context, argument: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_job_name(context, argument, name) for name in given)

    argument = click.argument(
        "names", metavar="NAME...", nargs=-1, required=True, shell_complete=_complete_jobs, callback=check
    )
    return argument(function)


def namespace_option(function: F) -> F:
    """``-n NAME``."""
    return option(
        *("-n", "--namespace"),
        group="Target",
        metavar="NAME",
        envvar="KITCTL_NAMESPACE",
        callback=_namespace,
        default_text="profile's or context's",
        help="Its namespace.",
    )(function)


def announced(client: Client) -> Client:
    """The client, after a message if its target was selected by default."""
    if client.reason:
        info(client.reason)
    return client


def object_name(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    """Check a name: it becomes a part of paths, on a disk and of an API server.

    Raises:
        click.BadParameter: no object can have that name.
    """
    from kitjob.fields import is_name

    if given and not is_name(given):
        raise click.BadParameter(f"{given!r} is not a valid name: use lower-case letters, digits, '-' and '.'")
    return given


def _namespace(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    if given is None and not context.resilient_parsing:
        given = settings.profile().job.get("namespace")
    return object_name(context, option, given)


def _job_name(_context: click.Context, _argument: click.Parameter, given: str) -> str:
    from kitctl.base.errors import JobNotFound
    from kitjob.fields import is_name

    if not is_name(given):
        raise JobNotFound(f"no job {given!r}: not a valid name", fix="kitctl list -A shows all jobs")
    return given


def _complete_jobs(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kitctl.cli import completions

    return completions.jobs(context, incomplete)


def _complete_targets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from kitctl import targets
    from kitctl.base import plugins

    return [name for name in (*targets.BUILT_IN, *plugins.names(plugins.TARGETS)) if name.startswith(incomplete)]


def _decorated(command: Any, decorators: tuple[Any, ...]) -> Any:
    """Apply decorators from the last to the first: help shows them in their order."""
    return functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), command)


_TARGET = (
    option(
        "--target",
        group="Target",
        metavar="[local|cluster]",
        shell_complete=_complete_targets,
        envvar="KITCTL_TARGET",
        default_text="cluster, if any",
        help="Where the job runs.",
    ),
    option(
        "--context",
        group="Target",
        metavar="NAME",
        envvar="KITCTL_CONTEXT",
        default_text="current",
        help="Context of the kubeconfig.",
    ),
    option(
        "--kubeconfig",
        group="Target",
        type=click.Path(dir_okay=False),
        envvar="KITCTL_KUBECONFIG",
        default_text="kubectl's",
        help="Kubeconfig file.",
    ),
)
