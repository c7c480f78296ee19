"""Large writes that bypass the page cache (O_DIRECT). Standard library only.

The kernel does not copy the data or evict pages for it. That saves a core, and a container's memory limit does not
count what was written.

Why: decision 17.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

BLOCK: Final = 4096  # bytes; address, file offset and length must be multiples of it (open(2))
PIECE: Final = 16 << 20  # bytes per write: larger is not faster, and delays signals
FLAG: Final = getattr(os, "O_DIRECT", 0)  # not on macOS
UNABLE: Final = {errno.EINVAL, errno.ENOTSUP}


def write(descriptor: int, content: memoryview) -> int:
    """Write as much of the content as O_DIRECT allows.

    Args:
        descriptor: a file, positioned where the content begins.
        content: memory whose address is a multiple of BLOCK; it must not change during the call.

    Returns:
        The number of bytes written: all whole blocks, or 0 if the file system or the address does not allow it.

    Raises:
        OSError: a write failed for another reason.
    """
    whole = len(content) - len(content) % BLOCK
    if not FLAG or not whole:
        return 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    done = 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | FLAG)
        while done < whole:
            done += os.write(descriptor, content[done : min(done + PIECE, whole)])
    except OSError as error:
        if error.errno not in UNABLE:
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return done
