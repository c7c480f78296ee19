"""A curve of few points, whatever its length: two become one, as often as it is full."""

from __future__ import annotations

import math
from typing import Final

MOST: Final = 64  # points
DIGITS: Final = 4


class Curve:
    """Values, one an interval."""

    def __init__(self) -> None:
        self._points: list[float] = []
        self._sum, self._count = 0.0, 0  # of the point that is not complete
        self.each = 1  # how many values a point is the mean of

    def add(self, value: float | None) -> None:
        """Add one; what is unknown or not finite is left out."""
        if value is None or not math.isfinite(value):
            return
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < self.each:
            return
        self._points.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._points) == MOST:
            self._points = [(one + two) / 2 for one, two in zip(self._points[::2], self._points[1::2], strict=True)]
            self.each *= 2

    @property
    def points(self) -> tuple[float, ...]:
        """The points, the oldest first."""
        return tuple(float(f"{one:.{DIGITS}g}") for one in self._points)
