"""The click classes of all commands: options in groups, their defaults, and the spellings of other tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from kitctl.base.errors import KitError
from kitctl.cli import hints

F = TypeVar("F", bound=Callable[..., Any])

# The groups of options, in the order in which help shows them.
GROUPS: Final = (
    *("Job", "Resources", "Environment", "Snapshots", "Scheduling", "Failures", "Network"),
    *("Fault", "Filter", "Submit", "Wait", "Target", "Output", "Other"),
)
# What the help of a command with many options shows: the options by what they are for, each in one line of 80 columns.
_EVERYDAY: Final = (
    (
        "Job",
        {
            "name": "Name of the job; by default from the script's name.",
            "image": "With Python 3.11+ and torch 2.6+; PyTorch's by default.",
            "workdir": "Folder to send; the ranks' working folder.",
            "requirements": "Packages to install, as in requirements.txt.",
            "env": "KEY=VALUE; KEY alone copies it from your shell.",
            "workload": "One of kitctl's, such as mnist, instead of a script.",
            "file": "Job file (- for stdin); flags override it.",
            "set": "Any field of the job file, as in snapshots.keep=5.",
        },
    ),
    (
        "Nodes",
        {
            "nodes": "2:4 is elastic, 8+1 has a spare.  [default: 1]",
            "gpus-per-node": "GPUs per node.  [default: 0]",
            "procs-per-node": "Ranks per node; auto: one per GPU.",
            "memory": "Of a pod, as in 8Gi; no limit by default.",
        },
    ),
    (
        "Run",
        {
            "resume": "Continue from the snapshots of a job of this name.",
            "replace": "Delete a job of this name first, not its snapshots.",
            "follow": "Print the ranks' logs until the job ends.",
            "dry-run": "Print what would be applied, and change nothing.",
        },
    ),
    (
        "Where",
        {
            "target": "The cluster, if there is a kubeconfig.",
            "namespace": "Namespace of the job.",
            "output": "Output format.",
            "help-all": "Show all options and examples, and exit.",
        },
    ),
)
_EXAMPLES: Final = 4
_ALL: Final = "kitctl.help_all"  # in a context: whether help shows all options
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

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The value of its variable: with the command's name, or the one that all commands share."""
        from kitctl.cli import settings

        long = next((name for name in self.opts if name.startswith("--")), "")
        command = " ".join(ctx.command_path.split()[ctx.find_root().command_path.count(" ") + 1 :])
        for name in (settings.variable(long, command), settings.variable(long) if self.envvar else ""):
            if long and (value := os.environ.get(name)):
                return value
        return None


