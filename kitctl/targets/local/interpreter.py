"""The interpreter that runs a job's nodes: kitctl's own, or one of the user's (``python``) with kittrain added.

The user's environment has torch and what the script needs. kittrain is put on its path alone, without kitctl's other
packages, so that none of these hides one of the user's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import kitctl
from kitctl.base import names
from kitctl.base.errors import TargetError, UnsupportedError, UsageError

LIBRARY: Final = "kittrain"
CONTRACT: Final = "kitjob"  # which it imports
OLDEST_PYTHON: Final = (3, 11)
OLDEST_TORCH: Final = (2, 6)
PROBE_SECONDS: Final = 60.0  # a cold disk
PROBE: Final = """
import sys
sys.path[:] = filter(None, sys.path)  # not the current folder; an old Python does not know -P
import importlib.metadata, importlib.util, json
torch = importlib.metadata.version("torch") if importlib.util.find_spec("torch") else ""
pip = importlib.util.find_spec("pip") is not None
print(json.dumps({"python": sys.version_info[:2], "torch": torch, "pip": pip}))
"""


def find(python: str, folder: Path) -> str:
    """The path of an interpreter, given as a path from ``folder`` or as a command; empty: kitctl's own.

    Raises:
        UsageError: there is none.
    """
    if not python:
        return sys.executable
    path = folder / Path(python).expanduser()  # not resolved: a virtual environment's interpreter is a link
    found = str(path) if path.is_file() and os.access(path, os.X_OK) else shutil.which(python)
    if not found:
        raise UsageError(f"python: no interpreter {python!r}", fix="give its path, as in --python .venv/bin/python")
    return os.path.abspath(found)  # noqa: PTH100 - as above


def check(python: str, *, pip: bool = False) -> str:
    """Check that a user's interpreter is suitable; ``pip``: whether it needs pip, to install requirements.

    Raises:
        UnsupportedError: it lacks torch or pip, or it or its torch is too old.
    """
    found = _probe(python)
    version, torch = tuple(found["python"]), str(found["torch"])
    if version < OLDEST_PYTHON:
        raise _unsupported(python, f"is Python {_dotted(version)}", f"{_dotted(OLDEST_PYTHON)} or later is needed")
    if not torch:
        raise _unsupported(python, "has no torch", f"{python} -m pip install torch, or name another interpreter")
    if tuple(int(part) for part in torch.split(".")[:2]) < OLDEST_TORCH:
        raise _unsupported(python, f"has torch {torch}", f"{_dotted(OLDEST_TORCH)} or later is needed")
    if pip and not found["pip"]:
        raise _unsupported(python, "has no pip, which installs the requirements", f"{python} -m ensurepip")
    return f"{python} has torch {torch}"


def command(python: str, words: Sequence[str]) -> list[str]:
    """The command line of a module of the trainer, for the interpreter that a job runs with.

    Raises:
        TargetError: the interpreter is gone, as after its environment was removed.
    """
    if not os.access(python, os.X_OK):
        raise TargetError(f"the job's interpreter is gone: {python}", fix="create that environment again")
    return [python, *names.PYTHON[1:], *words]


def link_library(state: Path) -> Path:
    """A folder with links to kittrain, what it needs and its metadata, and nothing else.

    Raises:
        UnsupportedError: kitctl was installed without kittrain.
    """
    package, contract = _package(LIBRARY), _package(CONTRACT)
    folder = state / "lent" / f"{kitctl.__version__}-{hashlib.sha256(os.fsencode(package)).hexdigest()[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    _link(folder / LIBRARY, package)
    _link(folder / CONTRACT, contract)
    with suppress(importlib.metadata.PackageNotFoundError):
        installed = importlib.metadata.distribution(LIBRARY)
        record = f"{LIBRARY}-{installed.version}.dist-info"
        _link(folder / record, Path(str(installed.locate_file(record))))
    return folder


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise UnsupportedError(f"kitctl's own installation has no {name}", fix="pip install kittrain")
    return Path(spec.submodule_search_locations[0])


def with_library(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    """An environment with the folder on Python's path; unchanged if there is no folder. Pure."""
    if not folder:
        return dict(environ)
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, (folder, environ.get("PYTHONPATH", ""))))}


def _probe(python: str) -> dict[str, Any]:
    command = [python, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROBE_SECONDS)
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise _unsupported(
            python, f"is no Python that works: {lines[-1] if lines else error}", "name another"
        ) from error
    return found


def _link(link: Path, target: Path) -> None:
    """Make a symbolic link; another process may do the same."""
    with suppress(FileExistsError):
        link.symlink_to(target)


def _unsupported(python: str, what: str, fix: str) -> UnsupportedError:
    return UnsupportedError(f"python: {python} {what}", fix=fix)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
