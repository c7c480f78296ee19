"""What is probably not as it should be although the ranks run, or have succeeded: as it is seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kittrain.agent.hooks.script_progress import alone
from kittrain.agent.report.observed import Ranks
from kittrain.system.sample_orders import SampleOrder, difference

NOT_FINITE: Final = "the loss is not finite, "


class WarningsSeen:
    """Of one node; each is logged once.

    Args:
        log: receives a line for each.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._alone = ""  # ranks train models of their own
        self._told_alone = False
        self._apart = ""  # they do not divide the data
        self._told_apart = False
        self._not_finite = ""  # they train NaN
        self._printed_loss = ""  # what they print of that
        self._background = ""  # they have not ended, though their processes have

    def begin(self) -> None:
        """A round begins."""
        self._not_finite = self._background = ""

    def observe(self, ranks: Ranks, *, training_alone: int, world: int, orders: Sequence[SampleOrder] = ()) -> None:
        """Take what this node's ranks show.

        Args:
            ranks: this node's.
            training_alone: as ``Rendezvous.training_alone``.
            world: the number of all ranks.
            orders: as ``Rendezvous.orders``.
        """
        self._alone = alone(training=training_alone, group=ranks.group, separate=ranks.separate, world=world)
        if self._alone and not self._told_alone:  # ranks that are slow to exchange something may look so for a while
            self._told_alone = True
            self._log(f"warning: {self._alone}")
        self._apart = difference(orders, world)
        if self._apart and not self._told_apart:
            self._told_apart = True
            self._log(f"warning: {self._apart}")
        if ranks.not_finite and not self._not_finite:
            self._not_finite = f"the parameters are not finite, as seen at step {ranks.not_finite}"
            self._log(f"warning: {self._not_finite}")
        if ranks.printed_loss and not self._printed_loss:
            self._log(f"warning: {NOT_FINITE}{ranks.printed_loss}")
        self._printed_loss = ranks.printed_loss

    def gone_on(self, ranks: Sequence[int]) -> None:
        """Ranks have ended with 0 before they joined a group or took a step, and left processes of their script."""
        who, have = f"ranks {', '.join(map(str, ranks))}", "have"
        if len(ranks) == 1:
            who, have = f"rank {ranks[0]}", "has"
        self._background = f"{who} {have} gone on in the background, after exit code 0"
        self._log(f"warning: {self._background}: what they do there is ended with this node")

    @property
    def seen(self) -> str:
        """What processes and groups show; empty: nothing."""
        return self._not_finite or self._background or self._alone or self._apart

    @property
    def printed(self) -> str:
        """What only a rank's output shows; empty: nothing."""
        return self._printed_loss and f"{NOT_FINITE}{self._printed_loss}"
