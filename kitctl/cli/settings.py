"""Where an option's value comes from, if it is not on the command line: a variable, or the user's profile.

A flag that describes a job, or selects a target, has one variable for all commands (``KITCTL_IMAGE``). Any option has
one with its command's name (``KITCTL_LOGS_TIMESTAMPS``): options of one name may mean different things, and delete
something.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from kitctl.cli.common import info

if TYPE_CHECKING:
    from kitctl.api.client import Client
    from kitctl.input.profiles import Profile

PREFIX: Final = "KITCTL_"
PROFILE: Final = "kitctl.profile"  # in a context: the profile that --profile names
# Variables that are no options: of the program itself, and of its completion.
OTHERS: Final = frozenset({"KITCTL_DEBUG", "KITCTL_PROFILE", "_KITCTL_COMPLETE"})
SHARED: Final = frozenset({"target", "context", "kubeconfig", "namespace"})


def variable(spelling: str, command: str = "") -> str:
    """``--gpus-per-node`` as ``KITCTL_GPUS_PER_NODE``; with a command ``KITCTL_SUBMIT_GPUS_PER_NODE``."""
    words = [*command.split(), spelling.lstrip("-")]
    return PREFIX + "_".join(words).replace("-", "_").upper()


def profile() -> Profile:
    """The profile of this command; of none, if the user has no file."""
    from kitctl.input import profiles

    context = click.get_current_context(silent=True)
    meta = context.meta if context else {}
    if "kitctl.profile.read" not in meta:
        meta["kitctl.profile.read"] = profiles.load(meta.get(PROFILE) or "")
    found: Profile = meta["kitctl.profile.read"]
    return found


def client(
    target: str | None, context: str | None, kubeconfig: str | None, notify: Callable[[str], None] = info
) -> Client:
    """The client for these options; the profile stands in for those that are not given."""
    from pathlib import Path

    from kitctl.api.client import Client

    ours = profile().target if not (context or kubeconfig) else {}
    kubeconfig = kubeconfig or ours.get("kubeconfig")
    path = Path(kubeconfig).expanduser() if kubeconfig else None
    target, context = target or ours.get("target"), context or ours.get("context")
    return Client(target=target, context=context if target != "local" else None, kubeconfig=path, notify=notify)


def warn_of_unknown() -> None:
    """A warning for each variable that begins as kitctl's do, and is none."""
    given = [name for name in os.environ if name.startswith(PREFIX) and name not in OTHERS]
    if not given:
        return
    from kitctl.cli import near

    known = [*_known(given)]
    for name in sorted({*given} - {*known}):
        options = [f"--{one.removeprefix(PREFIX).lower().replace('_', '-')}" for one in known]
        meant = near.of_option("--" + name.removeprefix(PREFIX).lower().replace("_", "-"), options)
        advice = f"did you mean {' or '.join(variable(one) for one in meant)}?" if meant else "see docs/command-line.md"
        info(f"warning: {name} is no variable of kitctl; {advice}")


def _known(given: list[str]) -> Iterator[str]:
    """The variables of all flags, and those of the options of commands that are named."""
    from kitctl.cli import COMMANDS, cli
    from kitctl.cli.flags import FLAGS

    yield from (variable(name) for name in SHARED)
    yield from (variable(flag.parameter) for flag in FLAGS)
    context = click.Context(cli)
    for command in COMMANDS:
        if any(name.startswith(f"{PREFIX}{command.upper()}_") for name in given):
            yield from _of_command(cli.get_command(context, command), command)


def _of_command(command: click.Command | None, name: str) -> Iterator[str]:
    for option in command.params if command else ():
        if isinstance(option, click.Option):
            yield from (variable(spelling, name) for spelling in option.opts if spelling.startswith("--"))
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from _of_command(inner, f"{name} {part}")
