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
from kubernetes.client.api_client import ApiClient

from kitctl.base.errors import Unavailable
from kitctl.base.quantity import duration
from kitctl.targets.cluster.connection.api_errors import error_from_status, not_an_api_server, unreachable
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.connection.retries import RETRIED, pause, retry_after

T = TypeVar("T")
_JITTER: Final = random.SystemRandom()  # a caller of the Python API may have seeded the global generator
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 10.0  # from the first failure on; watching a job sets more
REDIRECT, ERROR = 300, 400  # HTTP's own


class Transport:
    """Requests to one API server, as one user. Each warning of the server is printed once."""

    def __init__(self, client: ApiClient, warn: Callable[[str], None]) -> None:
        self._client = client
        self._warn = warn
        self._warned: set[str] = set()
        self._known = False  # whether it has ever answered
        self._away = False  # whether the user was warned of the current outage
        self.server: str = client.configuration.host
        self.retry_seconds = RETRY_SECONDS

    def json(self, method: str, kind: str, path: str, *, retried: bool = True, **request: Any) -> Object:
        """The JSON object that answers a request; without ``retried`` the first failure counts.

        Raises:
            KitError: for the server's error response.
            Unavailable: it did not answer for ``retry_seconds``.
            TargetError: the response is not from an API server.
        """
        once = partial(self._object, method, kind, path, **request)
        return self._with_retries(once, self.retry_seconds, warn=True) if retried else once()

    def stream(self, method: str, kind: str, path: str, **request: Any) -> urllib3.BaseHTTPResponse:
        """The response to a request, with its body unread; for a pod's log its kubelet has to answer, too.

        Raises as ``json`` does, but after ``RETRY_SECONDS``: a caller that follows a log repeats the request itself.
        """
        once = partial(self._answer, method, kind, path, read_seconds=None, **request)
        return self._with_retries(once, RETRY_SECONDS, warn=False)

    def connection_error(self, cause: Exception) -> Exception:
        """The error for a connection that broke."""
        return unreachable(self.server, cause, known=self._known)

    def _with_retries(self, once: Callable[[], T], retry_seconds: float, *, warn: bool) -> T:
        """Retry for ``retry_seconds`` after the first failure; ``warn``: warn of an outage and of its end."""
        deadline, attempt = 0.0, 0
        while True:
            try:
                answer = once()
            except Unavailable as error:
                now = time.monotonic()
                deadline = deadline or now + retry_seconds
                if now >= deadline:
                    raise
                if warn and attempt:  # the first failure is often a short one
                    self._warn_away(f"{error.message}: retrying for up to {duration(deadline - now)}")
                seconds = pause(attempt, error.wait_seconds, _JITTER.random())
                time.sleep(min(seconds, deadline - now))
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

    def _object(self, method: str, kind: str, path: str, **request: Any) -> Object:
        answer = self._answer(method, kind, path, **request)
        try:
            data = answer.data
        except urllib3.exceptions.HTTPError as error:
            raise self.connection_error(error) from error
        try:
            found = json.loads(data)
        except ValueError as error:
            raise not_an_api_server(self.server, answer.status, answer.headers, data) from error
        if not isinstance(found, dict):
            raise not_an_api_server(self.server, answer.status, answer.headers, data)
        return found

    def _answer(
        self,
        method: str,
        kind: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = "application/json",
        read_seconds: float | None = READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request once."""
        headers = {"Accept": "application/json", "Content-Type": content}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        try:
            answer: urllib3.BaseHTTPResponse = self._client.rest_client.pool_manager.request(
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
        data = answer.data
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
                self._warn(f"the cluster warns: {text}")
