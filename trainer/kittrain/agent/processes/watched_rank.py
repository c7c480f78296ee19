"""One rank as its agent sees it: its heartbeats, how long its steps take, and how long it may be still."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from kittrain.agent.processes.activity import Activity
from kittrain.outcome.failures import Failure
from kittrain.system.heartbeat import STEP, HeartbeatState, Phase

MIN_STEP_TIMEOUT: Final = 30.0  # seconds
STEP_TIMEOUT_FACTOR: Final = 10  # times the 99th percentile of the step times
MIN_SCRIPT_TIMEOUT: Final = 300.0  # seconds between two optimizer steps of a script's own loop
SCRIPT_TIMEOUT_FACTOR: Final = 10  # times the longest time between two of them
STEP_TIMES_KEPT: Final = 200  # the last ones, for the percentile
MIN_QUIET: Final = 15.0  # seconds without a step that are unusual
QUIET_FACTOR: Final = 10  # times the median of the last steps
PACES_KEPT: Final = 100  # of these
MOST_OF_ERROR: Final = 60  # characters of an error within the sentence that says where ranks are

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
class WatchedRank:
    """A rank of a round.

    Attributes:
        pid: its process.
        file: of its heartbeats.
        beat: the last one.
        still: seconds since then.
        stepping: seconds since its last step.
        stepped_after: ``time.monotonic()`` of the last look before the last step; 0: it has taken none.
        steps: seconds of its last ones, in the library's loop.
        paces: seconds of its last ones, in any loop.
        fresh: changes of the step until a further training of the script, which begins at any step, has settled.
        longest: seconds between two beats of a script's own loop.
        activity: what it uses, while it may stall soon.
    """

    pid: int
    file: Path
    beat: HeartbeatState
    still: float = 0.0
    stepping: float = 0.0
    stepped_after: float = 0.0
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=STEP_TIMES_KEPT))
    paces: deque[float] = field(default_factory=lambda: deque(maxlen=PACES_KEPT))
    fresh: int = 0
    longest: float = 0.0
    activity: Activity = field(default_factory=Activity)

    def update(self, passed: float, before: float = 0.0) -> None:
        """Read its heartbeat; ``before`` is when that was last done, in ``time.monotonic()``."""
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
                if self.stepped:
                    self.paces.append(self.stepping / max(beat.step - self.beat.step, 1))
                self.fresh = max(self.fresh - 1, 0)
                self.stepping, self.stepped_after = 0.0, before
            self.beat = beat

    @property
    def stepped(self) -> bool:
        """Whether it has taken a step since it started."""
        return self.beat.phase is Phase.SCRIPT or bool(self.beat.first[Phase.SYNCING])

    @property
    def quiet_limit(self) -> float:
        """Seconds without a step that are unusual."""
        return max(MIN_QUIET, QUIET_FACTOR * median(self.paces)) if self.paces else MIN_QUIET

    def is_quiet(self, now: float) -> bool:
        """Whether it has taken no step for unusually long.

        Before its first step that counts from when its group was formed, or without one from its start.
        """
        if self.stepping <= MIN_QUIET:
            return False
        if self.stepped:
            return self.stepping > self.quiet_limit
        began = self.beat.first[Phase.PREPARING] or self.beat.first[Phase.JOINING]
        return bool(began) and now > began + MIN_QUIET

    def limit(self, timeout: float | None) -> float:
        """How long it may be still in its phase, in seconds; ``timeout`` is the job's for a step, if it sets one."""
        phase = self.beat.phase
        if phase is Phase.SCRIPT:
            return max(MIN_SCRIPT_TIMEOUT, SCRIPT_TIMEOUT_FACTOR * self.longest) if timeout is None else timeout
        if phase not in STEP:
            return max(PHASE_TIMEOUTS[phase], timeout or 0.0) if phase in PHASE_TIMEOUTS else float("inf")
        if not self.beat.first[Phase.SYNCING] or self.fresh:
            return max(FIRST_STEP_TIMEOUT, timeout or 0.0)
        slow = sorted(self.steps)[int(len(self.steps) * 0.99)] if self.steps else 0.0
        return max(MIN_STEP_TIMEOUT, STEP_TIMEOUT_FACTOR * slow) if timeout is None else timeout

    @property
    def may_work_on(self) -> bool:
        """Whether it has been still for so short that it may go on if it is busy."""
        return self.still < self.limit(None) + MAX_BUSY_EXTENSION

    def is_stopped(self, timeout: float | None) -> bool:
        """Whether its process has been stopped (SIGSTOP) for longer than a step may take, whatever its phase."""
        return self.still > (MIN_STEP_TIMEOUT if timeout is None else timeout) and self.frozen

    @property
    def frozen(self) -> bool:
        """Whether its process is stopped, by SIGSTOP or a debugger; False if unknown."""
        return self._state in {"T", "t"}

    @property
    def ended(self) -> bool:
        """Whether its process has ended; False if unknown."""
        return self._state in {"Z", "X"} or (not self._state and Path("/proc/self").exists())

    @property
    def failed(self) -> str:
        """The error with which its script has ended, in a few words; empty: with none, or not yet."""
        with suppress(OSError, ValueError, LookupError, TypeError):
            message = json.loads(self.file.with_suffix(".error.json").read_text())["message"]
            text = message if isinstance(message, str) else message["message"]
            error = Failure(rank=0, exit_code=1, error=text, time=0).brief
            return error if len(error) <= MOST_OF_ERROR else f"{error[: MOST_OF_ERROR - 1]}…"
        return ""

    @property
    def _state(self) -> str:
        """Its process' state, as in proc(5); empty if there is none."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return ""
