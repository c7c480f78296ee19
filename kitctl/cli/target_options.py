"""The options that select a target and a job, and the objects that verbs get for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kitctl.cli.command import option
from kitctl.cli.common import info

if TYPE_CHECKING:
    from kitctl.api.client import Client

F = TypeVar("F", bound=Callable[..., Any])


def target_options(function: F) -> F:
    """``--target``, ``--context`` and ``--kubeconfig``: the verb gets ``connect``, which returns the client."""

    @functools.wraps(function)
    def verb(*, target: str | None, context: str | None, kubeconfig: str | None, **rest: Any) -> Any:
        return function(connect=functools.partial(_client, target, context, kubeconfig), **rest)

    decorated: F = _decorated(verb, _TARGET)
    return decorated


def named_job(function: F) -> F:
    """``NAME``, ``-n`` and the target's options: the verb gets them as one argument, ``job``."""

    @functools.wraps(function)
    def verb(*, name: str, namespace: str | None, connect: Callable[[], Client], **rest: Any) -> Any:
        return function(job=connect().job(name, namespace), **rest)

    name = click.argument("name", shell_complete=_complete_jobs, callback=_job_name)
    decorated: F = _decorated(target_options(verb), (name, namespace_option))
    return decorated


def namespace_option(function: F) -> F:
    """``-n NAME``."""
    return option(
        *("-n", "--namespace"),
        group="Target",
        metavar="NAME",
        envvar="KITCTL_NAMESPACE",
        callback=object_name,
        default_text="the context's",
        help="Namespace of the job.",
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


def _client(target: str | None, context: str | None, kubeconfig: str | None) -> Client:
    from pathlib import Path

    from kitctl.api.client import Client

    path = Path(kubeconfig) if kubeconfig else None
    return Client(target=target, context=context, kubeconfig=path, notify=info)


def _job_name(_context: click.Context, _argument: click.Parameter, given: str) -> str:
    from kitctl.base.errors import NotFound
    from kitjob.fields import is_name

    if not is_name(given):
        raise NotFound(f"no job {given!r}: not a valid name", fix="kitctl list -A shows all jobs")
    return given


def _complete_jobs(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    given = context.params
    client = _client(given.get("target"), given.get("context"), given.get("kubeconfig"))
    jobs = client.jobs(given.get("namespace"))
    return [job.name for job in jobs if job.name.startswith(incomplete)]


def _complete_targets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from kitctl import targets
    from kitctl.base import plugins

    return [name for name in (*targets.BUILT_IN, *plugins.names(plugins.TARGETS)) if name.startswith(incomplete)]


def _decorated(verb: Any, decorators: tuple[Any, ...]) -> Any:
    """Apply decorators from the last to the first: help shows them in their order."""
    return functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), verb)


_TARGET = (
    option(
        "--target",
        group="Target",
        metavar="[local|cluster]",
        shell_complete=_complete_targets,
        envvar="KITCTL_TARGET",
        default_text="cluster if there is a kubeconfig",
        help="Where the job runs: on this machine, or on the kubeconfig's cluster.",
    ),
    option(
        "--context",
        group="Target",
        metavar="NAME",
        envvar="KITCTL_CONTEXT",
        default_text="the current one",
        help="Context of the kubeconfig.",
    ),
    option(
        "--kubeconfig",
        group="Target",
        type=click.Path(exists=True, dir_okay=False),
        default_text="$KUBECONFIG, ~/.kube/config",
        help="Kubeconfig file.",
    ),
)
