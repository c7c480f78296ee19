"""Forms rounds, ends them, and detects hangs: receives the nodes' messages and applies membership and hang rules.

The hub holds no state that the nodes could not send again, so any node's can serve: the others' stand by until the
nodes of a round that has lost its hub come to one of them. Each node has one connection; when it ends, the node is
lost. ``peers`` authenticates connections and ``messages`` validates messages, so that only valid messages of the run's
nodes arrive here. Messages about a round count only from its nodes; a node of a former round gets ``RoundEnded``.

Why: decision 10; of other nodes' hubs decision 59.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from kittrain.agent.rendezvous import messages
from kittrain.agent.rendezvous.handshake import Introduction, Key
from kittrain.agent.rendezvous.hang_detector import HangDetector
from kittrain.agent.rendezvous.membership import Membership, Node, Superseded
from kittrain.agent.rendezvous.messages import Message
from kittrain.agent.rendezvous.peers import LOST, Peer, PeerServer
from kittrain.agent.rendezvous.resumes import Resume, distinct
from kittrain.agent.rendezvous.round_values import RoundValues
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.rendezvous.standstill import StandstillWatch
from kittrain.agent.rendezvous.stragglers import StragglerDetector
from kittrain.agent.rendezvous.succession import Configuration, Verdict
from kittrain.outcome.termination import Ending
from kittrain.system.port import BACKLOG
from kittrain.system.sample_orders import SampleOrder
from kittrain.system.sample_orders import distinct as distinct_orders

MAX_MISSED_HEARTBEATS: Final = 6  # of a node whose ranks run
TICK: Final = 0.1  # seconds between two checks of timeouts
IDLE_TICK: Final = 1.0  # the same while nobody is connected
TIE_SECONDS: Final = 1.0  # until half of a round's nodes do not wait for the others to come here, too
RELEASE_SECONDS: Final = 4.0  # until nodes that may not form a round are sent to look elsewhere
SUCCESSORS: Final = 16  # nodes that are told as such, spread over a large round
CONFIRM_SECONDS: Final = 2.0  # in which a lost node's hub shows whether its agent has ended
CONFIRM_INTERVAL: Final = 0.1


class Hub:
    """Receives the nodes' messages and sends them what the rules decide.

    Args:
        key: of the run; a node must know it.
        membership: the rules of rounds.
        hang_detector: the rules of hangs.
        settings: timeouts.
        warn: called for addresses that do not know the key.
        node: whose hub this is.
        claim: claims a round of which half of the nodes are here, given its number and nodes; may block.
    """

    def __init__(
        self,
        key: Key,
        membership: Membership,
        hang_detector: HangDetector,
        *,
        settings: RendezvousSettings,
        warn: Callable[[str], None],
        node: int = 0,
        claim: Callable[[int, frozenset[int]], bool] = lambda _number, _nodes: False,
    ) -> None:
        self._name = f"{node}-{secrets.token_hex(8)}"
        self._claim = claim
        self._claims: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._elsewhere = ""
        self._other: Peer | None = None  # the hub that has told this one that it serves
        self._own_node = node
        self._leaving: Peer | None = None  # the agent that this hub ends with, once it waits for that
        self._heir: Node | None = None  # whose hub takes over then
        self._stuck_since: float | None = None
        self.serves = False  # whether its nodes are in a round, or may form the next one
        self.serving = asyncio.Event()  # the same
        self.idle = asyncio.Event()  # the opposite
        self.idle.set()
        self._server = PeerServer(key, self, settings=settings, warn=warn)
        self._membership = membership
        self._hang_detector = hang_detector
        self._stragglers = StragglerDetector()
        self._standstill = StandstillWatch()
        self._told = ""  # the first node, of a standstill
        self._alone: dict[Node, int] = {}  # ranks that train a model of their own
        self._resumes: dict[Node, Resume] = {}  # from what the ranks of the round have gone on
        self._saved: set[Node] = set()  # that have saved a checkpoint of their own
        self._orders: dict[Node, Sequence[SampleOrder]] = {}  # in which they train on samples
        self._spares: list[Node] = []  # that know that they stand by for this round
        self._timings_sent_at = 0.0
        self._timings_interval = settings.keep_alive_timeout
        self._peers: dict[Node, Peer] = {}
        self._nodes: dict[Peer, Node] = {}
        self._values = RoundValues(self._send, lambda: membership.settled)
        self._changed = asyncio.Event()
        self._failure: messages.JobFailed | None = None  # how the job ends, once a node has failed permanently
        self._failing: set[Node] = set()
        self._notified: set[int] = set()  # indices of the nodes that know about the failure

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the process ends."""
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: Peer(self._server), sock=listener, backlog=BACKLOG):
            while True:
                with suppress(TimeoutError):  # some rules depend on the time alone
                    async with asyncio.timeout(TICK if self._server.busy else IDLE_TICK):
                        await self._changed.wait()
                self._changed.clear()
                now = time.monotonic()
                self._server.drop_expired(now)
                self._server.drop_silent(now)
                self._update_round(now)
                self._check_nodes(now)

    def message_received(self, peer: Peer, message: Message) -> None:
        """An authenticated peer has sent a message: Hello first, then any other."""
        node = self._nodes.get(peer)
        if isinstance(message, messages.Hello):
            self._register(peer, message)
        elif isinstance(message, messages.Serves) and node is None:
            self._membership.follow()
            if message.round >= self.round and not self.serves:
                self._other = peer
                self.move(message.address)
            self._changed.set()
        elif node is None:
            self._reject(peer, "the first message must be Hello")
        else:
            self._hang_detector.record_message(node, time.monotonic())
            self._dispatch(node, message)

    def connection_lost(self, peer: Peer) -> None:
        """An authenticated peer is gone."""
        if peer is self._other:
            self._other = None
            self._elsewhere = "" if self._heir is None else self._elsewhere
        if peer is self._leaving:
            self._leaving = None
        if node := self._nodes.get(peer):
            if node.draining:
                self._membership.depart(node.index, at=node.last)
            elif peer.why_lost == LOST and node.in_last_round and not node.released:
                self._start(self._confirm_end(node))
            self._remove(node, peer.why_lost)

    def introduction(self) -> Introduction:
        """See the base class."""
        return Introduction(hub=self._name, elsewhere=self._elsewhere, serves=self.serves)

    @property
    def round(self) -> int:
        """The number of the last round that is known here."""
        return self._membership.round

    def move(self, elsewhere: str) -> None:
        """Another hub serves, as ``address:port``; empty: none is known any more."""
        if self._membership.group and elsewhere:
            return  # a round of this hub's has not ended
        if elsewhere and elsewhere != self._elsewhere:
            for node in self._peers:
                node.released = True
                self._send(node, messages.Moved(address=elsewhere))
        self._elsewhere = elsewhere

    def _register(self, peer: Peer, hello: messages.Hello) -> None:
        if peer in self._nodes:
            self._reject(peer, "Hello was sent twice")
            return
        if hello.node >= self._membership.all_nodes:
            last = self._membership.all_nodes - 1
            self._reject(peer, f"node {hello.node} is not part of this job, whose last node is {last}")
            return
        node = Node(index=hello.node, started_at=hello.started_at, pod=hello.pod)
        try:
            predecessor = self._membership.predecessor(node, first=hello.first)
        except Superseded:
            self._reject(peer, f"a newer agent has taken the place of node {node.index}")
            return
        if predecessor:  # it was killed, and its connection has not timed out yet
            self._remove(predecessor)
        self._membership.add(node)
        self._peers[node], self._nodes[peer] = peer, node
        self._hang_detector.record_message(node, time.monotonic())
        self._notify_failure(node)
        if self._elsewhere:  # which is known only since it was answered
            self._send(node, messages.Moved(address=self._elsewhere))

    def _reject(self, peer: Peer, reason: str) -> None:
        peer.send(messages.Rejected(reason=reason))
        peer.close()

    def _dispatch(self, node: Node, message: Message) -> None:
        match message:
            case messages.Join():
                node.address, node.port = message.address, message.port
                node.hub_port = message.hub_port
                self._peers[node].reachable_at(message.hub_port or message.port)
                ended = self._membership.join(
                    node, known=message.known, place=message.place, gone=message.gone, coming=message.coming
                )
                self._end_round(ended, lost=True, reason=f"the ranks of {node.name} have ended")
                self._changed.set()
            case messages.EndRound(lost=lost, waited=waited):
                drained = [one.name for one in self._membership.group if one.draining and not lost]
                failed = f"timed out after {waited} ms in a collective" if waited else "have failed"
                reason = f"the ranks of {(drained or [node.name])[0]} {failed if lost else 'were asked to stop'}"
                self._end_round(self._membership.end_round(node), lost=lost, reason=reason)
            case messages.Leave():
                self._leave(node)
            case messages.Fail(ending=ending):
                self._fail_job(node, replace(ending, node=node.index))
            case _ if node.active:  # else about a former round: RoundEnded is on its way to the node
                self._dispatch_in_round(node, message)

    def _dispatch_in_round(self, node: Node, message: Message) -> None:
        match message:
            case messages.Set(values=values):
                self._membership.heard(node)
                self._values.set(values)
            case messages.Get(keys=keys):
                self._membership.heard(node)
                self._values.get(node, keys)
            case messages.Heartbeat(stalled=stalled, frozen=frozen, progress=progress, quiet=quiet):
                self._standstill.record_heartbeat(node, quiet=quiet)
                self._hang_detector.record_heartbeat(node, stalled=stalled, frozen=frozen)
                self._stragglers.update(progress, time.monotonic())
            case messages.StackReport(ranks=ranks):
                self._hang_detector.record_stacks(node, [replace(rank, node=node.name) for rank in ranks])
            case messages.Look(ranks=ranks):
                self._standstill.record(node, [replace(rank, node=node.name) for rank in ranks])
            case messages.Drain():
                node.draining = True
            case messages.Done():
                self._membership.mark_done(node)
                self._changed.set()
            case _:
                self._compare(node, message)

    def _compare(self, node: Node, message: Message) -> None:
        """Tell the first node of the round what its ranks do not do alike."""
        match message:
            case messages.OwnAlone(ranks=ranks):
                self._alone[node] = ranks
                self._send(self._membership.group[0], messages.AllAlone(ranks=sum(self._alone.values())))
            case messages.OwnResume(resume=resume):
                self._record_resume(node, resume)
            case messages.OwnSave():
                self._record_save(node)
            case messages.OwnOrders(orders=orders):
                self._record_orders(node, orders)

    def _record_resume(self, node: Node, resume: Resume) -> None:
        """Once all nodes of the round have resumed, tell the first if they have from different files."""
        self._resumes[node] = resume
        group = self._membership.group
        if len(self._resumes) == len(group) and len(found := distinct(self._resumes.values())) > 1:
            self._send(group[0], messages.AllResumes(resumes=found))

    def _record_save(self, node: Node) -> None:
        """Once each node of the round has saved a checkpoint of its own, tell all of them."""
        self._saved.add(node)
        if self._saved.issuperset(self._membership.group):
            for one in self._membership.group:
                self._send(one, messages.AllSaved())

    def _record_orders(self, node: Node, orders: Sequence[SampleOrder]) -> None:
        """Once all nodes of the round have told theirs, tell the first if they are not the same."""
        self._orders[node] = orders
        group = self._membership.group
        if len(self._orders) == len(group) and len(found := distinct_orders(chain(*self._orders.values()))) > 1:
            self._send(group[0], messages.AllOrders(orders=found))

    def _leave(self, node: Node) -> None:
        """The agent of a drained node ends, and takes no part in any further round."""
        if node.index != self._own_node:  # the end of its connection says the same
            return
        node.draining = True
        self._membership.depart(node.index, at=node.last)
        self._membership.retire()
        self._leaving = self._peers.pop(node)
        del self._nodes[self._leaving]
        self._hang_detector.remove(node)
        reason = f"{node.name}, where the others meet, was asked to stop"
        self._end_round(self._membership.remove(node), lost=True, reason=reason)
        self._end_round(self._membership.give_up(), lost=False, reason=reason)
        self._changed.set()
        self._release_failing()

    def _hand_over(self) -> None:
        """Send all nodes that are ready to the hub that takes over, and let this one's agent end after them."""
        if self._leaving is None:
            return
        members = self._membership
        staying = [node for node in self._peers if not node.draining]
        if not staying or members.finished or not members.known:  # only node 0 forms a first round
            self._leaving.send(messages.HandedOver())
            self._leaving = None
            return
        if self._heir is None or not (self._heir.released or self._heir in self._peers):
            self._heir = members.heir
        if self._heir is None:
            return
        self._elsewhere = f"{self._heir.address}:{self._heir.hub_port}"
        coming = sorted(node.index for node in staying)
        over = messages.HandOver(address=self._elsewhere, gone=members.ended, coming=coming)
        for node in sorted(staying, key=lambda node: node is not self._heir):
            if node.ready and not node.released:
                node.released = True
                self._send(node, over)

    def _remove(self, node: Node, reason: str = LOST) -> None:
        peer = self._peers.pop(node, None)
        if peer:  # else it was removed for its successor
            del self._nodes[peer]
            peer.close()
            self._hang_detector.remove(node)
            self._end_round(self._membership.remove(node), lost=True, reason=f"{node.name} {reason}")
            self._changed.set()
            self._release_failing()

    def _fail_job(self, node: Node, ending: Ending) -> None:
        self._failure = self._failure or messages.JobFailed(ending=ending)
        self._failing.add(node)
        self._notified.add(node.index)
        for other in self._peers.keys() - self._failing:
            self._notify_failure(other)
        self._release_failing()

    def _notify_failure(self, node: Node) -> None:
        if self._failure:
            self._send(node, self._failure)
            self._notified.add(node.index)

    def _release_failing(self) -> None:
        """Release failing nodes once all others were notified and are gone: node 0 takes this process along."""
        if len(self._notified) >= self._membership.min_nodes and self._peers.keys() <= self._failing:
            for node in self._failing:
                self._send(node, messages.FailureSeen())

    def _update_round(self, now: float) -> None:
        """End, finish or form a round by the membership's rules; once for all messages that have arrived."""
        self._end_round(self._membership.scale_up(now), lost=False, reason="more nodes are available: scaling up")
        for node in self._membership.finish():
            self._send(node, messages.JobFinished())
        if self._membership.form_round(now):
            self._begin_round(now)
        self._hand_over()
        self._tell_spares()
        self._watch_quorum(now)

    def _watch_quorum(self, now: float) -> None:
        """Claim a round of which half of the nodes are here; send them elsewhere if they may not go on.

        Nodes that are here and still stop their ranks, which may take a snapshot first, are waited for.
        """
        members = self._membership
        decides = bool(members.group) or members.leads
        self._show_whether_it_serves(serves=decides and not self._elsewhere)
        verdict = None if decides or not members.ready else members.verdict
        if verdict is None or verdict.granted:
            self._stuck_since = None
            return
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        if now >= self._stuck_since + TIE_SECONDS:
            self._claim_ties(verdict)
        if now >= self._stuck_since + RELEASE_SECONDS:
            self._release_ready(verdict)

    def _show_whether_it_serves(self, *, serves: bool) -> None:
        self.serves = serves
        for event, on in ((self.serving, serves), (self.idle, not serves)):
            (event.set if on else event.clear)()

    def _claim_ties(self, verdict: Verdict) -> None:
        """Try to get the fence of each round of which just half of the nodes are here."""
        for one in self._membership.known:
            if one.number in verdict.ties and one.number not in self._claims:
                self._claims[one.number] = self._start(self._claim_round(one))

    def _release_ready(self, verdict: Verdict) -> None:
        """Send the nodes that wait here elsewhere."""
        self._stuck_since = None
        self._claims = {number: task for number, task in self._claims.items() if not task.done()}
        for node in self._membership.ready:
            node.released = True
            self._send(node, messages.NoQuorum(reason=verdict.reason))

    async def _claim_round(self, one: Configuration) -> None:
        if await asyncio.get_running_loop().run_in_executor(None, self._claim, one.number, one.nodes):
            self._membership.claim(one.number)
            self._changed.set()

    async def _confirm_end(self, node: Node) -> None:
        """Ask at a lost node's own hub whether its agent has ended: it has if its machine refuses connections there."""
        until = time.monotonic() + CONFIRM_SECONDS
        while node.hub_port and time.monotonic() < until:
            try:
                async with asyncio.timeout(CONFIRM_SECONDS):
                    _, writer = await asyncio.open_connection(node.address, node.hub_port)
            except ConnectionRefusedError:
                self._membership.depart(node.index, at=node.last)
                self._changed.set()
                return
            except OSError:  # TimeoutError is one: nothing is known
                return
            writer.close()
            await asyncio.sleep(CONFIRM_INTERVAL)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _tell_spares(self) -> None:
        """Tell nodes that they stand by, and the first node of the round which ones do."""
        spares = self._membership.standing_by
        for node in spares:
            if node not in self._spares:
                self._send(node, messages.StandBy())
                self._send(node, self._succession())
        if self._spares != spares and self._membership.group:
            self._send(self._membership.group[0], messages.Spares(nodes=[node.index for node in spares]))
        if self._membership.group:
            self._spares = spares

    def _begin_round(self, now: float) -> None:
        """Reset what was known of the last round, and send its nodes the new one."""
        self._hang_detector.begin(self._membership.group, now)
        self._stragglers.reset()
        self._standstill.reset()
        self._told = ""
        self._alone.clear()
        self._resumes.clear()
        self._saved.clear()
        self._orders.clear()
        self._spares = []
        group = self._membership.group
        first = group[0]
        round_ = messages.Round(
            number=self._membership.round, rank=0, size=len(group), address=first.address, port=first.port
        )
        succession = messages.dump(self._succession())
        for rank, node in enumerate(group):
            self._send_text(node, succession)
            self._send(node, replace(round_, rank=rank))

    def _succession(self) -> messages.Succession:
        """Who decides what follows this round, and whose hub would serve then: nodes that stand by come last."""
        group = self._membership.group
        few = group[:: -(-len(group) // SUCCESSORS)] + self._membership.standing_by[: max(SUCCESSORS - len(group), 1)]
        successors = [f"{node.index} {node.address}:{node.hub_port}" for node in few if node.hub_port]
        return messages.Succession(known=self._membership.known, successors=successors)

    def _check_nodes(self, now: float) -> None:
        """Find silent nodes, stragglers and hangs."""
        group = self._membership.group
        for node in self._hang_detector.silent_nodes(self._peers, now):
            self._remove(node, reason="is not responding: its agent or its machine is suspended")
        if group and now > self._timings_sent_at + self._timings_interval:  # as often as heartbeats arrive
            self._timings_sent_at = now
            self._send(group[0], messages.StepTimings(busy=self._stragglers.busy(), slow=self._stragglers.slow()))
        self._show_standstill(group, now)
        if self._hang_detector.should_request_stacks(group, now):
            for node in group:
                self._send(node, messages.RequestStacks())
        if hang := self._hang_detector.diagnosis(group, now) or self._standstill.hang(now):
            ended = self._membership.end_round(group[0])
            self._end_round(ended, lost=True, reason=hang.text, culprit=(hang.rank, hang.step))

    def _show_standstill(self, group: list[Node], now: float) -> None:
        """Look where the ranks are while none takes a step, and tell the first node."""
        if self._standstill.should_look(group, now):
            for node in group:
                self._send(node, messages.RequestLook())
        seconds = self._standstill.look(group, now)
        if group and self._told != self._standstill.text:
            self._told = self._standstill.text
            self._send(group[0], messages.StandsStill(seconds=seconds or 0.0, what=self._told))

    def _end_round(self, group: list[Node], *, lost: bool, reason: str, culprit: tuple[int, int] | None = None) -> None:
        """Send nodes the end of their round, and drop the round's values; nothing to do for an empty group."""
        for node in group:
            if lost or not node.draining:  # else its ranks are ending by themselves
                self._send(node, messages.RoundEnded(lost=lost, reason=reason, culprit=culprit))
        if group:
            self._hang_detector.reset()
            self._standstill.reset()
            self._told = ""
            self._values.clear()

    def _send(self, node: Node, message: Message) -> None:
        if node in self._peers:
            self._peers[node].send(message)

    def _send_text(self, node: Node, text: bytes) -> None:
        if node in self._peers:
            self._peers[node].send_text(text)
