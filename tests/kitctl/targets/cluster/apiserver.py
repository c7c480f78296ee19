"""A fake API server on a real port: objects in memory, users with rights, pod logs, and planned faults.

``with ApiServer() as server`` starts one. ``server.kubeconfig(folder)`` writes a kubeconfig for it, ``server.requests``
lists the requests, and ``server.plan()`` plans a fault: another response, a hook, or a lost connection.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from kitctl.kinds import KINDS
from kitctl.targets.cluster.checks.rights import Right
from tests.kitctl.targets.cluster.kubelet import Kubelet
from tests.kitctl.targets.cluster.objectstore import Key, Object, ObjectStore, Refused

Body = Object | str | bytes
VERBS: Final = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
PATH: Final = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
OF_OBJECT: Final = re.compile(r"involvedObject\.name=([\w.-]+)")  # events that do not say of what are of all
REVIEWS: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})


def needed_right(method: str, path: str) -> Right | None:
    """The right that a request takes; None: everybody has it."""
    where = PATH.fullmatch(path)
    if where is None or where["plural"] in REVIEWS:
        return None
    verb = VERBS[method] if where["name"] or method != "GET" else "list"
    return Right(verb, where["group"] or "", where["plural"] + (f"/{where['sub']}" if where["sub"] else ""))


@dataclass(frozen=True)
class User:
    """The user of a token; without rules, everything is allowed."""

    name: str = "alice"
    rules: Sequence[Object] | None = None

    def may(self, verb: str, group: str, plural: str) -> bool:
        """Whether a rule allows it."""
        asked = {"verbs": verb, "apiGroups": group, "resources": plural}
        return self.rules is None or any(
            all({part, "*"} & {*rule[key]} for key, part in asked.items()) for rule in self.rules
        )


@dataclass(frozen=True)
class Request:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    body: Object

    def __str__(self) -> str:
        return f"{self.method} {self.path}{' (dry run)' if 'dryRun' in self.query else ''}"


@dataclass
class Fault:
    """A fault of the next ``times`` requests that match ``pattern``.

    ``before`` is called first. The response is ``answer``, or the server's own. ``lost`` drops the connection: before
    the request is handled, after that, or halfway through the response. ``open_until`` keeps it open after the body.
    """

    pattern: str
    times: int = 1
    before: Callable[[], object] | None = None
    answer: tuple[int, Body] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    lost: Literal["", "before", "halfway", "after"] = ""
    open_until: threading.Event | None = None


class ApiServer(ThreadingHTTPServer):
    """The server; it runs within its context."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.store = ObjectStore()
        self.users: dict[str, User] = {"token": User()}
        self.logs: dict[str, list[str]] = {}  # by pod name; each line starts with its time
        self.version: Object = {"major": "1", "minor": "33", "gitVersion": "v1.33.1"}
        self.operator = True  # whether it serves the kinds of job that are custom resources
        self.groups = {kind.group: [kind.api_version.rpartition("/")[2]] for kind in KINDS.values() if kind.operator}
        self.kueue: Sequence[str] = ()  # versions of Kueue's API; empty: not installed
        self.pending: list[Object] = []  # Workloads in a queue, as Kueue's API for positions lists them
        self.kubelet = Kubelet()
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def plan(self, pattern: str, **what: Any) -> Fault:
        """Plan a fault of the next request whose text, such as ``POST /api/v1/...``, matches a pattern."""
        fault = Fault(pattern, **what)
        self.faults.append(fault)
        return fault

    def put(self, resource: str, name: str, namespace: str = "default", **parts: Any) -> Object:
        """Create an object without a request."""
        body = {"metadata": {"name": name} | parts.pop("metadata", {}), **parts}
        return self.store.create(Key(resource, namespace, name), body)

    def names(self, resource: str, namespace: str = "default") -> set[str]:
        """The names of all objects of a resource."""
        return {key.name for key in self.store.objects if key[:2] == (resource, namespace)}

    def written(self) -> list[str]:
        """The requests that changed something."""
        return [
            str(one)
            for one in self.requests
            if one.method != "GET" and "dryRun" not in one.query and not one.path.endswith(tuple(REVIEWS))
        ]

    def kubeconfig(self, folder: Path, *, token: str = "token", user: str = "user", url: str = "") -> Path:
        """Write a kubeconfig for this server; returns its path."""
        known = {
            "clusters": [{"name": "fake", "cluster": {"server": url or self.url}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": user}}],
            "users": [{"name": user, "user": {"token": token}}],
            "current-context": "fake",
        }
        path = folder / f"kubeconfig-{token}-{'other' if url else 'own'}"
        if not path.exists():  # several threads may write it
            complete = path.with_suffix(f".{threading.get_ident()}")
            complete.write_text(json.dumps({"apiVersion": "v1", "kind": "Config"} | known))
            complete.rename(path)
        return path

    def take_fault(self, request: Request) -> Fault | None:
        """Record a request; returns the fault that is planned for it."""
        with self._lock:
            self.requests.append(request)
            found = next((one for one in self.faults if one.times and re.search(one.pattern, str(request))), None)
            if found:
                found.times -= 1
            return found


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: ApiServer
    protocol_version = "HTTP/1.1"
    warnings: list[str]
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Handle any request."""
        self.warnings = []
        url = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, url.path, dict(parse_qsl(url.query)), json.loads(data) if data else {})
        fault = self.server.take_fault(request) or Fault("")
        if fault.before:
            fault.before()
        if fault.lost == "before":
            self.close_connection = True
            return
        if self.headers.get("Upgrade") and not fault.answer and self._may_enter(request):
            self.close_connection = True
            self.server.kubelet.serve(self)
            return
        status, body = fault.answer or self._respond(request)
        if fault.lost == "after":
            self.close_connection = True
            return
        self._send(status, body, fault)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class calls them so

    def log_message(self, *_: object) -> None:
        """Log nothing: see ``ApiServer.requests``."""

    def _send(self, status: int, body: Body, fault: Fault) -> None:
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        headers = {"Content-Type": "application/json" if isinstance(body, dict) else "text/plain"} | fault.headers
        with suppress(ConnectionError):  # the client may be gone
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            for warning in self.warnings:
                self.send_header("Warning", warning)
            if fault.open_until is None:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if fault.lost == "halfway" else data)
        if fault.open_until:
            fault.open_until.wait(60)
        self.close_connection = self.close_connection or bool(fault.lost or fault.open_until)

    def _respond(self, request: Request) -> tuple[int, Body]:
        try:
            return self._handle(request)
        except Refused as refused:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": refused.status}
            return refused.status, status | {"message": refused.message, "reason": refused.reason}

    def _may_enter(self, request: Request) -> bool:
        """Whether an exec or portforward request is allowed, and its pod exists."""
        user = self.server.users.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        where = PATH.fullmatch(request.path)
        if user is None or where is None:
            return False
        try:
            key = Key("pods", where["namespace"] or "", where["name"] or "")
            self._authorize(user, request, where, key)
            return bool(self.server.store.get(key))
        except Refused:
            return False

    def _handle(self, request: Request) -> tuple[int, Body]:
        """The server's own response."""
        user = self.server.users.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        if request.path == "/version":
            return 200, self.server.version
        if served := self._versions_of(request.path.removeprefix("/apis/")):
            return 200, {"kind": "APIGroup", "versions": [{"version": one} for one in served]}
        where = PATH.fullmatch(request.path)
        if where is None or (where["group"] in self.server.groups and not self.server.operator):
            return 404, "404 page not found\n"
        if where["plural"] in REVIEWS and user.name != "system:anonymous":  # who may not even ask that
            if "spec" in request.body and where["plural"] == "selfsubjectreviews":
                self.warnings.append('299 - "unknown field \\"spec\\""')
            return 201, request.body | {"status": self._rights_of(user) | _allowed(user, request.body)}
        resource = where["plural"] + (f".{where['group'].partition('.')[0]}" if where["group"] == "batch" else "")
        key = Key(resource, where["namespace"] or "", where["name"] or "")
        self._authorize(user, request, where, key)
        if where["sub"] == "pendingworkloads":
            return 200, {"kind": "PendingWorkloadsSummary", "items": self.server.pending}
        return self._execute(request, key, where["sub"])

    def _versions_of(self, group: str) -> Sequence[str]:
        """The served versions of an API group; empty if it is not installed."""
        if group.endswith("kueue.x-k8s.io"):
            return self.server.kueue
        return self.server.groups.get(group, ()) if self.server.operator else ()

    def _rights_of(self, user: User) -> Object:
        everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        rules = everything if user.rules is None else [*user.rules]
        return {"resourceRules": rules, "incomplete": False, "userInfo": {"username": user.name}}

    def _authorize(self, user: User, request: Request, where: re.Match[str], key: Key) -> None:
        verb = VERBS[request.method] if key.name or request.method != "GET" else "list"
        group, plural = where["group"] or "", where["plural"] + (f"/{where['sub']}" if where["sub"] else "")
        if not user.may(verb, group, plural):
            what = f'cannot {verb} resource "{plural}" in API group "{group}" in the namespace "{key.namespace}"'
            raise Refused(403, f'{key.resource} is forbidden: User "{user.name}" {what}', "Forbidden")

    def _execute(self, request: Request, key: Key, sub: str | None) -> tuple[int, Body]:
        store, dry_run = self.server.store, "dryRun" in request.query
        if sub == "log":
            since = request.query.get("sinceTime", "").removesuffix("Z")  # of whole seconds; lines have fractions
            lines = self.server.logs.get(key.name, [])
            return 200, "".join(f"{line}\n" for line in lines if line >= since)
        match request.method:
            case "POST":
                named = key._replace(name=request.body["metadata"].get("name", ""))
                return 201, store.create(named, request.body, dry_run=dry_run)
            case "PATCH":
                apply = "apply-patch" in self.headers["Content-Type"]
                return 200, store.patch(key, request.body, apply=apply, dry_run=dry_run)
            case "DELETE":
                return 200, store.delete(key, request.body.get("preconditions", {}))
        if key.name:
            return 200, store.get(key)
        items = store.items(key.resource, key.namespace, request.query.get("labelSelector", ""))
        about = OF_OBJECT.search(request.query.get("fieldSelector", ""))
        chosen = [one for one in items if not about or one.get("involvedObject", {}).get("name", about[1]) == about[1]]
        return 200, {"kind": "List", "metadata": {}, "items": chosen}


def _allowed(user: User, review: Object) -> Object:
    """Whether a user may do what a SelfSubjectAccessReview asks."""
    asked = review.get("spec", {}).get("resourceAttributes")
    if not asked:
        return {}
    plural = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
    return {"allowed": user.may(asked["verb"], asked.get("group", ""), plural)}
