"""Asks whether the machine under this node is about to be taken away, as clouds announce it, and begins a drain then.

Kubernetes announces it by SIGTERM at best, with the grace period; a cloud does it up to minutes before.

Sources (``policy.interruptionNotice``):

- ``aws``: EC2's instance metadata, version 2, ``spot/instance-action``: two minutes before.
- ``gcp``: Compute Engine's ``instance/preempted`` (30 s) and ``instance/maintenance-event``.
- ``azure``: the scheduled events of Azure's metadata service, of this machine: 30 s and more.
- a URL: status 200 with a text other than ``FALSE`` or ``NONE`` is a notice, which the text's first line explains.

And Kubernetes itself, before it deletes pods: a taint of the node, by the keys of ``policy.drainTaints``.

Why: decision 58.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.agent.rounds.drain import Drain
from kittrain.job.env import NodeEnv
from kittrain.system.apiserver import ApiError, ApiServer, DeniedError

INTERVAL: Final = 5.0  # seconds between two questions: what AWS recommends
TIMEOUT: Final = 2.0  # seconds for an answer
MOST_BYTES: Final = 65_536  # of an answer
MOST_TEXT: Final = 100  # characters of an answer that are shown
HOLD: Final = 30.0  # seconds that a node waits which begins on such a machine: its replacement may land there again
LOOPBACK: Final = "127.0.0.1"
NONE: Final = frozenset({"", "FALSE", "NONE"})

AWS: Final = "http://169.254.169.254"
GCP: Final = "http://metadata.google.internal"
AZURE: Final = AWS
AZURE_EVENTS: Final = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})  # a Freeze lasts seconds


class NoAnswerError(OSError):
    """The metadata service does not answer, or refuses to."""


class Announcer(Protocol):
    """Who announces a machine's end."""

    key: str
    """Of the job, that named it."""

    def notice(self) -> str:
        """What is announced; empty: nothing.

        Raises:
            NoAnswerError: it cannot be known.
        """


class Taints:
    """The taints of a Kubernetes node.

    Args:
        node: its name.
        keys: of taints that announce its end.
        server: that has it.
    """

    key = "policy.drainTaints"

    def __init__(self, node: str, keys: Collection[str], server: ApiServer | None = None) -> None:
        self._node = node
        self._keys = frozenset(keys)
        self._server = server or ApiServer()

    def notice(self) -> str:
        """As of ``Announcer``, such as ``taint karpenter.sh/disrupted``."""
        try:
            found = self._server.node(self._node)
        except DeniedError as error:
            fix = "an administrator lets the pods of this namespace read nodes: nodeTaints of charts/platform"
            raise NoAnswerError(f"node {self._node}: {error}; fix: {fix}") from error
        except ApiError as error:
            raise NoAnswerError(f"node {self._node}: {error}") from error
        taints = found.get("spec", {}).get("taints") or []
        return next((f"taint {one['key']}" for one in taints if one["key"] in self._keys), "")


class Source:
    """Where a cloud's notices come from.

    Args:
        kind: ``aws``, ``gcp``, ``azure`` or a URL.
        base: the cloud's metadata service, instead of its usual address.
    """

    key = "policy.interruptionNotice"

    def __init__(self, kind: str, base: str = "") -> None:
        self._kind = kind
        self._base = base
        self._token = self._machine = ""

    def notice(self) -> str:
        """What is announced, such as ``AWS: terminate at 2026-11-26T08:22:00Z``; empty: nothing.

        Raises:
            NoAnswerError: it cannot be known.
        """
        known = {"aws": self._aws, "gcp": self._gcp, "azure": self._azure}
        return known[self._kind]() if self._kind in known else self._url()

    def _aws(self) -> str:
        base = self._base or AWS
        if not self._token:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            _, self._token = _ask(f"{base}/latest/api/token", lifetime, method="PUT")
        try:
            status, text = _ask(
                f"{base}/latest/meta-data/spot/instance-action",
                {"X-aws-ec2-metadata-token": self._token},
                may_fail=HTTPStatus.NOT_FOUND,
            )
        except NoAnswerError:
            self._token = ""  # it may have expired
            raise
        if status == HTTPStatus.NOT_FOUND:
            return ""
        facts = _json(text)
        action, when = facts.get("action", "interruption"), facts.get("time", "")
        return f"AWS: {_short(action)}" + (f" at {_short(when)}" if when else "")

    def _gcp(self) -> str:
        base = f"{self._base or GCP}/computeMetadata/v1/instance"
        for what in ("preempted", "maintenance-event"):
            _, text = _ask(f"{base}/{what}", {"Metadata-Flavor": "Google"})
            if text.strip().upper() not in {*NONE, "MIGRATE_ON_HOST_MAINTENANCE"}:  # it keeps running
                return f"Google Cloud: {what if text.strip() == 'TRUE' else _short(text)}"
        return ""

    def _azure(self) -> str:
        base = f"{self._base or AZURE}/metadata"
        flavor = {"Metadata": "true"}
        if not self._machine:
            _, self._machine = _ask(f"{base}/instance/compute/name?api-version=2021-02-01&format=text", flavor)
        _, text = _ask(f"{base}/scheduledevents?api-version=2020-07-01", flavor)
        events = _json(text).get("Events")
        for event in events if isinstance(events, list) else []:
            if isinstance(event, dict) and event.get("EventType") in AZURE_EVENTS:
                machines = event.get("Resources")
                if isinstance(machines, list) and self._machine in machines:  # all of a set are told of each
                    return f"Azure: {_short(event['EventType'])} {_short(event.get('NotBefore') or '')}".rstrip()
        return ""

    def _url(self) -> str:
        status, text = _ask(self._kind, {}, may_fail=None)
        return "" if status != HTTPStatus.OK or text.strip().upper() in NONE else _short(text)


