"""The chart's table of kinds is generated from kitctl's (`make docs`), and no other template depends on a kind."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from kitctl.kinds import KINDS
from tests.charts.helm import CHART

TEMPLATES = CHART / "templates"
TABLE = TEMPLATES / "_kinds.tpl"
OWN = {TEMPLATES / f"{kind.template}.yaml" for kind in KINDS.values()}
OTHERS = sorted(path for path in TEMPLATES.rglob("*.*") if path not in {TABLE, *OWN})
MARKS = [*KINDS, *(kind.group for kind in KINDS.values())]


def table() -> dict[str, dict[str, Any]]:
    found = re.search(r'define "training-job.kinds" -}}\n(.*?){{- end }}', TABLE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    kinds: dict[str, dict[str, Any]] = yaml.safe_load(found[1])
    return kinds


def test_the_chart_has_all_kinds() -> None:
    assert list(table()) == list(KINDS)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_no_other_template_depends_on_a_kind(path: Any) -> None:
    code = re.sub(r"{{-? ?/\*.*?\*/ ?-?}}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [mark for mark in MARKS if mark in code] == []
