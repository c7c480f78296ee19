"""Whether the ranks of this node still move, told to the hub; and where they stand, when it asks.

A rank is stalled when its heart has not beaten for longer than what it is doing may take. Time is counted in looks, so
that an agent that was itself suspended takes nobody for stalled. What stalled ranks use of the machine is told as well:
one that works is no reason to end the round, unless the job itself says how long a step may take.
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
from typing import Final

from kittrain.node.activity import INTERVAL, WINDOW, Activity
from kittrain.node.ranklogs import RankLogs
from kittrain.rendezvous.backend import Rendezvous
from kittrain.rendezvous.diagnosis import RankStatus, doing
from kittrain.rendezvous.stacks import Location, locate
from kittrain.system.heartbeat import STEP, Beat, Phase
from kittrain.system.processes import usage

LOOK: Final = 0.25  # seconds between two looks
FLOOR: Final = 30.0  # seconds that any step may take
MULTIPLE: Final = 10  # of the 99th percentile of the steps' times, that one of them may take
STEPS_KEPT: Final = 200  # of which that is known
STACK_PATIENCE: Final = 2.0  # seconds for the ranks to print their stacks
STACK_QUIET: Final = 0.2  # seconds without a further line, when they have

# Seconds that a phase may take; what is not here, and all before the first step, is the script's own or is bounded by
# FIRST. Ranks that wait for one another in a collective are bounded by its timeout as well.
FIRST: Final = 900.0  # imports, connections, the snapshot, and whatever is compiled for the first step
LIMITS: Final[Mapping[Phase, float]] = {
    Phase.JOINING: FIRST,
    Phase.RESTORING: FIRST,
    Phase.EVALUATING: 3600.0,
    Phase.SAVING: 900.0,
}
ENOUGH: Final = 3600.0  # seconds longer than all that, after which it matters no more whether a rank works


@dataclass(kw_only=True)
class _Watched:
    """One rank, and what was seen of it."""

    pid: int
    file: Path
    beat: Beat
    still: float = 0.0  # seconds since it moved
    stepping: float = 0.0  # seconds since its last step
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_KEPT))
    activity: Activity = field(default_factory=Activity)

    def look(self, passed: float) -> None:
        with suppress(OSError):
            beat = Beat.read(self.file)
            self.still = self.still + passed if beat.beats == self.beat.beats else 0.0
            self.stepping += passed
            if beat.step != self.beat.step:
                if self.beat.first[Phase.AGREEING]:  # the first one compiles and connects
                    self.steps.append(self.stepping / max(beat.step - self.beat.step, 1))
                self.stepping = 0.0
            self.beat = beat

    def limit(self, timeout: float | None) -> float:
        """Seconds that it may stay where it is."""
        phase = self.beat.phase
        if phase not in STEP:
            return max(LIMITS[phase], timeout or 0.0) if phase in LIMITS else float("inf")
        if not self.beat.first[Phase.AGREEING]:
            return max(FIRST, timeout or 0.0)
        slow = sorted(self.steps)[int(len(self.steps) * 0.99)] if self.steps else 0.0
        return max(FLOOR, MULTIPLE * slow) if timeout is None else timeout


class Watch:
    """Watches the ranks of one round.

    Args:
        rendezvous: where the other nodes are told.
        logs: where their stacks appear.
        timeout: seconds that a step may take; None finds out from the steps.
        say: told of ranks that work, and take long.
    """

    def __init__(
        self, rendezvous: Rendezvous, logs: RankLogs, *, timeout: float | None, say: Callable[[str], None]
    ) -> None:
        self._rendezvous = rendezvous
        self._logs = logs
        self._timeout = timeout
        self._say = say
        self._ranks: dict[int, _Watched] = {}
        self._looked = self._sampled = time.monotonic()

    def begin(self, ranks: Mapping[int, tuple[int, Path]]) -> None:
        """New ranks have started: the process id and the heartbeat's file of each."""
        self._ranks = {rank: _Watched(pid=pid, file=file, beat=Beat.read(file)) for rank, (pid, file) in ranks.items()}
        self._looked = time.monotonic()

    def look(self) -> None:
        """Look after the ranks, if it is time for that, and tell the hub.

        Raises:
            RendezvousError: node 0 is gone.
        """
        now = time.monotonic()
        if now < self._looked + LOOK:
            return
        passed = min(now - self._looked, 2 * LOOK)
        self._looked = now
        for rank in self._ranks.values():
            rank.look(passed)
        self._sample(now)
        progress = {number: (rank.beat.step, rank.beat.busy) for number, rank in self._ranks.items()}
        stalled = all(rank.still > rank.limit(self._timeout) for rank in self._ranks.values())
        frozen = any(map(self._stopped, self._ranks.values()))
        self._rendezvous.heartbeat(stalled=stalled, frozen=frozen, progress=progress)
        if self._rendezvous.stacks_requested:
            self._rendezvous.report_stacks(self._explain())

    def _sample(self, now: float) -> None:
        """Note what the ranks use, if all of them will soon be stalled: that looks at each process of the machine."""
        limits = [(rank, rank.limit(self._timeout)) for rank in self._ranks.values()]
        soon = all(rank.still > limit - min(WINDOW + INTERVAL, limit / 2) for rank, limit in limits)
        if not soon or now < self._sampled + INTERVAL:
            return
        self._sampled = now
        used = usage([rank.pid for rank, _ in limits])
        for rank, _ in limits:
            rank.activity.note(used.get(rank.pid), now)

    def _stopped(self, rank: _Watched) -> bool:
        """Whether its process has been stopped for longer than a step may take: then it matters no more what it did."""
        return rank.still > (FLOOR if self._timeout is None else self._timeout) and _frozen(rank.pid)

    def first(self, phase: Phase) -> float:
        """When all ranks of this node had come to a phase, in ``time.monotonic()``; 0 if not all have."""
        moments = [rank.beat.first[phase] for rank in self._ranks.values()]
        return max(moments) if all(moments) else 0.0

    def _explain(self) -> list[RankStatus]:
        """Have all ranks print their stacks, and say where each one stands."""
        locations = self._stacks()
        statuses = [self._status(number, rank, locations[number]) for number, rank in self._ranks.items()]
        for one in statuses:
            if one.exempt:
                self._say(f"rank {one.rank} has been in {doing(one)}, and works: it is waited for")
        return statuses

    def _status(self, number: int, rank: _Watched, location: Location | None) -> RankStatus:
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
            exempt=busy and self._timeout is None and rank.still < rank.limit(None) + ENOUGH,
            location=location or Location(),
        )

    def _stacks(self) -> dict[int, Location | None]:
        with self._logs.tapped() as heard:
            for rank in self._ranks.values():
                with suppress(ProcessLookupError):
                    os.kill(rank.pid, signal.SIGUSR1)  # kittrain.node.worker has faulthandler answer
            deadline = time.monotonic() + STACK_PATIENCE
            count, grown = -1, 0.0
            while (now := time.monotonic()) < deadline and (now < grown + STACK_QUIET or not all(heard.values())):
                if (lines := sum(map(len, heard.values()))) != count:
                    count, grown = lines, now
                time.sleep(0.02)
        return {number: locate(heard[number]) for number in self._ranks}


def _frozen(pid: int) -> bool:
    """Whether a process is stopped, by SIGSTOP or by a debugger; False where that cannot be seen."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except OSError:
        return False
