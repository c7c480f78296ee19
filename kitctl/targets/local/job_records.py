"""What a job's folder says of it, for a report or a bug report. Reads files, changes nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kitctl.base.encoding import encode
from kitctl.state.record import TargetRecords
from kitctl.targets.local.folder import JobFolder


def of_folder(folder: JobFolder) -> TargetRecords:
    """The records of a job; without its secret, and without the code that was sent."""
    job = folder.job
    settings: dict[str, Any] = msgspec.json.decode(encode(job.spec))
    environment = {
        "runs on": f"{platform.node()}, {os.cpu_count()} cores",
        "kitctl at submission": job.version,
        "python": job.python,
        "folder": job.folder,
        "run": job.run,
    }
    return TargetRecords(settings=settings, environment=environment, files=dict(_files(folder)))


def _files(folder: JobFolder) -> Iterator[tuple[str, Any]]:
    for path in sorted([*folder.path.glob("*.json"), *folder.path.glob("nodes/*/*.json")]):
        name = str(path.relative_to(folder.path))
        try:
            yield name, msgspec.json.decode(path.read_bytes())
        except msgspec.DecodeError as error:
            yield f"{name}.txt", f"not JSON: {error}"
        except OSError as error:
            yield f"{name}.txt", f"cannot be read: {error}"
    if lines := folder.supervisor_lines:
        yield Path(folder.supervisor_log).name, lines
