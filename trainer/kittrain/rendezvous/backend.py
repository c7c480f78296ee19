"""What an agent asks of a rendezvous, whichever it is: torch's own interface, and what torch has no word for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousHandler

from kittrain.outcome.termination import Ending
from kittrain.rendezvous.diagnosis import Account

# What an attempt ends with when the rendezvous or the other nodes went away: try again with a new connection.
LOST: Final = (RendezvousError, dist.DistError)


class RoundOver(RendezvousError):
    """The round that this node took part in is over."""


class JobEnded(Exception):
    """The job has ended without this node: another one has failed for good, or all others have done all of the work.

    Raised by whatever is asked of the rendezvous then.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Rendezvous(RendezvousHandler):
    """One node's part in one round after the other.

    Attributes:
        lost: whether the last round is known to have lost ranks: those that are left cannot agree on anything.
        reason: why it is over, as far as the others know; empty if there is nothing to say.
        culprit: the rank that has kept all others waiting, if the round hung, and the steps that it had finished.
        asked: whether the others want to know where the ranks of this node stand.
        tempo: how fast all ranks are, told to the node with group rank 0: ``busy`` (seconds of a step by rank) and
            ``slow`` (by rank, how many times the others' step its own takes).
    """

    lost: bool
    reason = ""
    culprit: tuple[int, int] | None = None
    asked = False
    tempo: Mapping[str, Mapping[str, float]] | None = None

    def pulse(self, *, stalled: bool, frozen: bool, tempo: Mapping[int, tuple[int, float]]) -> None:
        """Tell the others how the ranks of this node are; to be called often while there are any.

        Args:
            stalled: whether they all stand still.
            frozen: whether one of them has been stopped, so that all others will come to wait for it.
            tempo: by rank, its finished steps, and the seconds that it has been busy in them.
        """

    def account(self, ranks: Sequence[Account]) -> None:
        """Tell the others where the ranks of this node stand."""

    @abstractmethod
    def drain(self) -> None:
        """Tell the others that this node was told to leave: ranks that end from now on have not finished by that.

        Raises:
            RendezvousError: node 0 has left.
        """

    @abstractmethod
    def end(self, *, lost: bool) -> None:
        """Tell the others that this node's ranks are no more.

        Args:
            lost: whether they failed, so that no other rank can go on; else all ranks stop by agreement.
        """

    @abstractmethod
    def done(self, *, patience: float) -> bool:
        """Tell the others that this node's ranks have succeeded; whether those of all nodes have.

        Args:
            patience: seconds to wait for them, at most.

        Raises:
            RoundOver: another node's ranks have to go on.
            RendezvousError: node 0 has left.
        """

    @abstractmethod
    def fail(self, ending: Ending, *, patience: float) -> None:
        """Tell the others, those that wait and those that train, that the job ends with this node.

        Args:
            ending: how; its ``node`` is this one.
            patience: seconds that this node can stay until all have heard.

        Raises:
            RendezvousError: node 0 has left.
        """

    @abstractmethod
    def leave(self) -> None:
        """Take no part any more. Nobody waits for this node then."""


class Backend(Protocol):
    """A way to find the other nodes."""

    def connect(self, *, deadline: float, waiting: Callable[[str], None] = lambda _: None) -> None:
        """Reach node 0; the arguments are those of ``kittrain.system.port.reach``.

        Raises:
            RendezvousError: it could not be reached in time.
        """

    def handler(self, local_addr: str) -> Rendezvous:
        """Take part over the connection; ``local_addr`` is where the other nodes reach this one."""
