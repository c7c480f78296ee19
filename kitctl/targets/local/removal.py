"""Removes folders that kitctl created, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from kitctl.base.errors import ConflictError, TargetError


def require_own(path: Path, state: Path) -> None:
    """Check that a folder is kitctl's own, before it is removed.

    Raises:
        ConflictError: it is a link, or its path leads through a link out of the state folder.
    """
    if not path.is_relative_to(state) or path.resolve() != state.resolve() / path.relative_to(state):
        fix = f"remove it yourself: {path.resolve()}"
        raise ConflictError(f"{path} is a link, or leads out of {state}: it is not removed", fix=fix)


def remove(path: Path) -> None:
    """Remove a folder with its contents, if it exists.

    Raises:
        TargetError: it cannot be removed.
    """
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise TargetError(f"{path} cannot be removed: {error.strerror}", fix="remove it yourself") from error
