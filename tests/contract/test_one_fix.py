"""What an agent's log and ``kitctl why`` tell of one error: the same fix, or two that go together."""

from __future__ import annotations

from typing import Final

import pytest

from kitctl.state.why.tables import FAMILIES
from kittrain.outcome.causes import CAUSES, Cause, cause_of

# Errors that the two tell of in different words, and why that is right: all others have one text.
DIFFER: Final = {
    # ``why`` knows whether a job runs on a cluster or on this machine, and names that one's limit; an agent names both.
    "RuntimeError: can't start new thread",
    # On a cluster ``why`` adds the user's own machine, and proxies: likewise.
    "URLError: <urlopen error [Errno 111] Connection refused>",
}


def told(error: str) -> str:
    """The fix that ``kitctl why`` has for an error on a cluster; empty where it takes the agent's."""
    for family in FAMILIES:
        for rule in family.rules if family.of_ranks else ():
            if found := rule.matches(error):
                return rule.fixed(found, local=False)
    return ""


@pytest.mark.parametrize("row", [row for row in CAUSES if row.seen], ids=lambda row: row.seen)
def test_an_error_has_one_fix(row: Cause) -> None:
    error, *lines = row.seen.split("\n")
    logged = row.fix if row.called else cause_of(error, lines).fix  # the example has no traceback
    fix = told(row.seen)
    if logged and fix:
        assert (fix != logged) == (row.seen in DIFFER)


def test_an_example_is_of_its_own_row() -> None:
    for row in CAUSES:
        if row.seen and not row.called:
            error, *lines = row.seen.split("\n")
            assert cause_of(error, lines).pattern == row.pattern, row.seen


@pytest.mark.parametrize(("backend", "helps"), [("NCCL", "the backend gloo"), ("Gloo", "the backend is nccl")])
def test_a_torch_without_a_backend_is_told_of_the_other_one(backend: str, helps: str) -> None:
    error = f"RuntimeError: Distributed package doesn't have {backend} built in"
    for fix in (told(error), cause_of(error).fix):
        assert helps in fix
        assert "init_process_group(" not in fix
