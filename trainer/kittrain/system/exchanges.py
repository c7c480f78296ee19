"""Counts how often a rank has exchanged its model with others, by its collectives and their bytes. Pure."""

from __future__ import annotations

from typing import Final

OFTEN: Final = 16  # exchanges of models, after which a script is known to exchange them
MANY: Final = 2**62  # exchanges: the ranks exchange data in a way that is not counted


class Exchanges:
    """Collectives of known bytes count as whole models, so that metrics are none; each other one counts."""

    def __init__(self) -> None:
        self.met = 0  # exchanges of models
        self._known = 0  # collectives of known bytes since the last count
        self._bytes = self._model = 0  # of these; of the parameters that are trained, 0: not known yet

    def count(self, collectives: int) -> None:
        """Count the collectives that were begun since the last count."""
        self.met += max(collectives - self._known, 0)
        self._known = 0

    def add(self, collectives: int, size: int) -> None:
        """Add an exchange of so many bytes, in so many of the collectives that are counted next."""
        self._known += collectives
        self._bytes += size
        self._count_models()

    def trains(self, size: int) -> None:
        """The parameters that are trained have this many bytes, or more; only the first call counts."""
        self._model = self._model or max(size, 1)
        self._count_models()

    def _count_models(self) -> None:
        if self._model and self._bytes >= self._model:
            self.met += self._bytes // self._model
            self._bytes %= self._model
