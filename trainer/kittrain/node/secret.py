"""The run's secret, which its nodes prove to know: from a file that only the job can read, or from the API server.

A job that kitctl submits has the file from the start. One whose objects were applied otherwise has an empty Secret,
since nobody who renders objects may write a secret down: the first agent that comes fills it, for all of them.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from kittrain.env import NodeEnv
from kittrain.system.apiserver import ApiError, ApiServer, DeniedError, NoAccountError, patiently
from kittrain.variables import EnvError

KEY: Final = "key"  # in the Secret's data, and so the file's name
SIZE: Final = 32  # bytes of a new one
SHORTEST: Final = 16  # bytes
OPEN: Final = "this run has no secret: whoever reaches port {port} of node 0 and knows the run's id can take part in it"
STOCK: Final = (
    "rendezvous c10d is torch's own: whoever reaches port {port} of node 0 can run code in all nodes; only a network "
    "policy keeps others away"
)


def run_secret(node: NodeEnv, say: Callable[[str], None], server: ApiServer | None = None) -> bytes | None:
    """The secret, or None where there is none and the job does not insist; node 0 says that aloud.

    Raises:
        EnvError: it cannot be read, or the job insists and there is none.
        ApiError: the API server does not answer.
    """
    if node.rendezvous == "c10d":
        _go_without(node, say, STOCK.format(port=node.rendezvous_port))
        return None
    found = _mounted(node.secret_file) if node.secret_file else None
    why = ""
    if found is None and node.secret_name:
        try:
            found = patiently(partial(_agreed, node.secret_name, server or ApiServer()))
        except (NoAccountError, DeniedError) as error:
            why = f" (Secret {node.secret_name}: {error})"
    if found is None:
        _go_without(node, say, OPEN.format(port=node.rendezvous_port) + why)
    return found


def _go_without(node: NodeEnv, say: Callable[[str], None], what: str) -> None:
    if node.secret_required:
        raise EnvError(f"rendezvousSecret: require: {what}; give the run a secret, or do not require one")
    if node.hosts_rendezvous:
        say(f"warning: {what}")


def _mounted(file: Path) -> bytes | None:
    """What the file holds; None where it is not there."""
    try:
        return _checked(file.read_bytes().strip(), f"the run's secret {file}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvError(f"the run's secret {file}: {error.strerror}") from error


def _agreed(name: str, server: ApiServer) -> bytes:
    """What the Secret holds; an empty one gets a new secret, and only one node's attempt at that succeeds."""
    while True:
        found = server.get("api/v1", "secrets", name)
        if told := (found.get("data") or {}).get(KEY):
            return _checked(base64.b64decode(told).strip(), f"Secret {name}")
        fresh = base64.b64encode(secrets.token_hex(SIZE).encode()).decode()
        version = found["metadata"]["resourceVersion"]
        try:
            server.patch("api/v1", "secrets", name, {"metadata": {"resourceVersion": version}, "data": {KEY: fresh}})
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise


def _checked(content: bytes, where: str) -> bytes:
    if len(content) < SHORTEST:
        raise EnvError(f"{where}: {len(content)} bytes, and a secret has at least {SHORTEST}")
    return content
