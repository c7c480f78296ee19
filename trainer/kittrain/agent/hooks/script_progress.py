"""Progress of a script with its own loop, from heartbeats: steps, speed, and whether its ranks form a group.

Pure: no clocks, no files.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from kittrain.system.exchanges import MANY

TICK: Final = 0.5  # seconds between two samples
WINDOW: Final = 30.0  # seconds that the speed is averaged over
ENOUGH_UPDATES: Final = 1000  # of a rank in a process group, after which it should have met the others
FEW_UPDATES: Final = 2  # the same, of one that has ended
SELDOM: Final = 1000  # updates for each exchange of a model, beyond which these are no averages of models or gradients


class ScriptProgress:
    """The optimizer steps of one round. ``now`` is in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self._began: float | None = None  # Unix seconds

    def add(self, steps: int, now: float, clock: float) -> None:
        """Add the number of steps taken so far; ``clock`` is in Unix seconds."""
        if not steps:
            return
        self._began = self._began or clock
        if len(self._samples) > 1 and self._samples[-1][0] < self._samples[-2][0] + TICK:
            self._samples.pop()
        self._samples.append((now, steps))
        while now > self._samples[0][0] + WINDOW and len(self._samples) > 2:  # noqa: PLR2004  a speed needs two
            self._samples.popleft()

    @property
    def facts(self) -> dict[str, Any]:
        """The progress, as in the progress file of the library's loop; empty before the first step."""
        if not self._samples:
            return {}
        (since, before), (now, steps) = self._samples[0], self._samples[-1]
        speed = (steps - before) / (now - since) if now > since else 0.0
        return {"step": steps, "steps_per_second": round(speed, 2), "resumed_at": self._began}


def trains_alone(*, updates: int, met: int, group: int, world: int, ended: bool) -> bool:
    """Whether a rank trains a model that no other rank has a part in. All of it is what a heartbeat shows.

    Ranks in a process group may average their models now and then only, so these are judged after many updates, or at
    the end.

    Args:
        updates: of the rank's parameters.
        met: exchanges of whole models, or of what may be, that it has begun since.
        group: ranks of its largest process group; 0: none.
        world: ranks of the job.
        ended: whether the rank has ended.
    """
    if not updates or world == 1 or met >= MANY:
        return False
    if group < world:
        return True
    return updates >= (FEW_UPDATES if ended else ENOUGH_UPDATES) and met * SELDOM < updates


def alone(*, training: int, group: int, separate: int, world: int) -> str:
    """A warning if several ranks train alone; empty if not.

    Args:
        training: the ranks that train alone.
        group: ranks of the largest process group; 0: none.
        separate: processes of the largest group that a rank's own processes have formed apart from the job; 0: none.
        world: ranks of the job.
    """
    if separate and group < world:
        return separate_groups(world, separate)
    if training < 2:  # noqa: PLR2004  one may train while the others wait, or look on
        return ""
    if group >= world:
        return (
            f"{training} ranks train in a process group, and exchange no gradients: each has a model of its own; the "
            "script has to wrap its model, as by DistributedDataParallel, or average the gradients"
        )
    what = f"the largest process group has {group} of them" if group else "without a process group"
    return (
        f"{training} ranks train, {what}: each has a model of its own; the script has to call init_process_group, or "
        "what calls it"
    )


def separate_groups(world: int, processes: int) -> str:
    """The warning about groups of processes that the ranks have started, with the fix.

    Args:
        world: ranks of the job.
        processes: of each group.
    """
    many = f"{processes} processes, which form a group of their own"
    started = "a process, which forms a group of its own" if processes == 1 else many
    return (
        f"each of the {world} ranks starts {started} on its machine: none "
        f"of these groups knows of the others; fix: start the processes as ranks, by kitctl submit --nodes N "
        f"--procs-per-node {processes}, with RANK and WORLD_SIZE for their rank and number; or submit with one node"
    )
