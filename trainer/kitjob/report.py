"""What agents report about their job, and what ``-o json`` prints of it. Times are Unix seconds, durations seconds.

On the wire names are in camelCase. What a reader does not know it ignores; what an older writer left out has its
default.
"""

from __future__ import annotations

import re
from typing import Final

from kitjob.names import Outcome
from kitjob.record import Record


class Termination(Record):
    """Why an agent ended: the container's termination message."""

    outcome: Outcome
    """Exit of the agent: ``done``, ``drained``, ``retryable`` or ``fatal``."""
    reason: str = ""
    """The cause, in a sentence."""
    rank: int | None = None
    """The rank that failed first. Null: no rank did."""
    node: int | None = None
    """The node that failed first."""
    time: float = 0.0
    """When; 0 where that is unknown."""
    error: str = ""
    """The exception of that rank, in one line."""
    fix: str = ""
    """What to do about it. Empty: unknown."""
    code: str = ""
    """The stable name of the cause, as docs/troubleshooting.md has it. Empty: unknown."""
    elsewhere: str = ""
    """Where another rank was then, if the cause is that the two differ. Empty: unknown."""
    traceback: str = ""
    """The traceback of that rank. Empty: none."""
    lines: tuple[str, ...] = ()
    """The last lines that it printed."""
    note: str = ""
    """Of a good end: what a rank has said last, if that was an error, or if no step was seen. Empty: nothing."""


VALUES: Final = "values: "  # begins the line below a traceback with what names in the failing line had
LAST_LINE: Final = re.compile(r"rank \d+ printed last: ")  # begins such a note if it is no error
NO_RESTART_HELPS: Final = "which no restart can fix"  # ends the reason of such a failure
AT_THE_SAME_LINE: Final = "2 times at the same line"  # is in that of an error of the code alone
WAITED_FOR_A_THREAD: Final = re.compile(  # errors of what waits for a thread that has ended: they tell nothing of it
    r"(?:_?queue\.)?(?:Empty|Full):? ?$|(?:threading\.)?BrokenBarrierError:? ?$|(?:[\w.]+\.)?TimeoutError:? ?$"
)


class Progress(Record):
    """How far training is, as rank 0 reports it; of a script with a loop of its own, what agents see of it."""

    step: int | None = None
    """Optimizer steps taken; in a script's own loop those since its ranks started. Null: none yet, or unknown."""
    total_steps: int | None = None
    """Steps of the whole job."""
    epoch: int | None = None
    """The current epoch, from 1."""
    epochs: int | None = None
    """Epochs of the whole job."""
    loss: float | None = None
    """The last training loss."""
    samples_per_second: float | None = None
    """Throughput of all ranks together."""
    steps_per_second: float | None = None
    """Optimizer steps per second of a script with a loop of its own."""
    eta_seconds: float | None = None
    """Estimated seconds until training ends."""
    snapshot_step: int | None = None
    """Step of the last published snapshot."""
    snapshot_time: float | None = None
    """When it was published."""
    snapshot_seconds: float | None = None
    """How long that snapshot took, from its copy to its publication."""
    snapshot_stall_seconds: float | None = None
    """How long training waited for it."""
    writing_step: int | None = None
    """Step of the snapshot that is being written. Null: none is."""
    writing_since: float | None = None
    """When that began."""
    resumed_from: int | None = None
    """The step that the current ranks resumed from; in a script's own loop by what it loaded. Null: not known."""
    resumed_at: float | None = None
    """When they reported their first step."""
    metrics: dict[str, float | None] = {}
    """Further metrics of the script, by name. Null: not a finite number."""

    @property
    def of_own_loop(self) -> bool:
        """Whether the steps are those of a script with a loop of its own, which takes none of our snapshots."""
        return self.steps_per_second is not None

    @property
    def reached(self) -> int | None:
        """The step of the job: in a script's own loop with those before its ranks started, where these are known."""
        before = self.resumed_from or 0 if self.of_own_loop else 0
        return None if self.step is None else before + self.step


class RankProgress(Progress):
    """What rank 0 writes for its agent."""

    warning: str = ""
    """About the training itself. Empty: none."""
    samples: int = 0
    """Samples that all ranks have taken since they started."""
    not_finite_steps: int = 0
    """Steps since then whose loss was NaN or infinite."""
    snapshot_bytes: int = 0
    """Size of the last published snapshot; 0: they have published none."""
    not_whole: str = ""
    """Why they did not resume from the newest snapshot, if nodes that are lost had parts of it. Empty: they did."""


class NodeAssignment(Record):
    """A node's part in the current group; short, since a ConfigMap holds at most 1 MiB for all nodes."""

    pod: str = ""
    """Name of its pod."""
    host: str = ""
    """The machine that it runs on."""
    pid: int = 0
    """The process id of its agent, on its machine or in its pod."""
    group_rank: int = 0
    """Its rank among the nodes."""
    ranks: tuple[int, int] = (0, 0)
    """Its first and its last rank."""
    joined: float = 0.0
    """When it joined, by its own clock."""
    agent_runs: int = 0
    """Its containers, this one included, as far as their logs are copied. 0: they are not."""
    agent_restarts: int = 0
    """How often this container has started its agent again."""
    restart_cause: str = ""
    """How the agent before this one ended."""


