"""Every rendered key exists in the Kubernetes API, at that place and with that type."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import models

from kitctl import kinds
from tests import fast_yaml

GOLDENS = sorted((Path(__file__).parent.parent / "golden" / "render").glob("*.yaml"))
SCALARS: dict[str, type | tuple[type, ...]] = {"str": str, "bytes": str, "int": int, "bool": bool, "object": (str, int)}
# Custom resources are not part of the API, but their pod templates are.
OUTSIDE = {kind.resource for kind in kinds.KINDS.values() if kind.operator}
OF_SCHEDULERS = {"PodGroup"}


def faults(value: Any, kind: str, path: str) -> list[str]:
    """Keys that do not fit ``kind``, a type as the generated client names it: V1Job, List[V1EnvVar], Dict[str, str]."""
    if inner := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
        return [fault for number, item in enumerate(value) for fault in faults(item, inner[1], f"{path}[{number}]")]
    if inner := re.fullmatch(r"(?:Dict\[|dict\()str, (.+)[\])]", kind):
        return [fault for key, item in value.items() for fault in faults(item, inner[1], f"{path}.{key}")]
    if kind in SCALARS:
        return [] if isinstance(value, SCALARS[kind]) else [f"{path}: {value!r} is no {kind}"]
    model = getattr(models, kind)
    types = {wire: model.openapi_types[name] for name, wire in model.attribute_map.items()}
    unknown = [f"{path}.{key}: unknown to {kind}" for key in value if key not in types]
    return unknown + [
        fault for key, item in value.items() if key in types for fault in faults(item, types[key], f"{path}.{key}")
    ]


def test_the_check_finds_errors() -> None:
    wrong = {
        "kind": "Job",
        "spec": {"completion": 1, "parallelism": "2", "template": {"spec": {"containers": [{"img": "x"}]}}},
    }
    assert faults(wrong, "V1Job", "job") == [
        "job.spec.completion: unknown to V1JobSpec",
        "job.spec.parallelism: '2' is no int",
        "job.spec.template.spec.containers[0].img: unknown to V1Container",
    ]


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda path: path.stem)
def test_every_key_exists_in_the_api(golden: Path) -> None:
    for thing in fast_yaml.load_all(golden.read_text(encoding="utf-8")):
        if thing["kind"] in OUTSIDE:
            template = kinds.of_object(thing).pod_template(thing)
            assert not faults(template, "V1PodTemplateSpec", "template")
        elif thing["kind"] not in OF_SCHEDULERS:
            assert not faults(thing, f"V1{thing['kind']}", thing["kind"])
