"""What the process that keeps copies on a node tells the agent and the ranks, in a file in the node's folder."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kitjob import typed
from kitjob.decoders import MalformedError

FILE: Final = ".copies.json"


@dataclass(frozen=True, kw_only=True)
class CopiesStatus:
    """Status of the process that keeps copies of the ranks' shards on other nodes.

    Attributes:
        run: id of the run.
        step: of the newest snapshot of which all shards are there.
        have: copies of its shard with the fewest.
        wanted: copies that there should be.
        copied_step: of the newest snapshot that has all its copies; None: there is none.
        copied_digest: of its manifest.
        sent: bytes that were sent to others.
        warning: why it does not go on; empty: it does.
        settled: id of the process that others need no more, as all that is here is where it is to be; 0: they do.
        stays: id of the process that the node that uploads has told to stay.
        leads: id of the process whose node uploads at the end in place of others, which are lost; 0: it does not.
        released: id of the process that has told all others that what was here is uploaded.
    """

    run: str = ""
    step: int | None = None
    have: int = 0
    wanted: int = 0
    copied_step: int | None = None
    copied_digest: str = ""
    sent: int = 0
    warning: str = ""
    settled: int = 0
    stays: int = 0
    leads: int = 0
    released: int = 0


def read(folder: Path, run: str) -> CopiesStatus | None:
    """That of a run; None if there is none that can be read."""
    with suppress(OSError, MalformedError):
        found: CopiesStatus = typed.load(CopiesStatus, (folder / FILE).read_bytes())
        return found if found.run == run else None
    return None


def write(folder: Path, status: CopiesStatus) -> None:
    """Replace it; what is lost in a power cut is written again.

    Raises:
        OSError: it cannot be written.
    """
    scratch = folder / f"{FILE}.new"
    scratch.write_bytes(typed.dump(status))
    scratch.replace(folder / FILE)
