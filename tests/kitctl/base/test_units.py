from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitctl.base import quantity, units
from kitjob import durations
from kitjob.fields import BYTES, DURATION, QUANTITY, TIMEOUT


@pytest.mark.parametrize(
    ("value", "pattern", "what", "fix"),
    [
        ("12", DURATION, "12 has no unit", "write 12s, 12m or 12h"),
        (12, DURATION, "12 has no unit", "write 12s, 12m or 12h"),
        ("30", TIMEOUT, "30 has no unit", "write 30s, 30m or 30h"),
        ("12min", DURATION, "12min has an unknown unit", "write 12m"),
        ("2 Hours", DURATION, "2 Hours has an unknown unit", "write 2h"),
        ("4", BYTES, "4 has no unit", "write 4Gi or 4Mi"),
        ("0.5", BYTES, "0.5 has no unit", "write 0.5Gi or 0.5Mi"),
        ("512m", BYTES, "512m is thousandths of a byte", "write 512Mi"),
        ("4GB", BYTES, "4GB has a unit that Kubernetes lacks", "write 4Gi, or 4G for powers of ten"),
        ("16 gib", QUANTITY, "16 gib has a unit that Kubernetes lacks", "write 16Gi"),
        ("8K", QUANTITY, "8K has a unit that Kubernetes lacks", "write 8Ki, or 8k for powers of ten"),
        ("soon", DURATION, "", ""),
        ("much", BYTES, "", ""),
        (True, BYTES, "", ""),
        ("4", "^[a-z]+$", "", ""),
    ],
)
def test_a_missing_or_wrong_unit_has_a_fix(value: Any, pattern: str, what: str, fix: str) -> None:
    assert units.advice(value, pattern) == (what, fix)


@given(st.from_regex(QUANTITY, fullmatch=True))
def test_a_quantity_that_is_no_amount_of_memory_has_one(text: str) -> None:
    if re.search(BYTES, text):
        assert quantity.amount(text) >= 1_000_000 or re.search("[a-zA-Z]", text) or text.strip() == "0"
    else:
        assert all(units.advice(text.strip(), BYTES))


@given(st.from_regex(DURATION, fullmatch=True))
def test_every_duration_of_a_job_file_can_be_parsed(text: str) -> None:
    assert durations.seconds(text) >= 0