class Command(click.Command):
    """A command: its help shows options in groups, and it accepts ``--num_nodes`` and other aliases."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.context_settings = {
            "token_normalize_func": _documented,
            "show_default": True,
            "max_content_width": 100,
            **self.context_settings,
        }

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """With ``--profile``."""
        return [*super().get_params(ctx), _PROFILE]

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, after a warning for each variable that is none of kitctl's."""
        from kitctl.cli import settings

        settings.warn_of_unknown()
        try:
            return super().invoke(ctx)
        except KitError as error:
            error.fix = hints.addressed(error.fix)  # as long as the context knows the options
            error.then = hints.addressed(error.then)
            raise

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's, but errors lead on: to the option that was likely meant, to the list of jobs."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from kitctl.cli import near

            options = [one for one in self.get_params(ctx) if isinstance(one, click.Option) and not one.hidden]
            meant = near.of_option(error.option_name, [name for one in options for name in one.opts])
            advice = f"did you mean {' or '.join(meant)}?" if meant else f"see {ctx.command_path} --help"
            message = f"No such option: {error.option_name}; {advice}"
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from error
        except click.MissingParameter as error:
            if not isinstance(error.param, click.Argument) or error.param.name not in {"name", "job"}:
                raise
            raise click.UsageError("Missing the NAME of a job; kitctl list shows them", ctx=error.ctx) from error
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra argument"):
                raise
            named = any(isinstance(one, click.Argument) for one in self.get_params(ctx))
            advice = f"{ctx.command_path} takes {'one at a time' if named else 'options only'}"
            raise click.UsageError(f"{error.message}; {advice}", ctx=error.ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each option under the heading of its group."""
        groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for option in self.get_params(ctx):
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx)):
                groups[getattr(option, "group", "Other")].append(record)
        write_groups(formatter, groups)


class LongCommand(Command):
    """A command with so many options that its help shows those of ``_EVERYDAY``, and ``--help-all`` all of them.

    ``beside`` are those of them that do not matter to this command.
    """

    def __init__(self, *args: Any, beside: Collection[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.beside = beside

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """With ``--help-all``."""
        return [*super().get_params(ctx), _HELP_ALL]

    def get_help_all(self, ctx: click.Context) -> str:
        """The help with every option."""
        ctx.meta[_ALL] = True
        return self.get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options that people need each day, unless all are asked for."""
        if ctx.meta.get(_ALL):
            super().format_options(ctx, formatter)
            return
        options = {one.opts[-1]: one for one in self.get_params(ctx) if isinstance(one, click.Option)}
        shown = {
            group: {f"--{name}": told for name, told in names.items() if name not in self.beside}
            for group, names in _EVERYDAY
        }
        records = {
            group: [(options[name].get_help_record(ctx), told) for name, told in names.items() if name in options]
            for group, names in shown.items()
        }
        write_groups(
            formatter, {group: [(one[0], told) for one, told in found if one] for group, found in records.items()}
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """With the first examples, unless all are asked for."""
        epilog = self.epilog
        if epilog and not ctx.meta.get(_ALL):
            before, heading, examples = epilog.partition("Examples:\n")
            self.epilog = before + heading + "\n".join(examples.splitlines()[:_EXAMPLES])
        try:
            super().format_epilog(ctx, formatter)
        finally:
            self.epilog = epilog


def write_groups(formatter: click.HelpFormatter, groups: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Each group's options under its heading."""
    for group, records in groups.items():
        if records:
            with formatter.section(group):
                formatter.write_dl(records)


def _show_all(ctx: click.Context, _option: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        assert isinstance(ctx.command, LongCommand)
        from kitctl.cli.common import echo

        echo(ctx.command.get_help_all(ctx))
        ctx.exit()


def option(*names: str, group: str = "Other", **attributes: Any) -> Callable[[F], F]:
    """``click.option`` in a group of the help."""
    return click.option(*names, cls=Option, group=group, **attributes)


def timeout_option(function: F) -> F:
    """``--timeout 10m``."""
    return option(
        "--timeout", group="Wait", metavar="TIME", default_text="none", help="Stop waiting after this long (exit 124)."
    )(function)


def yes_option(function: F) -> F:
    """``-y``."""
    return option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def documented_spelling(word: str) -> str:
    """``--nnodes`` as ``--nodes``; other words are unchanged."""
    return f"--{_documented(word[2:])}" if word.startswith("--") else word


def _documented(name: str) -> str:
    """An option's name without dashes, as it is documented. Click passes the values of choices, too."""
    hyphenated = name.replace("_", "-")
    return ALIASES.get(hyphenated, hyphenated)


def _select_profile(ctx: click.Context, _option: click.Parameter, given: str | None) -> None:
    from kitctl.cli import settings

    if given:
        ctx.meta[settings.PROFILE] = given


_PROFILE: Final = Option(
    ["--profile"],
    metavar="NAME",
    group="Target",
    is_eager=True,
    expose_value=False,
    callback=_select_profile,
    help="Profile of ~/.config/kitctl/config.toml.",
)
_HELP_ALL: Final = Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options and examples, and exit.",
)


def output_option(*formats: str, default: str = "text") -> Callable[[F], F]:
    """``-o FORMAT``; a command that prints JSON prints the same as YAML, and does not know of it."""
    known = [one for form in formats for one in (("json", "yaml") if form == "json" else (form,))]
    return option(
        *("-o", "--output"),
        group="Output",
        type=click.Choice(formats if "yaml" in formats else known),
        default_text=default,
        callback=None if "yaml" in formats else _chosen,
        help="Output format.",
    )


def _chosen(ctx: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    from kitctl.cli.common import AS_YAML

    ctx.meta[AS_YAML] = given == "yaml"
    return "json" if given == "yaml" else given
