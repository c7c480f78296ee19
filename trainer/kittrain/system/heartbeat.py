"""A rank's heartbeat: its current phase, in a memory-mapped file that its agent reads.

A beat costs about a microsecond and no system call. There is no lock: the agent reads again soon, and compares the
number of beats instead of clocks. Two writers share the file, each with a part of its own: the library's loop, and the
hooks in a script's optimizers (``kittrain.agent.hooks.script_hooks``), which count only until the loop begins. Standard
library only.
"""

from __future__ import annotations

import mmap
import struct
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from kittrain.system import calls, heartbeat_files, sample_orders
from kittrain.system.calls import NO_CALL, Call
from kittrain.system.exchanges import MANY, OFTEN, Exchanges
from kittrain.system.heartbeat_files import NO_FILES, Files, LoadedFile
from kittrain.system.sample_orders import SampleOrder


class Phase(IntEnum):
    """What a rank is doing, in chronological order; a training step is DATA to SYNCING."""

    STARTING = 0  # no beat yet; without the library there is none before the first optimizer step
    JOINING = 1
    PREPARING = 2  # the script's own code before training
    RESTORING = 3
    DATA = 4
    FORWARD = 5
    BACKWARD = 6  # includes the gradients' all-reduce
    UPDATING = 7
    COMPUTING = 8  # a loop of the script's own: FORWARD to UPDATING, indistinguishable from outside
    SYNCING = 9  # exchanges the loss and the decision to stop with the other ranks
    EVALUATING = 10
    SAVING = 11
    FINISHING = 12  # the script's own code after training
    SCRIPT = 13  # a training loop of the script's own: only its optimizer steps are known


STEP: Final = range(Phase.DATA, Phase.SYNCING + 1)
BUSY: Final = frozenset({Phase.DATA, Phase.FORWARD, Phase.UPDATING})  # the rank does not wait for others

_NOW: Final = struct.Struct("<QQQd")  # beats, finished steps, phase, when it began
_FIRST: Final = struct.Struct(f"<{len(Phase)}d")  # time.monotonic() when each phase first began; 0: not yet
_MOMENT: Final = struct.Struct("<d")  # one of these
_MOMENT_SIZE: Final = _MOMENT.size
# Calls of optimizers, steps, largest process group, newest checkpoint, timed backward passes, updates without an
# optimizer, exchanges of models since the first backward pass, busy seconds before the timed ones.
_SCRIPT: Final = struct.Struct("<QQQQQQQd")
_SCRIPT_AT: Final = _NOW.size + _FIRST.size
# Written by processes that the rank has started: how many have formed a group apart from the job.
_SEPARATE: Final = struct.Struct("<Q")
_SEPARATE_AT: Final = _SCRIPT_AT + _SCRIPT.size
_FILES_AT: Final = _SEPARATE_AT + _SEPARATE.size
_SPENT: Final = struct.Struct(f"<{len(Phase)}d")  # seconds in each phase of the library's loop, until the current one
_SPENT_AT: Final = _FILES_AT + heartbeat_files.SIZE
_NOT_FINITE: Final = struct.Struct("<Q")  # the step at which the hooks have seen a parameter that is not; 0: never
_NOT_FINITE_AT: Final = _SPENT_AT + _SPENT.size
# Whether the rank can go on in another round (1) or waits to do so (2), and how many rounds it has left.
_ROUNDS: Final = struct.Struct("<QQ")
_ROUNDS_AT: Final = _NOT_FINITE_AT + _NOT_FINITE.size
_CALL_AT: Final = _ROUNDS_AT + _ROUNDS.size  # the last collective, noted by the hooks
_BEGUN: Final = struct.Struct("<Q")  # collectives that the rank had begun as its group, or its script, ended
_BEGUN_AT: Final = _CALL_AT + calls.SIZE
# Checkpoints that the script has saved after its first step: the last one's step, time.monotonic() then and at the
# first one, and at how many steps there was one.
_STORED: Final = struct.Struct("<QddQ")
_STORED_AT: Final = _BEGUN_AT + _BEGUN.size
# The script's evaluations: seconds in those that have ended, and time.monotonic() when this one began; 0: none.
_EVALUATED: Final = struct.Struct("<dd")
_EVALUATED_AT: Final = _STORED_AT + _STORED.size
_ORDER_AT: Final = _EVALUATED_AT + _EVALUATED.size  # of the sampler of the first step
SIZE: Final = _ORDER_AT + sample_orders.SIZE
_TOGETHER: Final = ((0, _NOW.size), (_EVALUATED_AT, _EVALUATED.size))  # what is written at once
READS: Final = 3  # of a page that its rank changes meanwhile


