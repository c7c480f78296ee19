"""Collects the files of a folder for sending."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kitctl.code.code_tree import SentFolder
from kitctl.code.workdir.archive import small_archive
from kitctl.code.workdir.listing import ignore_rules, listing, sent_again
from kitctl.code.workdir.patterns import matches, wrong
from kitctl.code.workdir.reading import credential_files, read_tree
from kitctl.code.workdir.selection import Candidate, select

FIELD = "workdir"


def collect(folder: Path, send: Sequence[str]) -> SentFolder:
    """Collect a folder's files; ``send`` names files that would be left out.

    Raises:
        SpecError: there is no such folder, it is too large, a link leads out of it, or ``send`` names nothing.
    """
    if not folder.is_dir():
        raise wrong(FIELD, f"{folder} is not a folder", "give a folder, as in --workdir .")
    named = [
        Candidate(path=_link_above(folder, path.relative_to(folder)), named=True)
        for number, pattern in enumerate(send)
        for path in matches(folder, pattern, f"send[{number}]")
    ]
    try:
        found, rules = listing(folder), ignore_rules(folder)
        chosen = select([*found.candidates, *sent_again(folder, found, rules), *named], rules.match)
        tree = read_tree(folder, chosen.paths)
        archive = small_archive(tree, lambda path: (folder / path).read_bytes())
    except OSError as error:
        what = f"{error.filename or folder} cannot be read: {error.strerror or error}"
        raise wrong(FIELD, what, "make it readable, or list it in .kitignore") from error
    return SentFolder(
        folder=folder,
        tree=tree,
        archive=archive,
        left_out=found.left_out(but=frozenset(chosen.paths)) | chosen.left_out,
        credentials=tuple(credential_files(folder, tree)),
    )


def _link_above(folder: Path, path: Path) -> str:
    """The path, or the first link on the way to it: a link is sent as a link."""
    ways = [*reversed(path.parents), path]
    return next((way for way in ways if (folder / way).is_symlink()), path).as_posix()
