"""From what a person hands in to what runs: job file and flags -> ``JobSpec``, and the files that travel with it.

What lives here: which of several wishes wins, the name of a job that has none, reading. What never does: how flags
are spelled (``cli``), checks of one field against another (``rules``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kitctl import yamlstrict
from kitctl.errors import Problem, SpecError, UsageError
from kitctl.jobinput import JobInput, merge, nested
from kitctl.rules import check, name_limit
from kitctl.shape import Shape
from kitctl.spec import JobSpec

SOURCES_LIMIT: Final = 900 * 1024  # bytes; they travel in a ConfigMap, and an object holds 1 MiB
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


def sources(spec: JobSpec, folder: Path) -> dict[str, str]:
    """The files that travel with the job, by their path relative to ``folder``: a relative script, and ``sync``.

    Raises:
        SpecError: one of them is absent, is no text, lies elsewhere, or they are too large together.
    """
    wanted = [("command", spec.script)] if spec.script and not Path(spec.script).is_absolute() else []
    wanted += [(f"sync[{number}]", pattern) for number, pattern in enumerate(spec.sync)]
    found = {path: field for field, pattern in wanted for path in _matches(folder, pattern, field)}
    texts = {path.relative_to(folder).as_posix(): _text(path, field) for path, field in sorted(found.items())}
    size = sum(len(text.encode()) for text in texts.values())
    if size > SOURCES_LIMIT:
        what = f"{size // 1024} KiB of files are more than the {SOURCES_LIMIT // 1024} that can travel with a job"
        raise SpecError([Problem.of("sync", what, "sync fewer, or put them into the image or on a volume")])
    return texts


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


def _matches(folder: Path, pattern: str, field: str) -> Iterator[Path]:
    """The files that a path, a glob or a folder means; what is hidden in a folder stays there."""
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        what = f"{pattern} is not below {folder}"
        raise SpecError([Problem.of(field, what, "give paths from the folder that you submit from")])
    files = [file for path in sorted(folder.glob(pattern)) for file in _files(path)]
    if not files:
        what = f"{pattern} does not exist in {folder}"
        raise SpecError([Problem.of(field, what, "give a path from this folder, or an absolute path in the image")])
    yield from files


def _files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path]
    return [
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in file.relative_to(path).parts)
    ]


def _text(path: Path, field: str) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        what = f"{path.name} cannot travel with the job: {error}"
        raise SpecError([Problem.of(field, what, "only text files can; put others on a volume")]) from error