class HeartbeatWriter:
    """The rank's side. Without a file (no agent) it does nothing."""

    def __init__(self, file: Path | None = None) -> None:
        self._page: mmap.mmap | None = None
        if file is not None:
            self._page = _open(file)
        self._beats = self._step = 0
        self._phase = Phase.STARTING
        self._since = time.monotonic()
        self._spent = [0.0] * len(Phase)
        self._first = [0.0] * len(Phase)
        self._survives = self._left = 0

    def renew(self) -> None:
        """Count the time anew: this rank is in another round."""
        if self._page is None:
            return
        self._spent, self._first = [0.0] * len(Phase), [0.0] * len(Phase)
        self._phase, self._since = Phase.STARTING, time.monotonic()
        _SPENT.pack_into(self._page, _SPENT_AT, *self._spent)
        _FIRST.pack_into(self._page, _NOW.size, *self._first)

    def survives(self, *, can: bool, waits: bool = False) -> None:
        """Whether this rank can go on in another round if its round ends now, and whether it waits for that."""
        self._survives = int(can) + int(waits)
        self._write_rounds()

    def left(self, number: int) -> None:
        """So many rounds have ended for this rank, and it waits for nobody any more."""
        self._left = number
        self._write_rounds()

    def _write_rounds(self) -> None:
        if self._page is not None:
            _ROUNDS.pack_into(self._page, _ROUNDS_AT, self._survives, self._left)

    def beat(self, phase: Phase, *, step: int | None = None) -> None:
        """Enter a phase; ``step`` is the number of finished steps, if it changed."""
        if self._page is None:
            return
        now, last = time.monotonic(), self._phase
        self._spent[last] = spent = self._spent[last] + now - self._since
        if step is not None:
            self._step = step
        self._phase, self._since = phase, now
        self._beats += 1
        _MOMENT.pack_into(self._page, _SPENT_AT + last * _MOMENT_SIZE, spent)
        _NOW.pack_into(self._page, 0, self._beats, self._step, phase, now)
        if not self._first[phase]:
            self._first[phase] = now
            _write_first(self._page, phase, now)


