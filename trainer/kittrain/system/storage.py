"""A file system that does not answer: asked again for a while, since its silence proves nothing.

A shared volume that fails over says EIO or ESTALE for what is whole, a process with too many open files EMFILE. Only
few errors are about the file itself (:data:`ABOUT_THE_FILE`). Standard library only.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

# What tells of the path itself: it is something else than what was looked for, and will be when asked again. Anything
# else may tell of the way there (a server, a limit, rights that are being given), so it proves nothing. That a file is
# absent (ENOENT) is for the folder that it should be in to say.
ABOUT_THE_FILE: Final = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP})
# What a person has to change before writing can go on: asking again is of no use.
REFUSED: Final = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EEXIST} | ABOUT_THE_FILE
)
DELAYS: Final = (0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 14.0, 15.0, 15.0)  # seconds between two attempts: a minute in all


class StorageUnavailableError(Exception):
    """The file system does not answer, so it is not known what it holds; says the error and the path.

    It is charged neither to the script nor to the node (``kittrain.outcome.failures``): a later start may get through.
    """


def patiently(act: Callable[[], T], path: Path, say: Callable[[str], None]) -> T:
    """What an act gives; while the file system fails it is tried again, with growing pauses.

    Args:
        act: reads or writes there; may be called several times.
        path: what to name where an error does not.
        say: told once that it is tried again.

    Raises:
        StorageUnavailableError: it failed each time.
    """
    for number, delay in enumerate(DELAYS):
        try:
            return act()
        except OSError as error:
            if number == 0:
                say(f"{described(error, path)}; trying again for {sum(DELAYS):.0f} s")
        time.sleep(delay)
    try:
        return act()
    except OSError as error:
        tries = f"tried {len(DELAYS) + 1} times in {sum(DELAYS):.0f} s"
        raise StorageUnavailableError(f"{described(error, path)}; {tries}") from error


@contextmanager
def proof(path: Path, damage: type[Exception]) -> Iterator[None]:
    """Raise an OSError within as ``damage``, if it proves that a file is not what was written there.

    A missing file does only where its folder can be listed and lacks it. Other errors are raised as they are, with the
    path, which those of reads do not name.
    """
    try:
        yield
    except FileNotFoundError as error:
        if path in path.parent.iterdir():
            raise
        raise damage(f"{path.name} is missing") from error
    except OSError as error:
        error.filename = error.filename or str(path)
        if error.errno not in ABOUT_THE_FILE:
            raise
        raise damage(f"{path.name} cannot be what was written ({error})") from error


def described(error: OSError, path: Path) -> str:
    """An error with the path that it is about, which errors of reads and writes do not name."""
    return str(error) if error.filename else f"{error}: '{path}'"
