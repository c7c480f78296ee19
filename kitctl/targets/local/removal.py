"""Removing what the kit has made, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from kitctl.errors import ConflictError, TargetError


def insist_own(path: Path, state: Path) -> None:
    """See that a folder is the kit's own, before it is removed.

    Raises:
        ConflictError: a link leads to it, or out of the state folder; what lies there is not ours to remove.
    """
    if not path.is_relative_to(state) or path.resolve() != state.resolve() / path.relative_to(state):
        fix = f"remove what is there yourself: {path.resolve()}"
        raise ConflictError(f"{path} is a link, or leads out of {state}: it is not removed", fix=fix)


def remove(path: Path) -> None:
    """Remove a folder with all that is in it; nothing where there is none.

    Raises:
        TargetError: it cannot be removed.
    """
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise TargetError(f"{path} cannot be removed: {error.strerror}", fix="remove it yourself") from error
