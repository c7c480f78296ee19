"""The trainer as it travels with a job: kittrain and kitjob, packed, with the two files that start it in any image.

``launcher.py`` is the text of the pods' command. It runs ``bootstrap.py`` if that and the archive have the digest that
is in the command, too. The archive has no comments and docstrings: Helm stores all of a release in one Secret, of 1 MiB
at most, which holds it twice. Nor have its functions annotations: each pod compiles it, and takes a fifth less time so.
In a checkout it is packed again when a source has changed; a wheel has it from its build, which loads this module by
its path: standard library only.

Why: decision 53.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import ast

Place: TypeAlias = tuple[int, int]  # of a text: the line, counted from 0, and the byte in it
PACKAGES: Final = ("kitjob", "kittrain")
ARCHIVE: Final = "kittrain.tar.xz"
SOURCES: Final = "sources.sha256"  # in the archive: the digest of the files that it was made from
BOOTSTRAP: Final = "bootstrap.py"
LAUNCHER: Final = "launcher.py"
FILES: Final = Path("training-job", "files")  # of charts/


@dataclass(frozen=True)
class TrainerPackage:
    """What the pods of a job need to run the trainer in an image that has none.

    Attributes:
        launcher: the text of the program that a pod's command gives to Python.
        bootstrap: the program that it runs, which judges the image and unpacks the archive.
        archive: kittrain and kitjob.
    """

    launcher: str
    bootstrap: bytes
    archive: bytes

    @cached_property
    def digest(self) -> str:
        """Identifies it: the SHA-256 of both files; the launcher compares it."""
        return hashlib.sha256(self.bootstrap + self.archive).hexdigest()

    @property
    def binary_data(self) -> tuple[dict[str, str], dict[str, str]]:
        """The ``binaryData`` of one ConfigMap in two parts, or of two: the archive is cut in half.

        ``kubectl apply`` and Argo CD keep a copy of an object in an annotation, which holds 256 KiB.
        """
        half = len(self.archive) // 2
        first, second = self.archive[:half], self.archive[half:]
        return _encoded({BOOTSTRAP: self.bootstrap, f"{ARCHIVE}.0": first}), _encoded({f"{ARCHIVE}.1": second})


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def load() -> TrainerPackage:
    """The trainer of this installation.

    Raises:
        OSError: it lacks a file.
    """
    package = Path(__file__).parent.parent
    installed = package / "charts"
    if installed.is_dir():
        archive = (installed / FILES / ARCHIVE).read_bytes()
        folder = installed / FILES
    else:
        folder = package.parent / "charts" / FILES
        archive = refresh(package.parent)
    return TrainerPackage(
        launcher=(folder / LAUNCHER).read_text("utf-8"),
        bootstrap=(folder / BOOTSTRAP).read_bytes(),
        archive=archive,
    )


def refresh(checkout: Path) -> bytes:
    """A checkout's archive, packed if a source is newer than it; in memory only where that cannot be written."""
    trainer, archive = checkout / "trainer", checkout / "charts" / FILES / ARCHIVE
    started = _last_change(trainer)
    try:
        if archive.stat().st_mtime_ns > started:
            return archive.read_bytes()
    except FileNotFoundError:
        pass
    packed = pack(trainer)
    import tempfile  # noqa: PLC0415 - as in ``pack``

    drafts = checkout / ".cache"  # not beside the archive, where a wheel that is just built would take a draft along
    try:
        drafts.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=drafts, prefix=f"{ARCHIVE}.", delete=False) as draft:
            draft.write(packed)
        Path(draft.name).chmod(0o644)
        if started == _last_change(trainer):  # else a source has changed since, and it is packed again
            Path(draft.name).replace(archive)
        else:
            Path(draft.name).unlink()
    except OSError:
        pass
    return packed


def pack(trainer: Path) -> bytes:
    """An archive of the packages in a folder; equal files give equal archives, by the same version of liblzma."""
    import io  # noqa: PLC0415 - few calls of kitctl pack anything
    import lzma  # noqa: PLC0415
    import tarfile  # noqa: PLC0415

    files = {one.relative_to(trainer).as_posix(): one.read_bytes() for one in _walk(trainer) if one.is_file()}
    sources = hashlib.sha256(b"".join(name.encode() + b"\0" + files[name] for name in sorted(files))).hexdigest()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in (*sorted(files.items()), (SOURCES, sources.encode())):
            entry, shorter = tarfile.TarInfo(name), _shortened(content) if name.endswith(".py") else content
            entry.size = len(shorter)
            archive.addfile(entry, io.BytesIO(shorter))
    return lzma.compress(packed.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def _shortened(source: bytes) -> bytes:
    """Python source without comments, docstrings, and annotations of functions; lines keep numbers, for tracebacks."""
    import ast  # noqa: PLC0415

    lines, tree = source.split(b"\n"), ast.parse(source)
    for start, end in sorted(_annotations(lines, tree), reverse=True):
        _cut(lines, start, end)
    for block in ast.walk(tree):
        for statement in getattr(block, "body", ()) if not isinstance(block, ast.Lambda | ast.IfExp) else ():
            if _is_docstring(statement) and not lines[statement.lineno - 1][: statement.col_offset].strip():
                first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
                nothing = b" " * statement.col_offset + b'""'  # a body needs a statement
                lines[first:last] = [nothing, *[b""] * (last - first - 1)]
    return _without_comments(b"\n".join(lines))


def _is_docstring(statement: ast.stmt) -> bool:
    """Not the ``...`` of a protocol, which stands in its function's line."""
    import ast  # noqa: PLC0415

    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _annotations(lines: list[bytes], tree: ast.AST) -> Iterator[tuple[Place, Place]]:
    """Where those of parameters and results begin and end, with the colon or arrow before them."""
    import ast  # noqa: PLC0415

    for one in ast.walk(tree):
        if isinstance(one, ast.arg) and one.annotation:
            yield (one.lineno - 1, one.col_offset + len(one.arg.encode())), _end(one.annotation)
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.returns:
            row = one.returns.lineno - 1
            yield (row, lines[row].rindex(b"->", 0, one.returns.col_offset)), _end(one.returns)


def _end(one: ast.expr) -> Place:
    return (one.end_lineno or one.lineno) - 1, one.end_col_offset or 0


def _cut(lines: list[bytes], start: Place, end: Place) -> None:
    """Remove text; lines that it takes whole become empty ones."""
    (first, before), (last, after) = start, end
    lines[first : last + 1] = [lines[first][:before] + lines[last][after:], *[b""] * (last - first)]


def _without_comments(source: bytes) -> bytes:
    import io  # noqa: PLC0415
    import tokenize  # noqa: PLC0415

    lines = source.split(b"\n")
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1].decode()[:column].rstrip().encode()
    return b"\n".join(lines)


def _walk(trainer: Path) -> Iterator[Path]:
    """The folders and files of the packages, without what Python and editors leave there."""
    for package in PACKAGES:
        for folder, folders, files in os.walk(trainer / package):
            folders[:] = sorted(name for name in folders if not name.startswith(("__pycache__", ".")))
            yield Path(folder)
            yield from (Path(folder, name) for name in files if not name.startswith(".") and not name.endswith(".pyc"))


def _last_change(trainer: Path) -> int:
    return max(path.stat().st_mtime_ns for path in (Path(__file__), *_walk(trainer)))