class ScriptWriter:
    """The hooks' side, in any script: its optimizer steps, its process group, and what it resumed from.

    Optimizers that take turns, as those of a GAN do, count once: a step ends when one of them is called again.
    """

    def __init__(self, file: Path) -> None:
        self._page = _open(file)
        self._calls = self._steps = self._group = self._loaded = self._timed = self._by_hand = 0
        self._busy = self._since = 0.0  # seconds; when the last backward pass ended
        self._evaluated = self._evaluating = 0.0  # seconds; when this evaluation began
        self._collectives = 0  # when it ended
        self._exchanges = Exchanges()
        self._passes = 0
        self._saved = False
        self._called: set[int] = set()  # optimizers that were called in the current step
        self._enter(Phase.JOINING)

    @property
    def optimized(self) -> bool:
        """Whether an optimizer has been called."""
        return self._calls > 0

    @property
    def steps(self) -> int:
        """Optimizer steps so far."""
        return self._steps

    @property
    def grouped(self) -> bool:
        """Whether this rank has been in a process group."""
        return self._group > 0

    def optimizer_called(self, optimizer: int) -> None:
        """An optimizer, given by its id, has updated its parameters."""
        self._calls += 1
        if optimizer in self._called or not self._steps:
            self._steps += 1
            self._called.clear()
        self._called.add(optimizer)
        self._write()
        if self._calls == 1:
            self._enter(Phase.SCRIPT)

    def backward_began(self, collectives: int) -> None:
        """A backward pass begins; before it the rank was busy, unless it has waited in a collective.

        Args:
            collectives: that this rank has begun; 0: unknown.
        """
        if collectives and collectives == self._collectives:
            self._timed += 1
            self._busy += time.monotonic() - self._since
        elif self._passes:
            self.met(collectives)
        if self._steps == 1 and not self._passes:  # torch takes one to create an optimizer's state
            self._steps = 0
            self._called.clear()
        self._collectives = collectives
        self._passes += 1

    def backward_ended(self, collectives: int) -> None:
        """It has ended. What the rank does from now on delays the others in the next one."""
        self._since = time.monotonic()
        self.met(collectives)

    def met(self, collectives: int) -> None:
        """Count the collectives since the last call, given all that this rank has begun."""
        self._exchanges.count(collectives - self._collectives)
        self._collectives = collectives

    def exchanged(self, collectives: int, size: int) -> bool:
        """Count an exchange by its bytes; returns whether to go on, until the ranks are known to meet."""
        if self._passes:
            self._exchanges.add(collectives, size)
        return self._exchanges.met < OFTEN

    def calls(self, call: Call) -> None:
        """The rank calls a collective."""
        call.write(self._page, _CALL_AT)

    def calls_again(self, number: int) -> None:
        """The rank calls a collective like the last one."""
        Call.count(self._page, _CALL_AT, number)

    def trains(self, size: int) -> None:
        """The parameters that are trained have this many bytes."""
        self._exchanges.trains(size)

    def meets_otherwise(self) -> None:
        """The ranks exchange data in a way that is not counted: they are not taken to train alone."""
        if self._exchanges.met < MANY:
            self._exchanges.met = MANY
            self._write()

    def not_finite(self) -> None:
        """A parameter is not finite, as that of the last step is none."""
        _NOT_FINITE.pack_into(self._page, _NOT_FINITE_AT, self._steps)

    def updated_by_hand(self, passes: int) -> None:
        """The script has changed its parameters without an optimizer, up to that backward pass."""
        self._by_hand = passes
        self._write()

    def ended(self, collectives: int) -> None:
        """The script ends, or its process group does."""
        if self._passes:
            self.met(collectives)
        self._write()
        if collectives:
            _BEGUN.pack_into(self._page, _BEGUN_AT, collectives)

    def group_formed(self, size: int) -> None:
        """The ranks have formed a process group of this size."""
        self._group = max(self._group, size)
        self._write()
        _BEGUN.pack_into(self._page, _BEGUN_AT, 0)  # it has not ended
        self._enter(Phase.PREPARING)

    def file_loaded(self, changed: int, file: LoadedFile) -> None:
        """The script has loaded a file that was last changed then; in the middle of training it is no restart's.

        One step may come before: torch takes it to create an optimizer's state, for ``torch.distributed.checkpoint``.
        """
        if self._steps <= 1 and changed > self._loaded:
            self._loaded = changed
            heartbeat_files.write_loaded(self._page, _FILES_AT, file)
            self._write()

    def file_saved(self, name: str) -> None:
        """The script has saved a checkpoint that only this node has; before the first step it is data, or the start."""
        if not self._saved and (self._calls or self._by_hand):
            self._saved = True
            heartbeat_files.write_saved(self._page, _FILES_AT, name)

    def stored(self) -> None:
        """The script has saved a checkpoint anywhere; before the first step it is data, or the start."""
        if self._calls or self._by_hand:
            last, _, first, number = _STORED.unpack_from(self._page, _STORED_AT)
            number += not number or last != self._steps  # one may be written as several files
            now = time.monotonic()
            _STORED.pack_into(self._page, _STORED_AT, self._steps, now, first or now, number)

    def samples(self, sampler: Any) -> None:
        """The script trains on what a ``DistributedSampler`` gives.

        Raises:
            struct.error: it is none of torch's.
        """
        SampleOrder.write(self._page, _ORDER_AT, sampler)

    def evaluation_begins(self) -> None:
        """The script evaluates its model."""
        self._evaluating = time.monotonic()
        _EVALUATED.pack_into(self._page, _EVALUATED_AT, self._evaluated, self._evaluating)

    def evaluation_ends(self) -> None:
        """It trains it again. What the evaluation took does not count as the next step's."""
        now = time.monotonic()
        self._evaluated += now - self._evaluating
        _EVALUATED.pack_into(self._page, _EVALUATED_AT, self._evaluated, 0.0)
        self._since = now

    def _write(self) -> None:
        calls, steps, loaded = self._calls, self._steps, self._loaded
        if not calls:  # another process may train for this one, and have written its own
            calls, steps, _, others, *_ = _SCRIPT.unpack_from(self._page, _SCRIPT_AT)
            loaded = max(loaded, others)
        counts = calls, steps, self._group, loaded, self._timed, self._by_hand, self._exchanges.met
        _SCRIPT.pack_into(self._page, _SCRIPT_AT, *counts, self._busy)

    def _enter(self, phase: Phase) -> None:
        """Set when a phase began, unless the library's loop has."""
        if not _FIRST.unpack_from(self._page, _NOW.size)[phase]:
            _write_first(self._page, phase, time.monotonic())


