"""From what a person hands in to what runs: job file and flags -> ``JobSpec``.

What lives here: which of several wishes wins, the name of a job that has none, reading. What never does: how flags
are spelled (``cli``), checks of one field against another (``rules``), the files that travel (``sources``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from kitctl import yamlstrict
from kitctl.errors import SpecError, UsageError
from kitctl.jobinput import JobInput, merge, nested
from kitctl.rules import check, name_limit
from kitctl.shape import Shape
from kitctl.spec import JobSpec

_JOB: Final = Shape(JobSpec)


def build(job: JobInput, *, suffix: str = "", namespace: str = "default") -> JobSpec:
    """The spec that was asked for: ``--set`` over flags over the job file over the user's defaults.

    A job without a name is named after its command, with ``-<suffix>`` if there is one; one without a namespace
    runs in the one that is given here.

    Raises:
        SpecError: with one line for every problem.
        UsageError: a file cannot be read, or is no YAML mapping.
    """
    source = str(job.file or "")
    files = [_read(path) for path in (_defaults(), job.file) if path]
    tree: dict[str, Any] = {"namespace": namespace}
    for layer in (*files, job.flags, *map(_setting, job.settings)):
        tree = merge(tree, layer)
    if problems := list(_JOB.faults(tree)):
        raise SpecError(problems, source=source)
    return check(_named(_one_size(msgspec.convert(tree, JobSpec)), suffix), source=source)


def _defaults() -> Path | None:
    """The user's own defaults, as a job file: an image, say."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = home / "kitctl" / "defaults.yaml"
    return path if path.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    source = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: {error}", fix="give a job file: YAML or JSON, in UTF-8") from error
    tree, problems = yamlstrict.read(text, source, _JOB)
    if problems:
        raise SpecError(problems, source=source)
    return tree


def _setting(text: str) -> dict[str, Any]:
    """``a.b=c`` as a tree. The value is text where the field is; else JSON where it is JSON."""
    path, sign, value = text.partition("=")
    if not (path and sign):
        raise UsageError(f"--set {text}: not FIELD=VALUE", fix="write it like --set snapshots.keep=5")
    keys, shape = _resolve(path)
    return nested(keys, value if shape.is_text else _json(value))


def _resolve(path: str) -> tuple[list[str], Shape]:
    """A dotted path as keys, and what is there; below a mapping with free keys the rest is one key, dots and all."""
    keys: list[str] = []
    shape, rest = _JOB, path
    while rest:
        key, _, rest = (rest, "", "") if shape.values else rest.partition(".")
        keys.append(key)
        below = shape.child(key)
        if below is None:
            raise SpecError([shape.unknown(".".join(keys), key)])
        shape = below
    return keys, shape


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _one_size(spec: JobSpec) -> JobSpec:
    """``"3"`` and ``"3:3"`` are 3: equal jobs have equal specs."""
    fixed = spec.min_nodes == spec.max_nodes and spec.min_nodes > 0
    return msgspec.structs.replace(spec, nodes=spec.min_nodes) if fixed else spec


def _named(spec: JobSpec, suffix: str) -> JobSpec:
    if spec.name or not spec.command:
        return spec
    stem = Path(spec.command[0]).stem if spec.script else spec.command[-1].rpartition(".")[2]
    ending = f"-{suffix}" if suffix else ""
    label = re.sub(r"[^a-z0-9]+", "-", stem.lower()).lstrip("-0123456789")
    return msgspec.structs.replace(spec, name=(label or "job")[: name_limit(spec) - len(ending)].strip("-") + ending)
