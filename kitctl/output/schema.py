"""The JSON Schemas of the job file and of ``-o json``, described by the docstrings under the types' fields."""

from __future__ import annotations

import ast
import inspect
from collections import ChainMap
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import msgspec

import kitjob.history
import kitjob.stacks
import kitjob.timeline
import kitjob.usage
from kitctl import kinds
from kitctl.base.encoding import struct_of
from kitctl.spec import job_spec as spec
from kitctl.state import facts, faults, phase
from kitctl.state.goodput import result
from kitctl.state.why import explain
from kitjob import job_keys, pod_section, report, sections
from kitjob.fields import BYTES, RESOURCES_IN_BYTES
from kitjob.record import camel

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema of a job file; as kinds it has those that are installed."""
    schema = _described(
        "kitctl job", msgspec.json.schema(struct_of(spec.JobSpec)), (sections, pod_section, job_keys, spec)
    )
    kind = schema["$defs"]["JobSpec"]["properties"]["kind"]
    kind["enum"] = [kinds.AUTO, *kinds.all_kinds()]
    for key in ("type", "pattern", "examples"):
        kind.pop(key)
    for amounts in schema["$defs"]["Resources"]["properties"].values():
        # as ``kitctl.spec.limits.amounts``
        amounts["patternProperties"] = {RESOURCES_IN_BYTES: {"type": "string", "pattern": BYTES}}
    return schema


def output_schema() -> Schema:
    """The schema of every object that ``-o json`` prints. All keys are required: the output leaves none out."""
    from kitctl.output import (  # noqa: PLC0415 - only the documentation needs it
        base,
        history,
        jobs,
        logs,
        reports,
        stacks,
        timeline,
        usage,
    )
    from kitctl.output.documents import DOCUMENTS  # noqa: PLC0415 - likewise

    schema = _described(
        "kitctl -o json",
        msgspec.json.schema(DOCUMENTS),
        (
            base,
            report,
            facts,
            phase,
            explain,
            faults,
            kitjob.timeline,
            result,
            jobs,
            logs,
            timeline,
            reports,
            kitjob.history,
            history,
            kitjob.stacks,
            stacks,
            kitjob.usage,
            usage,
        ),
    )
    for definition in schema["$defs"].values():
        definition["required"] = list(definition["properties"])
        for field in definition["properties"].values():
            field.pop("default", None)
        definition["properties"].get("kind", {}).setdefault("description", "Type of the object.")
    return schema


def _described(title: str, schema: Schema, modules: Iterable[ModuleType]) -> Schema:
    """With a title, and a description of every section and field. Without the source (a zipped install) it has none."""
    for name, described in _documentation(modules).items():
        properties = schema["$defs"].get(name, {}).get("properties", {})
        for key, text in described.items():
            if key in properties:
                properties[key]["description"] = text
    for definition in schema["$defs"].values():
        if "description" in definition:  # msgspec keeps the indentation of a docstring up to 0.22
            definition["description"] = inspect.cleandoc(definition["description"])
    return {"$schema": _DIALECT, "title": title, **schema}


def _documentation(modules: Iterable[ModuleType]) -> dict[str, dict[str, str]]:
    """Section -> key -> docstring."""
    try:
        parsed = {module: ast.parse(inspect.getsource(module)) for module in modules}
    except OSError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for module, tree in parsed.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                kind = getattr(module, node.name)
                bases = [found.get(base.__name__, {}) for base in kind.__mro__]
                found[node.name] = dict(ChainMap(_fields(node), *bases))
    return found


def _fields(written: ast.ClassDef) -> dict[str, str]:
    return {
        camel(field.target.id): inspect.cleandoc(text.value.value)
        for field, text in zip(written.body, written.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
