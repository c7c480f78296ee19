"""The command line: one thin file per verb, imported only when that verb runs.

What lives here: the table of verbs, and the group that shows it without importing them. What never does: work. A verb
parses, calls one function below this layer, and prints.

Why: decision 7.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import click

import kitctl

if TYPE_CHECKING:
    from collections.abc import Iterator


class Verb(NamedTuple):
    """A line of ``kitctl --help``."""

    group: str
    help: str


# The module ``kitctl.cli.<verb>`` holds the verb as ``command``.
VERBS: Final = {
    "submit": Verb("Run", "Run a script or a module on several nodes"),
    "init": Verb("Run", "Write a workload's script as a starting point of your own"),
    "render": Verb("Run", "Print the Kubernetes manifests of a job"),
    "upload": Verb("Run", "Send a folder to the cluster for the chart"),
    "diff": Verb("Run", "Show what submitting a job would change on the cluster"),
    "list": Verb("Watch", "List jobs"),
    "status": Verb("Watch", "Show a job's phase, progress, nodes and ranks"),
    "logs": Verb("Watch", "Print the ranks' logs, merged by time"),
    "wait": Verb("Watch", "Wait until a job ends"),
    "snapshots": Verb("Snapshots", "List, verify, show, prune and export the snapshots of a job"),
    "audit": Verb("Snapshots", "Prove that each sample was counted exactly once"),
    "scale": Verb("Change", "Change the number of nodes of an elastic job"),
    "restart": Verb("Change", "Restart all nodes from the last snapshot"),
    "suspend": Verb("Change", "Take a snapshot and stop all nodes"),
    "resume": Verb("Change", "Start a suspended job again"),
    "cancel": Verb("Change", "End a job; its logs and snapshots stay"),
    "delete": Verb("Change", "End a job and delete it"),
    "doctor": Verb("Diagnose", "Check prerequisites of a job, or diagnose a running one"),
    "drill": Verb("Chaos", "Inject a fault into a running job and measure recovery"),
    "schema": Verb("Setup", "Print the JSON Schema of a job file"),
    "completion": Verb("Setup", "Print the completion script of a shell"),
    "version": Verb("Setup", "Print the version"),
}

EPILOG = """\b
Examples:
  kitctl submit --nodes 3                          # the default workload on three nodes
  kitctl submit --nodes 3 --gpus-per-node 4 -- train.py --epochs 5
  kitctl submit --workload mnist -- --epochs 2     # others: allreduce, digits, text, lm
  kitctl logs -f digits                            # all ranks, merged by time
"""


class LazyGroup(click.Group):
    """A group that imports a verb only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs in the table's order."""
        return [*VERBS]  # not list(): once its verb is imported, that name is the verb's module here

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """Import a verb; None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"kitctl.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, but an error names the nearest verb."""
        if args and args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"unknown verb {args[0]!r}; {_nearest(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - likewise
        """The table, group by group."""
        for group, rows in _groups():
            with formatter.section(group):
                formatter.write_dl(rows)


def _groups() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        yield group, [(name, verb.help) for name, verb in VERBS.items() if verb.group == group]


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, VERBS, n=1)
    return f"did you mean {near[0]}?" if near else "see kitctl --help"


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(kitctl.__version__, prog_name="kitctl", message="%(prog)s %(version)s")
def cli() -> None:
    """Multi-node PyTorch jobs that start, survive and explain themselves.

    One job spec runs as a Kubernetes Indexed Job, TrainJob or JobSet, or as processes of this machine.
    """
