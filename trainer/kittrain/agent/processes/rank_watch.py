"""Watches the heartbeats of this node's ranks, reports stalls to the hub, and collects stacks when it asks.

A rank is stalled when it has not beaten for longer than its phase may take. In a script's own loop only optimizer steps
are known, between which it may also evaluate or save: there a rank has more time. Time is counted in polls, so that an
agent that was suspended itself sees no stall. The CPU and I/O usage of stalled ranks is reported, too: a busy rank does
not end the round, unless the job sets a step timeout.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kittrain.agent.hooks.script_progress import ScriptProgress, trains_alone
from kittrain.agent.processes.activity import INTERVAL, WINDOW, Activity
from kittrain.agent.processes.rank_logs import RankLogs
from kittrain.agent.rendezvous.backend import Rendezvous
from kittrain.agent.rendezvous.diagnosis import RankStatus, doing
from kittrain.agent.rendezvous.stacks import Location, locate
from kittrain.system.heartbeat import STEP, HeartbeatState, Phase
from kittrain.system.heartbeat_files import LoadedFile
from kittrain.system.processes import usage

POLL_INTERVAL: Final = 0.25  # seconds
MIN_STEP_TIMEOUT: Final = 30.0  # seconds
STEP_TIMEOUT_FACTOR: Final = 10  # times the 99th percentile of the step times
MIN_SCRIPT_TIMEOUT: Final = 300.0  # seconds between two optimizer steps of a script's own loop
SCRIPT_TIMEOUT_FACTOR: Final = 10  # times the longest time between two of them
STEP_TIMES_KEPT: Final = 200  # the last ones, for the percentile
STACK_TIMEOUT: Final = 2.0  # seconds for the ranks to print their stacks
STACK_QUIET_TIME: Final = 0.2  # seconds without a new line: they are complete

# Seconds that a phase may take. Phases of the script's own code have no timeout; up to the first step it is
# FIRST_STEP_TIMEOUT. Collectives have a timeout of their own.
FIRST_STEP_TIMEOUT: Final = 900.0  # imports, connections, the snapshot, compilation
PHASE_TIMEOUTS: Final[Mapping[Phase, float]] = {
    Phase.JOINING: FIRST_STEP_TIMEOUT,
    Phase.RESTORING: FIRST_STEP_TIMEOUT,
    Phase.EVALUATING: 3600.0,
    Phase.SAVING: 900.0,
}
MAX_BUSY_EXTENSION: Final = 3600.0  # seconds beyond the timeout that a busy rank may take


@dataclass(kw_only=True)
class _WatchedRank:
    """One rank and its observed state."""

    pid: int
    file: Path
    beat: HeartbeatState
    still: float = 0.0  # seconds since the last beat
    stepping: float = 0.0  # seconds since the last step
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=STEP_TIMES_KEPT))
    fresh: int = 0  # changes of the step until a further training of the script, which begins at any step, has settled
    longest: float = 0.0  # seconds between two beats of a script's own loop
    activity: Activity = field(default_factory=Activity)

    def update(self, passed: float) -> None:
        with suppress(OSError):
            beat = HeartbeatState.read(self.file)
            self.stepping += passed
            self.still += passed
            if beat.beats != self.beat.beats:
                if self.beat.phase is Phase.SCRIPT:
                    self.longest = max(self.longest, self.still)
                self.still = 0.0
            if beat.phase is Phase.RESTORING or beat.step < self.beat.step:  # of another model, perhaps
                self.steps.clear()
                self.fresh = 2  # to where it resumes, and its first step
            if beat.step != self.beat.step:
                if self.beat.first[Phase.SYNCING] and not self.fresh:  # skip a first step: it compiles and connects
                    self.steps.append(self.stepping / max(beat.step - self.beat.step, 1))
                self.fresh = max(self.fresh - 1, 0)
                self.stepping = 0.0
            self.beat = beat

    def limit(self, timeout: float | None) -> float:
        """The timeout of the current phase, in seconds."""
        phase = self.beat.phase
        if phase is Phase.SCRIPT:
            return max(MIN_SCRIPT_TIMEOUT, SCRIPT_TIMEOUT_FACTOR * self.longest) if timeout is None else timeout
        if phase not in STEP:
            return max(PHASE_TIMEOUTS[phase], timeout or 0.0) if phase in PHASE_TIMEOUTS else float("inf")
        if not self.beat.first[Phase.SYNCING] or self.fresh:
            return max(FIRST_STEP_TIMEOUT, timeout or 0.0)
        slow = sorted(self.steps)[int(len(self.steps) * 0.99)] if self.steps else 0.0
        return max(MIN_STEP_TIMEOUT, STEP_TIMEOUT_FACTOR * slow) if timeout is None else timeout


class RankWatch:
    """Watches the ranks of one round.

    Args:
        rendezvous: sends reports to the hub.
        logs: the ranks' output, which includes their stacks.
        timeout: seconds that a step may take; None derives it from the step times.
        log: called for busy ranks that are waited for.
    """

    def __init__(
        self, rendezvous: Rendezvous, logs: RankLogs, *, timeout: float | None, log: Callable[[str], None]
    ) -> None:
        self._rendezvous = rendezvous
        self._logs = logs
        self._timeout = timeout
        self._log = log
        self._ranks: dict[int, _WatchedRank] = {}
        self._script = ScriptProgress()
        self._polled = self._sampled = time.monotonic()

    def begin(self, ranks: Mapping[int, tuple[int, Path]]) -> None:
        """Start watching a round's ranks, given the process id and the heartbeat file of each."""
        self._ranks = {
            rank: _WatchedRank(pid=pid, file=file, beat=HeartbeatState.read(file))
            for rank, (pid, file) in ranks.items()
        }
        self._script = ScriptProgress()
        self._polled = time.monotonic()

    def poll(self) -> None:
        """Read the heartbeats, at most every POLL_INTERVAL, and report to the hub.

        Raises:
            RendezvousError: node 0 is gone.
        """
        now = time.monotonic()
        if now < self._polled + POLL_INTERVAL:
            return
        passed = min(now - self._polled, 2 * POLL_INTERVAL)
        self._polled = now
        self._read(passed)
        self._sample(now)
        progress = {number: (rank.beat.timed, rank.beat.busy) for number, rank in self._ranks.items()}
        stalled = all(rank.still > rank.limit(self._timeout) for rank in self._ranks.values())
        frozen = any(map(self._stopped, self._ranks.values()))
        self._rendezvous.heartbeat(stalled=stalled, frozen=frozen, progress=progress)
        if self._rendezvous.stacks_requested:
            self._rendezvous.report_stacks(self._rank_statuses())

    def finish(self) -> None:
        """Read the heartbeats of ranks that have ended."""
        self._read(0.0)

    def _read(self, passed: float) -> None:
        for rank in self._ranks.values():
            rank.update(passed)
        self._script.add(self.script_steps, time.monotonic(), time.time())

    def _sample(self, now: float) -> None:
        """Sample the ranks' usage if all may stall soon. It reads all of /proc, so it is not done otherwise."""
        limits = [(rank, rank.limit(self._timeout)) for rank in self._ranks.values()]
        soon = all(rank.still > limit - min(WINDOW + INTERVAL, limit / 2) for rank, limit in limits)
        if not soon or now < self._sampled + INTERVAL:
            return
        self._sampled = now
        used = usage([rank.pid for rank, _ in limits])
        for rank, _ in limits:
            rank.activity.add(used.get(rank.pid), now)

    def _stopped(self, rank: _WatchedRank) -> bool:
        """Whether its process has been stopped (SIGSTOP) for longer than a step may take, whatever its phase."""
        return rank.still > (MIN_STEP_TIMEOUT if self._timeout is None else self._timeout) and _frozen(rank.pid)

    def reached(self, phase: Phase) -> float:
        """When all ranks of this node had reached a phase, in ``time.monotonic()``; 0 if not all have."""
        moments = [rank.beat.first[phase] for rank in self._ranks.values()]
        return max(moments) if all(moments) else 0.0

    @property
    def script_progress(self) -> dict[str, Any]:
        """The progress of a loop of the script's own, by the rank that is ahead; empty in the library's."""
        return self._script.facts

    @property
    def script_steps(self) -> int:
        """The most optimizer steps that a rank has taken in a loop of the script's own; 0 in the library's."""
        return max((rank.beat.step for rank in self._ranks.values() if rank.beat.phase is Phase.SCRIPT), default=0)

    @property
    def steps(self) -> int:
        """The last optimizer step of the library's loop that a rank has taken; 0 in a loop of the script's own."""
        return max((rank.beat.step for rank in self._ranks.values() if rank.beat.phase is not Phase.SCRIPT), default=0)

    @property
    def group(self) -> int:
        """Ranks of the largest process group that a rank has joined; 0: none."""
        return max((rank.beat.group for rank in self._ranks.values()), default=0)

    def training_alone(self, world: int, *, ended: bool) -> int:
        """The ranks of this node that train a model of their own.

        Args:
            world: ranks of the job.
            ended: whether they have ended.
        """
        beats = (rank.beat for rank in self._ranks.values())
        facts = ({"updates": beat.updates, "met": beat.met, "group": beat.group} for beat in beats)
        return sum(trains_alone(**one, world=world, ended=ended) for one in facts)

    @property
    def separate(self) -> int:
        """Processes of the largest group that a rank's own processes have formed apart from the job; 0: none."""
        return max((rank.beat.separate for rank in self._ranks.values()), default=0)

    @property
    def loaded(self) -> int:
        """When the newest file that a rank went on from was last changed, in nanoseconds; 0: none."""
        return max((rank.beat.loaded for rank in self._ranks.values()), default=0)

    @property
    def loaded_file(self) -> LoadedFile | None:
        """That file; None: no rank has loaded one."""
        newest = max((rank.beat for rank in self._ranks.values()), key=lambda beat: beat.loaded, default=None)
        return newest.files.loaded if newest else None

    @property
    def saved(self) -> tuple[int, str] | None:
        """A rank that has saved a checkpoint to its node's own folder, and that file's path in it."""
        named = ((number, rank.beat.files.saved) for number, rank in self._ranks.items())
        return next((one for one in named if one[1]), None)

    def _rank_statuses(self) -> list[RankStatus]:
        """Collect all ranks' stacks and return each rank's status."""
        locations = self._stacks()
        statuses = [self._status(number, rank, locations[number]) for number, rank in self._ranks.items()]
        for one in statuses:
            if one.exempt:
                self._log(f"rank {one.rank} has been in {doing(one)}, but is busy: waiting for it")
        return statuses

    def _status(self, number: int, rank: _WatchedRank, location: Location | None) -> RankStatus:
        busy = rank.activity.busy
        return RankStatus(
            rank=number,
            step=rank.beat.step,
            phase=rank.beat.phase,
            stalled_seconds=rank.still,
            has_stack=location is not None,
            frozen=_frozen(rank.pid),
            busy=busy,
            cores=rank.activity.cores,
            exempt=busy and self._timeout is None and rank.still < rank.limit(None) + MAX_BUSY_EXTENSION,
            location=location or Location(),
        )

    def _stacks(self) -> dict[int, Location | None]:
        with self._logs.tapped() as output:
            for rank in self._ranks.values():
                with suppress(ProcessLookupError):
                    os.kill(rank.pid, signal.SIGUSR1)  # handled by faulthandler (kittrain.agent.processes.worker)
            deadline = time.monotonic() + STACK_TIMEOUT
            count, grown = -1, 0.0
            while (now := time.monotonic()) < deadline and (now < grown + STACK_QUIET_TIME or not all(output.values())):
                if (lines := sum(map(len, output.values()))) != count:
                    count, grown = lines, now
                time.sleep(0.02)
        return {number: locate(output[number]) for number in self._ranks}


def _frozen(pid: int) -> bool:
    """Whether a process is stopped, by SIGSTOP or a debugger; False if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except OSError:
        return False