class RecoveryTimings(Record):
    """What ended the last group, and the parts of the recovery from there to the first step; null: not measured."""

    cause: str = ""
    """What ended the group of ranks before."""
    stop: float | None = None
    """Stopping the old ranks."""
    form: float | None = None
    """Forming the new group."""
    start: float | None = None
    """Starting the new ranks."""
    join: float | None = None
    """Joining the process group."""
    restore: float | None = None
    """Restoring the training state."""
    first_step: float | None = None
    """The first step."""

    @property
    def parts(self) -> dict[str, float]:
        """The known parts, in order."""
        known = ((name, getattr(self, name)) for name in self.__fields__ if name != "cause")
        return {name: seconds for name, seconds in known if seconds is not None}


class PastFailure(Record):
    """A failure after which the ranks were restarted."""

    time: float = 0.0
    """When."""
    node: int = 0
    """Index of the node."""
    rank: int = 0
    """The rank that failed first."""
    cause: str = ""
    """The cause, in a sentence."""
    fix: str = ""
    """What to do about it. Empty: unknown."""
    code: str = ""
    """The stable name of the cause, as docs/troubleshooting.md has it. Empty: unknown."""


class Standstill(Record):
    """No rank takes a step for longer than is usual, which may be as it should: a fact, no judgement."""

    since: float = 0.0
    """When the last step was taken, or the ranks started."""
    what: str = ""
    """What the ranks do meanwhile."""


class Trend(Record):
    """Curves of few points, since this agent has led the run: the longer that is, the longer a point is."""

    seconds: float = 0.0
    """How long a point is."""
    loss: tuple[float, ...] = ()
    """The loss, the oldest first."""
    speed: tuple[float, ...] = ()
    """Samples per second, or steps per second of a script with a loop of its own."""


class MirrorReport(Record):
    """How far the copy of the snapshots in an object store is."""

    url: str = ""
    """Where it is."""
    step: int | None = None
    """Step of this run's newest snapshot there. Null: there is none yet."""
    time: float | None = None
    """When that snapshot was taken."""
    size: int = 0
    """Bytes of all snapshots there."""
    sent: int = 0
    """Bytes that were uploaded since its process started."""
    node: int | None = None
    """Index of the node that uploads. Null: that is not known."""
    behind: int = 0
    """Published snapshots that are not there yet."""
    behind_bytes: int = 0
    """Their bytes, as far as they are not there yet."""
    behind_steps: int = 0
    """Steps from the newest one there to the newest of them."""
    behind_since: float | None = None
    """When the oldest of them was taken."""
    warning: str = ""
    """Why it does not go on. Empty: it does."""

    @property
    def lacking(self) -> str:
        """What to say of it if something is not there that should be."""
        newest = "it has no snapshot" if self.step is None else f"its newest snapshot is of step {self.step}"
        return f"{self.url} does not have everything: {newest}"


class CopiesReport(Record):
    """How far the copies of snapshots on other nodes are, where each node has a folder of its own."""

    step: int | None = None
    """Step of the newest snapshot of which all parts are there. Null: there is none."""
    have: int = 0
    """On how many nodes its rarest part is."""
    wanted: int = 0
    """On how many it should be."""
    copied_step: int | None = None
    """Step of the newest snapshot that has all its copies: any one node may be lost. Null: there is none."""
    warning: str = ""
    """Why it does not go on. Empty: it does."""


class Report(Record):
    """What the agent of rank 0 publishes about the group."""

    run: str = ""
    """Id of the run."""
    round: int = 0
    """Number of the group: each that forms has the next one."""
    formed: float = 0.0
    """When it formed."""
    forming: bool = False
    """Whether it has ended, and the next one is forming."""
    ended_by: str = ""
    """What ended it, while the next one is forming. Empty: no failure did."""
    ended: bool = False
    """Whether all its ranks have succeeded, so that no node waits for another any more."""
    world_size: int = 0
    """Its ranks."""
    restarts: int = 0
    """How often the ranks were started again after a failure or a lost node, as far as nodes that are left know."""
    nodes: dict[str, NodeAssignment] = {}
    """Its nodes, by index."""
    spares: tuple[int, ...] = ()
    """Nodes that stand by, to take the place of one that is lost."""
    progress: Progress = Progress()
    """How far training is."""
    busy: dict[str, float] = {}
    """By node, the seconds of a step in which its slowest rank does not wait for others."""
    slow: dict[str, float] = {}
    """By rank, its step time divided by that of the others, for ranks that stay slow."""
    standstill: Standstill | None = None
    """What the ranks do while none takes a step for unusually long. Null: they do."""
    last_step: float = 0.0
    """When a step was last taken. 0: none yet."""
    trend: Trend = Trend()
    """Loss and throughput."""
    taken: tuple[tuple[int, int], ...] = ()
    """Of a script's own loop: when, in nanoseconds, it had taken how many steps; for ranks that start again later."""
    saves: tuple[tuple[int, int], ...] = ()
    """The same of checkpoints that it has saved."""
    last_recovery: RecoveryTimings | None = None
    """The last recovery."""
    failures: tuple[PastFailure, ...] = ()
    """The last failures, the oldest first."""
    mirror: MirrorReport | None = None
    """The copy of the snapshots in an object store. Null: the job has none, or its agent has not begun."""
    copies: CopiesReport | None = None
    """The copies of the snapshots on other nodes. Null: all nodes share a folder, or there are no snapshots yet."""
    warning: str = ""
    """What is probably not as it should be, although the ranks run or have succeeded."""
    updated: str = ""
    """When it was written, in UTC."""


class Preparation(Record):
    """What a node does before it joins, as it reports it."""

    pod: str = ""
    """Name of its pod."""
    since: float = 0.0
    """When it began, by its own clock."""
    what: str = ""
    """In words."""
