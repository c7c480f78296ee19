"""This node's part of the run's history: what its agent and its ranks did, written from a background thread.

What a rank does is in its heartbeat already, so nothing is added to its steps but the sums of its phases.

Why: decision 54.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from kitjob import timeline
from kitjob.report import RankProgress, RecoveryTimings, Trend
from kitjob.thinning import thin
from kitjob.timeline import AgentState, Clock, Event, Line, Row, State, What, Writer
from kittrain.agent.report.history_file import SUFFIX, HistoryFile
from kittrain.agent.report.trend import Curve
from kittrain.job.env import NodeEnv
from kittrain.system.backlog import Backlog
from kittrain.system.heartbeat import Phase, Stored

ROW_SECONDS: Final = 1.0
QUEUED: Final = 4096  # lines that wait for the volume; the oldest are dropped
CLOSE_TIMEOUT: Final = 3.0  # seconds to write the rest when the node ends
BRIEF: Final = 300  # characters of a cause
EVALUATION: Final = 0.05  # seconds from which on an evaluation is an event
SELDOM: Final = 1 / 30  # of a node's time so far, that is at least between two such events of a script's own loop


class Ranks(Protocol):
    """The part of ``RankWatch`` that is used here."""

    @property
    def read_at(self) -> float:
        """When the heartbeats were read, in ``time.monotonic()``."""

    def phases(self) -> dict[Phase, float]:
        """By phase, the seconds since the ranks were started, averaged over them."""

    def reached(self, phase: Phase) -> float:
        """When all ranks had reached a phase, in ``time.monotonic()``; 0 if not all have."""

    @property
    def last(self) -> tuple[Phase, int, float]:
        """The phase and the step of the rank that has been still for longest, and the busy seconds of the slowest."""

    @property
    def evaluating(self) -> bool:
        """Whether a rank evaluates."""

    @property
    def moved(self) -> float:
        """When a rank last moved, in ``time.monotonic()``."""

    @property
    def pids(self) -> list[int]:
        """The ranks' process ids."""

    @property
    def stored(self) -> Stored:
        """The last checkpoint of a script with a loop of its own."""


class Listener(Protocol):
    """Who is told all lines, too: at once, and on the node with rank 0 the progress about each second."""

    def add(self, line: Line) -> None:
        """A line was written."""

    def progress(self, known: RankProgress) -> None:
        """So far are the ranks."""


