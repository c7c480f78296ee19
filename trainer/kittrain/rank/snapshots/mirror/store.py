"""The objects under a prefix of a bucket, by the library ``obstore``, and what its errors mean.

The environment has the credentials and the endpoint, under the names of Amazon's tools (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, ...); obstore finds the identity of a pod by itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.rank.snapshots.mirror.errors import (
    MirrorDamagedError,
    MirrorError,
    MirrorLibraryError,
    code_of,
    explained,
)

PART: Final = 8 << 20  # bytes of a request
PARALLEL: Final = 2  # requests at a time: training goes first
RETRIES: Final = 4  # of a request
RETRY_SECONDS: Final = 20  # until a request counts as failed
TIMES: Final = {"connect_timeout": "5s", "timeout": "60s"}
KEYS: Final = ("access_key_id", "secret_access_key", "session_token")
OTHER_VERSION: Final = '"0123456789abcdef0123456789abcdef"'  # that no object has
SUBSTITUTE: Final = ".substitute"  # suffix of the file: kittrain.agent.stored_faults
PROBES: Final = ".probe"  # where a check writes, until it has ended
_ADDRESS: Final = re.compile(r"https?://[\w.-]+(:\d+)?(/\S*)?|https?://\[[0-9a-fA-F:]+\](:\d+)?(/\S*)?")
MISSING: Final = (
    "snapshots.mirror needs the Python package obstore, which this image does not have; fix: add obstore to the "
    "requirements of the job (requirements in the job file), or install kittrain[mirror] in the image"
)


@dataclass(frozen=True)
class Substitute:
    """What takes the store's place, on this machine, until a moment of the monotonic clock."""

    port: int
    until: float


class Conflict(Exception):
    """The object is there already, or is another one by now."""


def library() -> Any:
    """The library.

    Raises:
        MirrorLibraryError: it is not installed.
    """
    try:
        import obstore  # noqa: PLC0415  only jobs with a mirror need it
        import obstore.store  # noqa: PLC0415
    except ImportError as error:
        raise MirrorLibraryError(MISSING) from error
    return obstore


