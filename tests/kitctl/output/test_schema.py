from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kitctl.output.schema import json_schema

CASES = sorted((Path(__file__).parents[2] / "cases").glob("*.yaml"))


def test_the_schema_accepts_every_case() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    assert len(CASES) > 5
    for case in CASES:
        validator.validate(yaml.safe_load(case.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "job",
    [
        {"polcy": {}},
        {"policy": {"maxRestart": 1}},
        {"nodes": 0},
        {"nodes": "4:"},
        {"gpusPerNode": -1},
        {"kind": "Deployment"},
        {"env": {"A": 1}},
        {"policy": {"deadline": "soon"}},
        {"volumes": [{"claim": "data"}]},
        {"version": 2},
    ],
)
def test_the_schema_refuses_what_the_spec_refuses(job: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema()).validate(job)


def test_every_section_and_every_field_is_described() -> None:
    for name, section in json_schema()["$defs"].items():
        assert section["description"], name
        bare = [key for key, field in section["properties"].items() if not field.get("description")]
        assert not bare, f"{name} has undocumented fields"
