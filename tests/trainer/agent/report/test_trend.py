"""Curves of few points."""

from __future__ import annotations

import pytest

from kittrain.agent.report.trend import MOST, Curve


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000, 12345])
def test_a_curve_keeps_its_shape_in_few_points(count: int) -> None:
    curve = Curve()
    for value in range(count):
        curve.add(float(value))
    points = curve.points
    assert len(points) < MOST
    assert list(points) == sorted(points)
    if count > 1:
        assert len(points) >= min(count, MOST) // 2 - 1
        assert points[0] == pytest.approx((curve.each - 1) / 2, rel=1e-3)
        assert points[-1] >= count - 2 * curve.each - 1


def test_what_is_unknown_or_not_finite_is_left_out() -> None:
    curve = Curve()
    for value in (1.0, None, float("nan"), float("inf"), 2.00004):
        curve.add(value)
    assert curve.points == (1.0, 2.0)