class History:
    """Collects lines, and writes them once ``open`` was called.

    Args:
        node: the node's environment.
        log: called with the volume's first error.
        listener: is told them, too.
    """

    def __init__(self, node: NodeEnv, log: Callable[[str], None], listener: Listener | None = None) -> None:
        self._node = node
        self._listeners = [listener] if listener else []
        self._log = log
        self._shift = time.time() - time.monotonic()  # a change of the clock does not tear the history
        self._pid = os.getpid()
        self._lines = Backlog[Line](QUEUED)
        self._ended = False
        self._thread: threading.Thread | None = None
        self._tail: list[Line] = []  # all lines, without a volume
        self._state: State = "code"
        self._round = self._world = 0
        self._row: _Sums | None = None
        self._moved: float | None = None  # when a rank of the last round last moved, in ``time.monotonic()``
        self._fault = False  # the last round's end is written
        self._snapshot: float | None = None  # when the last one was published
        self._saved: int | None = None  # its step
        self._before = 0  # steps of a script's own loop before those of the current ranks
        self._stored = Stored()  # a script's last checkpoint that is written
        self._read: Callable[[], RankProgress] | None = None
        self._evaluated = 0.0
        self._told_evaluation = float("-inf")  # when one was told last
        self.last_step = 0.0  # when one was last seen, by the clock as it is then: it may have been set since
        self._loss, self._speed = Curve(), Curve()
        self._told: RecoveryTimings | int | None = None  # the recovery, or the round with lost steps
        self._started = self.now
        name = f"{self._started * 1000:013.0f}-{os.getpid()}"
        self._name = name
        self._writer = Writer(
            node=node.node_index,
            id=name,
            time=self.now,
            pod=node.pod,
            host=node.host,
            restarts=node.agent_restarts,
            cause=node.restart_cause[:BRIEF],
        )
        self._put(AgentState(time=self.now, state="code"))
        self.event("started", cause=node.restart_cause[:BRIEF])

    @property
    def now(self) -> float:
        """This moment."""
        return self._shift + time.monotonic()

    def open(self, node: NodeEnv) -> None:
        """Write from now on; starts a thread. ``node`` has the id of the run."""
        folder = node.history_folder
        if folder is None and not self._tail:
            self._tail = [self._writer]
        if folder is None or self._thread:
            return
        path = folder / f"node-{node.node_index}" / f"{self._name}{SUFFIX}"
        self._thread = threading.Thread(target=self._run, args=(path,), name="history", daemon=True)
        self._thread.start()

    @property
    def has_volume(self) -> bool:
        """Whether it is written to files; else others may keep its ``tail``."""
        return not self._tail

    def tail(self, former: str = "") -> str:
        """The history of a run without a volume, in few bytes: of this agent, and ``former`` lines of others.

        What was published ``former`` may have lines of this one, too. Empty: it has a volume.
        """
        if self.has_volume:
            return ""
        others = [line for own, line in self._by_writer(_lines_of(self._node.run_id, former)) if not own]
        before = [line for own, line in self._by_writer(self._tail) if own or not others]
        self._tail = thin([*others, *before, *self._lines.take()], timeline.TAIL_BYTES)
        return f"{_run_line(self._node.run_id)}\n{timeline.content(self._tail).decode()}"

    def _by_writer(self, found: Iterable[Line]) -> Iterator[tuple[bool, Line]]:
        """Lines of a tail, and whether they are this agent's."""
        own = False
        for line in found:
            own = line.id == self._name if isinstance(line, Writer) else own
            yield own, line

    def end(self, outcome: str, cause: str) -> None:
        """The agent ends now. Only its first end counts: what is reported before its process exits has it, too."""
        if self._ended:
            return
        self._ended = True
        self.state("exit")
        self.event("drained" if outcome == "drained" else "ended", outcome=outcome, cause=cause)

    def close(self) -> None:
        """Write the rest."""
        self._lines.close()
        if self._thread:
            self._thread.join(CLOSE_TIMEOUT)

    def state(self, state: State, *, at: float | None = None, cause: str = "") -> None:
        """The agent does something else, since ``at`` in ``time.monotonic()`` or from now on."""
        if state != self._state:
            self._state = state
            self._put(AgentState(time=self._at(at), state=state, cause=cause[:BRIEF]))

    def event(self, what: What, *, at: float | None = None, **facts: Any) -> None:
        """Something has happened to this node."""
        self._put(Event(time=self._at(at), what=what, node=self._node.node_index, **facts))

    def clock(self, *, theirs: float, at: float, error: float) -> None:
        """Node 0's clock showed ``theirs`` at this moment of ``time.monotonic()``."""
        ours = self._at(at)
        self._put(Clock(time=ours, offset=theirs - ours, error=error))

    def joined(self, number: int, *, world: int, nodes: int) -> None:
        """A group has formed."""
        facts: dict[str, Any] = {"round": number, "world": world, "nodes": nodes}
        self.event("joined", **facts)
        if self._world not in {0, world}:
            self.event("resized", cause=f"from {self._world} to {world} ranks", **facts)
        self._round, self._world, self._fault = number, world, False

    def ranks_start(self) -> float:
        """The ranks are started now; returns the moment in ``time.monotonic()``."""
        at = time.monotonic()
        self.state("ranks", at=at)
        self._row, self._evaluated, self._before = _Sums(at), 0.0, 0
        return at

    def observe(
        self, ranks: Ranks, read: Callable[[], RankProgress] | None = None, *, now: bool = False, before: int = 0
    ) -> None:
        """Write a row if it is time for one.

        Args:
            ranks: of this node.
            read: returns the progress, on the node with rank 0.
            now: write one in any case.
            before: steps that a script's own loop has resumed from.
        """
        self._before = before or self._before
        sums = self._row
        if sums is None or (ranks.read_at < sums.at + ROW_SECONDS and not (now and ranks.read_at > sums.at)):
            return
        self._read = read
        phases, (phase, step, busy) = ranks.phases(), ranks.last
        known = read() if read else None
        self._first_step(ranks, sums)
        row = Row(
            time=self._at(ranks.read_at),
            seconds=ranks.read_at - sums.at,
            round=self._round,
            world=self._world,
            step=step or None,
            steps=max(step - sums.step, 0) if sums.step else 0,
            phases={one.name: seconds for one, seconds in _passed(phases, sums.phases).items() if seconds > 0},
            phase=phase.name,
            busy=max(busy - sums.busy, 0.0),
            memory=sum(map(_resident, ranks.pids)),
            **_progress(known if sums.first else None),  # before the first step it is the last round's
        )
        self._put(row)
        self._draw(row)
        self._row = _Sums(ranks.read_at, phases, step, busy, first=sums.first)
        if known:
            self._stored_by(ranks)
            if sums.first:
                self._tell(lambda listener: listener.progress(known))
            self._snapshot_of(known)
            self._evaluation(ranks, phases, own=phase is Phase.SCRIPT, ended=now)

    @property
    def trend(self) -> Trend:
        """Curves of what ranks did, as far as this node knows it."""
        each = max(self._loss.each, self._speed.each)
        return Trend(seconds=each * ROW_SECONDS, loss=self._loss.points, speed=self._speed.points)

    def _draw(self, row: Row) -> None:
        if row.steps:
            self.last_step = time.time() - (self.now - row.time)
            self._loss.add(row.loss)
            self._speed.add(row.samples_per_second or row.steps / row.seconds)

    def ranks_end(self, ranks: Ranks, state: State, cause: str = "") -> None:
        """The ranks are to be stopped, or have ended."""
        if self._row is not None:
            self.observe(ranks, self._read, now=True)
            if self._read:
                self._stored_by(ranks, ended=True)
            self._moved = ranks.moved or None
            self.state(state, at=self._row.at, cause=cause)
            self._row = None

    def fault(self, cause: str, *, at: float | None = None, hang: bool = False) -> None:
        """A round has ended by a failure, or since its ranks were recognized to ``hang``."""
        if not self._fault:
            self._fault = True
            self.event(
                "fault",
                at=at,
                cause=cause[:BRIEF],
                round=self._round,
                world=self._world,
                since=None if self._moved is None else self._at(self._moved),
                outcome="hang" if hang else "",
            )

    def held(self, cause: str) -> None:
        """Training has ended, and this node has not."""
        self.event("held", cause=cause[:BRIEF])

    def recovered(self, found: RecoveryTimings | None, *, lost: int, why: str = "") -> None:
        """The last recovery, on the node with rank 0; written once. A new agent knows at most ``lost`` and ``why``."""
        told = found or (self._round if lost else None)
        if told and told != self._told:
            self._told = told
            self.event(
                "recovered",
                cause="; ".join(filter(None, (found.cause[:BRIEF] if found else "", why))),
                seconds=sum(found.parts.values()) if found else None,
                parts=found.parts if found else {},
                round=self._round,
                world=self._world,
                lost_steps=lost,
            )

    def _first_step(self, ranks: Ranks, sums: _Sums) -> None:
        at = ranks.reached(Phase.SYNCING) or ranks.reached(Phase.SCRIPT)
        if at and not sums.first:
            sums.first = True
            self.event("first step", at=at, round=self._round, world=self._world)

    def _snapshot_of(self, known: RankProgress) -> None:
        if known.snapshot_time and known.snapshot_time != self._snapshot and known.snapshot_step != self._saved:
            if self._snapshot is not None or known.snapshot_time > self._started:
                parts = {"stall": known.snapshot_stall_seconds or 0.0}
                at = time.monotonic() - (time.time() - known.snapshot_time)
                self.event("snapshot", at=at, step=known.snapshot_step, seconds=known.snapshot_seconds, parts=parts)
            self._snapshot, self._saved = known.snapshot_time, known.snapshot_step

    def _stored_by(self, ranks: Ranks, *, ended: bool = False) -> None:
        """A script may save as often as it likes, and twice for a checkpoint, if it renames what it has written."""
        new, last = ranks.stored, self._stored
        before = last.number if new.first == last.first else 0
        if new.number > before and (ended or new.at > last.at + self._seldom(new.at)):
            self._stored = new
            more = new.number - before - 1
            cause = f"saved by the script{f', after {more} more' * bool(more)}"
            self.event("snapshot", at=new.at, step=new.step + self._before or None, round=self._round, cause=cause)

    def _seldom(self, at: float) -> float:
        return max(ROW_SECONDS, SELDOM * (self._at(at) - self._started))

    def _evaluation(self, ranks: Ranks, phases: Mapping[Phase, float], *, own: bool, ended: bool) -> None:
        """A script's own loop may evaluate in each step: then one event has the seconds of many evaluations."""
        spent = phases.get(Phase.EVALUATING, 0.0)
        soon = own and ranks.read_at < self._told_evaluation + self._seldom(ranks.read_at)
        if (ranks.evaluating or soon) and not (own and ended):
            return
        if spent > self._evaluated + EVALUATION:
            self.event("evaluated", seconds=spent - self._evaluated)
            self._told_evaluation = ranks.read_at
        self._evaluated = spent

    def _at(self, moment: float | None) -> float:
        return self.now if moment is None else self._shift + moment

    def _put(self, line: Line) -> None:
        if os.getpid() != self._pid:
            return  # a rank forked from this process
        self._tell(lambda listener: listener.add(line))
        self._lines.put(line)

    def listen(self, listener: Listener) -> None:
        """Tell another one, too, from now on."""
        self._listeners.append(listener)

    def _tell(self, what: Callable[[Listener], None]) -> None:
        """Tell the listeners; an error of one must not end the node, and is its last."""
        for listener in [*self._listeners]:
            try:
                what(listener)
            except Exception as error:  # noqa: BLE001  as above
                self._listeners.remove(listener)
                self._log(f"warning: metrics stand still: {type(error).__name__}: {error}")

    def _run(self, path: Path) -> None:
        file: HistoryFile | None = None
        begun = warned = False
        while found := self._lines.wait():
            try:
                file = file or HistoryFile(path, timeline.node_bytes(self._node.job.all_nodes))
                if not begun:  # without this line readers ignore the others
                    file.append(timeline.encode(self._writer))
                    begun = True
                file.append(timeline.content(found))
            except OSError as error:  # a full disk: what comes later may be written
                if not warned:
                    warned = True
                    self._log(f"warning: cannot write the history of this run: {error}")


