"""``kitctl drill``: inject faults into a running job, and measure its recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kitctl.cli.command import Command, option, output_option, yes_option
from kitctl.cli.common import confirm, echo, echo_json, info, seconds
from kitctl.cli.target_options import member_option, named_job
from kitctl.state.faults import FAULTS

if TYPE_CHECKING:
    from kitctl.api.drill import Drill, FaultSelector
    from kitctl.api.job import Job
    from kitjob.report import Progress

EPILOG = """\b
Exit codes: 0 recovered, 1 not.

\b
Examples:
  kitctl drill digits --fault kill-rank
  kitctl drill digits --fault kill-node --node 0
  kitctl drill digits --fault preempt --count 3 --every 1m -y -o json
  kitctl drill digits --fault mirror-denied --lasting 2m
"""


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option("--fault", group="Fault", type=click.Choice([*FAULTS]), required=True, help="Fault to inject.")
@member_option("--rank", group="Fault", default_text="random", help="Rank to hit.")
@member_option("--node", group="Fault", default_text="random", help="Node to hit.")
@option("--count", group="Fault", type=click.IntRange(min=1), metavar="N", default=1, help="Number of faults.")
@option("--every", group="Fault", metavar="TIME", default="30s", help="Interval between faults.")
@option("--lasting", group="Fault", metavar="TIME", default_text="1m", help="How long a fault of the mirror lasts.")
@option("--seed", group="Fault", type=int, metavar="N", default_text="random", help="Random seed.")
@option("--timeout", group="Fault", metavar="TIME", default="5m", help="Time to recover from each fault.")
@yes_option
@output_option("json")
def command(
    job: Job,
    fault: str,
    rank: int | None,
    node: int | None,
    count: int,
    every: str,
    lasting: str | None,
    seed: int | None,
    timeout: str,
    yes: bool,
    output: str | None,
) -> None:
    """Inject a fault into a running job and measure recovery."""
    from random import Random

    from kitctl.api.drill import Drill, FaultSelector
    from kitctl.base.errors import TargetError, UsageError
    from kitctl.output import documents
    from kitctl.output.view import drill as view

    if lasting and FAULTS[fault].scope != "mirror":
        raise UsageError(f"--lasting: {fault} hits at once", fix="leave it out")
    limit = seconds(lasting or "1m") if FAULTS[fault].scope == "mirror" else None
    selector = FaultSelector(fault=fault, rank=rank, node=node, lasting=limit)
    pause = seconds(every) or 0.0
    drill = Drill(target=job.target, namespace=job.namespace, name=job.name, timeout=seconds(timeout) or 0.0)
    _confirm(drill, selector, f"{count} times" if count > 1 else "once", yes=yes)
    rng = Random(seed)  # noqa: S311 - not a secret: the same seed selects the same targets
    results = []
    try:
        for result in drill.run(selector, count=count, every=pause, rng=rng):
            info(f"{result.target}: {'recovered' if result.recovered else 'not recovered'}")
            results.append(result)
    finally:  # after Ctrl-C, too: what was measured so far is printed
        if results and output == "json":
            echo_json(documents.drill(results))
        elif results:
            echo("\n".join(view.table(results)))
    if not results[-1].recovered:
        fix = f"see kitctl logs {job.name}; kitctl restart {job.name} restarts all nodes"
        raise TargetError(f"job {job.name!r} has not recovered from {fault} in {timeout}", fix=fix)


def _confirm(drill: Drill, selector: FaultSelector, often: str, *, yes: bool) -> None:
    """Show what will be done and what it may cost, and ask for confirmation."""
    from kitctl.api.drill import report_of

    report = report_of(drill.require_running())
    selector.check(report)  # before the question
    fault, progress = FAULTS[selector.fault], report.progress
    info(f"{drill.name} (namespace {drill.namespace}): {selector.fault}, {often}: {fault.description}")
    info(f"expected: {fault.expected}")
    if fault.scope == "mirror":
        info("cost: no step; until it has caught up, the mirror has less than the job")
    elif progress.of_own_loop:
        info(f"cost: the steps since the script last saved; its ranks have taken {progress.step} since they started")
    elif progress.step is not None:
        there = f"the job is at step {progress.step}, {_snapshot(progress)}"
        info(f"cost: at most the steps since the last snapshot; {there}")
    confirm(f"inject {selector.fault} into {drill.name!r}?", yes=yes)


def _snapshot(progress: Progress) -> str:
    return f"the snapshot is at {progress.snapshot_step}" if progress.snapshot_step else "and there is no snapshot yet"
