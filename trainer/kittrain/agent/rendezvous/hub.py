"""Forms rounds, ends them, and detects hangs: receives the nodes' messages and applies membership and hang rules.

The hub holds no state that the nodes could not send again. Each node has one connection; when it ends, the node is
lost. ``peers`` authenticates connections and ``messages`` validates messages, so that only valid messages of the run's
nodes arrive here. Messages about a round count only from its nodes; a node of a former round gets ``RoundEnded``.

Why: decision 10.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from kittrain.agent.rendezvous import messages
from kittrain.agent.rendezvous.handshake import Key
from kittrain.agent.rendezvous.hang_detector import HangDetector
from kittrain.agent.rendezvous.membership import Membership, Node, Superseded
from kittrain.agent.rendezvous.messages import Message
from kittrain.agent.rendezvous.peers import LOST, Peer, PeerServer
from kittrain.agent.rendezvous.resumes import Resume, distinct
from kittrain.agent.rendezvous.round_values import RoundValues
from kittrain.agent.rendezvous.settings import RendezvousSettings
from kittrain.agent.rendezvous.standstill import StandstillWatch
from kittrain.agent.rendezvous.stragglers import StragglerDetector
from kittrain.outcome.termination import Ending
from kittrain.system.port import BACKLOG

MAX_MISSED_HEARTBEATS: Final = 6  # of a node whose ranks run
TICK: Final = 0.1  # seconds between two checks of timeouts


class Hub:
    """Receives the nodes' messages and sends them what the rules decide.

    Args:
        key: of the run; a node must know it.
        membership: the rules of rounds.
        hang_detector: the rules of hangs.
        settings: timeouts.
        warn: called for addresses that do not know the key.
    """

    def __init__(
        self,
        key: Key,
        membership: Membership,
        hang_detector: HangDetector,
        *,
        settings: RendezvousSettings,
        warn: Callable[[str], None],
    ) -> None:
        self._server = PeerServer(key, self, settings=settings, warn=warn)
        self._membership = membership
        self._hang_detector = hang_detector
        self._stragglers = StragglerDetector()
        self._standstill = StandstillWatch()
        self._told = ""  # the first node, of a standstill
        self._alone: dict[Node, int] = {}  # ranks that train a model of their own
        self._resumes: dict[Node, Resume] = {}  # from what the ranks of the round have gone on
        self._spares: list[Node] = []  # that know that they stand by for this round
        self._timings_sent_at = 0.0
        self._timings_interval = settings.keep_alive_timeout
        self._peers: dict[Node, Peer] = {}
        self._nodes: dict[Peer, Node] = {}
        self._values = RoundValues(self._send)
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
                    async with asyncio.timeout(TICK):
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
        elif node is None:
            self._reject(peer, "the first message must be Hello")
        else:
            self._hang_detector.record_message(node, time.monotonic())
            self._dispatch(node, message)

    def connection_lost(self, peer: Peer) -> None:
        """An authenticated peer is gone."""
        if node := self._nodes.get(peer):
            self._remove(node, peer.why_lost)

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

    def _reject(self, peer: Peer, reason: str) -> None:
        peer.send(messages.Rejected(reason=reason))
        peer.close()

    def _dispatch(self, node: Node, message: Message) -> None:
        match message:
            case messages.Join():
                node.address, node.port = message.address, message.port
                self._peers[node].reachable_at(message.port)
                ended = self._membership.join(node, round=message.round, size=message.size)
                self._end_round(ended, lost=True, reason=f"the ranks of {node.name} have ended")
                self._changed.set()
            case messages.EndRound(lost=lost):
                reason = f"the ranks of {node.name} {'have failed' if lost else 'were asked to stop'}"
                self._end_round(self._membership.end_round(node), lost=lost, reason=reason)
            case messages.Fail(ending=ending):
                self._fail_job(node, replace(ending, node=node.index))
            case _ if node.active:  # else about a former round: RoundEnded is on its way to the node
                self._dispatch_in_round(node, message)

    def _dispatch_in_round(self, node: Node, message: Message) -> None:
        match message:
            case messages.Set(values=values):
                self._values.set(values)
            case messages.Get(keys=keys):
                self._values.get(node, keys)
            case messages.Heartbeat(stalled=stalled, frozen=frozen, progress=progress, quiet=quiet):
                self._standstill.record_heartbeat(node, quiet=quiet)
                self._hang_detector.record_heartbeat(node, stalled=stalled, frozen=frozen)
                self._stragglers.update(progress, time.monotonic())
            case messages.StackReport(ranks=ranks):
                self._hang_detector.record_stacks(node, [replace(rank, node=node.name) for rank in ranks])
            case messages.Look(ranks=ranks):
                self._standstill.record(node, ranks)
            case messages.OwnAlone(ranks=ranks):
                self._alone[node] = ranks
                self._send(self._membership.group[0], messages.AllAlone(ranks=sum(self._alone.values())))
            case messages.OwnResume(resume=resume):
                self._record_resume(node, resume)
            case messages.Drain():
                node.draining = True
            case messages.Done():
                self._membership.mark_done(node)
                self._changed.set()

    def _record_resume(self, node: Node, resume: Resume) -> None:
        """Once all nodes of the round have resumed, tell the first if they have from different files."""
        self._resumes[node] = resume
        group = self._membership.group
        if len(self._resumes) == len(group) and len(found := distinct(self._resumes.values())) > 1:
            self._send(group[0], messages.AllResumes(resumes=found))

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
            self._begin_round()
        self._tell_spares()

    def _tell_spares(self) -> None:
        """Tell nodes that they stand by, and the first node of the round which ones do."""
        spares = self._membership.standing_by
        for node in spares:
            if node not in self._spares:
                self._send(node, messages.StandBy())
        if self._spares != spares and self._membership.group:
            self._send(self._membership.group[0], messages.Spares(nodes=[node.index for node in spares]))
        if self._membership.group:
            self._spares = spares

    def _begin_round(self) -> None:
        """Reset what was known of the last round, and send its nodes the new one."""
        self._hang_detector.reset()
        self._stragglers.reset()
        self._standstill.reset()
        self._told = ""
        self._alone.clear()
        self._resumes.clear()
        self._spares = []
        group = self._membership.group
        first = group[0]
        round_ = messages.Round(
            number=self._membership.round, rank=0, size=len(group), address=first.address, port=first.port
        )
        for rank, node in enumerate(group):
            self._send(node, replace(round_, rank=rank))

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
        if hang := self._hang_detector.diagnosis(group, now):
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
            self._send(node, messages.RoundEnded(lost=lost, reason=reason, culprit=culprit))
        if group:
            self._hang_detector.reset()
            self._standstill.reset()
            self._told = ""
            self._values.clear()

    def _send(self, node: Node, message: Message) -> None:
        if node in self._peers:
            self._peers[node].send(message)
