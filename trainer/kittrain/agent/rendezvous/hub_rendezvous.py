"""Implements the rendezvous handler of torch's elastic agent over a connection to the hub."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from kittrain.agent.rendezvous import messages, rank_store
from kittrain.agent.rendezvous.connection import Connection, ConnectionSilent
from kittrain.agent.rendezvous.diagnosis import RankStatus
from kittrain.agent.rendezvous.finding import LastRound
from kittrain.agent.rendezvous.interface import JobEnded, Rendezvous, RoundOver
from kittrain.agent.rendezvous.messages import Message
from kittrain.agent.rendezvous.own_hub import OwnHub
from kittrain.agent.rendezvous.rank_store import RankStore
from kittrain.agent.rendezvous.resumes import Resume
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.rendezvous.succession import Configuration
from kittrain.outcome.termination import FINISHED, Ending, as_fatal
from kittrain.system.lines import ConnectionLost
from kittrain.system.sample_orders import SampleOrder, distinct

M = TypeVar("M", bound=Message)
POLL_SECONDS: Final = 1.0  # between two calls of `waiting`


class _HandedOverError(RendezvousConnectionError):
    """The hub ends, and another one takes over."""

    def __init__(self, told: messages.HandOver) -> None:
        super().__init__(f"another node's hub takes over, at {told.address}")
        self.told = told


class RoundStore:
    """Values that the nodes of a round share, with the methods that torch's elastic agent and the report use.

    The hub holds them until the round ends; a key is set only once.

    Args:
        send: sends a message to the hub.
        request: sends a request to the hub, and returns its reply.

    Attributes:
        clock: the hub's clock, ``theirs`` in Unix seconds ``at`` a moment of ``time.monotonic()``, from the answer
            that came fastest; at most ``error`` seconds wrong. None: there was no answer yet.
    """

    def __init__(self, send: Callable[[Message], None], request: Callable[[messages.Get], messages.Values]) -> None:
        self._send = send
        self._request = request
        self.clock: dict[str, float] | None = None

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set keys."""
        texts = (value if isinstance(value, str) else value.decode() for value in values)
        self._send(messages.Set(values=dict(zip(keys, texts, strict=True))))

    def get(self, key: str) -> bytes:
        """A key's value; blocks until it is set."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of these keys; blocks until all of them are set."""
        asked = time.monotonic()
        answer = self._request(messages.Get(keys=keys))
        error = (time.monotonic() - asked) / 2
        if answer.time and (self.clock is None or error < self.clock["error"]):
            self.clock = {"theirs": answer.time, "at": asked + error, "error": error}
        return [value.encode() for value in answer.values]


