"""Commands that messages suggest: with the options by which this command line has found its job."""

from __future__ import annotations

import re
from typing import Final

import click

_JOB: Final = "kitctl.job"  # in a context: the name of the job that the command is about, and perhaps its namespace
_OPTIONS: Final = {"namespace": "-n", "target": "--target", "context": "--context", "kubeconfig": "--kubeconfig"}
_KINDS: Final = "configmap|job|limitrange|localqueue|networkpolicy|pod|podgroup|pvc|quota|resourceclaim|secret"
_COMMAND: Final = rf"(?:auth can-i|exec|logs|(?:describe|get|delete|patch) (?:{_KINDS})s?)\b"
# kubectl's commands for what is in a namespace, and say of none which.
_KUBECTL: Final = re.compile(rf"\bkubectl (?={_COMMAND})(?![^;:,()\n]* (?:-n|-A|--namespace)\b)", re.IGNORECASE)


def about(name: str, namespace: str = "") -> None:
    """Remember which job this command line is about; ``namespace`` if only a job file says it."""
    if context := click.get_current_context(silent=True):
        context.meta[_JOB] = name, namespace


def addressed(text: str) -> str:
    """A message whose commands find what they are about: ``kitctl logs x`` becomes ``kitctl logs x -n team``.

    Options of the environment and of a profile hold for the next kitctl command anyway, so they are left out there.
    ``kubectl`` knows neither, so ``kubectl describe quota x`` gets the namespace wherever that comes from.
    """
    context = click.get_current_context(silent=True)
    if not context:
        return text
    name, namespace = context.meta.get(_JOB, ("", ""))
    given = _given(context, namespace)
    if name and name in text and (options := _shell(given)):
        command = rf"\bkitctl [a-z-]+(?: -[a-z])*(?: --name)? {re.escape(name)}(?![\w.-]*\w)(?! {re.escape(options)})"
        text = re.sub(command, lambda found: f"{found[0]} {options}", text)
    known = {"namespace": context.params.get("namespace") or ""} | given
    if "kubectl" in text and (options := _shell({key: one for key, one in known.items() if key != "target" and one})):
        text = _KUBECTL.sub(lambda found: f"{found[0]}{options} ", text)
    return text


def _given(context: click.Context, namespace: str) -> dict[str, str]:
    """The options of the command line itself, by parameter."""
    given = {"namespace": namespace} if namespace else {}
    for parameter in _OPTIONS:
        if context.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE:
            given[parameter] = str(context.params[parameter])
    return given


def _shell(given: dict[str, str]) -> str:
    """Options as words of a command line."""
    import shlex

    return shlex.join(word for parameter, value in given.items() for word in (_OPTIONS[parameter], value))
