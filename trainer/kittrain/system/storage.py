"""Retries file operations on storage that fails for a while. Standard library only.

Most errors do not prove that a file is damaged: a shared volume returns EIO or ESTALE during a failover, and a process
with too many open files gets EMFILE. Only :data:`FILE_ERRNOS` are about the file itself.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

# Errors about the path itself, which a retry cannot change. Others may come from a server, a limit or changing
# permissions. ENOENT is not listed: whether a file is absent is decided by listing its folder.
FILE_ERRNOS: Final = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP})
# Errors that retrying a write does not help with: an administrator has to act.
PERMANENT_ERRNOS: Final = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EEXIST} | FILE_ERRNOS
)
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})  # of these, what somebody may end by freeing space
DELAYS: Final = (0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 14.0, 15.0, 15.0)  # seconds between attempts: a minute in total


class StorageUnavailableError(Exception):
    """The file system still failed after all retries; the message has the error and the path.

    It is charged neither to the script nor to the node (``kittrain.outcome.failures``): a later start may succeed.
    """


def retry_io(act: Callable[[], T], path: Path, log: Callable[[str], None]) -> T:
    """Return what ``act`` returns; retry it with backoff while it raises OSError.

    Args:
        act: reads or writes files; may be called several times.
        path: for the error message, if the error has no path.
        log: called once, when the first retry is due.

    Raises:
        StorageUnavailableError: it failed each time.
    """
    for number, delay in enumerate(DELAYS):
        try:
            return act()
        except OSError as error:
            if number == 0:
                log(f"{describe_error(error, path)}; retrying for {sum(DELAYS):.0f} s")
        time.sleep(delay)
    try:
        return act()
    except OSError as error:
        tries = f"tried {len(DELAYS) + 1} times in {sum(DELAYS):.0f} s"
        raise StorageUnavailableError(f"{describe_error(error, path)}; {tries}") from error


@contextmanager
def detect_damage(path: Path, damage: type[Exception]) -> Iterator[None]:
    """Convert an OSError to ``damage`` if it proves that the file is missing or not a file.

    A file counts as missing only if its folder can be listed and lacks it. Other errors are re-raised, with the path
    added, which errors of reads lack.
    """
    try:
        yield
    except FileNotFoundError as error:
        if path in path.parent.iterdir():
            raise
        raise damage(f"{path.name} is missing") from error
    except OSError as error:
        error.filename = error.filename or str(path)
        if error.errno not in FILE_ERRNOS:
            raise
        raise damage(f"{path.name} is not the file that was written ({error})") from error


def is_full(error: BaseException) -> bool:
    """Whether there was no space left, or no quota."""
    if not isinstance(error, OSError):
        return False
    return error.errno in FULL or str(error).startswith(
        tuple(f"[Errno {number}]" for number in FULL)
    )  # of another rank


def describe_error(error: OSError, path: Path) -> str:
    """An error's text with its path, which errors of reads and writes lack."""
    return str(error) if error.filename else f"{error}: '{path}'"
