"""Watches the heartbeats of this node's ranks, reports stalls to the hub, and collects stacks when it asks.

A rank is stalled when it has not beaten for longer than its phase may take. In a script's own loop only optimizer steps
are known, between which it may also evaluate or save: there a rank has more time. Time is counted in polls, so that an
agent that was suspended itself sees no stall. The CPU and I/O usage of stalled ranks is reported, too: a busy rank does
not end the round, unless the job sets a step timeout.

Long before that, when no rank takes a step for unusually long, the hub asks where they are, and the job's report shows
it (``kittrain.agent.rendezvous.standstill``).
"""

from __future__ import annotations

import linecache
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kittrain.agent.hooks.script_progress import ScriptProgress, trains_alone
from kittrain.agent.processes import early_exit, stack_file
from kittrain.agent.processes.activity import INTERVAL, WINDOW, Activity
from kittrain.agent.processes.rank_logs import RankLogs
from kittrain.agent.processes.watched_rank import WatchedRank
from kittrain.agent.rendezvous.diagnosis import RankStatus, doing
from kittrain.agent.rendezvous.interface import Rendezvous
from kittrain.agent.rendezvous.stacks import (
    A_PROCESS,
    GROUP,
    LOST_THREADS,
    UNREAD,
    Location,
    line_of_fork,
    locate,
    waits_for_a_thread,
)
from kittrain.outcome import rank_output
from kittrain.system.calls import Call
from kittrain.system.heartbeat import HeartbeatState, Phase, Stored
from kittrain.system.heartbeat_files import LoadedFile
from kittrain.system.processes import Usage, children_of, has_lost_threads, signal_name, unread, usage
from kittrain.system.sample_orders import SampleOrder