class HubRendezvous(Rendezvous):
    """The handler of one connection.

    Args:
        connection: to the hub.
        settings: ``join_timeout`` limits the wait for a round, unless this node stands by; ``read_timeout`` the wait
            for a reply.
        last: updated with what the hub tells.
        run_id: id of the run.
        address: where the other nodes reach this one.
        store: of the ranks, used if this is the first node of a round.
        own: this node's own hub.
        go: connects to a hub that takes over from this one.
        hello: the first message of a connection.
    """

    def __init__(  # noqa: PLR0913  what a connection to the hub needs
        self,
        connection: Connection,
        settings: RendezvousSettings,
        *,
        last: LastRound,
        run_id: str,
        address: str,
        store: RankStore,
        own: OwnHub,
        go: Callable[[str], Connection],
        hello: Callable[[], messages.Hello],
    ) -> None:
        self._connection = connection
        self._go = go
        self._hello = hello
        self._settings = settings
        self._last = last
        self._own = own
        self._run_id = run_id
        self._address = address
        self._store = store
        self._round_ended = self._done = self._resumed = self._ordered = self._stands_by = False
        self._saved = False
        self._reported = (False, False, False)  # of the ranks: stalled, frozen, quiet
        self._last_heartbeat = self._last_sent = 0.0
        self.lost = False

    def next_rendezvous(self) -> RendezvousInfo:
        """See the base class: wait for the next round.

        Raises:
            RendezvousTimeoutError: it was not formed within ``join_timeout``.
            RendezvousConnectionError: node 0 is gone.
        """
        last = self._last
        self._join()
        while True:
            try:
                message = self._wait_for_round()
            except _HandedOverError as error:
                self._move(error.told)
            else:
                break
        self._store.begin(first=message.rank == 0)
        self._round_ended = self._done = self.lost = self.stacks_requested = False
        self._reported = (False, False, False)
        self.look_requested, self.standstill = False, None
        self.reason, self.culprit, self.step_timings = "", None, None
        self.training_alone = self._own_alone = 0
        self.spares = ()
        self.resumes, self._resumed = (), False
        self.all_saved = self._saved = False
        self.orders, self._ordered = (), False
        self._stands_by = False
        last.place, last.astray = message.rank, False
        return RendezvousInfo(
            RoundStore(self.send, self.request),  # type: ignore[arg-type]  # what torch's agent uses of a store
            message.rank,
            message.size,
            RendezvousStoreInfo(message.address, message.port),
        )

    def _join(self, coming: Sequence[int] = ()) -> None:
        last = self._last
        join = messages.Join(
            address=self._address,
            port=self._store.reserve(self._address),
            hub_port=self._own.listen(self._address),
            known=last.known,
            place=last.place,
            gone=sorted(last.gone),
            coming=coming,
        )
        self.send(join)

    def _move(self, told: messages.HandOver) -> None:
        """Wait for the round at the hub that takes over."""
        self._last.gone.update(told.gone)
        self._connection.close()
        self._connection = self._go(told.address)
        self.send(self._hello())
        self._join(told.coming)

    @property
    def descriptor(self) -> int:
        """See the base class."""
        return self._connection.descriptor

    def num_nodes_waiting(self) -> int:
        """See the base class: nonzero if the round has ended, which is all that torch's agent uses it for.

        A hang is not a membership change but a failure; see :attr:`culprit`.
        """
        while message := self._receive(0):
            self._handle(message)
        self._keep_alive()
        return int(self._round_ended and self.culprit is None)

    def heartbeat(
        self, *, stalled: bool, frozen: bool, progress: Mapping[int, tuple[int, float]], quiet: bool = False
    ) -> None:
        """See the base class: sent at once when the state changes, else every few seconds."""
        now = time.monotonic()
        state = (stalled, frozen, quiet)
        if state != self._reported or now > self._last_heartbeat + self._settings.keep_alive_timeout:
            self._reported, self._last_heartbeat = state, now
            self.send(messages.Heartbeat(stalled=stalled, frozen=frozen, progress=progress, quiet=quiet))

    def report_alone(self, ranks: int) -> None:
        """See the base class."""
        if ranks != self._own_alone:
            self._own_alone = self.training_alone = ranks
            self.send(messages.OwnAlone(ranks=ranks))

    def report_resume(self, resume: Resume) -> None:
        """See the base class: sent once a round."""
        if not self._resumed:
            self._resumed = True
            self.send(messages.OwnResume(resume=resume))

    def report_save(self) -> None:
        """See the base class: sent once a round."""
        if not self._saved:
            self._saved = True
            self.send(messages.OwnSave())

    def report_orders(self, orders: Sequence[SampleOrder]) -> None:
        """See the base class: sent once a round."""
        if not self._ordered:
            self._ordered = True
            self.send(messages.OwnOrders(orders=distinct(orders)))

    def report_stacks(self, ranks: Sequence[RankStatus]) -> None:
        """See the base class."""
        self.stacks_requested = False
        self.send(messages.StackReport(ranks=ranks))

    def report_look(self, ranks: Sequence[RankStatus]) -> None:
        """See the base class."""
        self.look_requested = False
        self.send(messages.Look(ranks=ranks))

    def drain(self) -> None:
        """See the base class."""
        self.send(messages.Drain())

    def end_round(self, *, lost: bool, waited: float = 0.0) -> None:
        """See the base class."""
        self.send(messages.EndRound(lost=lost, waited=round(1000 * waited)))

    def done(self, *, timeout: float) -> bool:
        """See the base class: sent once, and answered once all nodes are done."""
        if not self._done:
            self._done = True
            self.send(messages.Done())
        self._keep_alive()
        with suppress(RendezvousTimeoutError):
            self._wait_for(messages.JobFinished, timeout=timeout)
            return True
        return False

    def fail(self, ending: Ending, *, timeout: float) -> None:
        """See the base class."""
        self.send(messages.Fail(ending=ending))
        deadline = time.monotonic() + timeout
        while (message := self._receive(max(deadline - time.monotonic(), 0))) and not isinstance(
            message, messages.FailureSeen
        ):
            pass  # no other message matters to a node that fails

    def leave(self) -> None:
        """See the base class."""
        self._connection.close()

    def hand_over(self, *, timeout: float) -> None:
        """See the base class."""
        self.send(messages.Leave())
        deadline = time.monotonic() + timeout
        while (message := self._receive(max(deadline - time.monotonic(), 0))) and not isinstance(
            message, messages.HandedOver
        ):
            pass  # no other message matters to a node that leaves

    def request(self, request: messages.Get) -> messages.Values:
        """Request values of the round's store from the hub.

        Raises:
            RoundOver: the round has ended.
        """
        self.send(request)
        values = self._wait_for(messages.Values, timeout=self._settings.read_timeout)
        if values.settled:
            self._last.known = self._last.known[:1]
        return values

    def send(self, message: Message) -> None:
        """Send a message to the hub.

        Raises:
            RendezvousConnectionError: node 0 is gone.
        """
        self._last_sent = time.monotonic()
        try:
            self._connection.send(message)
        except ConnectionLost as error:
            raise self._gone(error) from error

    def _keep_alive(self) -> None:
        if time.monotonic() > self._last_sent + self._settings.keep_alive_timeout:
            self.send(messages.KeepAlive())

    def _wait_for_round(self) -> messages.Round:
        deadline = time.monotonic() + self._settings.join_timeout
        while (left := deadline - time.monotonic()) > POLL_SECONDS or self._stands_by:
            with suppress(RendezvousTimeoutError):
                return self._wait_for(messages.Round, timeout=POLL_SECONDS)
            self.waiting()
        return self._wait_for(messages.Round, timeout=max(left, 0.0))

    def _wait_for(self, kind: type[M], *, timeout: float) -> M:
        deadline = time.monotonic() + timeout
        while message := self._receive(max(deadline - time.monotonic(), 0)):
            if isinstance(message, kind):
                return message
            self._handle(message)
            if self._round_ended and kind is not messages.Round:
                raise RoundOver(self.reason or "a node was lost while the round began or ended")
        raise RendezvousTimeoutError(f"no {kind.__name__} message from the hub within {timeout:.0f} s")

    def _receive(self, timeout: float) -> Message | None:
        try:
            return self._connection.receive(timeout)
        except ConnectionLost as error:
            raise self._gone(error) from error

    def _gone(self, error: ConnectionLost) -> RendezvousConnectionError:
        """The hub is: from now on, this node's own one may take its place."""
        self.lost = True
        self._last.closed = not isinstance(error, ConnectionSilent)
        self._own.move("")
        return RendezvousConnectionError(f"node {self._last.hub_node} is lost: {error}")

    def _handle(self, message: Message) -> None:
        match message:
            case messages.RoundEnded():
                self._round_ended = True
                self.standstill = None
                self.lost, self.reason, self.culprit = message.lost, message.reason, message.culprit
            case messages.JobFailed(ending=ending):
                self.lost = True
                raise JobEnded(as_fatal(ending))
            case messages.JobFinished():  # without this node, which waits for a round
                raise JobEnded(FINISHED)
            case messages.Rejected(reason=reason):
                raise RendezvousConnectionError(reason)
            case messages.Succession(known=known, successors=successors):
                self._take(known, successors)
            case messages.HandOver():
                raise _HandedOverError(message)
            case messages.Moved() | messages.NoQuorum():
                self._look_elsewhere(message)
            case messages.StandBy():
                self._stands_by = True
                self.standing_by()
            case _:
                self._learn(message)

    def _look_elsewhere(self, message: messages.Moved | messages.NoQuorum) -> None:
        """This hub does not go on, or not with this node."""
        if isinstance(message, messages.Moved):
            raise RendezvousConnectionError(f"another node serves, at {message.address}")
        self._last.astray = True
        raise RendezvousConnectionError(message.reason)

    def _take(self, known: Sequence[Configuration], successors: Sequence[str]) -> None:
        """Who decides what follows the round that begins, or goes on without this node."""
        last = self._last
        last.known, last.place = tuple(known), None
        found = (one.partition(" ") for one in successors)
        last.successors = [(int(index), address) for index, _, address in found]
        last.gone.clear()
        self._own.stand_by(self._address)

    def _learn(self, message: Message) -> None:
        """Take what the hub asks, and what it tells the first node of a round."""
        match message:
            case messages.RequestLook():
                self.look_requested = True
            case messages.RequestStacks():
                self.stacks_requested = True
            case messages.StepTimings():
                timings = {"busy": message.busy, "slow": message.slow}
                self.step_timings = {
                    name: {str(rank): one for rank, one in by_rank.items()} for name, by_rank in timings.items()
                }
            case messages.AllAlone(ranks=ranks):
                self.training_alone = ranks
            case messages.AllResumes(resumes=resumes):
                self.resumes = resumes
            case messages.AllSaved():
                self.all_saved = True
            case messages.AllOrders(orders=orders):
                self.orders = orders
            case messages.Spares(nodes=nodes):
                self.spares = nodes
            case messages.StandsStill(seconds=seconds, what=what):
                since = self.standstill[0] if self.standstill else time.time() - seconds
                self.standstill = (since, what) if what else None

    @property
    def hosts(self) -> bool:  # type: ignore[override]  # an attribute of the base class
        """See the base class."""
        return self._last.hub_node == self._own.node_index

    def get_backend(self) -> str:
        """See the base class."""
        return "hub"

    @property
    def use_agent_store(self) -> bool:
        """See the base class: the first node's agent hosts the ranks' store until its next round."""
        return rank_store.is_supported()

    def get_run_id(self) -> str:
        """See the base class."""
        return self._run_id

    def is_closed(self) -> bool:
        """See the base class: always False; only the end of the job closes the rendezvous."""
        return False

    def set_closed(self) -> None:
        """See the base class: does nothing; one node does not close the run for all."""

    def shutdown(self) -> bool:
        """See the base class."""
        self.leave()
        return True
