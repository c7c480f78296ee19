"""Lists the files of a working folder: as git sees them, or by walking it where there is no git."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kitctl.code.workdir.patterns import wrong
from kitctl.code.workdir.selection import IGNORE_FILE, IGNORED, MARKS, Candidate, is_never_sent

CANDIDATES_LIMIT: Final = 100_000
# A repository's own settings must not start a program: neither a monitor, nor the transport of a partial clone.
GIT: Final = ("git", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never", "-c", "safe.bareRepository=explicit")
GIT_ENVIRON: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": ""}
Verdict = Callable[[str], bool | None]


@dataclass(frozen=True)
class IgnoreRules:
    """Patterns in the syntax of ``.gitignore``.

    Attributes:
        verdict: whether a relative path is to be ignored; False if a line with ``!`` names it; None: no line does.
        adds: whether there is such a line.
    """

    verdict: Verdict
    adds: bool = False

    def match(self, path: str) -> bool:
        """Whether a relative path is to be ignored."""
        return self.verdict(path) is True


NO_RULES: Final = IgnoreRules(lambda _: None)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a folder, and what git ignores: a file, or a folder with a ``/`` at its end."""

    candidates: tuple[Candidate, ...]
    ignored: tuple[str, ...] = ()

    def below(self, prefix: str) -> Listing:
        """The same, seen from a folder further up."""
        return Listing(
            candidates=tuple(replace(one, path=prefix + one.path) for one in self.candidates),
            ignored=tuple(prefix + path for path in self.ignored),
        )

    def left_out(self, but: frozenset[str]) -> dict[str, tuple[str, ...]]:
        """What is ignored, by reason, but for paths that are sent all the same."""
        ignored = tuple(path for path in self.ignored if path not in but)
        return {IGNORED: ignored} if ignored else {}


def listing(folder: Path) -> Listing:
    """The files and symbolic links of a folder; links are not followed.

    Raises:
        SpecError: there are too many.
        OSError: the folder cannot be read.
    """
    found = _git_listing(folder)
    return found if found and found.candidates else _walk_listing(folder)


def ignore_rules(folder: Path) -> IgnoreRules:
    """Those of ``.kitignore`` in the folder.

    Raises:
        SpecError: a line of it is no pattern.
    """
    return _rules(folder / IGNORE_FILE)


def sent_again(folder: Path, found: Listing, rules: IgnoreRules) -> list[Candidate]:
    """Files that git ignores and a line of ``.kitignore`` with ``!`` includes; ignored folders are searched."""
    if not rules.adds:
        return []
    paths = [path for ignored in found.ignored for path in _below(folder, ignored)]
    return [Candidate(path=path) for path in paths if rules.verdict(path) is False]


def _below(folder: Path, ignored: str) -> Iterator[str]:
    """An ignored file, or the files in an ignored folder that is no virtual environment or cache."""
    if not ignored.endswith("/"):
        yield ignored
    elif not any((folder / ignored / mark).exists() for mark in MARKS):
        yield from (ignored + one.path for one in _walk_listing(folder / ignored).candidates)


def _rules(path: Path) -> IgnoreRules:
    if not path.is_file():
        return NO_RULES
    import pathspec  # noqa: PLC0415 - 30 ms

    lines = path.read_text("utf-8", errors="surrogateescape").splitlines()
    try:
        spec = pathspec.GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise wrong("workdir", f"{path}: {error}", "correct this line: its syntax is that of .gitignore") from error
    return IgnoreRules(lambda name: spec.check_file(name).include, adds=any(line.startswith("!") for line in lines))


def _git_listing(folder: Path) -> Listing | None:
    """What git lists; None outside a repository. A folder that git ignores as a whole is listed as empty."""
    listed = _git(folder, "-t", "--cached", "--others", "--exclude-standard")
    if listed is None:
        return None
    candidates: list[Candidate] = []
    ignored = _git(folder, "--others", "--ignored", "--exclude-standard", "--directory") or []
    ignored = [path for path in ignored if not is_never_sent(Path(path).name)]
    for line in dict.fromkeys(listed):
        tag, _, path = line.partition(" ")
        place = folder / path
        if place.is_dir() and not place.is_symlink():  # a repository in the repository
            inner = (listing if (place / ".git").exists() else _walk_listing)(place).below(path.rstrip("/") + "/")
            candidates += inner.candidates
            ignored += inner.ignored
        elif os.path.lexists(place):  # else it was deleted, and git still tracks it
            candidates.append(Candidate(path=path, tracked=tag != "?"))
    return Listing(candidates=tuple(candidates), ignored=tuple(ignored))


def _git(folder: Path, *options: str) -> list[str] | None:
    """The paths of ``git ls-files``, without a hook's variables; None without git, or outside a repository."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | GIT_ENVIRON
    command = [*GIT, "-C", str(folder), "ls-files", "-z", *options]
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=environ, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path] if done.returncode == 0 else None


def _walk_listing(folder: Path) -> Listing:
    candidates: list[Candidate] = []
    ignored: list[str] = []
    for path, excluded in _walk(folder, "", ()):
        if excluded:
            ignored.append(path)
        else:
            candidates.append(Candidate(path=path))
        if len(candidates) > CANDIDATES_LIMIT:
            what = f"{folder} has more than {CANDIDATES_LIMIT:,} files"
            raise wrong("workdir", what, f"choose a smaller folder, or list others in {folder / '.gitignore'}")
    return Listing(candidates=tuple(candidates), ignored=tuple(ignored))


def _walk(top: Path, prefix: str, rules: tuple[tuple[str, IgnoreRules], ...]) -> Iterator[tuple[str, bool]]:
    """Each file and link below a folder, and whether a ``.gitignore`` excludes it; excluded folders as a whole."""
    folder = top / prefix
    if prefix and any((folder / mark).exists() for mark in MARKS):
        yield next(prefix + mark for mark in MARKS if (folder / mark).exists()), False  # enough to know it by
        return
    rules = (*rules, (prefix, _rules(folder / ".gitignore")))
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            path = prefix + entry.name
            inner = entry.is_dir(follow_symlinks=False)
            shown = f"{path}/" if inner else path
            if any(one.match(shown.removeprefix(base)) for base, one in rules):
                yield shown, True
            elif inner and not is_never_sent(entry.name):
                yield from _walk(top, shown, rules)
            else:
                yield (f"{path}/" if inner else path), False
