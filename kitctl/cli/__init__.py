"""The command line: the table of commands, and the group that shows it without importing them.

``commands`` has one thin file a command, imported only when that command runs. What they share stands next to it:
options with their groups and variables, completions, printing, and advice for a word that is unknown.

Why: decision 7.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import click

import kitctl

if TYPE_CHECKING:
    from collections.abc import Iterator


class Entry(NamedTuple):
    """A line of ``kitctl --help``."""

    group: str
    help: str


# The module ``kitctl.cli.commands.<command>``, with ``_`` for ``-``, holds the command as ``command``.
COMMANDS: Final = {
    "submit": Entry("Run", "Run a script or a module on several nodes"),
    "init": Entry("Run", "Write a workload's script as a starting point of your own"),
    "render": Entry("Run", "Print the Kubernetes manifests of a job"),
    "upload": Entry("Run", "Send a folder to the cluster for the chart"),
    "diff": Entry("Run", "Show what submitting a job would change on the cluster"),
    "list": Entry("Watch", "List jobs"),
    "status": Entry("Watch", "Show a job's phase, progress, nodes and ranks"),
    "logs": Entry("Watch", "Print the ranks' logs, merged by time"),
    "wait": Entry("Watch", "Wait until a job ends"),
    "events": Entry("Watch", "Show what happened to a job, in one timeline"),
    "plot": Entry("Watch", "Draw the loss, throughput, step time and size of jobs"),
    "goodput": Entry("Watch", "Show what a job's node-seconds were spent on"),
    "report": Entry("Watch", "Write a page with all that is known of a job"),
    "snapshots": Entry("Snapshots", "List, verify, show, prune and export the snapshots of a job"),
    "audit": Entry("Snapshots", "Prove that each sample was counted exactly once"),
    "scale": Entry("Change", "Change the number of nodes of an elastic job"),
    "restart": Entry("Change", "Restart all nodes from the last snapshot"),
    "suspend": Entry("Change", "Take a snapshot and stop all nodes"),
    "resume": Entry("Change", "Start a suspended job again"),
    "cancel": Entry("Change", "End a job; its logs and snapshots stay"),
    "delete": Entry("Change", "End a job and delete it"),
    "doctor": Entry("Diagnose", "Check prerequisites of a job, or diagnose a running one"),
    "stacks": Entry("Diagnose", "Show the Python stack of each rank"),
    "top": Entry("Diagnose", "Show what each rank uses: processor, memory and, where known, its GPU"),
    "exec": Entry("Diagnose", "Run a command where a rank is"),
    "port-forward": Entry("Diagnose", "Forward a port of this machine to a rank's node"),
    "profile": Entry("Diagnose", "Trace steps of a rank by torch's profiler"),
    "why": Entry("Diagnose", "Say why a job waits, stands still or has failed, with the fix"),
    "bundle": Entry("Diagnose", "Collect what is known of a job for a bug report, without secrets"),
    "drill": Entry("Chaos", "Inject a fault into a running job and measure recovery"),
    "config": Entry("Setup", "Show your settings: profiles, variables, and what each key of a job means"),
    "schema": Entry("Setup", "Print the JSON Schema of a job file"),
    "completion": Entry("Setup", "Print the completion script of a shell"),
    "version": Entry("Setup", "Print the version"),
}

# Options that kubectl and helm take in front of their command, too: moved behind it.
_IN_FRONT: Final = ("-n", "--namespace", "--target", "--context", "--kubeconfig", "--profile")
_WITH_COMMANDS: Final = frozenset({"snapshots", "config"})  # commands that are groups themselves

EPILOG = """\b
Examples:
  kitctl submit --nodes 3                          # the default workload on three nodes
  kitctl submit --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl submit --workload mnist -- --epochs 2     # or {others}
  kitctl logs -f digits                            # all ranks, merged by time
"""


class LazyGroup(click.Group):
    """A group that imports a command only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """Import a command; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"kitctl.cli.commands.{cmd_name.replace('-', '_')}").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's, but where a job runs may be said in front of the command, as kubectl's users do."""
        try:
            return super().parse_args(ctx, _command_first(args))
        except click.NoSuchOption as error:
            where = f"options come after the command: {ctx.command_path} COMMAND {error.option_name}"
            message = f"No such option: {error.option_name}; {where}"
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, but an error names the nearest command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from kitctl.cli import near

            known = {name: entry.help for name, entry in COMMANDS.items()}
            ctx.fail(f"unknown command {args[0]!r}; {near.of_command(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - likewise
        """The table, group by group."""
        for group, rows in _groups():
            with formatter.section(group):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, with the names of all workloads: their module is imported for this page alone."""
        from kitctl.input.workloads import WORKLOADS

        self.epilog = EPILOG.format(others=", ".join(name for name in WORKLOADS if name != "mnist"))
        super().format_epilog(ctx, formatter)


def _command_first(args: list[str]) -> list[str]:
    """The arguments, with options of ``_IN_FRONT`` behind the command's name; unchanged if others come first."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        name, assigned, _ = args[at].partition("=")
        if name in _IN_FRONT:
            at += 1 if assigned else 2
        elif args[at].startswith("-n") and not args[at].startswith("--"):  # -nNAME
            at += 1
        else:
            return args
    named = at + (1 + (args[at] in _WITH_COMMANDS) if at < len(args) else 0)
    return [*args[at:named], *args[:at], *args[named:]]


def _groups() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
        yield group, [(name, entry.help) for name, entry in COMMANDS.items() if entry.group == group]


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kitctl.__version__, prog_name="kitctl", message="%(prog)s %(version)s")
def cli() -> None:
    """Multi-node PyTorch jobs that start, survive and explain themselves.

    One job spec runs as a Kubernetes Indexed Job, JobSet, TrainJob or PyTorchJob, or as processes of this machine.
    """