def write_separate(file: Path, size: int) -> None:
    """Write, from a process that the rank has started, the size of a group apart from the job.

    Raises:
        OSError: the file is gone.
    """
    with _open(file) as page:
        _SEPARATE.pack_into(page, _SEPARATE_AT, size)


def _open(file: Path) -> mmap.mmap:
    with file.open("r+b") as opened:
        return mmap.mmap(opened.fileno(), SIZE)


def _write_first(page: mmap.mmap, phase: Phase, now: float) -> None:
    _MOMENT.pack_into(page, _NOW.size + phase * _MOMENT.size, now)


class Stored(NamedTuple):
    """The last checkpoint that a script with a loop of its own has saved.

    Attributes:
        step: at which it was saved, of the steps of its process.
        at: the moment, in ``time.monotonic()``.
        first: when its process has saved its first one: no other process has the same.
        number: of the steps of its process at which one was saved; 0: none.
    """

    step: int = 0
    at: float = 0.0
    first: float = 0.0
    number: int = 0


NONE_STORED: Final = Stored()


@dataclass(frozen=True, kw_only=True)
class HeartbeatState:
    """The agent's side: the content of the file at one moment.

    Attributes:
        beats: changes whenever the rank moves.
        step: finished optimizer steps; in phase SCRIPT those of this process.
        phase: what it is doing.
        busy: seconds in which it did not wait for others, in all timed steps.
        timed: steps whose busy seconds are known; in phase SCRIPT backward passes.
        since: when the current phase began, in ``time.monotonic()``; of the library's loop.
        spent: by phase, the seconds in it before the current one; of the library's loop.
        first: by phase, when it first began, in ``time.monotonic()``; 0: not yet.
        group: ranks of the largest process group that it has joined; 0: none.
        updates: of its parameters in a loop of the script's own: optimizer steps, or backward passes if it uses none.
        met: collectives that it has begun since its first backward pass; of those whose bytes are known, as many as
            these have been whole models.
        separate: processes of the group that its own processes have formed apart from the job; 0: none.
        not_finite: the step at which a parameter was seen that is not finite, in a loop of the script's own; 0: none.
        loaded: when the newest file that it loaded before its second step was last changed, in nanoseconds; 0: none.
        survives: whether it can go on in another round if others of its round are lost.
        waits: whether it has taken the last step of its round, and waits for the next one.
        left: how many rounds it has left without ending.
        call: the last collective that it has called.
        begun: collectives that it had begun as its group, or its script, ended; 0: unknown.
        stored: the last checkpoint that a script with a loop of its own has saved.
        evaluated: the seconds of the evaluations of a script with a loop of its own that have ended, and when the
            current one began, in ``time.monotonic()``; 0: none.
        order: in which a script with a loop of its own trains on samples, as of rank 0; None: unknown.
    """

    beats: int
    step: int
    phase: Phase
    busy: float
    first: tuple[float, ...]
    group: int = 0
    updates: int = 0
    met: int = 0
    separate: int = 0
    not_finite: int = 0
    loaded: int = 0
    timed: int = 0
    since: float = 0.0
    spent: tuple[float, ...] = (0.0,) * len(Phase)
    files: Files = NO_FILES
    survives: bool = False
    waits: bool = False
    left: int = 0
    call: Call = NO_CALL
    begun: int = 0
    stored: Stored = NONE_STORED
    evaluated: tuple[float, float] = (0.0, 0.0)
    order: SampleOrder | None = None

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a rank's file.

        Raises:
            OSError: it is gone.
        """
        page = _settled(file)
        beats, step, number, since = _NOW.unpack_from(page)
        spent: tuple[float, ...] = _SPENT.unpack_from(page, _SPENT_AT)
        busy = sum(spent[phase] for phase in BUSY)
        first: tuple[float, ...] = _FIRST.unpack_from(page, _NOW.size)
        called, steps, group, loaded, timed, by_hand, met, script_busy = _SCRIPT.unpack_from(page, _SCRIPT_AT)
        (separate,) = _SEPARATE.unpack_from(page, _SEPARATE_AT)
        (not_finite,) = _NOT_FINITE.unpack_from(page, _NOT_FINITE_AT)
        survives, left = _ROUNDS.unpack_from(page, _ROUNDS_AT)
        phase = Phase(number)
        updates = (steps or by_hand) if phase < Phase.RESTORING and not left else 0
        if called and phase < Phase.RESTORING and not left:  # the library's loop has not begun
            beats, step, phase, busy = beats + called, steps, Phase.SCRIPT, script_busy
        else:
            first, timed, not_finite = (*first[: Phase.SCRIPT], 0.0), step, 0
        seen = {"group": group, "separate": separate, "loaded": loaded, "timed": timed, "updates": updates, "met": met}
        files = Files.read(page, _FILES_AT)
        return cls(
            beats=beats,
            step=step,
            phase=phase,
            busy=busy,
            first=first,
            files=files,
            not_finite=not_finite,
            since=since,
            spent=spent,
            survives=bool(survives),
            waits=survives > 1,
            left=left,
            call=Call.read(page, _CALL_AT),
            begun=_BEGUN.unpack_from(page, _BEGUN_AT)[0],
            stored=Stored(*_STORED.unpack_from(page, _STORED_AT)) if updates else NONE_STORED,
            evaluated=_EVALUATED.unpack_from(page, _EVALUATED_AT) if phase is Phase.SCRIPT else (0.0, 0.0),
            order=SampleOrder.read(page, _ORDER_AT, 0) if phase is Phase.SCRIPT else None,
            **seen,
        )

    def before(self, began: float) -> bool:
        """Whether it still shows the round before: its rank lives on, and has not left that one.

        Args:
            began: when this round's ranks were started, in ``time.monotonic()``.
        """
        # A rank that waits for its round has joined before it began; it prepares once it knows which one it is.
        return any(0.0 < moment < began for moment in self.first[Phase.PREPARING :])

    def phases(self, began: float, now: float) -> dict[Phase, float]:
        """The seconds in each phase from the start of the rank to now; together they are all of that time.

        Args:
            began: when the rank was started, or the round that it lives on in, in ``time.monotonic()``.
            now: the same clock.
        """
        if self.before(began):
            return {Phase.STARTING: max(now - began, 0.0)}
        if self.since and self.phase is not Phase.SCRIPT:
            found = {phase: self.spent[phase] for phase in Phase if phase and self.spent[phase]}
            found[self.phase] = found.get(self.phase, 0.0) + max(now - self.since, 0.0)
            if (joined := self.first[Phase.JOINING]) and Phase.JOINING in found:  # its wait for this round is no part
                found[Phase.JOINING] = max(found[Phase.JOINING] - max(began - joined, 0.0), 0.0)
            return {Phase.STARTING: max(now - began - sum(found.values()), 0.0), **found}
        reached = [(began, Phase.STARTING)]
        for phase in (Phase.JOINING, Phase.PREPARING, Phase.SCRIPT):
            if self.first[phase]:
                reached.append((min(max(self.first[phase], reached[-1][0]), now), phase))
        ends = [*(moment for moment, _ in reached[1:]), now]
        return {phase: end - moment for (moment, phase), end in zip(reached, ends, strict=True)}

    def evaluating(self, now: float) -> float:
        """The seconds of its evaluations until now, in a loop of the script's own."""
        ended, began = self.evaluated
        return ended + (max(now - began, 0.0) if began else 0.0)


def _settled(file: Path) -> bytes:
    """A page that no beat has changed while it was read, as far as that can be had."""
    page = file.read_bytes()
    for _ in range(READS):
        again = file.read_bytes()
        if all(again[at : at + size] == page[at : at + size] for at, size in _TOGETHER):
            break
        page = again
    return page


def prepare(file: Path) -> Path:
    """Create the file of a rank that is about to start."""
    file.write_bytes(bytes(SIZE))
    return file