class InterruptionWatch:
    """Begins a drain when the machine's end is announced.

    Args:
        sources: of notices.
        drain: of this node.
        log: is told of a notice, and once that a source does not answer.
    """

    def __init__(self, sources: Collection[Announcer], drain: Drain, log: Callable[[str], None]) -> None:
        self._sources = sources
        self._drain = drain
        self._log = log
        self._silent: set[str] = set()

    def now(self) -> str:
        """Why this machine is no place to begin on; empty: it is one, as far as is known."""
        notice = next(filter(None, map(self._ask, self._sources)), "")
        return f"this machine is about to be taken away ({notice})" if notice else ""

    def start(self) -> None:
        """Ask from a thread, until there is a notice. Starts a thread: only after all processes were forked."""
        threading.Thread(target=self._watch, name="interruption", daemon=True).start()

    def _watch(self) -> None:
        while not self._drain.requested:
            if reason := self.now():
                self._log(f"{reason}: draining")
                self._drain.request(reason)
                return
            time.sleep(INTERVAL)

    def _ask(self, source: Announcer) -> str:
        try:
            notice = source.notice()
        except NoAnswerError as error:
            if source.key not in self._silent:
                self._log(f"warning: {source.key} has no answer: {error}")
            self._silent.add(source.key)
            return ""
        self._silent.discard(source.key)
        return notice


def sources_of(node: NodeEnv) -> list[Announcer]:
    """Whom a node asks; nobody unless its job says so. On this machine there are no Kubernetes nodes."""
    policy, found = node.job.policy, list[Announcer]()
    if policy.interruption_notice:
        found.append(Source(policy.interruption_notice))
    if policy.drain_taints and node.local_addr != LOOPBACK:
        found.append(Taints(node.host, policy.drain_taints))
    return found


def _ask(
    url: str, headers: Mapping[str, str], *, method: str = "GET", may_fail: HTTPStatus | None = HTTPStatus.OK
) -> tuple[int, str]:
    """The status and text of an answer. Proxies and redirects are ignored: the service is on the machine.

    Args:
        url: to ask.
        headers: of the request.
        method: of the request.
        may_fail: a status that is an answer, too; None: each is.

    Raises:
        NoAnswerError: there is none, or another status.
    """
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        connection = (HTTPSConnection if secure else HTTPConnection)(parts.netloc, timeout=TIMEOUT)
        try:
            connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), headers=dict(headers))
            answer = connection.getresponse()
            text = answer.read(MOST_BYTES).decode("utf-8", "replace")
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswerError(f"{url}: {str(error) or type(error).__name__}") from error
    if may_fail is not None and answer.status not in {HTTPStatus.OK, may_fail}:
        raise NoAnswerError(f"{url}: status {answer.status}")
    return answer.status, text


def _json(text: str) -> dict[str, Any]:
    """An object; empty if it is none: a notice that cannot be read is still one."""
    try:
        found = typed.parse(text.encode())
    except MalformedError:
        return {}
    return found if isinstance(found, dict) else {}


def _short(text: object) -> str:
    """The first line of a text that comes from elsewhere, to be shown."""
    line = next(iter(str(text).strip().splitlines()), "")
    return "".join(one for one in line if one.isprintable())[:MOST_TEXT]
