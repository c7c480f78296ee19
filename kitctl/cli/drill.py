"""``kitctl drill``: a fault on purpose, and how the job takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.common import confirm, encode, out, say, seconds
from kitctl.cli.options import output_option
from kitctl.cli.place import named_job
from kitctl.faults import FAULTS

if TYPE_CHECKING:
    from kitctl.cli.place import NamedJob
    from kitctl.drill import Aim, Drill
    from kitctl.facts import Progress

EPILOG = """\b
Examples:
  kitctl drill digits --fault kill-rank
  kitctl drill digits --fault kill-node --node 0
  kitctl drill digits --fault preempt --count 3 --every 1m -y -o json
"""


@click.command(epilog=EPILOG)
@named_job
@click.option("--fault", type=click.Choice([*FAULTS]), required=True, help="What is to happen to it.")
@click.option("--rank", type=click.IntRange(min=0), help="The rank that is struck; by default chance decides.")
@click.option("--node", type=click.IntRange(min=0), help="The node that is struck; by default chance decides.")
@click.option("--count", type=click.IntRange(min=1), default=1, help="How often. By default once.")
@click.option("--every", metavar="TIME", default="30s", help="From one strike to the next. By default 30s.")
@click.option("--seed", type=int, help="The same victims again.")
@click.option("--timeout", metavar="TIME", default="5m", help="How long it may take to recover. By default 5m.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option("json")
def command(
    job: NamedJob,
    fault: str,
    rank: int | None,
    node: int | None,
    count: int,
    every: str,
    seed: int | None,
    timeout: str,
    yes: bool,
    output: str | None,
) -> None:
    """Strike a running job with a fault, for real, and measure how it recovers; exit code 1 if it does not."""
    from random import Random

    from kitctl.drill import Aim, Drill
    from kitctl.errors import TargetError
    from kitctl.view import drills

    aim = Aim(fault=fault, rank=rank, node=node)
    pause = seconds(every) or 0.0
    drill = Drill(target=job.target, namespace=job.namespace, name=job.name, timeout=seconds(timeout) or 0.0)
    _ask(drill, aim, f"{count} times" if count > 1 else "once", yes=yes)
    chance = Random(seed)  # noqa: S311 - no secret: the same seed is to give the same victims
    found = []
    try:
        for recovery in drill.strikes(aim, count=count, every=pause, chance=chance):
            say(f"{recovery.victim}: {'recovered' if recovery.recovered else 'not recovered'}")
            found.append(recovery)
    finally:  # Ctrl-C, too, leaves what was measured until then
        if found:
            out(encode(found) if output == "json" else "\n".join(drills.recoveries(found)))
    if not found[-1].recovered:
        fix = f"see kitctl logs {job.name}; kitctl restart {job.name} starts all nodes anew"
        raise TargetError(f"{job.name!r} has not recovered from {fault} in {timeout}", fix=fix)


def _ask(drill: Drill, aim: Aim, often: str, *, yes: bool) -> None:
    """Tell what will be done and what it may cost, and go on only if that is wanted."""
    from kitctl.drill import reported

    report = reported(drill.look())
    aim.check(report)  # who cannot be struck is told before anybody is asked
    fault, progress = FAULTS[aim.fault], report.progress
    say(f"{drill.name} (namespace {drill.namespace}): {aim.fault}, {often}: {fault.does}")
    say(f"a job that is well: {fault.healthy}")
    if progress.step is not None:
        say(f"what it may cost: the steps since its last snapshot; it is at {progress.step}, {_kept(progress)}")
    confirm(f"strike {drill.name!r}?", yes=yes)


def _kept(progress: Progress) -> str:
    """Its last snapshot, in words."""
    return f"the snapshot at {progress.snapshot_step}" if progress.snapshot_step else "and there is none yet"
