"""Ranks of this node that outlive their round: they are told that it is over, and later which rank they are next.

A rank says in its heartbeat whether it can, and when it has left its group. One that does not within a second is ended
with the others.

Why: decision 60.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from kittrain.agent.processes.ranks import Process, RankFiles, RankProcesses
from kittrain.system.heartbeat import HeartbeatState

LEAVE_SECONDS: Final = 1.0  # from the order to leave until a rank is ended
POLL_INTERVAL: Final = 0.002  # seconds


@dataclass(kw_only=True)
class LivingRank:
    """A rank that can be told of another round.

    Attributes:
        process: of the rank.
        files: of its current round.
        rounds: that it was told to leave.
    """

    process: Process
    files: RankFiles
    rounds: int = 0
    _pipe: int = field(init=False)

    def __post_init__(self) -> None:
        # Also open for reading: so it has a reader before the rank opens it.
        self._pipe = os.open(self.files.rounds, os.O_RDWR | os.O_NONBLOCK)

    @property
    def survives(self) -> bool:
        """Whether it runs, and can go on in another round."""
        state = self._state
        return state is not None and state.survives and self.process.poll() is None

    @property
    def has_left(self) -> bool:
        """Whether it has left the round, as it was told."""
        state = self._state
        return state is not None and state.left == self.rounds

    @property
    def waits(self) -> bool:
        """Whether it has taken the last step of its round, which has not ended yet."""
        state = self._state
        return state is not None and state.waits and self.process.poll() is None

    @property
    def stays(self) -> bool:
        """Whether it runs and has not left the round, as it was told."""
        return not self.has_left and self.process.poll() is None

    def leave(self, *, agreed: bool) -> bool:
        """Tell it that the round is over, or to leave it with all others after a step; returns whether it was told."""
        self.rounds += 1
        return self._tell({"leave" if agreed else "over": self.rounds})

    def begin(self, environ: Mapping[str, str]) -> bool:
        """Tell it which rank it is in the next round; returns whether that was possible."""
        return self._tell({"round": dict(environ)})

    def close(self) -> None:
        """It is not told anything any more."""
        os.close(self._pipe)

    @property
    def _state(self) -> HeartbeatState | None:
        with suppress(OSError):
            return HeartbeatState.read(self.files.heartbeat)
        return None

    def _tell(self, order: Mapping[str, object]) -> bool:
        line = json.dumps(order).encode() + b"\n"
        try:
            return os.write(self._pipe, line) == len(line)
        except BlockingIOError:  # it has not read what it was told before
            return False


class KeptRanks:
    """The ranks of this node that may outlive a round, by local rank."""

    def __init__(self) -> None:
        self._ranks: dict[int, LivingRank] = {}
        self._waiting: set[int] = set()  # those that have left a round, and wait for the next one

    def add(self, local_rank: int, rank: LivingRank) -> None:
        """A rank was started."""
        self._forget(local_rank)
        self._ranks[local_rank] = rank

    def leave(self, *, agreed: float | None = None) -> None:
        """Tell all that can outlive the round to leave it, and wait until they have, or have not in time.

        Args:
            agreed: seconds in which all ranks of the round may agree after which step; None: others are lost.
        """
        told = {
            number: one
            for number, one in self._ranks.items()
            if number not in self._waiting and one.survives and one.leave(agreed=agreed is not None)
        }
        deadline = time.monotonic() + (LEAVE_SECONDS if agreed is None else agreed)
        while any(one.stays for one in told.values()) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL)
        self._waiting |= {number for number, one in told.items() if one.has_left}

    @property
    def wait(self) -> bool:
        """Whether ranks have taken the last step of their round, and wait for its end."""
        return any(one.waits for number, one in self._ranks.items() if number not in self._waiting)

    @property
    def waiting(self) -> dict[int, LivingRank]:
        """Those that have left their round and run, by local rank."""
        return {
            number: one for number, one in self._ranks.items() if number in self._waiting and one.process.poll() is None
        }

    @property
    def pids(self) -> frozenset[int]:
        """Their process ids."""
        return frozenset(one.process.pid for one in self.waiting.values())

    def stop(self) -> None:
        """End those that wait for a round."""
        ranks = RankProcesses()
        for one in self.waiting.values():
            ranks.add(one.process)
        ranks.stop(0.0)

    def begin(self) -> dict[int, LivingRank]:
        """A round begins: those that go on, which are not waiting any more; the others are forgotten."""
        found = self.waiting
        for number in self._ranks.keys() - found.keys():
            self._forget(number)
        self._waiting.clear()
        return found

    def _forget(self, local_rank: int) -> None:
        if one := self._ranks.pop(local_rank, None):
            one.close()
        self._waiting.discard(local_rank)
