"""Where a verb works: the options that say which target and which job are meant, and what becomes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kitctl.cli.common import say

if TYPE_CHECKING:
    from kitctl.targets import Target, Where

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class NamedJob:
    """A job that a verb is about; whether it is there, the target says."""

    target: Target
    namespace: str
    name: str


def target_options(function: F) -> F:
    """``--target``, ``--context`` and ``--kubeconfig``: the verb gets them as one argument, ``where``."""

    @functools.wraps(function)
    def verb(*, target: str | None, context: str | None, kubeconfig: str | None, **rest: Any) -> Any:
        return function(where=_where(target, context, kubeconfig), **rest)

    decorated: F = _decorated(verb, _TARGET)
    return decorated


def named_job(function: F) -> F:
    """``NAME``, ``-n`` and the target's options: the verb gets them as one argument, ``job``."""

    @functools.wraps(function)
    def verb(*, name: str, namespace: str | None, where: Where, **rest: Any) -> Any:
        target = connect(where)
        return function(job=NamedJob(target=target, namespace=namespace or target.namespace, name=name), **rest)

    name = click.argument("name", shell_complete=_complete_jobs, callback=_job_name)
    decorated: F = _decorated(target_options(verb), (name, namespace_option))
    return decorated


def namespace_option(function: F) -> F:
    """``-n NAME``."""
    return click.option(
        *("-n", "--namespace"),
        metavar="NAME",
        envvar="KITCTL_NAMESPACE",
        callback=object_name,
        help="Namespace of the job; by default the one of the kubeconfig's context.",
    )(function)


def object_name(_context: click.Context, _option: click.Parameter, typed: str | None) -> str | None:
    """Take what is no name for none: it becomes a part of paths, on a disk and of an API server.

    Raises:
        click.BadParameter: no object can have that name.
    """
    from kitctl.fields import is_name

    if typed and not is_name(typed):
        raise click.BadParameter(f"{typed!r} is no name: use lower-case letters, digits, '-' and '.'")
    return typed


def connect(where: Where, *, announce: bool = False) -> Target:
    """The target that is meant; says so if nobody chose it and ``announce`` is set."""
    from kitctl import targets

    if announce and (reason := targets.choose(where).reason):
        say(reason)
    return targets.connect(where)


def _where(target: Any, context: str | None, kubeconfig: str | None) -> Where:
    from pathlib import Path

    from kitctl.targets import Where

    return Where(target=target, context=context, kubeconfig=Path(kubeconfig) if kubeconfig else None, tell=say)


def _job_name(_context: click.Context, _argument: click.Parameter, typed: str) -> str:
    from kitctl.errors import NotFound
    from kitctl.fields import is_name

    if not is_name(typed):
        raise NotFound(f"no job {typed!r}: that is no name", fix="kitctl list -A shows all jobs")
    return typed


def _complete_jobs(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    given = context.params
    target = connect(_where(given.get("target"), given.get("context"), given.get("kubeconfig")))
    jobs = target.jobs(given.get("namespace") or target.namespace)
    return [job.name for job in jobs if job.name.startswith(incomplete)]


def _decorated(verb: Any, decorators: tuple[Any, ...]) -> Any:
    """Apply decorators from the last to the first: help shows them in their order."""
    return functools.reduce(lambda inner, decorate: decorate(inner), reversed(decorators), verb)


_TARGET = (
    click.option(
        "--target",
        type=click.Choice(["local", "cluster"]),
        envvar="KITCTL_TARGET",
        help="This machine, or the kubeconfig's cluster (the default where there is one).",
    ),
    click.option("--context", metavar="NAME", envvar="KITCTL_CONTEXT", help="Context of the kubeconfig."),
    click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Another kubeconfig."),
)
