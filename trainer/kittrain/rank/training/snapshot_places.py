"""Where in a loop snapshots are taken: where it asks what comes next, as what it has done until then is all done."""

from __future__ import annotations

from collections.abc import Mapping

from kittrain.rank.training.session import Session


class SnapshotPlaces:
    """Takes what is due, and what was requested, at such a place. Collective.

    Args:
        session: of the run.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._stepped = False  # since a snapshot was last taken, or found not to be due
        self._requested: Mapping[str, float] | None = None  # with its metrics
        self._changed = False

    def step(self) -> None:
        """A step has ended."""
        self._stepped = self._changed = True

    def change(self) -> None:
        """The loop may have changed the state without a step."""
        self._changed = True

    @property
    def requested(self) -> Mapping[str, float] | None:
        """The metrics of a snapshot that is still to be taken, if one was requested."""
        return self._requested

    def request(self, metrics: Mapping[str, float]) -> None:
        """Take a snapshot at the next place, with the metrics of all requests until then."""
        self._requested = {**(self._requested or {}), **metrics}

    def take(self, *, tail: bool = False, last: bool = False) -> None:
        """The loop asks what comes next.

        Args:
            tail: nothing more is left of an epoch's batches, and there is another such place after what the loop does
                at the epoch's end: only what cannot wait is taken.
            last: training ends, and is saved anyway.

        Raises:
            Drained: a rank was asked to stop; a snapshot was taken.
        """
        requested, self._requested = self._requested, None
        if requested is not None:
            try:
                self._session.commit(requested, changed=True)
            except RuntimeError:  # ranks were lost: those that are left take it
                self.request(requested)
                raise
        if last or not self._stepped or (tail and not self._session.stopping):
            return
        self._stepped = False
        self._session.save_or_drain()

    def finish(self) -> None:
        """Training has ended; see ``Session.finish``."""
        self._session.finish(self._requested or {}, changed=self._changed, stored=self.stored)

    def stored(self) -> None:
        """All that was trained is in a snapshot."""
