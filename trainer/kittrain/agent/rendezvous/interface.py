"""The rendezvous interface of the agent: torch's handler, and what kittrain adds to it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousHandler

from kittrain.agent.rendezvous.diagnosis import RankStatus
from kittrain.agent.rendezvous.resumes import Resume
from kittrain.outcome.termination import Ending
from kittrain.system.sample_orders import SampleOrder, distinct

# Raised when the rendezvous or the other nodes are gone: try again with a new connection.
LOST: Final = (RendezvousError, dist.DistError)


class RoundOver(RendezvousError):
    """The round that this node was in has ended."""


class JobEnded(Exception):
    """The job has ended without this node: another one has failed permanently, or all others have finished.

    Any method of the rendezvous may raise it.
    """

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Rendezvous(RendezvousHandler):
    """One node's part in one round after another.

    Attributes:
        lost: whether the last round is known to have lost ranks, so that the others cannot agree on anything.
        hosts: whether the others meet at this node, so that their rendezvous ends with it.
        reason: why it ended, as the hub reports it; may be empty.
        culprit: after a hang, the rank that blocked the others, and the steps that it had finished.
        stacks_requested: whether the hub has requested the status of this node's ranks.
        look_requested: whether the hub has asked where this node's ranks are, since none takes a step.
        standstill: on the node with group rank 0, while no rank takes a step: since when, in Unix seconds, and what the
            ranks do.
        step_timings: of all ranks, on the node with group rank 0: ``busy`` (seconds of a step by rank) and ``slow``
            (for each straggler, how many times longer than the others' its steps take).
        spares: the nodes that stand by, on the node with group rank 0.
        standing_by: called once a round is full without this node, which may take the place of a lost one.
        waiting: called about once a second while the next round is not formed; what it raises ends the wait.
        training_alone: ranks that train a model of their own: of all nodes, on the node with group rank 0; elsewhere
            of this node.
        resumes: from what the ranks of this round have gone on, on the node with group rank 0, once all nodes have
            told the hub and where it is not the same.
        all_saved: whether each node of this round has saved a checkpoint to its own folder.
        orders: in which the ranks of this round train on samples, as ``resumes``.
    """

    lost: bool
    hosts = False
    resumes: Sequence[Resume] = ()
    all_saved = False
    orders: Sequence[SampleOrder] = ()
    reason = ""
    culprit: tuple[int, int] | None = None
    stacks_requested = False
    look_requested = False
    standstill: tuple[float, str] | None = None
    step_timings: Mapping[str, Mapping[str, float]] | None = None
    training_alone = 0
    spares: Sequence[int] = ()
    standing_by: Callable[[], None] = staticmethod(lambda: None)
    waiting: Callable[[], None] = staticmethod(lambda: None)

    def report_alone(self, ranks: int) -> None:
        """Report how many of this node's ranks train a model of their own.

        Raises:
            RendezvousError: node 0 is gone.
        """
        self.training_alone = ranks

    def report_resume(self, resume: Resume) -> None:
        """Report from what this node's ranks have gone on; may be called again.

        Raises:
            RendezvousError: node 0 is gone.
        """

    def report_save(self) -> None:
        """Report that a rank of this node has saved a checkpoint to the node's own folder; may be called again.

        Raises:
            RendezvousError: node 0 is gone.
        """

    def report_orders(self, orders: Sequence[SampleOrder]) -> None:
        """Report the order in which each of this node's ranks trains on samples; may be called again.

        Raises:
            RendezvousError: node 0 is gone.
        """
        self.orders = distinct(orders)

    def heartbeat(
        self, *, stalled: bool, frozen: bool, progress: Mapping[int, tuple[int, float]], quiet: bool = False
    ) -> None:
        """Report the state of this node's ranks. Call it often while they run.

        Args:
            stalled: whether none of them moves.
            frozen: whether one of them has been stopped, so that all others will end up waiting for it.
            progress: by rank, its finished steps, and the seconds that it was busy in all of them.
            quiet: whether none of them has taken a step for unusually long.
        """

    def report_look(self, ranks: Sequence[RankStatus]) -> None:
        """Report where this node's ranks are, as asked."""

    def report_stacks(self, ranks: Sequence[RankStatus]) -> None:
        """Report the status of this node's ranks, as requested."""

    @property
    def descriptor(self) -> int:
        """Can be read when the hub has sent something; -1: there is none."""
        return -1

    @abstractmethod
    def drain(self) -> None:
        """Report that this node was asked to stop: an exit code of 0 no longer means that a rank has finished.

        Raises:
            RendezvousError: node 0 is gone.
        """

    @abstractmethod
    def end_round(self, *, lost: bool, waited: float = 0.0) -> None:
        """Report that this node's ranks have stopped, which ends the round.

        Args:
            lost: whether they failed, so that no other rank can go on; else all ranks stop in agreement.
            waited: seconds that one had waited in a collective when that timed out.
        """

    @abstractmethod
    def done(self, *, timeout: float) -> bool:
        """Report that this node's ranks have succeeded; returns whether those of all nodes have.

        Args:
            timeout: seconds to wait for them.

        Raises:
            RoundOver: another node's ranks have to go on.
            RendezvousError: node 0 is gone.
        """

    @abstractmethod
    def fail(self, ending: Ending, *, timeout: float) -> None:
        """Report to all nodes, waiting or training, that the job fails because of this node.

        Args:
            ending: how; its ``node`` is this one.
            timeout: seconds to wait until all others know.

        Raises:
            RendezvousError: node 0 is gone.
        """

    def hand_over(self, *, timeout: float) -> None:
        """Before leaving for good after a drain: if the others meet here, wait until they meet elsewhere.

        Args:
            timeout: seconds to wait for that.

        Raises:
            RendezvousError: nobody is there any more.
        """

    @abstractmethod
    def leave(self) -> None:
        """Leave the rendezvous. No node waits for this one then."""
