"""The JSON Schema of a job file, described by the docstrings under the spec's fields."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import msgspec

from kitctl import sections, spec

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema, with a description for every section and field. Without the source (a zipped install) it has none."""
    schema = msgspec.json.schema(spec.JobSpec)
    for name, described in _documentation().items():
        properties = schema["$defs"].get(name, {}).get("properties", {})
        for key, text in described.items():
            properties[key]["description"] = text
    return {"$schema": _DIALECT, "title": "kitctl job", **schema}


def _documentation() -> dict[str, dict[str, str]]:
    """Section -> key -> docstring."""
    try:
        modules = {module: ast.parse(inspect.getsource(module)) for module in (sections, spec)}
    except OSError:
        return {}
    return {
        node.name: _fields(node, getattr(module, node.name))
        for module, tree in modules.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _fields(written: ast.ClassDef, section: type[sections.Section]) -> dict[str, str]:
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(section)}
    return {
        keys[field.target.id]: inspect.cleandoc(text.value.value)
        for field, text in zip(written.body, written.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
