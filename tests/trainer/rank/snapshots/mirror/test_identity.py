"""A pod's identity instead of keys: services of a cloud that give short-lived ones, in front of a real S3 server."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import pytest

from kittrain.rank.snapshots.mirror.errors import MirrorError
from kittrain.rank.snapshots.mirror.store import Store
from tests.s3 import ACCESS, S3, SECRET
from tests.s3_proxy import Fault, Seen, in_front_of

pytestmark = pytest.mark.timeout(1800)  # the first one may build the server

ROLE: Final = "arn:aws:iam::123456789012:role/training"
WHOEVER: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class Issuer(ThreadingHTTPServer):
    """What gives keys for a proof.

    Attributes:
        minutes: how long the keys are valid.
        proofs: the proofs that were shown.
        answer: to a request's method, path and body; None: it is refused.
    """

    daemon_threads = True

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "http"
        if certificate:
            self._scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.minutes = 60.0
        self.proofs: list[str] = []
        self.answer: Callable[[BaseHTTPRequestHandler, str], str | None] = lambda *_: None

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    @property
    def expires(self) -> str:
        return (datetime.now(UTC) + timedelta(minutes=self.minutes)).isoformat(timespec="seconds")[:19] + "Z"


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        text = self.server.answer(self, body)
        self.send_response(403 if text is None else 200)
        self.send_header("Content-Length", str(len(text or "")))
        self.end_headers()
        self.wfile.write((text or "").encode())

    do_POST = do_PUT = do_GET  # noqa: N815  the base class calls them

    def log_message(self, *_: object) -> None:
        pass


def certified(folder: Path) -> tuple[Path, Path]:
    """A key with its certificate for 127.0.0.1, and the authority's certificate."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new = ("-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tests")
    openssl("req", "-x509", *new, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *new, "-keyout", "key", "-out", "request")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions")
    openssl("x509", "-req", "-in", "request", *signing, "-out", "certificate")
    (folder / "both").write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return folder / "both", folder / "ca.crt"


