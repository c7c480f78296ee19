"""What a valid job asks for and will not get, as one line each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kitjob.job_keys import JobKeys


def remarks(spec: JobKeys) -> Iterator[str]:
    """The lines, each with its fix where there is one."""
    if spec.policy.survivors == "live" and (why := _restarts(spec)):
        yield f"policy.survivors: live has no effect, and all ranks are restarted when one is lost: {why}"


def _restarts(spec: JobKeys) -> str:
    """Why no rank of this job can outlive its round; empty: that depends on the script."""
    if spec.gpus_per_node:
        return "it is for gloo on CPUs"
    if spec.snapshots.memory_every_steps is not None:
        return "snapshots.memoryEverySteps excludes it"
    return ""
