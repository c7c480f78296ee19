from __future__ import annotations

import pytest

from kitctl import quantity


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("45s", 45), ("10m", 600), ("1h30m", 5400), ("7d", 604800), ("1d1s", 86401)]
)
def test_durations(text: str, seconds: int) -> None:
    assert quantity.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1.5h", "-3s", "5 m", "1h30", "3w"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration like"):
        quantity.seconds(text)


@pytest.mark.parametrize(
    ("text", "amount"), [("4", 4), ("500m", 0.5), ("1.5", 1.5), ("10k", 10_000), ("2Gi", 2 * 1024**3), ("1T", 1e12)]
)
def test_amounts(text: str, amount: float) -> None:
    assert quantity.amount(text) == amount


@pytest.mark.parametrize("text", ["", "Gi", "1e3", "-1", "10gb", "1 Gi"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity like"):
        quantity.amount(text)


@pytest.mark.parametrize(
    ("total", "text"),
    [(0, "0s"), (4.9, "4s"), (59, "59s"), (185, "3m05s"), (7440, "2h04m"), (86399, "23h59m"), (266400, "3d02h")],
)
def test_a_duration_is_shown_in_its_two_largest_units(total: float, text: str) -> None:
    assert quantity.duration(total) == text
