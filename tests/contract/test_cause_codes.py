"""The codes of causes: people count by them, so they stay, and one error has the same in all tables."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from kitctl.state.why import explain, failed
from kitctl.state.why.tables import FAMILIES
from kittrain.outcome.causes import CAUSES, Cause

SOURCES: Final = [Path(module.__file__ or "") for module in (explain, failed)]
PUBLISHED: Final = Path(__file__).with_name("cause_codes.txt")
CODE: Final = re.compile(r"(?=.{3,40}$)[a-z0-9]+(?:-[a-z0-9]+){1,5}")
TABLE: Final = [rule for family in FAMILIES for rule in family.rules]


def own() -> set[str]:
    """Codes of causes that are in no table, as they are found in a job's state."""
    nodes = (node for file in SOURCES for node in ast.walk(ast.parse(file.read_text())))
    texts = {one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return {one for one in texts if CODE.fullmatch(one)}


def test_codes_are_of_one_form() -> None:
    for code in [*(rule.code for rule in TABLE), *(row.code for row in CAUSES)]:
        assert CODE.fullmatch(code), code


def test_published_codes_stay_and_new_ones_are_published() -> None:
    known = {*(rule.code for rule in TABLE), *(row.code for row in CAUSES), *own()}
    assert PUBLISHED.read_text().split() == sorted(known), "codes are added to the list, and none is taken off it"


@pytest.mark.parametrize("row", [row for row in CAUSES if row.seen], ids=lambda row: row.code)
def test_an_error_has_the_same_code_in_both_tables(row: Cause) -> None:
    found = next((rule for rule in TABLE if rule.matches(row.seen)), None)
    assert found is None or found.code == row.code
