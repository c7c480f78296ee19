"""The run's secret, which its nodes prove to know: from a file that only the job can read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from trainer.env import NodeEnv
from trainer.variables import EnvError

SHORTEST: Final = 16  # bytes
MISSING: Final = (
    "this run has no secret: whoever reaches node 0's port {port} and knows the run's id can take part in it"
)


def run_secret(node: NodeEnv, say: Callable[[str], None]) -> bytes | None:
    """The secret, or None where there is none and the job does not insist; node 0 says that aloud.

    Raises:
        EnvError: it cannot be read, or the job insists and there is none.
    """
    found = _mounted(node.secret_file) if node.secret_file else None
    if found is None:
        missing = MISSING.format(port=node.rendezvous_port)
        if node.secret_required:
            raise EnvError(f"KIT_SECRET_FILE={node.secret_file}: {missing}, and KIT_SECRET_REQUIRED is set")
        if node.hosts_rendezvous:
            say(f"warning: {missing}")
    return found


def _mounted(file: Path) -> bytes | None:
    """What the file holds; None where it is not there."""
    try:
        content = file.read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvError(f"KIT_SECRET_FILE={file}: {error.strerror}") from error
    if len(content) < SHORTEST:
        raise EnvError(f"KIT_SECRET_FILE={file}: {len(content)} bytes, and a secret has at least {SHORTEST}")
    return content
