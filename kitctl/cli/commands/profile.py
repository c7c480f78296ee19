"""``kitctl profile``: a trace of some steps of a rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kitctl.cli.command import Command, option
from kitctl.cli.common import info, save, seconds
from kitctl.cli.target_options import named_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kitctl.api.job import Job

EPILOG = """\b
Examples:
  kitctl profile digits                         # 20 steps of rank 0, to digits-rank-0.json
  kitctl profile digits --rank 3 --steps 5 -o trace.json
"""
_STEPS: Final = 1000  # a trace has some thousand events a step
_LIMIT: Final = 2 << 30  # bytes


@click.command(cls=Command, epilog=EPILOG)
@named_job
@option("--rank", group="Job", type=click.IntRange(min=0), metavar="N", default=0, help="The rank.")
@option("--steps", group="Job", type=click.IntRange(1, _STEPS), metavar="N", default=20, help="Steps to trace.")
@option("--timeout", group="Wait", metavar="TIME", default="5m", help="Time in which the rank has to take them.")
@option(
    *("-o", "--out"),
    group="Output",
    type=click.Path(dir_okay=False, path_type=Path),
    default_text="NAME-rank-N.json",
    help="File to write, which Perfetto and Chrome open.",
)
def command(job: Job, rank: int, steps: int, timeout: str, out: Path | None) -> None:
    """Trace the next steps of a rank by torch's profiler; training waits while the rank writes the trace."""
    from kitctl.base.errors import TargetError
    from kitctl.base.quantity import format_bytes

    path = out or Path(f"{job.name}-rank-{rank}.json")

    def trace() -> Iterator[bytes]:
        size = 0
        info(f"rank {rank}: profiling {steps} of its steps")
        for piece in job.profile(rank, steps, timeout=seconds(timeout) or 0.0):
            size += len(piece)
            if size > _LIMIT:
                raise TargetError(f"the trace is larger than {format_bytes(_LIMIT)}", fix="use fewer --steps")
            yield piece

    size = save(path, trace())
    info(f"wrote {path} ({format_bytes(size)}); ui.perfetto.dev and chrome://tracing open it")
