"""Finds modules that a script imports from its folder and that are not sent with the job."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from kitctl.code.code_tree import Sources
from kitctl.spec.job_spec import JobSpec

NAMED: Final = 5  # modules in a warning
Read = Callable[[str], str | None]  # the text of a file, by relative path; None: there is none


@dataclass(frozen=True, kw_only=True)
class Import:
    """An import of a module that is a file of the folder: where it is, and what it means."""

    importer: str
    line: int
    path: str


def import_warnings(spec: JobSpec, sources: Sources, folder: Path) -> Iterator[str]:
    """A warning, if modules are imported that are in the folder and not sent with the job."""
    workdir = sources.workdir
    top = workdir.folder if workdir else folder
    sent = {*workdir.tree.files, *workdir.tree.links} if workdir else {*sources.files}
    links = workdir.tree.links.keys() if workdir else frozenset()
    unsent = unsent_imports(spec.command, sent, lambda path: _text(top / path))
    missing = [one for one in unsent if links.isdisjoint(map(str, PurePosixPath(one.path).parents))]
    if missing:
        fix = "name them with --send" if workdir else "--workdir . sends the folder"
        where = [
            f"{one.path} (in {one.importer}, line {one.line})" if one.line else one.path for one in missing[:NAMED]
        ]
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        yield f"modules of this folder are imported, but not sent with the job: {', '.join(where)}{more}; {fix}"


def unsent_imports(command: tuple[str, ...], sent: Collection[str], read: Read) -> list[Import]:
    """The modules that a job's command imports from its folder, directly or not, and that are not sent. Pure.

    Args:
        command: a script, or -m and a module.
        sent: the files that are sent.
        read: reads a file of the folder.
    """
    script = "" if command[0] == "-m" else PurePosixPath(command[0]).as_posix()
    if script.startswith("/") or ".." in PurePosixPath(script).parts:
        return []
    root = "" if not script or "/" not in script else script.rpartition("/")[0] + "/"
    first = (script,) if script else _files("", command[-1], read)
    waiting = [Import(importer="", line=0, path=path) for path in first]
    found: dict[str, Import] = {}
    while waiting:
        one = waiting.pop(0)
        if one.path in found:
            continue
        found[one.path] = one
        waiting += [
            Import(importer=one.path, line=line, path=path)
            for line, module in _imported(read(one.path) or "", one.path.removeprefix(root))
            for path in _files(root, module, read)
        ]
    return [one for path, one in found.items() if path not in sent]


def _files(root: str, module: str, read: Read) -> list[str]:
    """The files of a module and of the packages that it is in, as far as the folder has them."""
    parts = module.split(".")
    stems = [root + "/".join(parts[: length + 1]) for length in range(len(parts))]
    paths = [path for stem in stems for path in (f"{stem}.py", f"{stem}/__init__.py")]
    return [path for path in paths if read(path) is not None]


def _imported(text: str, path: str) -> Iterator[tuple[int, str]]:
    """The modules that a file may import, absolute, with their lines; ``a.b`` stands for ``from a import b``, too."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # running the script will show this error
        return
    package = path.split("/")[:-1]
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(package):
            base = package[: len(package) + 1 - node.level] if node.level else []
            start = [*base, *(node.module.split(".") if node.module else [])]
            yield from ((node.lineno, ".".join([*start, name.name])) for name in node.names)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements but those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            continue
        yield node
        yield from _statements(node)


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8") if path.is_file() else None
    except (OSError, UnicodeDecodeError):
        return ""
