"""Where this user's settings, state and caches are: as the XDG base directories say."""

from __future__ import annotations

import os
from pathlib import Path

from kitctl.base.errors import UsageError


def user_folder(variable: str, default: str) -> Path:
    """The folder that a variable names; else ``default``, below the home folder.

    A relative path is ignored, as those directories ask for: it would be another folder for each command.

    Raises:
        UsageError: there is no home folder.
    """
    named = Path(os.environ.get(variable) or "")
    return named if named.is_absolute() else home() / default


def home() -> Path:
    """The home folder.

    Raises:
        UsageError: the environment names none, nor does the machine's list of users: as for a number in a container.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        raise UsageError("this user has no home folder", fix="set HOME to a folder that you can write") from error