class _Sums:
    """What the ranks of a round had done by the last row."""

    def __init__(
        self,
        at: float,
        phases: Mapping[Phase, float] | None = None,
        step: int = 0,
        busy: float = 0.0,
        *,
        first: bool = False,
    ) -> None:
        self.at = at
        self.phases = phases or {}
        self.step = step
        self.busy = busy
        self.first = first  # the first step is written


def _passed(now: Mapping[Phase, float], before: Mapping[Phase, float]) -> dict[Phase, float]:
    """The seconds in each phase since the last row.

    Once the library's loop begins, what the hooks had taken for joining counts as starting: so many seconds have passed
    there before.
    """
    found = {one: now.get(one, 0.0) - before.get(one, 0.0) for one in now.keys() | before.keys()}
    moved = sum(seconds for seconds in found.values() if seconds < 0)
    return found | {Phase.STARTING: found.get(Phase.STARTING, 0.0) + moved}


def _run_line(run: str) -> str:
    return json.dumps({"run": run})


def _lines_of(run: str, text: str) -> list[Line]:
    """The lines of a tail, if it is of this run."""
    first, _, rest = text.partition("\n")
    return [*timeline.lines(rest.encode())] if first == _run_line(run) else []


def _progress(known: RankProgress | None) -> dict[str, Any]:
    if known is None:
        return {}
    return {"loss": known.loss, "samples_per_second": known.samples_per_second, "epoch": known.epoch}


def _resident(pid: int) -> int:
    """Bytes of main memory that a process holds; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
