"""The click classes of all verbs: options in groups, their defaults, and the spellings of other tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# The groups of options, in the order in which help shows them.
GROUPS: Final = (
    *("Job", "Resources", "Environment", "Snapshots", "Scheduling", "Failures", "Network"),
    *("Fault", "Filter", "Submit", "Wait", "Target", "Output", "Other"),
)
# Spellings of torchrun, Slurm and kubectl: accepted for the documented option, and not shown in help.
ALIASES: Final = {
    "nnodes": "nodes",
    "num-nodes": "nodes",
    "nproc-per-node": "procs-per-node",
    "ntasks-per-node": "procs-per-node",
    "cpus": "cpu",
    "mem": "memory",
    "shared-memory": "shm",
    "job-name": "name",
    "image-pull-secret": "pull-secret",
    "pvc": "claim",
    "selector": "node-selector",
    "tolerations": "toleration",
    "priority-class": "priority",
}


class Option(click.Option):
    """An option in a group of the help; ``default_text`` is the default that is shown where click knows none."""

    def __init__(self, *args: Any, group: str = "Other", default_text: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.group = group
        self.default_text = default_text

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Click's, with the default in words."""
        extra = super().get_help_extra(ctx)
        return {**extra, "default": self.default_text} if self.default_text else extra


class Command(click.Command):
    """A verb: its help shows options in groups, and it accepts ``--num_nodes`` and other aliases."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.context_settings = {
            "token_normalize_func": _documented,
            "show_default": True,
            **self.context_settings,
        }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each option under the heading of its group."""
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)):
                groups[getattr(option, "group", "Other")].append(record)
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)


def option(*names: str, group: str = "Other", **attributes: Any) -> Callable[[F], F]:
    """``click.option`` in a group of the help."""
    return click.option(*names, cls=Option, group=group, **attributes)


def documented_spelling(word: str) -> str:
    """``--nnodes`` as ``--nodes``; other words are unchanged."""
    return f"--{_documented(word[2:])}" if word.startswith("--") else word


def _documented(name: str) -> str:
    """An option's name without dashes, as it is documented. Click passes the values of choices, too."""
    hyphenated = name.replace("_", "-")
    return ALIASES.get(hyphenated, hyphenated)
