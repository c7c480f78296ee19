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
        {"policy": {"deadline": "12"}},
        {"policy": {"hangTimeout": "30"}},
        {"sharedMemory": "4"},
        {"snapshots": {"size": "10"}},
        {"resources": {"limits": {"memory": "4"}}},
        {"resources": {"requests": {"hugepages-2Mi": "4", "cpu": "4"}}},
        {"volumes": [{"claim": "data"}]},
        {"version": 2},
    ],
)
def test_the_schema_refuses_what_the_spec_refuses(job: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema()).validate(job)


def test_the_schema_accepts_amounts_without_a_unit_where_they_are_counted() -> None:
    amounts = {"cpu": "500m", "rdma/hca": "1", "memory": "4Gi", "ephemeral-storage": "1073741824"}
    job = {"resources": {"requests": amounts, "limits": amounts}, "policy": {"ttl": "0", "deadline": "12h"}}
    jsonschema.Draft202012Validator(json_schema()).validate(job)


def test_every_section_and_every_field_is_described() -> None:
    for name, section in json_schema()["$defs"].items():
        assert section["description"], name
        bare = [key for key, field in section["properties"].items() if not field.get("description")]
        assert not bare, f"{name} has undocumented fields"
