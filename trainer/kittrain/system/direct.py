"""Large writes past the page cache (O_DIRECT): the disk reads them out of the process's own memory.

The kernel copies nothing then, and neither has to find pages for the copy nor throws others out for it: a core is
left to training, and a container's memory limit does not count what was written. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

BLOCK: Final = 4096  # bytes: memory, file offset and length are multiples of it; what open(2) advises for any disk
PIECE: Final = 16 << 20  # bytes of one write: more makes it no faster, and a signal is not kept waiting
FLAG: Final = getattr(os, "O_DIRECT", 0)  # not on macOS
UNABLE: Final = {errno.EINVAL, errno.ENOTSUP}


def write(descriptor: int, content: memoryview) -> int:
    """Write as much of the content as can go this way.

    Args:
        descriptor: of a file, where the content begins.
        content: bytes that begin at a multiple of BLOCK; they must not change meanwhile.

    Returns:
        How many bytes were written: all but the last few, or none where file system or memory do not allow it.

    Raises:
        OSError: as the system said it.
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
