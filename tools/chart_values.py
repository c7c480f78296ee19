"""The values of charts/training-job: a job file's keys, and the few that only a chart has."""

from __future__ import annotations

import copy
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kitctl.output.schema import json_schema

Schema = dict[str, Any]

INTRO: Final = """\
# Written by `make docs`: the keys of a job file (docs/job-file.md) with their defaults, and those of the chart alone.
"""
# Differences between a chart's values and a job file.
CHANGED: Final[Mapping[str, Schema]] = {
    "name": {"description": "Name of the job. Empty: the release's."},
    "namespace": {"default": "", "description": "Namespace it runs in. Empty: the release's."},
    "kind": {"description": "The Kubernetes kind. ``auto`` is IndexedJob."},
    "send": {"description": "As in a job file; but a chart cannot read the files: give them as ``sources``."},
    "requirements": {
        "description": "As in a job file; but a chart cannot read the file: give it as ``code``. Packages that the "
        "script needs besides those of the image."
    },
    "python": {"description": "As in a job file; a cluster's pods use the image's interpreter."},
    "workdir": {"description": "As in a job file; but a chart cannot read the folder: give it as ``code``."},
}
CHART_ONLY: Final[Schema] = {
    "scale": {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
        "default": None,
        "description": "Nodes of an elastic job now, within ``nodes``; the one key to change in an upgrade. "
        "Null: all of them.",
    },
    "sources": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "default": {},
        "description": "Files that are sent with the job, text by relative path: "
        "``--set-file 'sources.train\\.py=train.py'``.",
    },
    "code": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "digest": {"type": "string", "pattern": "^([0-9a-f]{64})?$"},
            "configMap": {"type": "string"},
            "requirements": {
                "type": "object",
                "additionalProperties": False,
                "required": ["digest"],
                "properties": {
                    "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                    "configMap": {"type": "string"},
                },
            },
        },
        "default": {},
        "description": "The folder that was sent for the job, as a ``digest``: in the ConfigMap ``configMap``, else on "
        "the claim for snapshots. Below ``requirements`` the same of its requirements.",
    },
    "keepSnapshots": {
        "type": "boolean",
        "default": True,
        "description": "Whether the claim that is created for snapshots outlives ``helm uninstall``.",
    },
}


def values_schema() -> Schema:
    """The JSON Schema of the values. A key that was set to null, and so lost its default, is an error."""
    schema = copy.deepcopy(json_schema())
    job = schema["$defs"]["JobSpec"]
    job["properties"] |= {key: job["properties"][key] | change for key, change in CHANGED.items()} | CHART_ONLY
    sections = [schema["$defs"][_name(field)] for field in job["properties"].values() if "$ref" in field]
    for section in (job, *sections):
        section["required"] = [key for key, field in section["properties"].items() if field["default"] is not None]
    job["properties"]["global"] = {"type": "object", "description": "Helm's: for all charts of a release."}
    return schema | {"title": "values of charts/training-job"}


def values_yaml() -> str:
    """The defaults, each below its description."""
    schema = values_schema()
    return INTRO + "".join(_lines(schema["$defs"]["JobSpec"], schema["$defs"], indent=""))


def _lines(section: Schema, sections: Schema, indent: str) -> Iterator[str]:
    for key, field in section["properties"].items():
        if key == "global":
            continue
        if not indent:
            yield "\n"
        yield textwrap.fill(
            field["description"].replace("``", "`"),
            width=118,
            initial_indent=f"{indent}# ",
            subsequent_indent=f"{indent}# ",
            break_on_hyphens=False,
        )
        if "$ref" in field:
            yield f"\n{indent}{key}:\n"
            yield from _lines(sections[_name(field)], sections, f"{indent}  ")
        else:
            yield f"\n{indent}{key}: {json.dumps(field['default'])}\n"


def _name(field: Schema) -> str:
    return str(field["$ref"]).rpartition("/")[2]
