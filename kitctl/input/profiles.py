"""Profiles: a user's defaults, by name, in ``~/.config/kitctl/config.toml``.

    default-profile = "research"  # the one that is used where none is named

    [profile.research]
    context = "research"          # target, context and kubeconfig, as the options
    namespace = "team"            # and any key of the job file
    image = "ghcr.io/team/train:7"
    snapshots.keep = 5

What never lives here: what wins over what (``specfile``), which profile was asked for (``cli``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kitctl.base.errors import SpecError, UsageError
from kitctl.base.user_folders import user_folder

VARIABLE: Final = "KITCTL_PROFILE"
DEFAULT: Final = "default"  # used where the file names none
OF_TARGET: Final = ("target", "context", "kubeconfig")  # keys of a profile that are none of a job


class Profile(NamedTuple):
    """A profile as it is used; without a name there is none."""

    name: str = ""
    path: str = ""
    target: Mapping[str, str] = {}
    job: Mapping[str, Any] = {}


def folder() -> Path:
    """Where a user's settings of kitctl are."""
    return user_folder("XDG_CONFIG_HOME", ".config") / "kitctl"


def load(asked: str = "") -> Profile:
    """The profile of that name; else the one that the variable or the file names; else ``default``, if there is one.

    Raises:
        UsageError: there is none of that name, or the file is no TOML.
        SpecError: a key is unknown, or a value is not allowed.
    """
    _require_no_defaults_file()
    path, asked = folder() / "config.toml", asked or os.environ.get(VARIABLE, "")
    if not path.is_file():
        if asked:
            what = f"there is no profile {asked!r}: {path} does not exist"
            raise UsageError(what, fix=f"write [profile.{asked}] there")
        return Profile()
    found = _read(path)
    given = found.get("profile")
    profiles = given if isinstance(given, dict) else {}
    default = found.get("default-profile", "")
    name = asked or default or (DEFAULT if DEFAULT in profiles else "")
    if not name:
        return Profile(path=str(path))
    if not isinstance(profiles.get(name), dict):
        known = ", ".join(profiles) or "none"
        raise UsageError(f"{path} has no profile {name!r}", fix=f"write [profile.{name}] there; it has: {known}")
    return _checked(name, path, profiles[name])


def _checked(name: str, path: Path, given: Mapping[str, Any]) -> Profile:
    from kitctl.base.field_type import FieldType  # noqa: PLC0415 - commands that describe no job do without
    from kitctl.spec.job_spec import JobSpec  # noqa: PLC0415 - as above

    target = {key: value for key, value in given.items() if key in OF_TARGET}
    job = {key: value for key, value in given.items() if key not in OF_TARGET}
    wrong = [key for key, value in target.items() if not isinstance(value, str)]
    problems = [*FieldType(JobSpec).errors(job)] if job else []
    if wrong or problems:
        raise (
            SpecError(problems, source=f"profile {name} of {path}")
            if problems
            else UsageError(f"{path}: profile.{name}.{wrong[0]} is no text", fix="write it in quotes")
        )
    return Profile(name, str(path), target, job)


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - it compiles its patterns, for 10 ms, and most users have no file

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", fix="correct it: it is TOML, with [profile.NAME]"
        ) from error
    if extra := found.keys() - {"profile", "default-profile"}:
        what = f"{path}: unknown key {min(extra)!r}"
        raise UsageError(
            what, fix=f"the keys are default-profile and [profile.NAME]; did you mean [profile.{DEFAULT}]?"
        )
    return found


def _require_no_defaults_file() -> None:
    """An earlier version read its keys; to ignore them would change jobs silently."""
    old = folder() / "defaults.yaml"
    if old.is_file():
        fix = f"move its keys to [profile.{DEFAULT}] of {folder() / 'config.toml'}, as TOML, and delete it"
        raise UsageError(f"{old} is not read any more", fix=fix)
