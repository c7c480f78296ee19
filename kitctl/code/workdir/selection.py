"""Decides which files of a working folder are sent with a job. Pure.

Sent is what git tracks or does not ignore, less what ``.kitignore`` lists. Of that, hidden files that are not tracked,
and files whose name looks like a credential, are sent only if ``send`` names them. Repositories' own folders, virtual
environments and caches are never sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from kitctl.code import credentials

IGNORE_FILE: Final = ".kitignore"
MARKER: Final = ".kit-workdir"  # the agent's, in a folder that it has unpacked
# Folders that are never sent, by name, and the files by which other such folders are known.
FOLDERS: Final = frozenset(
    {
        *(".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
        *(".ipynb_checkpoints", ".tox", ".nox", ".eggs", "node_modules"),
    }
)
MARKS: Final = ("pyvenv.cfg", "conda-meta/history", "CACHEDIR.TAG")

SENT: Final = ""
NEVER: Final = "in caches, virtual environments or .git"
IGNORED: Final = "ignored by git"
LISTED: Final = f"listed in {IGNORE_FILE}"
HIDDEN: Final = "hidden and not tracked by git"
CREDENTIAL: Final = "like a credential by name"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A file or link of the folder: its relative path, whether git tracks it, and whether ``send`` names it."""

    path: str
    tracked: bool = False
    named: bool = False


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Paths to send, sorted; and those left out, by reason."""

    paths: tuple[str, ...]
    left_out: dict[str, tuple[str, ...]]


def select(candidates: Iterable[Candidate], listed: Callable[[str], bool]) -> Selection:
    """Choose what is sent.

    Args:
        candidates: of one path, the one that is named counts.
        listed: whether ``.kitignore`` lists a path.
    """
    found: dict[str, Candidate] = {}
    for one in candidates:
        found[one.path] = one if one.named or one.path not in found else found[one.path]
    never = _never(found)
    reasons = {path: _reason(one, never, listed) for path, one in sorted(found.items())}
    by_reason: dict[str, list[str]] = defaultdict(list)
    for path, reason in reasons.items():
        by_reason[reason].append(path)
    chosen = tuple(by_reason.pop(SENT, ()))
    return Selection(paths=chosen, left_out={reason: tuple(paths) for reason, paths in by_reason.items()})


def is_never_sent(name: str) -> bool:
    """Whether a folder of that name is never sent."""
    return name in FOLDERS


def _never(paths: Iterable[str]) -> frozenset[str]:
    """The folders that a file in them marks as a virtual environment or cache; never the whole folder."""
    marked = (path.removesuffix(f"/{mark}") for path in paths for mark in MARKS if path.endswith(f"/{mark}"))
    return frozenset(marked)


def _reason(one: Candidate, never: frozenset[str], listed: Callable[[str], bool]) -> str:
    """Why a file is not sent, or SENT."""
    path = PurePosixPath(one.path)
    if not never.isdisjoint(map(str, path.parents)) or not FOLDERS.isdisjoint(path.parts) or path.suffix == ".pyc":
        return NEVER
    if one.named:
        return SENT
    if one.path in {IGNORE_FILE, MARKER} or listed(one.path):
        return LISTED
    if credentials.is_credential_file(one.path):
        return CREDENTIAL
    if not one.tracked and any(part.startswith(".") for part in path.parts):
        return HIDDEN
    return SENT
