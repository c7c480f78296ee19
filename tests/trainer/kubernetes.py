"""A fake Kubernetes API server: HTTPS with a token, and objects that can be read and patched."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


class ApiServer(ThreadingHTTPServer):
    """Serves objects by path to clients with the token.

    Attributes:
        objects: by path; each has a ``resourceVersion`` after the first patch.
        status: the status of all responses, if not 200.
        before: called with each request's method and path before it is handled.
    """

    def __init__(self, identity: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.token = "first"
        self.status = 200
        self.objects: dict[str, dict[str, Any]] = {}
        self.before: Callable[[str, str], None] = lambda *_: None
        self.lock = threading.Lock()


class _Api(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self._answer(None)

    def do_PATCH(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, patch: dict[str, Any] | None) -> None:
        path, _, query = self.path.partition("?")
        self.server.before(self.command, path)
        with self.server.lock:
            found = self.server.objects.get(path)
            status = self._status(found, patch, query)
            if status == 200 and patch and found is not None:
                data = {**found.get("data", {}), **patch["data"]}
                found["data"] = {key: text for key, text in data.items() if text is not None}  # as a merge patch does
                version = int(found.setdefault("metadata", {}).get("resourceVersion", "0"))
                found["metadata"]["resourceVersion"] = str(version + 1)
            body = json.dumps(found if status == 200 else {"kind": "Status", "code": status}).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def _status(self, found: dict[str, Any] | None, patch: dict[str, Any] | None, query: str) -> int:
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            return 401
        if found is None:
            return 404
        given = (self.headers["Content-Type"], query)
        if patch is not None and given != ("application/merge-patch+json", "fieldManager=kittrain.agent"):
            return 415
        expected = (patch or {}).get("metadata", {}).get("resourceVersion")
        if expected is not None and expected != found.get("metadata", {}).get("resourceVersion"):
            return 409
        return self.server.status

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def identity_in(folder: Path) -> Path:
    """Create a key and certificate for 127.0.0.1, in one file."""
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    name = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*new, *files, *name], check=True, capture_output=True)
    both = folder / "both"
    both.write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return both


@contextmanager
def serving(identity: Path, account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Run an API server, with a pod's environment and service account for it."""
    (account / "ca.crt").write_bytes(identity.read_bytes())
    (account / "namespace").write_text("team")
    (account / "token").write_text("first\n")
    with ApiServer(identity) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.server_port))
        threading.Thread(target=api.serve_forever, daemon=True).start()
        yield api
        api.shutdown()
