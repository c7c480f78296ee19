"""Where the nodes of a job meet: it hears them, and tells them what the roster and the vigil decide.

It holds nothing that the nodes could not tell it anew. Each node keeps one connection, and a connection that ends is a
node that is gone. Messages, as in ``system.lines``:

    node: hello {run, node, born, pod} · join {address, port, round, size} · end {lost} · done {}
          set {values} · get {keys}                          what the nodes of a round tell each other
          pulse {stalled, frozen, tempo} · account {ranks}   how the ranks are, every few seconds · where they stand
          alive {}                                           where there was nothing else to say for a while
          fail {ending}                                      this node fails for good, and the job with it
    hub:  round {number, rank, size, address, port} · over {lost, reason, culprit} · values {values}
          finished {}                                        the ranks of all nodes have succeeded
          refused {reason} · explain {}                      where do your ranks stand?
          tempo {busy, slow}                                 to the first node of a round: how fast all ranks are
          failed {ending} · told {}                          to all others · to the node that fails: they have heard

What belongs to a round is heard from its nodes only: whoever still speaks of a former round has been sent ``over``.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import defaultdict
from contextlib import suppress
from typing import Final

from trainer.rendezvous.diagnosis import account
from trainer.rendezvous.roster import Node, Roster, Superseded
from trainer.rendezvous.tempo import Tempo
from trainer.rendezvous.vigil import Vigil
from trainer.system.lines import LONGEST, Message, encode, notice_silence
from trainer.system.port import BACKLOG

SILENT_PULSES: Final = 6  # that a node whose ranks run may miss
TICK: Final = 0.1  # seconds between two looks at the last call's clock


class Hub:
    """Listens to the nodes and tells them what the roster decides.

    Args:
        run: the id of the run; nodes of another one are refused.
        roster: the rules of rounds.
        vigil: the rules of hangs.
        interval: seconds between two signs of life of a silent connection.
        attempts: how many may be missing.
    """

    def __init__(self, run: str, roster: Roster, vigil: Vigil, *, interval: int, attempts: int) -> None:
        self._run = run
        self._roster = roster
        self._vigil = vigil
        self._tempo = Tempo()
        self._tempo_told = 0.0
        self._interval = interval
        self._attempts = attempts
        self._writers: dict[Node, asyncio.StreamWriter] = {}
        self._values: defaultdict[str, asyncio.Future[str]] = defaultdict(asyncio.Future)
        self._answers: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._failed: Message | None = None  # how the job ends, once a node has failed for good
        self._failing: set[Node] = set()
        self._heard: set[int] = set()  # the indices of the nodes that know

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the process ends."""
        server = await asyncio.start_server(self._talk, sock=listener, limit=LONGEST, backlog=BACKLOG)
        async with server:
            while True:
                with suppress(TimeoutError):  # the last call has a clock
                    await asyncio.wait_for(self._news.wait(), TICK)
                self._news.clear()
                self._decide()
                self._look(time.monotonic())

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: socket.socket = writer.get_extra_info("socket")
        notice_silence(connection, interval=self._interval, attempts=self._attempts)
        node: Node | None = None
        try:
            node = self._greet(json.loads(await reader.readline() or "{}"), writer)
            while node and (line := await reader.readline()):
                self._hear(node, json.loads(line))
        except (OSError, ValueError):  # a port scanner, or a node that was reset
            pass
        finally:
            if node:
                self._lose(node)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _greet(self, hello: Message, writer: asyncio.StreamWriter) -> Node | None:
        if hello.get("run") != self._run:
            writer.write(encode({"say": "refused", "reason": f"this is the rendezvous of run {self._run}"}))
            return None
        node = Node(index=hello["node"], born=hello["born"], pod=hello["pod"])
        try:
            rival = self._roster.rival(node)
        except Superseded:
            writer.write(encode({"say": "refused", "reason": f"a younger agent has the place of node {node.index}"}))
            return None
        if rival:  # it was killed, and its connection has not noticed yet
            self._lose(rival)
        self._roster.enter(node)
        self._writers[node] = writer
        self._vigil.hear(node, time.monotonic())
        self._tell_failure(node)
        return node

    def _hear(self, node: Node, message: Message) -> None:
        self._vigil.hear(node, time.monotonic())
        match message:
            case {"say": "join", "address": address, "port": port, "round": number, "size": size}:
                node.address, node.port = address, port
                over = self._roster.join(node, round=number, size=size)
                self._over(over, lost=True, reason=f"the ranks of {node.name} are no more")
                self._news.set()
            case {"say": "end", "lost": lost}:
                reason = f"the ranks of {node.name} {'have failed' if lost else 'were asked to stop'}"
                self._over(self._roster.end(node), lost=lost, reason=reason)
            case {"say": "fail", "ending": ending}:
                self._fail(node, ending)
            case _ if node.active:  # else of a round that is over, as the node will read
                self._hear_of_round(node, message)

    def _hear_of_round(self, node: Node, message: Message) -> None:
        match message:
            case {"say": "set", "values": values}:
                for key, value in values.items():
                    if not self._values[key].done():
                        self._values[key].set_result(value)
            case {"say": "get", "keys": keys}:
                answer = asyncio.create_task(self._answer(node, keys))
                self._answers.add(answer)
                answer.add_done_callback(self._answers.discard)
            case {"say": "pulse", "stalled": stalled, "frozen": frozen, "tempo": tempo}:
                self._vigil.stall(node, stalled=stalled, frozen=frozen)
                self._tempo.hear(tempo, time.monotonic())
            case {"say": "account", "ranks": ranks}:
                self._vigil.explain(node, [account(told, node=node.name) for told in ranks])
            case {"say": "done"}:
                self._roster.succeed(node)
                self._news.set()

    async def _answer(self, node: Node, keys: list[str]) -> None:
        """Answer when all keys are set; a round that is over before takes the question with it."""
        self._tell(node, {"say": "values", "values": [await self._values[key] for key in keys]})

    def _lose(self, node: Node, reason: str = "is lost") -> None:
        writer = self._writers.pop(node, None)
        if writer:  # else its successor has made sure already
            writer.close()
            self._vigil.forget(node)
            self._over(self._roster.leave(node), lost=True, reason=f"{node.name} {reason}")
            self._news.set()
            self._release()

    def _fail(self, node: Node, ending: Message) -> None:
        self._failed = self._failed or {"say": "failed", "ending": ending}
        self._failing.add(node)
        self._heard.add(node.index)
        for other in self._writers.keys() - self._failing:
            self._tell_failure(other)
        self._release()

    def _tell_failure(self, node: Node) -> None:
        if self._failed:
            self._tell(node, self._failed)
            self._heard.add(node.index)

    def _release(self) -> None:
        """Let nodes go that have failed once all others have heard, and have gone: node 0 takes this process along."""
        if len(self._heard) >= self._roster.fewest and self._writers.keys() <= self._failing:
            for node in self._failing:
                self._tell(node, {"say": "told"})

    def _decide(self) -> None:
        """Let the roster act on what has happened, the passing of time included; once for all that has arrived."""
        now = time.monotonic()
        self._over(self._roster.grow(now), lost=False, reason="there are nodes to make the job larger")
        for node in self._roster.dismiss():
            self._tell(node, {"say": "finished"})
        if not self._roster.form(now):
            return
        self._vigil.begin()
        self._tempo.begin()
        first, size = self._roster.group[0], len(self._roster.group)
        seat = {"say": "round", "number": self._roster.round, "size": size, "address": first.address}
        for rank, node in enumerate(self._roster.group):
            self._tell(node, seat | {"port": first.port, "rank": rank})

    def _look(self, now: float) -> None:
        """Let the vigil act on what was heard, and on what was not."""
        group = self._roster.group
        for node in self._vigil.silent(self._writers, group, now):
            self._lose(node, reason="says nothing any more: its agent, or its machine, has been stopped")
        if group and now > self._tempo_told + self._interval * self._attempts:  # as often as nodes tell
            self._tempo_told = now
            self._tell(group[0], {"say": "tempo", "busy": self._tempo.busy(), "slow": self._tempo.slow()})
        if self._vigil.suspects(group, now):
            for node in group:
                self._tell(node, {"say": "explain"})
        if cause := self._vigil.verdict(group, now):
            self._over(self._roster.end(group[0]), lost=True, reason=cause.text, culprit=cause.rank)

    def _over(self, group: list[Node], *, lost: bool, reason: str, culprit: int | None = None) -> None:
        """Tell nodes that their round is over, and forget what they told each other."""
        for node in group:
            self._tell(node, {"say": "over", "lost": lost, "reason": reason, "culprit": culprit})
        if group:
            self._vigil.begin()
            self._values.clear()
            for answer in self._answers:
                answer.cancel()

    def _tell(self, node: Node, message: Message) -> None:
        if node in self._writers:
            self._writers[node].write(encode(message))
