"""One connection to an API server: requests are sent, tried again while it cannot answer, and read as JSON.

Every request that is sent here may be sent twice. What changes something bears a precondition (the object's uid), or is
create-only: a second time it changes nothing.
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

from kitctl.errors import Unavailable
from kitctl.quantity import duration
from kitctl.targets.cluster.refusals import no_answer_of_an_api, refusal, unreachable
from kitctl.targets.cluster.resources import Object
from kitctl.targets.cluster.retries import RETRIED, asked_to_wait, pause

T = TypeVar("T")
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 10.0  # from the first failure on; who watches a job has more
REDIRECT, ERROR = 300, 400  # HTTP's own


class Transport:
    """Requests to one API server, as one user. What the server warns of is told once."""

    def __init__(self, client: ApiClient, tell: Callable[[str], None]) -> None:
        self._client = client
        self._tell = tell
        self._told: set[str] = set()
        self._known = False  # whether it has ever answered
        self._away = False  # whether it was told that it does not answer now
        self.server: str = client.configuration.host
        self.patience_seconds = PATIENCE_SECONDS

    def json(self, method: str, kind: str, path: str, **request: Any) -> Object:
        """The answer to a request, which is one object.

        Raises:
            KitError: as the server's refusal says.
            Unavailable: it did not answer for ``patience_seconds``.
            TargetError: what answered is no API server.
        """
        once = partial(self._object, method, kind, path, **request)
        return self._persistently(once, self.patience_seconds, tell=True)

    def stream(self, method: str, kind: str, path: str, **request: Any) -> urllib3.BaseHTTPResponse:
        """The answer to a request, still to be read; for a pod's log the machine of the pod has to answer, too.

        Raises as ``json`` does, but after ``PATIENCE_SECONDS``: who watches asks again as long as there is a reason to.
        """
        once = partial(self._answer, method, kind, path, read_seconds=None, **request)
        return self._persistently(once, PATIENCE_SECONDS, tell=False)

    def broken(self, cause: Exception) -> Exception:
        """The error for a connection that broke."""
        return unreachable(self.server, cause, known=self._known)

    def _persistently(self, once: Callable[[], T], patience_seconds: float, *, tell: bool) -> T:
        """Try until it is answered, or for so long after the first failure; ``tell`` whoever waits for it."""
        deadline, attempt = 0.0, 0
        while True:
            try:
                answer = once()
            except Unavailable as error:
                now = time.monotonic()
                deadline = deadline or now + patience_seconds
                if now >= deadline:
                    raise
                if tell and attempt:  # the first failure often passes unseen
                    self._tell_away(f"{error.message}: trying again for up to {duration(deadline - now)}")
                seconds = pause(attempt, error.wait_seconds, random.random())  # noqa: S311 - jitter, not a secret
                time.sleep(min(seconds, deadline - now))
                attempt += 1
            else:
                if tell:
                    self._tell_back()
                return answer

    def _tell_away(self, text: str) -> None:
        """Once for each outage, however many requests meet it."""
        if not self._away:
            self._away = True
            self._tell(text)

    def _tell_back(self) -> None:
        if self._away:
            self._away = False
            self._tell("the cluster answers again")

    def _object(self, method: str, kind: str, path: str, **request: Any) -> Object:
        answer = self._answer(method, kind, path, **request)
        try:
            data = answer.data
        except urllib3.exceptions.HTTPError as error:
            raise self.broken(error) from error
        try:
            found = json.loads(data)
        except ValueError as error:
            raise no_answer_of_an_api(self.server, answer.status, answer.headers, data) from error
        if not isinstance(found, dict):
            raise no_answer_of_an_api(self.server, answer.status, answer.headers, data)
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
                self._refuse(answer, kind)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self.broken(error) from error
        self._pass_on(answer.headers.getlist("Warning"))
        return answer

    def _refuse(self, answer: urllib3.BaseHTTPResponse, kind: str) -> None:
        """Raise what an answer means that is not the one hoped for."""
        data = answer.data
        if answer.status < ERROR:
            raise no_answer_of_an_api(self.server, answer.status, answer.headers, data)
        error = refusal(answer.status, data, kind)
        if answer.status in RETRIED:
            raise Unavailable(error.message, fix=error.fix, wait_seconds=asked_to_wait(answer.headers)) from error
        raise error

    def _pass_on(self, warnings: list[str]) -> None:
        """Tell what the server warns of: ``299 - "would violate PodSecurity ..."``."""
        for warning in warnings:
            text = re.sub(r"\\(.)", r"\1", warning.partition('"')[2].removesuffix('"'))
            if text and text not in self._told:
                self._told.add(text)
                self._tell(f"the cluster warns: {text}")
