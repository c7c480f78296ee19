"""One connection to an API server: sends requests, retries them while it does not answer, and decodes JSON.

Every request may be sent twice. One that changes something has a precondition (the object's uid) or is create-only, so
the second one changes nothing.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import urllib3

from kitctl.base.deadline import within
from kitctl.base.errors import Unavailable
from kitctl.base.quantity import duration
from kitctl.targets.cluster.connection.api_errors import (
    error_from_status,
    not_an_api_server,
    one_line,
    too_large,
    unreachable,
)
from kitctl.targets.cluster.connection.kubeconfig import Connection
from kitctl.targets.cluster.connection.resources import Object

T = TypeVar("T")
_JITTER: Final = random.SystemRandom()  # a caller of the Python API may have seeded the global generator
JSON: Final = "application/json"
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0  # without a byte
REQUEST_SECONDS: Final = 60.0  # for a whole answer
LEAST_SECONDS: Final = 1.0  # for an answer, in the last try of a request
ANSWER_BYTES: Final = 256 << 20  # the pods of a job of 4,096 nodes are 104 MiB
PIECE_BYTES: Final = 1 << 16
RETRY_SECONDS: Final = 10.0  # from the first failure on; watching a job sets more
# The server is overloaded, or a backend is away for a moment. Error responses with other codes are final.
RETRIED: Final = frozenset({429, 500, 502, 503, 504})
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 8.0
LONGEST_RETRY_AFTER_SECONDS: Final = 60.0
REDIRECT, ERROR = 300, 400  # HTTP's own


class Transport:
    """Requests to one API server, as one user. Each warning of the server is printed once."""

    def __init__(self, connection: Connection, warn: Callable[[str], None]) -> None:
        self._connection = connection
        self._warn = warn
        self._warned: set[str] = set()
        self._known = False  # whether it has ever answered
        self._away = False  # whether the user was warned of the current outage
        self.server: str = connection.server
        self.retry_seconds = RETRY_SECONDS

    def json(self, method: str, kind: str, path: str, *, retried: bool = True, **request: Any) -> Object:
        """The JSON object that answers a request; without ``retried`` the first failure counts.

        Raises:
            KitError: for the server's error response.
            Unavailable: it did not answer for ``retry_seconds``, after ``REQUEST_SECONDS`` at most.
            TargetError: the response is not from an API server, or larger than ``ANSWER_BYTES``.
        """

        def once(seconds: float) -> Object:
            return self._object(method, kind, path, seconds, **request)

        return self._with_retries(once, self.retry_seconds, warn=True) if retried else once(REQUEST_SECONDS)

    def stream(
        self, kind: str, path: str, *, query: Mapping[str, str], read_seconds: float, followed: bool
    ) -> urllib3.BaseHTTPResponse:
        """The response to a request, with its body unread; for a pod's log its kubelet has to answer, too.

        ``read_seconds`` is the longest time without a byte; if a log is ``followed``, its answer begins with its first
        line. Raises as ``json`` does, but after ``RETRY_SECONDS``: a caller that follows repeats the request itself.
        """

        def once(seconds: float) -> urllib3.BaseHTTPResponse:
            headers = self._headers()
            ask = partial(self._answer, "GET", kind, path, headers, query=query, read_seconds=read_seconds)
            try:
                return ask() if followed else within(seconds, ask)
            except TimeoutError as error:
                raise self.connection_error(error) from error

        return self._with_retries(once, RETRY_SECONDS, warn=False)

    def connection_error(self, cause: Exception) -> Exception:
        """The error for a connection that broke."""
        return unreachable(self.server, cause, known=self._known)

    def _with_retries(self, once: Callable[[float], T], retry_seconds: float, *, warn: bool) -> T:
        """Retry for ``retry_seconds`` after the first failure; ``warn``: warn of an outage and of its end.

        ``once`` gets the seconds that it may take.
        """
        deadline, attempt, limit = 0.0, 0, REQUEST_SECONDS
        while True:
            try:
                answer = once(limit)
            except Unavailable as error:
                now = time.monotonic()
                deadline = deadline or now + retry_seconds
                if now >= deadline:
                    raise
                if warn and attempt:  # the first failure is often a short one
                    self._warn_away(f"{error.message}: retrying for up to {duration(deadline - now)}")
                seconds = pause(attempt, error.wait_seconds, _JITTER.random())
                time.sleep(min(seconds, deadline - now))
                limit = min(REQUEST_SECONDS, max(deadline - time.monotonic(), LEAST_SECONDS))
                attempt += 1
            else:
                if warn:
                    self._warn_back()
                return answer

    def _warn_away(self, text: str) -> None:
        """Warn once for each outage."""
        if not self._away:
            self._away = True
            self._warn(text)

    def _warn_back(self) -> None:
        if self._away:
            self._away = False
            self._warn("the cluster answers again")

    def _object(
        self, method: str, kind: str, path: str, seconds: float, *, content: str = JSON, **request: Any
    ) -> Object:
        headers = self._headers(content)  # beforehand: a credential plug-in may ask the user
        once = partial(self._whole, method, kind, path, headers, **request)
        try:
            answer, data = within(seconds, once)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self.connection_error(error) from error
        try:
            found = json.loads(data, object_hook=_without_managed_fields)
        except (ValueError, RecursionError) as error:
            raise not_an_api_server(self.server, answer.status, answer.headers, data) from error
        if not isinstance(found, dict):
            raise not_an_api_server(self.server, answer.status, answer.headers, data)
        return found

    def _headers(self, content: str = JSON) -> urllib3.HTTPHeaderDict:
        """Those of a request; one name may have several values."""
        return urllib3.HTTPHeaderDict([("Accept", JSON), ("Content-Type", content), *self._connection.identity()])

    def _whole(self, *where: Any, **request: Any) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """A response, and its body."""
        answer = self._answer(*where, **request)
        return answer, self._body(answer)

    def _body(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        """The body of a response.

        Raises:
            TargetError: it is larger than ``ANSWER_BYTES``.
        """
        data = bytearray()
        for piece in answer.stream(PIECE_BYTES):
            data += piece
            if len(data) > ANSWER_BYTES:
                answer.close()
                raise too_large(self.server, ANSWER_BYTES)
        return bytes(data)

    def _answer(
        self,
        method: str,
        kind: str,
        path: str,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request once."""
        try:
            answer: urllib3.BaseHTTPResponse = self._connection.pool.request(
                method,
                self.server + path + (f"?{urlencode(query)}" if query else ""),
                body=json.dumps(body) if body is not None else None,
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            self._known = True
            if answer.status >= REDIRECT:
                self._raise_error(answer, kind)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self.connection_error(error) from error
        self._emit_warnings(answer.headers.getlist("Warning"))
        return answer

    def _raise_error(self, answer: urllib3.BaseHTTPResponse, kind: str) -> None:
        """Raise the error for a response with an error status, or a redirect."""
        data = self._body(answer)
        if answer.status < ERROR:
            raise not_an_api_server(self.server, answer.status, answer.headers, data)
        error = error_from_status(answer.status, data, kind)
        if answer.status in RETRIED:
            raise Unavailable(error.message, fix=error.fix, wait_seconds=retry_after(answer.headers)) from error
        raise error

    def _emit_warnings(self, headers: list[str]) -> None:
        """Print the server's warning headers: ``299 - "would violate PodSecurity ..."``."""
        for header in headers:
            text = re.sub(r"\\(.)", r"\1", header.partition('"')[2].removesuffix('"'))
            if text and text not in self._warned:
                self._warned.add(text)
                self._warn(f"the cluster warns: {one_line(text)}")


def _without_managed_fields(one: Object) -> Object:
    """An object without what only the API server needs: nearly half of a pod, of which there may be thousands."""
    if isinstance(one.get("managedFields"), list):  # a ConfigMap's value of that name is text
        del one["managedFields"]
    return one


def pause(attempt: int, retry_after_seconds: float, jitter: float) -> float:
    """Seconds until the next try: doubled each time, minus up to half as jitter, so that clients spread.

    Args:
        attempt: number of failures before this one.
        retry_after_seconds: the server's ``Retry-After``; the pause is never shorter.
        jitter: a random number from 0 to 1.
    """
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 16))
    return max(retry_after_seconds, longest * (1 - jitter / 2))


def retry_after(headers: Mapping[str, str]) -> float:
    """``Retry-After`` in seconds; 0 where it is absent, or a date."""
    text = headers.get("Retry-After", "")
    return min(float(text), LONGEST_RETRY_AFTER_SECONDS) if text.isascii() and text.isdecimal() else 0.0
