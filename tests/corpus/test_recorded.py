"""The rules tell of every recorded situation what was asked of them."""

from __future__ import annotations

import time

import pytest

from kitctl.base import encoding
from kitctl.state.phase import JobState
from kitctl.state.why.explain import explain
from kitctl.state.why.rule import LIMIT
from tests.corpus.__main__ import FOLDER
from tests.corpus.judge import judge
from tests.corpus.situations import SITUATIONS, Situation


@pytest.mark.parametrize("one", SITUATIONS, ids=lambda one: one.name)
def test_cause_and_fix_are_right(one: Situation) -> None:
    state = encoding.decode((FOLDER / one.file).read_bytes(), JobState)
    found = explain(state, time.time())
    told = judge(one, found)
    assert told.cause, found
    assert told.fix is not False, found
    assert len(found.cause) <= LIMIT
    assert "resources.limits" not in found.fix


def test_both_halves_have_situations_of_each_kind() -> None:
    assert {(one.half, one.healthy) for one in SITUATIONS} == {
        (half, healthy) for half in ("first", "second") for healthy in (False, True)
    }
