"""The change of an object, as a unified diff of YAML. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kitctl.base import names, yamlstrict

# Written by the API server.
SERVER_FIELDS: Final = frozenset({"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"})


def lines(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the diff, with line ends; none where nothing changes."""
    label = f"{after['kind']}/{after['metadata']['name']}"
    old = yamlstrict.write([_applied(before)]) if before else ""
    new = yamlstrict.write([_applied(after)])
    yield from difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        fromfile=label if before else "/dev/null",
        tofile=label,
    )


def _applied(thing: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in thing["metadata"].items() if key not in SERVER_FIELDS}
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {key: text for key, text in annotations.items() if key != names.ANNOTATION_SPEC_HASH}
    return {key: value for key, value in thing.items() if key != "status"} | {"metadata": metadata}
