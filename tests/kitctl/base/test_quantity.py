from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.base import quantity
from kitjob import durations
from kitjob.fields import QUANTITY


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("45s", 45), ("10m", 600), ("1h30m", 5400), ("7d", 604800), ("1d1s", 86401)]
)
def test_durations(text: str, seconds: int) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("total", [-0.5, -8, -7200])
def test_an_age_by_a_clock_that_is_behind_is_none(total: float) -> None:
    assert quantity.duration(total) == "0s"


@pytest.mark.parametrize("text", ["", "soon", "1.5h", "-3s", "5 m", "1h30", "3w"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration like"):
        durations.seconds(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *(("4", 4), ("500m", 0.5), ("1.5", 1.5), ("10k", 10_000), ("2Gi", 2 * 1024**3), ("1T", 1e12)),
        *(("1e3", 1e3), ("1E3", 1e3), ("1E", 1e18), ("5e-1", 0.5), ("1Ki", 1024), ("5.", 5), (".5k", 500), ("+1", 1)),
        ("-1", -1),
    ],
)
def test_amounts(text: str, amount: float) -> None:
    assert quantity.amount(text) == amount


@pytest.mark.parametrize(
    "text", ["", "Gi", "e3", ".", "10gb", "1 Gi", "1K", "1ki", "1e3m", "1e", "--1", "\uff11", "1\n"]
)
def test_invalid_amounts(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity like"):
        quantity.amount(text)


DIGITS: Final = st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,6})?|\.[0-9]{1,6}", fullmatch=True)
FACTORS: Final[dict[str, Decimal]] = (
    {unit: Decimal(10) ** (3 * power) for power, unit in enumerate(["n", "u", "m", "", *"kMGTPE"], start=-3)}
    | {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
    | {f"{e}{power}": Decimal(10) ** power for power in range(-12, 19) for e in "eE"}
)


@given(st.sampled_from(["", "+", "-"]), DIGITS, st.sampled_from(sorted(FACTORS)))
def test_every_quantity_of_kubernetes_grammar_has_its_value(sign: str, digits: str, suffix: str) -> None:
    exact = Decimal(f"{sign}{digits}") * FACTORS[suffix]
    assert quantity.amount(sign + digits + suffix) == pytest.approx(float(exact), rel=1e-12, abs=0)
    fits = re.search(QUANTITY, digits + suffix)
    assert fits, "a job file accepts it, too"


@given(st.text(alphabet="0123456789.eEKMGTPinumk+- ", max_size=8))
def test_amounts_that_the_schema_accepts_can_be_parsed(text: str) -> None:
    if re.search(QUANTITY, text):
        quantity.amount(text)


@pytest.mark.parametrize(
    ("total", "text"),
    [(0, "0s"), (4.9, "4s"), (59, "59s"), (185, "3m05s"), (7440, "2h04m"), (86399, "23h59m"), (266400, "3d02h")],
)
def test_a_duration_is_shown_in_its_two_largest_units(total: float, text: str) -> None:
    assert quantity.duration(total) == text


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (1, ("node",), "1 node"),
        (0, ("node",), "0 nodes"),
        (2, ("node",), "2 nodes"),
        (2, ("entry", "entries"), "2 entries"),
    ],
)
def test_a_count_is_shown_with_its_plural(count: int, words: tuple[str, ...], text: str) -> None:
    assert quantity.pluralize(count, *words) == text


@pytest.mark.parametrize(
    ("total", "text"),
    [
        *((0, "0 B"), (512, "512 B"), (1010, "1010 B"), (1536, "1.5 KiB")),
        *((1010 << 20, "1010 MiB"), (40 << 30, "40 GiB"), (3 << 50, "3072 TiB")),
    ],
)
def test_bytes_have_no_exponent(total: int, text: str) -> None:
    assert quantity.format_bytes(total) == text
