"""Commands that messages suggest: with the options by which this command line has found its job."""

from __future__ import annotations

import re
from typing import Final

import click

_JOB: Final = "kitctl.job"  # in a context: the name of the job that the command is about, and perhaps its namespace
_OPTIONS: Final = {"namespace": "-n", "target": "--target", "context": "--context", "kubeconfig": "--kubeconfig"}


def about(name: str, namespace: str = "") -> None:
    """Remember which job this command line is about; ``namespace`` if only a job file says it."""
    if context := click.get_current_context(silent=True):
        context.meta[_JOB] = name, namespace


def addressed(text: str) -> str:
    """A message whose commands for that job find it, too: ``kitctl logs x`` becomes ``kitctl logs x -n team``.

    Options of the environment and of a profile hold for the next command anyway, so they are left out.
    """
    context = click.get_current_context(silent=True)
    name, namespace = context.meta.get(_JOB, ("", "")) if context else ("", "")
    if not (context and name and name in text and (options := _given(context, namespace))):
        return text
    command = rf"\bkitctl [a-z-]+(?: -[a-z])*(?: --name)? {re.escape(name)}(?![\w.-]*\w)(?! {re.escape(options)})"
    return re.sub(command, lambda found: f"{found[0]} {options}", text)


def _given(context: click.Context, namespace: str) -> str:
    """The options of the command line itself."""
    import shlex

    given = {"namespace": namespace} if namespace else {}
    for parameter in _OPTIONS:
        if context.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            given[parameter] = str(context.params[parameter])
    return shlex.join(word for parameter, value in given.items() for word in (_OPTIONS[parameter], value))