class Store:
    """The objects of one mirror.

    Args:
        url: ``s3://bucket/prefix``.
        environ: has the credentials.
        retries: how often a request is sent again.
        substitute: the file that tells of what stands in for the store, during a drill.

    Raises:
        MirrorError: the library is missing, or the settings are wrong.
    """

    def __init__(
        self,
        url: str,
        environ: Mapping[str, str] = os.environ,
        *,
        retries: int = RETRIES,
        substitute: Path | None = None,
    ) -> None:
        self._obstore = library()
        self.url = url
        self._environ = environ
        self._retries = retries
        self._substitute = substitute
        self._stores: dict[str, Any] = {}
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL", "")
        if endpoint and not _ADDRESS.fullmatch(endpoint):  # the library would panic
            raise MirrorError(f"AWS_ENDPOINT_URL: {endpoint!r} is no address; fix: give one, as in http://store:9000")
        self._endpoint = endpoint
        self._at(endpoint)

    def read(self, key: str) -> tuple[bytes, str] | None:
        """An object and its version; None if there is none."""
        with suppress(FileNotFoundError), self._errors():
            found = self._obstore.get(self._store, key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""
        return None

    def create(self, key: str, content: bytes) -> None:
        """Write an object that is not there: ``If-None-Match: *``.

        Raises:
            Conflict: it is.
        """
        self._put(key, content, "create")

    def replace(self, key: str, content: bytes, version: str) -> None:
        """Write an object in place of the version that was read: ``If-Match``.

        Raises:
            Conflict: it is another one by now.
        """
        self._put(key, content, {"e_tag": version})

    def put(self, key: str, content: bytes) -> None:
        """Write an object whose name no other writer uses."""
        with self._errors():
            self._obstore.put(self._store, key, content, use_multipart=False)

    def upload(self, key: str, path: Path, taken: Callable[[int], None] = lambda _: None) -> str:
        """Write a file; returns the SHA-256 of what was sent.

        Args:
            key: of the object.
            path: of the file.
            taken: called by any thread, with how many of its bytes the store has taken so far.

        Raises:
            OSError: it cannot be read.
        """
        digest = sha256(path)
        with self._errors(), path.open("rb") as file:
            parts = _Parts(file, taken)
            self._obstore.put(self._store, key, parts, chunk_size=PART, max_concurrency=PARALLEL)
            size = self._obstore.head(self._store, key)["size"]
        if size != path.stat().st_size:
            raise MirrorDamagedError(f"{key} has {size} bytes, and {path.name} {path.stat().st_size}")
        taken(size)
        return digest

    def download(self, key: str, path: Path, *, size: int, digest: str) -> None:
        """Write an object to a new file, synced; there is none after an error.

        Raises:
            MirrorDamagedError: it is not there, or is not what was uploaded.
            OSError: the file cannot be written.
        """
        with path.open("xb") as file:
            try:
                self._receive(key, file, size=size, digest=digest)
            except BaseException:
                path.unlink()
                raise
            file.flush()
            os.fsync(file.fileno())

    def _receive(self, key: str, file: BinaryIO, *, size: int, digest: str) -> None:
        seen, written = hashlib.sha256(), 0
        try:
            with self._errors():
                for part in self._obstore.get(self._store, key).stream(min_chunk_size=PART):
                    seen.update(part)
                    written += file.write(part)
        except FileNotFoundError as error:
            raise MirrorDamagedError(f"{key} is missing") from error
        if (written, seen.hexdigest()) != (size, digest):
            raise MirrorDamagedError(f"{key} differs from what was uploaded: {written} of {size} bytes")

    def size(self, key: str) -> int | None:
        """The bytes of an object; None if there is none."""
        with suppress(FileNotFoundError), self._errors():
            return int(self._obstore.head(self._store, key)["size"])
        return None

    def delete(self, *keys: str) -> None:
        """Delete objects; those that are not there do no harm."""
        with suppress(FileNotFoundError), self._errors():
            for key in keys:
                self._obstore.delete(self._store, key)

    def list(self, prefix: str) -> list[str]:
        """The keys under a prefix, as far as the store lists them by now."""
        with self._errors():
            return [one["path"] for part in self._obstore.list(self._store, prefix) for one in part]

    def probe(self) -> None:
        """Check that the store honours conditions, which the fence needs, and that all rights are there.

        Raises:
            MirrorError: it does not, or they are not.
            MirrorUnavailableError: it does not answer.
        """
        key = f"{PROBES}/{uuid.uuid4().hex}"
        try:
            with suppress(Conflict):  # else an answer was lost, and the request was sent again
                self.create(key, b"1")
            found = self.read(key)
            if found is None or found[0] != b"1":
                raise MirrorError(f"snapshots.mirror: {self.url}: the store does not return what was just written")
            self._refused("If-None-Match", lambda: self.create(key, b"2"))
            self._refused("If-Match", lambda: self.replace(key, b"3", OTHER_VERSION))
        finally:
            self.delete(key)

    def _refused(self, condition: str, write: Callable[[], None]) -> None:
        with suppress(Conflict):
            write()
            raise MirrorError(
                f"snapshots.mirror: {self.url}: the store ignores {condition}, so two runs could write the mirror at "
                "once; fix: use a store that honours it, such as S3 or a newer version of this one"
            )

    def _put(self, key: str, content: bytes, mode: Any) -> None:
        exceptions = self._obstore.exceptions
        try:
            with self._errors():
                self._obstore.put(self._store, key, content, mode=mode, use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError) as error:
            if code_of(error) == "NoSuchBucket":
                raise explained(error, self.url) from None
            raise Conflict(key) from error

    @property
    def _store(self) -> Any:
        """Where the next request goes: to the store, or to what stands in for it."""
        if self._substitute:
            with suppress(OSError, MalformedError):
                told = typed.load(Substitute, self._substitute.read_bytes())
                if time.monotonic() < told.until:
                    return self._at(f"http://127.0.0.1:{told.port}")  # nowhere else: requests have credentials
        return self._at(self._endpoint)

    def _at(self, endpoint: str) -> Any:
        """The bucket as it is reached at an address; empty: Amazon's."""
        if endpoint not in self._stores:
            bucket, _, prefix = self.url.removeprefix("s3://").partition("/")
            environ = self._environ
            given = {key: environ[f"AWS_{key.upper()}"] for key in KEYS if environ.get(f"AWS_{key.upper()}")}
            given |= {"endpoint": endpoint} if endpoint else {}
            with self._errors():
                self._stores[endpoint] = self._obstore.store.S3Store(
                    bucket,
                    prefix=prefix.strip("/") or None,
                    region=environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1",
                    client_options={"allow_http": endpoint.startswith("http://"), **TIMES},
                    retry_config={"max_retries": self._retries, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
                    **given,
                )
        return self._stores[endpoint]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the library as ``MirrorError`` or ``MirrorUnavailableError``; but for those that are answers."""
        exceptions = self._obstore.exceptions
        answers = exceptions.AlreadyExistsError, exceptions.PreconditionError
        try:
            yield
        except answers:
            raise
        except FileNotFoundError as error:
            if code_of(error) not in {"", "NoSuchKey"}:
                raise explained(error, self.url) from None
            raise
        except exceptions.BaseError as error:
            raise explained(error, self.url) from None


class _Parts:
    """A file that the library reads part by part; it has at most ``PARALLEL`` of them on their way.

    So when it asks for another one, those before these have been taken.
    """

    def __init__(self, file: BinaryIO, taken: Callable[[int], None]) -> None:
        self._file = file
        self._taken = taken

    def read(self, size: int = -1) -> bytes:
        """The next part."""
        if (before := self._file.tell() - PARALLEL * PART) > 0:
            self._taken(before)
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As of a file."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As of a file."""
        return self._file.tell()


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