@pytest.fixture
def issuer(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    """An STS speaks TLS, the others are on the machine and do not."""
    identity = None
    if request.node.callspec.params["kind"] is web_identity:
        identity, authority = certified(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with Issuer(identity) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def web_identity(issuer: Issuer, token: Path) -> dict[str, str]:
    """What EKS sets for a service account with a role, and any cluster may set by a projected token."""

    def answer(request: BaseHTTPRequestHandler, body: str) -> str | None:
        asked = {key: one[0] for key, one in parse_qs(body or urlsplit(request.path).query).items()}
        issuer.proofs.append(asked["WebIdentityToken"])
        assert (asked["Action"], asked["RoleArn"]) == ("AssumeRoleWithWebIdentity", ROLE)
        keys = f"<AccessKeyId>{ACCESS}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
        found = (
            f"<Credentials>{keys}<SessionToken>t</SessionToken><Expiration>{issuer.expires}</Expiration></Credentials>"
        )
        name = "AssumeRoleWithWebIdentity"
        return f"<{name}Response><{name}Result>{found}</{name}Result></{name}Response>"

    issuer.answer = answer
    return {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": ROLE, "AWS_ENDPOINT_URL_STS": issuer.url}


def keys(issuer: Issuer) -> str:
    given = {"AccessKeyId": ACCESS, "SecretAccessKey": SECRET, "Token": "t", "Expiration": issuer.expires}
    return json.dumps({**given, "Code": "Success", "LastUpdated": issuer.expires, "Type": "AWS-HMAC"})


def container(issuer: Issuer, token: Path) -> dict[str, str]:
    """What EKS sets for a service account with a pod identity."""

    def answer(request: BaseHTTPRequestHandler, _body: str) -> str | None:
        issuer.proofs.append(request.headers["Authorization"])
        return keys(issuer)

    issuer.answer = answer
    file = {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{issuer.url}/v1/credentials", **file}


def machine(issuer: Issuer, token: Path) -> dict[str, str]:
    """The role of the machine under the pod, by its metadata."""

    def answer(request: BaseHTTPRequestHandler, _body: str) -> str | None:
        if request.command == "PUT":
            return token.read_text()
        if request.path.rstrip("/").endswith("security-credentials"):
            return "training"
        issuer.proofs.append(request.headers["X-aws-ec2-metadata-token"])
        return keys(issuer)

    issuer.answer = answer
    return {"AWS_METADATA_ENDPOINT": issuer.url}


def signature(seen: Seen, signed: list[str], scope: str) -> str:
    """Version 4 of Amazon's signatures, by the server's own keys."""
    headers = {name.lower(): value for name, value in seen.headers.items()}
    path, _, query = seen.path.partition("?")
    query = "&".join(sorted(one if "=" in one else f"{one}=" for one in query.split("&") if one))
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in signed)
    whole = "\n".join((seen.method, path, query, lines, ";".join(signed), headers["x-amz-content-sha256"]))
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashlib.sha256(whole.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def checks_the_token(seen: Seen) -> Fault | None:
    """As a store that knows short-lived keys: the server here knows none, and gets what it would get without."""
    credential, signed, given = (
        part.partition("=")[2] for part in seen.headers["authorization"].partition(" ")[2].split(", ")
    )
    scope, names = credential.partition("/")[2], signed.split(";")
    assert (seen.headers["x-amz-security-token"], given) == ("t", signature(seen, names, scope))
    names.remove("x-amz-security-token")
    again = f"Credential={credential}, SignedHeaders={';'.join(names)}, Signature={signature(seen, names, scope)}"
    return Fault(headers=(("x-amz-security-token", ""), ("authorization", f"AWS4-HMAC-SHA256 {again}")))


@pytest.fixture
def store_url(s3: S3) -> Iterator[str]:
    """A store that takes short-lived keys with their token only."""
    with in_front_of(s3.url) as proxy:
        proxy.rule = checks_the_token
        yield proxy.url


@pytest.fixture
def pod(store_url: str, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], None]:
    """Sets a pod's environment, which has no keys."""
    (tmp_path / "token").write_text("a proof")
    for name in WHOEVER:
        monkeypatch.delenv(name, raising=False)
    for name, value in s3.environ(store_url).items():
        if name not in WHOEVER:
            monkeypatch.setenv(name, value)

    def set_(environ: Mapping[str, str]) -> None:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)

    return set_


@pytest.mark.parametrize("kind", [web_identity, container, machine])
def test_a_pod_s_identity_is_enough_and_is_shown_again_when_its_keys_expire(
    issuer: Issuer,
    pod: Callable[[Mapping[str, str]], None],
    url: str,
    tmp_path: Path,
    kind: Callable[[Issuer, Path], dict[str, str]],
) -> None:
    pod(kind(issuer, tmp_path / "token"))
    store = Store(url)
    store.probe()
    assert issuer.proofs == ["a proof"], "asked once for all of a probe's requests"
    store.put("a", b"1")
    assert len(issuer.proofs) == 1

    issuer.minutes = 0.01
    store = Store(url)
    store.put("a", b"2")
    (tmp_path / "token").write_text("a newer proof")
    while issuer.proofs[-1] != "a newer proof":  # Kubernetes replaces the file; the test's own time limit ends the wait
        store.put("a", b"3")
    assert (store.read("a") or (b"",))[0] == b"3"


@pytest.mark.parametrize("kind", [container])
def test_an_identity_that_is_refused_is_told(
    issuer: Issuer,
    pod: Callable[[Mapping[str, str]], None],
    url: str,
    tmp_path: Path,
    kind: Callable[[Issuer, Path], dict[str, str]],
) -> None:
    pod(kind(issuer, tmp_path / "token"))
    issuer.answer = lambda *_: None
    with pytest.raises(MirrorError, match=r"fix: give the pods AWS_ACCESS_KEY_ID.*or an identity"):
        Store(url, retries=0).probe()
