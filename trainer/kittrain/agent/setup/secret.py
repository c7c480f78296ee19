"""Reads the run's secret, with which nodes authenticate: from a mounted file, or from a Secret on the API server.

A job submitted by kitctl has the file from the start. Rendered manifests have an empty Secret, because a secret must
not be written into them; the first agent fills it for all.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from kitjob.names import REQUIRE, SECRET_KEY
from kittrain.job.env import NodeEnv
from kittrain.job.variables import EnvError
from kittrain.system.apiserver import ApiError, ApiServer, DeniedError, NoAccountError, retry_request

SIZE: Final = 32  # bytes of a generated secret
MIN_SIZE: Final = 16  # bytes
NO_AUTH: Final = "this run has no secret: anyone who can reach port {port} of node 0 and knows the run id can join it"


def run_secret(node: NodeEnv, log: Callable[[str], None], server: ApiServer | None = None) -> bytes | None:
    """The secret, or None if there is none and the job does not require one; node 0 logs a warning then.

    Raises:
        EnvError: it cannot be read, or the job requires one and there is none.
        ApiError: the API server does not answer.
    """
    found = _mounted(Path(node.run.secret_file)) if node.run.secret_file else None
    why = ""
    if found is None and node.run.secret_name:
        try:
            found = retry_request(partial(_shared, node.run.secret_name, server or ApiServer()))
        except (NoAccountError, DeniedError) as error:
            why = f" (Secret {node.run.secret_name}: {error})"
    if found is None:
        _warn_or_fail(node, log, NO_AUTH.format(port=node.run.rendezvous_port) + why)
    return found


def _warn_or_fail(node: NodeEnv, log: Callable[[str], None], what: str) -> None:
    if node.job.security.rendezvous_secret == REQUIRE:
        raise EnvError(f"rendezvousSecret: require: {what}; provide a secret, or do not require one")
    if node.hosts_rendezvous:
        log(f"warning: {what}")


def _mounted(file: Path) -> bytes | None:
    """The file's content; None if it does not exist."""
    try:
        return _checked(file.read_bytes().strip(), f"the run's secret {file}")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvError(f"the run's secret {file}: {error.strerror}") from error


def _shared(name: str, server: ApiServer) -> bytes:
    """The Secret's content. If it is empty, generate one: the update of only one node succeeds."""
    while True:
        found = server.get("api/v1", "secrets", name)
        if encoded := (found.get("data") or {}).get(SECRET_KEY):
            return _checked(base64.b64decode(encoded).strip(), f"Secret {name}")
        fresh = base64.b64encode(secrets.token_hex(SIZE).encode()).decode()
        version = found["metadata"]["resourceVersion"]
        try:
            server.patch(
                "api/v1", "secrets", name, {"metadata": {"resourceVersion": version}, "data": {SECRET_KEY: fresh}}
            )
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise


def _checked(content: bytes, where: str) -> bytes:
    if len(content) < MIN_SIZE:
        raise EnvError(f"{where}: {len(content)} bytes; a secret needs at least {MIN_SIZE}")
    return content