POLL_INTERVAL: Final = 0.25  # seconds
SAYING: Final = 20.0  # seconds after which what a rank printed last is no longer what it does
LISTENING: Final = 5.0  # seconds between two looks at the losses that ranks print
LISTENED: Final = 30  # lines of each, in which these are looked for
LOOK_SECONDS: Final = 1.5  # for the ranks' answers, and to see whether they work
STACK_TIMEOUT: Final = 2.0  # seconds for the ranks to print their stacks
STACK_QUIET_TIME: Final = 0.2  # seconds without a new line: they are complete


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
        self._ranks: dict[int, WatchedRank] = {}
        self._script = ScriptProgress()
        self._polled = self._sampled = self._began = self._listened = self.read_at = time.monotonic()
        self.printed_loss = ""  # what a rank prints of a loss that is not finite; empty: none does
        self._asked: float | None = None  # when the ranks were asked where they are
        self._looked: dict[int, Activity] = {}  # their usage since
        self._used: Mapping[int, Usage] = {}  # by process id, when that was read last

    def begin(self, ranks: Mapping[int, tuple[int, Path]], *, began: float | None = None) -> None:
        """Start watching a round's ranks.

        Args:
            ranks: the process id and the heartbeat file of each.
            began: when they were started, in ``time.monotonic()``; None is now.
        """
        self._began = self.read_at = time.monotonic() if began is None else began
        self._ranks = {
            rank: WatchedRank(pid=pid, file=file, beat=HeartbeatState.read(file)) for rank, (pid, file) in ranks.items()
        }
        self._script = ScriptProgress()
        self._polled = self._listened = time.monotonic()
        self._asked, self.printed_loss = None, ""

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
        frozen = any(rank.is_stopped(self._timeout) for rank in self._ranks.values())
        self._rendezvous.heartbeat(stalled=stalled, frozen=frozen, progress=progress, quiet=self._quiet(now))
        self._look(now)
        if now > self._listened + LISTENING:
            self.listen()
        if self._rendezvous.stacks_requested:
            self._rendezvous.report_stacks(self._rank_statuses())

    def finish(self) -> None:
        """Read the heartbeats of ranks that have ended."""
        self._read(0.0)

    def listen(self) -> None:
        """Look for losses that are not finite: a loop of the script's own shows none, but what it prints."""
        self._listened = time.monotonic()
        shown = ((number, rank_output.not_finite_loss(self._logs.last(number)[-LISTENED:])) for number in self._ranks)
        self.printed_loss = next((f"as rank {number} prints it: {line}" for number, line in shown if line), "")

    def _read(self, passed: float) -> None:
        before, self.read_at = self.read_at, time.monotonic()
        for rank in self._ranks.values():
            rank.update(passed, before)
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

    def _quiet(self, now: float) -> bool:
        """Whether no rank has taken a step for unusually long, apart from those that have ended."""
        silent = [rank.is_quiet(now) for rank in self._ranks.values()]
        if all(silent):
            return True
        others = [rank for rank, one in zip(self._ranks.values(), silent, strict=True) if not one]
        return any(silent) and all(rank.ended for rank in others)

    def _look(self, now: float) -> None:
        """Ask the ranks where they are, if the hub has asked; tell it in a later poll, and what they used meanwhile."""
        if self._asked is None:
            if self._rendezvous.look_requested:
                for rank in self._ranks.values():
                    stack_file.ask(rank.pid, stack_file.path_of(rank.file))
                self._asked, self._looked = now, {number: Activity() for number in self._ranks}
                self._add_usage(now)
        elif now >= self._asked + LOOK_SECONDS:
            self._asked = None
            self._add_usage(now)
            self._rendezvous.report_look([self._seen(number, rank) for number, rank in self._ranks.items()])

    def _add_usage(self, now: float) -> None:
        self._used = usage([rank.pid for rank in self._ranks.values()])
        for number, rank in self._ranks.items():
            self._looked[number].add(self._used.get(rank.pid), now)

    def _seen(self, number: int, rank: WatchedRank) -> RankStatus:
        """What a rank does, of which nothing is judged."""
        location = self._location(rank)
        lines = self._logs.last(number)
        lately = lines if location and location.tries else self._logs.last(number, within=SAYING)
        return _report(
            number,
            rank,
            location,
            stalled_seconds=rank.stepping,
            busy=self._looked[number].busy,
            cores=self._looked[number].cores,
            stepped=rank.stepped,
            grouped=rank.beat.group > 0,
            ended=rank.ended,
            failed=rank.failed if location and location.exits else "",
            said=rank_output.thread_error(lines)
            or (rank_output.other_group(lines) if location and location.wait == GROUP else "")
            or rank_output.lost_worker(lines)
            or rank_output.last_error(lately)
            or rank_output.repeated_error(self._logs.last(number, after=rank.stepped_after))
            or self._handled(number, rank)
            or self._lost_child(rank),
        )

    def _location(self, rank: WatchedRank) -> Location | None:
        """Where its main thread is; and a fork that it waits for, of which an idle one says nothing."""
        file = stack_file.path_of(rank.file)
        location = locate(stack_file.answer(rank.pid, file), linecache.getline)
        if location and (location.loads or location.awaits) and not location.wait:
            forks = map(_fork, stack_file.of_forks(children_of(rank.pid), file))
            location = replace(location, worker=next(filter(None, forks), ""))
            if location.awaits == A_PROCESS and (what := unread(rank.pid)):
                location = replace(location, awaits=UNREAD[what])
        return location

    def _lost_child(self, rank: WatchedRank) -> str:
        """That a process that the rank has started was killed, and that nobody has noticed; empty if none was."""
        used = self._used.get(rank.pid, Usage())
        return f"a process that it started was killed by {signal_name(used.killed)}" if used.killed else ""

    def _handled(self, number: int, rank: WatchedRank) -> str:
        """The error that a rank has printed since its last step, and has not ended with; empty without one."""
        return rank_output.handled_error(self._logs.last(number, after=rank.stepped_after))

    def last_words(self, number: int) -> str:
        """What a rank that has ended well complained of after its last step; empty: of nothing."""
        rank = self._ranks.get(number)
        return rank_output.last_words(self._logs.last(number, after=rank.stepped_after)) if rank else ""

    def exit_place(self, number: int) -> str:
        """Where the script has ended a rank with exit code 0, if it was in the middle of a function."""
        rank = self._ranks.get(number)
        return early_exit.place(rank.file, rank.pid) if rank else ""

    @property
    def note(self) -> str:
        """Of ranks that have ended well: who has printed an error after its last step; without steps, any line."""
        ended = "and ended with exit code 0"
        errors = ((number, self._handled(number, rank)) for number, rank in self._ranks.items())
        told = [f"rank {number} printed a traceback, {ended}: {error}" for number, error in errors if error]
        if not told:
            words = ((number, self.last_words(number)) for number in self._ranks)
            told = [f"rank {number} printed an error last, {ended}: {error}" for number, error in words if error]
        if not told:
            idle = ((number, rank_output.trains_nothing(self._logs.last(number))) for number in self._ranks)
            told = [f"rank {number}: {what}" for number, what in idle if what]
        if not (told or self.steps or self.script_steps):
            none = ((number, rank_output.starts_nothing(self._logs.last(number))) for number in self._ranks)
            told = [f"rank {number}: {what}" for number, what in none if what]
        if not (told or self.steps or self.script_steps):
            lines = ((number, rank_output.excerpt(self._logs.last(number))) for number in self._ranks)
            told = [f"rank {number} printed last: {rank_output.last_line(last)}" for number, last in lines if last]
        return next(iter(told), "")

    def phases(self) -> dict[Phase, float]:
        """By phase, the seconds since the ranks were started, averaged over them, when they were last read.

        While one rank of a loop of the script's own evaluates, the others wait for it: that time is evaluation.
        """
        found = [rank.beat.phases(self._began, self.read_at) for rank in self._ranks.values()]
        mean = {phase: sum(one.get(phase, 0.0) for one in found) / len(found) for phase in set().union(*found)}
        if own := min(self._evaluated, mean.get(Phase.SCRIPT, 0.0)):
            mean |= {Phase.SCRIPT: mean[Phase.SCRIPT] - own, Phase.EVALUATING: own}
        return mean

    @property
    def _evaluated(self) -> float:
        return max((rank.beat.evaluating(self.read_at) for rank in self._ranks.values()), default=0.0)

    @property
    def evaluating(self) -> bool:
        """Whether a rank evaluates."""
        return any(rank.beat.phase is Phase.EVALUATING or rank.beat.evaluated[1] for rank in self._ranks.values())

    @property
    def last(self) -> tuple[Phase, int, float]:
        """The phase and the step of the rank that has been still for longest, and the busy seconds of the slowest."""
        stillest = min(self._beats, key=lambda beat: beat.since)
        phase = Phase.STARTING if stillest.before(self._began) else stillest.phase
        times = (beat.busy + beat.evaluating(self.read_at) for beat in self._beats if not beat.before(self._began))
        busy = max(times, default=0.0)
        return phase, max(beat.step for beat in self._beats), busy

    @property
    def moved(self) -> float:
        """When a rank last moved, in ``time.monotonic()``."""
        own_loop = [self.read_at - one.still for one in self._ranks.values() if one.beat.phase is Phase.SCRIPT]
        return max([*own_loop, *(one.beat.since for one in self._ranks.values())])

    @property
    def pids(self) -> list[int]:
        """The ranks' process ids."""
        return [rank.pid for rank in self._ranks.values()]

    def reached(self, phase: Phase) -> float:
        """When all ranks of this node had reached a phase, in ``time.monotonic()``; 0 if not all have in this round.

        A rank that lives on has its moments of the round before until it has left that one.
        """
        moments = [rank.beat.first[phase] for rank in self._ranks.values()]
        return max(moments) if min(moments, default=0.0) >= self._began else 0.0

    @property
    def script_progress(self) -> dict[str, Any]:
        """The progress of a loop of the script's own, by the rank that is ahead; empty in the library's."""
        return self._script.facts

    @property
    def script_steps(self) -> int:
        """The most optimizer steps that a rank has taken in a loop of the script's own; 0 in the library's."""
        return max((beat.step for beat in self._beats if beat.phase is Phase.SCRIPT), default=0)

    @property
    def steps(self) -> int:
        """The last optimizer step of the library's loop that a rank has taken; 0 in a loop of the script's own."""
        return max((beat.step for beat in self._beats if beat.phase is not Phase.SCRIPT), default=0)

    @property
    def finished(self) -> int:
        """The last optimizer step of the library's loop that each rank has taken; 0 in a loop of the script's own."""
        return min((0 if beat.phase is Phase.SCRIPT else beat.step for beat in self._beats), default=0)

    @property
    def _beats(self) -> list[HeartbeatState]:
        return [rank.beat for rank in self._ranks.values()]

    @property
    def group(self) -> int:
        """Ranks of the largest process group that a rank has joined; 0: none."""
        return max((beat.group for beat in self._beats), default=0)

    def training_alone(self, world: int, *, ended: bool) -> int:
        """The ranks of this node that train a model of their own.

        Args:
            world: ranks of the job.
            ended: whether they have ended.
        """
        facts = ({"updates": beat.updates, "met": beat.met, "group": beat.group} for beat in self._beats)
        return sum(trains_alone(**one, world=world, ended=ended) for one in facts)

    @property
    def orders(self) -> list[SampleOrder]:
        """In which this node's ranks train on samples, once that of all of them is known; else empty."""
        found = [
            replace(one, rank=number) for number, rank in self._ranks.items() if (one := rank.beat.order) is not None
        ]
        return found if len(found) == len(self._ranks) else []

    @property
    def separate(self) -> int:
        """Processes of the largest group that a rank's own processes have formed apart from the job; 0: none."""
        return max((beat.separate for beat in self._beats), default=0)

    @property
    def calls(self) -> list[tuple[int, Call]]:
        """The last collective that each rank has called, as far as it is known."""
        return [(number, rank.beat.call) for number, rank in self._ranks.items()]

    @property
    def begun(self) -> dict[int, int]:
        """How many collectives each rank had begun when it ended; 0: unknown."""
        return {number: rank.beat.begun for number, rank in self._ranks.items()}

    @property
    def not_finite(self) -> int:
        """The first step at which a rank was seen to have a parameter that is not finite; 0: none."""
        return min((one for rank in self._ranks.values() if (one := rank.beat.not_finite)), default=0)

    @property
    def loaded(self) -> int:
        """When the newest file that a rank went on from was last changed, in nanoseconds; 0: none."""
        return max((rank.beat.loaded for rank in self._ranks.values()), default=0)

    @property
    def loaded_file(self) -> LoadedFile | None:
        """That file; None: no rank has loaded one."""
        newest = max(self._beats, key=lambda beat: beat.loaded, default=None)
        return newest.files.loaded if newest else None

    @property
    def saved(self) -> tuple[int, str] | None:
        """A rank that has saved a checkpoint to its node's own folder, and that file's path in it."""
        named = ((number, rank.beat.files.saved) for number, rank in self._ranks.items())
        return next((one for one in named if one[1]), None)

    @property
    def stored(self) -> Stored:
        """The last checkpoint of a script with a loop of its own, of the first rank that saves any."""
        each = (rank.beat.stored for _, rank in sorted(self._ranks.items()))
        return next((one for one in each if one.number), Stored())

    def _rank_statuses(self) -> list[RankStatus]:
        """Collect all ranks' stacks and return each rank's status."""
        locations = self._stacks()
        statuses = [self._status(number, rank, locations[number]) for number, rank in self._ranks.items()]
        for one in statuses:
            if one.exempt:
                self._log(f"rank {one.rank} has been in {doing(one)}, but is busy: waiting for it")
        return statuses

    def _status(self, number: int, rank: WatchedRank, location: Location | None) -> RankStatus:
        busy = rank.activity.busy
        return _report(
            number,
            rank,
            location,
            stalled_seconds=rank.still,
            busy=busy,
            cores=rank.activity.cores,
            exempt=busy and self._timeout is None and rank.may_work_on,
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
        return {number: None if stack_file.MORE in output[number] else locate(output[number]) for number in self._ranks}


def _fork(found: tuple[int, list[str]]) -> str:
    """Where a fork of a rank is, and whether it can go on; empty of an idle one."""
    pid, printed = found
    line = line_of_fork(printed)
    return line + LOST_THREADS * bool(line and has_lost_threads(pid) and waits_for_a_thread(printed, linecache.getline))


def _report(number: int, rank: WatchedRank, location: Location | None, **found: Any) -> RankStatus:
    """A rank's status: what its heartbeat and its process show, and what was found besides."""
    return RankStatus(
        rank=number,
        step=rank.beat.step,
        phase=rank.beat.phase,
        has_stack=location is not None,
        frozen=rank.frozen,
        location=location or Location(),
        call=rank.beat.call,
        **found,
    )
