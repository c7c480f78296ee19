"""What the ends of a node's ranks mean once it was told to leave: the rules, without clocks or processes."""

from __future__ import annotations

from collections.abc import Sequence

from kittrain.env import WORKER_DRAINED

Codes = Sequence[int | None]  # of the ranks, by local rank; None for those that run


class Leaving:
    """Over one round after the other. ``now`` is in seconds of any steady clock.

    Args:
        patience: seconds that ranks may take to save once the first of them has.
    """

    def __init__(self, *, patience: float) -> None:
        self._patience = patience
        self._deadline: float | None = None
        self._ended_before: list[bool] = []  # whether each rank had ended with 0 before the node was told to leave

    def begin(self, ranks: int) -> None:
        """So many ranks have been started."""
        self._deadline = None
        self._ended_before = [False] * ranks

    def look(self, codes: Codes, *, told: bool) -> None:
        """How the ranks are; ``told`` is whether the node was told to leave by the time that this was known."""
        if not told:
            self._ended_before = [code == 0 for code in codes]

    def unfinished(self, codes: Codes) -> bool:
        """Whether all ranks have ended with 0, but some of them since the node was told to leave."""
        return not any(code != 0 for code in codes) and not all(self._ended_before)

    def pending(self, codes: Codes, *, told: bool) -> bool:
        """Whether some ranks may still be saving, while others have saved and ended."""
        if not {None, 0, WORKER_DRAINED}.issuperset(codes):
            return False  # one has left the group before it could agree with the others
        return None in codes and (told or WORKER_DRAINED in codes)

    def late(self, now: float) -> bool:
        """Whether those that may still be saving have taken too long; their time begins when this is asked first."""
        self._deadline = self._deadline or now + self._patience
        return now > self._deadline
