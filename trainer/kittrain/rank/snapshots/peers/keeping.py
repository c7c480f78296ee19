"""Keeps the copies of one node: tells the directory what its folder holds, does what it is told, and prunes.

The folder alone says what there is to do, so this can be killed and started again at any time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import copies_status
from kittrain.rank.snapshots.folder.archive import Archive
from kittrain.rank.snapshots.folder.copies_status import CopiesStatus
from kittrain.rank.snapshots.folder.held import Held, Holdings
from kittrain.rank.snapshots.folder.snapshot import IncompatibleError
from kittrain.rank.snapshots.peers.directory import GONE, Directory, Ends, Plan
from kittrain.rank.snapshots.peers.fetching import Fetcher, FetchError
from kittrain.rank.snapshots.peers.messages import Answer, Request, Round
from kittrain.rank.snapshots.peers.serving import Server
from kittrain.rank.snapshots.peers.wire import TIMEOUT, Channel, PeerLostError

INTERVALS: Final = (0.05, 0.25)  # seconds between two looks at the folder: while there is something to do, and else
PER_NODE: Final = 0.005  # the same for each node: all ask one
ANYWAY: Final = 1.0  # seconds after which the directory is told even what has not changed
RETRY: Final = (0.1, 2.0)  # seconds after a failure: first and longest
PATIENCE: Final = 20.0  # seconds without a shard that has come, after which rank 0's node waits for no other
EVENTS: Final = (PeerLostError, FetchError, CorruptError, IncompatibleError, OSError)


@dataclass(kw_only=True)
class Keeper:
    """Looks at the folder again and again.

    Attributes:
        node: this one.
        folder: of its snapshots.
        server: this node's.
        open: connects to another node's process.
        run: id of the run.
        archive: prunes the folder.
        whole: whether the node with rank 0 is to hold all shards.
        stays: whether nodes are needed until what they hold is uploaded; the next one does it if rank 0's is lost.
        log: receives a line for each kind of failure.
    """

    node: int
    folder: Path
    server: Server
    open: Callable[[str], Channel]
    run: str
    archive: Archive
    whole: bool
    log: Callable[[str], None]
    stays: bool = False
    _round: Round | None = None
    _first: int = 0  # the place of the round that has the directory: at the end the first that is left
    _changed: threading.Event = field(default_factory=threading.Event)
    _channel: Channel | None = None
    _asked: str = ""  # the address that the channel is to
    _status: CopiesStatus | None = None
    _told: str = ""
    _seen: Sequence[Held] | None = None  # as the directory was told last
    _told_at: float = 0.0
    _pruned: str = ""
    _settled: bool = False  # whether the newest snapshot that is here is all where it is to be, as far as it is known
    _finishing: threading.Event = field(default_factory=threading.Event)
    _heard_at: float = 0.0  # of rank 0's node; at that node: when a shard came last
    _ends: Ends = ""
    _stay: bool = False  # whether this node is to stay although it is settled
    _released: threading.Event = field(default_factory=threading.Event)
    _superseded: bool = False  # whether rank 0's node is in a later round
    _failures: int = 0  # one after another

    def begin(self, one: Round) -> None:
        """A round of the ranks has begun; called by another thread."""
        mine = one.places and one.places[0].node == self.node
        whole = self.node if self.whole else None
        self.server.lead(Directory(round=one.number, ring=one.places, whole=whole) if mine else None)
        self._round, self._seen, self._first = one, None, 0
        self._changed.set()

    def finish(self, what: Ends = "node") -> None:
        """Nothing more is published here: the status says when others need this no more; from another thread."""
        self._heard_at = time.monotonic()
        if self.stays:
            self._ends = what
            self.server.end()
        self._finishing.set()
        self._changed.set()

    def release(self) -> None:
        """What is here is uploaded, or given up: tell those who stay, and the agent by the status."""
        self.server.release()
        self._released.set()
        self._changed.set()

    def keep(self) -> None:
        """Keep copies for good."""
        holdings, finishing = Holdings(self.folder), False
        while True:
            if self._finishing.is_set() and not finishing:
                finishing, self._settled, self._seen = True, False, None  # what is needed at the end is asked then
            try:
                self._look(holdings)
                self._failures = 0
            except EVENTS as error:
                self._failed(error)
                first, longest = RETRY
                self._wait(min(first * 2**self._failures, longest))
                self._failures = min(self._failures + 1, 10)
            if finishing:
                self._end()
            interval = INTERVALS[self._settled or self._round is None]
            self._wait(max(interval, PER_NODE * len(self._round.places if self._round else ())))

    def _end(self) -> None:
        """Tell the agent whether others need this node, and whether it takes the place of rank 0's."""
        silent = self._silent
        if silent and self.stays and self._round and not self._leads and not self._superseded:
            self._pass_over(self._round)
            silent = False
        needed = not (self._settled and not self._stay) and not self._superseded and not silent
        told = self._released.is_set() and not self.server.awaited
        own = os.getpid()
        last = self._status or CopiesStatus(run=self.run)
        self._write(
            replace(
                last,
                leads=own if self._leads and self._first else 0,
                settled=0 if needed else own,
                stays=own if self._stay and needed else 0,
                released=own if told else 0,
            )
        )

    @property
    def _leads(self) -> bool:
        """Whether this node has the directory of its round."""
        return self._round is not None and self._round.places[self._first].node == self.node

    @property
    def _silent(self) -> bool:
        """Whether nobody asks for what is here any more; at the node that has the directory: whether no shard comes."""
        return time.monotonic() > self._heard_at + (PATIENCE if self._leads else GONE)

    def _pass_over(self, one: Round) -> None:
        """The node that has the directory is lost: the next one has it."""
        self._first, self._heard_at, self._seen, self._settled = self._first + 1, time.monotonic(), None, False
        if self._leads:
            places, now = one.places[self._first :], time.monotonic()
            self.server.lead(Directory(round=one.number, ring=places, whole=self.node, ending=now))

    def _wait(self, seconds: float) -> None:
        self._changed.wait(seconds)
        self._changed.clear()

    def _look(self, holdings: Holdings) -> None:
        one = self._round
        if one is None:
            return
        held = holdings.scan()
        patience = 0.0 if self._stay else ANYWAY
        if held == self._seen and self._settled and time.monotonic() < self._told_at + patience:
            return
        plan = self._ask(one, held)
        self._seen, self._told_at = held, time.monotonic()
        self._settled = plan is not None and (
            not held or (plan.have >= plan.wanted and plan.gathered and held[0].digest == plan.digest)
        )
        self._stay = plan is not None and plan.stays
        if plan is None:
            self._seen = None  # the directory's node has yet to begin this round
            return
        self._told = self._told if plan.tasks else ""
        self._tell(plan)
        self._prune(plan, holdings)  # first: where nothing can be fetched, the disk must not fill
        if plan.tasks:
            Fetcher(self.folder, self.node, self.open, self._say).fetch(plan)
            self._seen, self._told, self._heard_at = None, "", time.monotonic()

    def _ask(self, one: Round, held: Sequence[Held]) -> Plan | None:
        request = Request(node=self.node, round=one.number, held=tuple(held), ends=self._ends)
        leader = one.places[self._first]
        if leader.node == self.node:
            return self.server.tell(request).plan
        if self._channel is None or self._asked != leader.address:
            self._close()
            self._channel, self._asked = self.open(leader.address), leader.address
        try:
            self._channel.send(request)
            answer: Answer = self._channel.receive(Answer, timeout=GONE if self._ends else TIMEOUT)
        except PeerLostError:
            self._close()
            raise
        self._superseded = answer.round > one.number
        if answer.plan or (self._first and not answer.round):  # it notices by itself that it is the next one
            self._heard_at = time.monotonic()
        return answer.plan

    def _close(self) -> None:
        if self._channel:
            self._channel.close()
        self._channel = None

    def _prune(self, plan: Plan, holdings: Holdings) -> None:
        """Delete what has expired, as the newest snapshot with all its copies is there: that one stays."""
        for name, digest in plan.lost:
            if found := holdings.manifest(name, digest):
                self.archive.drop(found)
        copied = plan.copied
        safe = copied and holdings.manifest(copied.name, copied.digest)
        newest = holdings.manifest(plan.name, plan.digest) if plan.behind else safe
        if newest and newest.digest != self._pruned:
            self.archive.apply_retention(newest, but=safe.name if safe else "")
            self._pruned = newest.digest

    def _tell(self, plan: Plan) -> None:
        last = self._status or CopiesStatus(run=self.run)
        self._write(
            replace(
                last,
                step=plan.step,
                have=plan.have,
                wanted=plan.wanted,
                copied_step=plan.copied.step if plan.copied else last.copied_step,
                copied_digest=plan.copied.digest if plan.copied else last.copied_digest,
                sent=self.server.sent,
                warning=self._told,
            )
        )

    def _failed(self, error: Exception) -> None:
        """Say it once; what a lost node causes is said where the loss is."""
        if isinstance(error, PeerLostError):
            return
        text = " ".join(str(error).split())
        if text != self._told:
            self._told = text
            self._say(text)
        last = self._status or CopiesStatus(run=self.run)
        self._write(replace(last, warning=text))

    def _say(self, text: str) -> None:
        self.log(f"warning: {text}")

    def _write(self, status: CopiesStatus) -> None:
        """For the ranks and the agent."""
        if status != self._status:
            with suppress(FileNotFoundError):  # there is no folder yet
                copies_status.write(self.folder, status)
                self._status = status
