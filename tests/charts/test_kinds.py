"""The chart's table of kinds equals kitctl's, and no other template depends on a kind."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from kitctl.kinds import KINDS, JobKind
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


def field(kind: JobKind, name: str) -> object:
    """A field of a kind by its name in the chart's table."""
    if name == "podName":
        return kind.pod_name("%s", 7).replace("7", "%d")
    if name == "runtime":
        return kind.prerequisite and kind.prerequisite.name
    if name == "elasticRuntime":
        return getattr(kind, "elastic_runtime", None)
    if name == "problems":
        return "training-job.runtimeProblems"
    value = getattr(kind, re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name))
    return dict(value) if isinstance(value, dict) else value


def test_the_chart_has_all_kinds() -> None:
    assert list(table()) == list(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_the_same_in_the_chart(name: str) -> None:
    kind = table()[name]
    assert kind == {key: field(KINDS[name], key) for key in kind}


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_no_other_template_depends_on_a_kind(path: Any) -> None:
    code = re.sub(r"{{-? ?/\*.*?\*/ ?-?}}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [mark for mark in MARKS if mark in code] == []
