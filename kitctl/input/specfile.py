"""Build the ``JobSpec`` from the job file and the flags.

What lives here: precedence, reading files. What never does: how flags are spelled (``cli``), checks of one field
against another (``rules``), the files that are sent with a job (``sources``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from kitctl.base import yamlstrict
from kitctl.base.errors import Problem, SpecError, UsageError
from kitctl.base.field_type import FieldType
from kitctl.input import profiles
from kitctl.input.job_request import JobRequest, merge, nested
from kitctl.spec.job_spec import JobSpec
from kitctl.spec.rules import default_name
from kitjob.record import replace

_JOB: Final = FieldType(JobSpec)
_ANY: Final = FieldType(Any)
_FREE_KEYS: Final = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})  # whose keys have dots


def build(job: JobRequest, *, suffix: str = "") -> JobSpec:
    """Build the spec: ``--set`` over flags over the job file over the user's profile.

    A job without a name is named after its command, with ``-<suffix>`` if there is one.

    Raises:
        SpecError: with one line for every problem.
        UsageError: a file cannot be read, or is no YAML mapping.
    """
    source = str(job.file or "")
    mapping: dict[str, Any] = dict(job.defaults)
    for layer in (*([_read(job.file)] if job.file else []), job.flags, *map(_parse_set, job.overrides)):
        mapping = merge(mapping, layer)
    if problems := list(_JOB.errors(mapping)):
        raise SpecError(problems, source=source)
    try:
        spec: JobSpec = _JOB.build(mapping)
    except SpecError as error:
        raise SpecError(error.problems, source=source) from error
    if mapping.get("name") or not suffix:
        return spec
    return replace(spec, name=default_name(spec, suffix))


def load(path: Path | str) -> JobSpec:
    """Read a job file; the user's profile (``$KITCTL_PROFILE``) holds for what it leaves out.

    Raises:
        SpecError: with one line for every problem.
        UsageError: it cannot be read, or is no YAML mapping.
    """
    return build(JobRequest(file=Path(path), defaults=profiles.load().job))


def _read(path: Path) -> dict[str, Any]:
    source = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: {error}", fix="give a job file: YAML or JSON, in UTF-8") from error
    mapping, problems = yamlstrict.read(text, source, _JOB)
    if problems:
        raise SpecError(problems, source=source)
    return mapping


def _parse_set(text: str) -> dict[str, Any]:
    """``a.b=c`` as a nested mapping. The value of a text field stays text; others are parsed if they are JSON."""
    path, sign, value = text.partition("=")
    if not (path and sign):
        raise UsageError(f"--set {text}: not FIELD=VALUE", fix="write it like --set snapshots.keep=5")
    keys, field_type = _resolve(path)
    return nested(keys, value if field_type.is_text else _parsed(path, value, field_type))


def _resolve(path: str) -> tuple[list[str], FieldType]:
    """A dotted path as keys, and its type; below a mapping with free keys the rest is one key, dots included.

    Parts of a Kubernetes object (``pod.metadata``, ``pod.spec``) are nested by dots, up to such a mapping of theirs.
    """
    keys: list[str] = []
    current, rest = _JOB, path
    while rest:
        key, _, rest = (rest, "", "") if current.values else rest.partition(".")
        if current.values == _ANY:
            return [*keys, *_object_keys(key)], _ANY
        keys.append(key)
        child = current.child(key)
        if child is None:
            raise SpecError([current.unknown(".".join(keys), key)])
        current = child
    return keys, current


def _object_keys(path: str) -> list[str]:
    """A dotted path within a Kubernetes object as keys."""
    keys: list[str] = []
    while path:
        key, _, path = (path, "", "") if {*keys[-1:]} & _FREE_KEYS else path.partition(".")
        keys.append(key)
    return keys


def _parsed(path: str, text: str, field_type: FieldType) -> Any:
    """JSON, a mapping in braces as in YAML, a list of plain words in brackets, or else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        is_any = field_type == _ANY
        if (field_type.fields or field_type.values or is_any) and text.startswith("{") and text.endswith("}"):
            return _mapping(path, text, FieldType(dict[str, Any]) if is_any else field_type)
        is_list = (is_any or (field_type.items and field_type.items.is_text)) and text[:1] + text[-1:] == "[]"
        return [word.strip() for word in text[1:-1].split(",")] if is_list else text


def _mapping(path: str, text: str, field_type: FieldType) -> dict[str, Any]:
    mapping, problems = yamlstrict.read(text, f"--set {path}", field_type)
    if problems:
        raise SpecError([Problem(f"{path}.{problem}") for problem in problems])
    return mapping
