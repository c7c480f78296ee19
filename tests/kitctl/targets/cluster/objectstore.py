"""Kubernetes objects in memory, with the behaviour of a real API server that kitctl relies on.

Create-only posts, uid and resourceVersion preconditions, merge patches, server-side apply (without ownership of
fields), dry runs, label selectors, finalizers, and immediate garbage collection. There are no controllers.
"""

from __future__ import annotations

import copy
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

Object = dict[str, Any]
Admission = Callable[[str, Object], None]  # the resource and the object; raises Refused

LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
KUEUES: Final = frozenset({"clusterqueues", "cohorts", "workloadpriorityclasses"})
CLUSTER_WIDE: Final = frozenset({"nodes", "storageclasses", "namespaces", "clustertrainingruntimes"}) | KUEUES


class Refused(Exception):
    """A request is rejected with this status."""

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.reason = status, message, reason


class Key(NamedTuple):
    """An object's resource, namespace and name."""

    resource: str  # as in "jobs.batch"; the core group's have no dot
    namespace: str
    name: str

    def __str__(self) -> str:
        return f'{self.resource} "{self.name}"'


@dataclass
class ObjectStore:
    """All objects of a cluster."""

    namespaces: set[str] = field(default_factory=lambda: {"default", "team", "kube-system"})
    immutable: frozenset[str] = frozenset({"jobs.batch"})  # whose pod templates cannot be changed
    admission: list[Admission] = field(default_factory=list)
    objects: dict[Key, Object] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _version: int = 0

    def get(self, key: Key) -> Object:
        """One object."""
        with self._lock:
            if key.resource == "namespaces" and key.name in self.namespaces:
                return {"kind": "Namespace", "metadata": {"name": key.name}, "status": {"phase": "Active"}}
            if key not in self.objects:
                raise Refused(404, f"{key} not found", "NotFound")
            return copy.deepcopy(self.objects[key])

    def items(self, resource: str, namespace: str, selector: str = "") -> list[Object]:
        """The objects of a namespace, or of all, that match a selector; without their kind, as in a list."""
        with self._lock:
            found = [
                copy.deepcopy(thing)
                for key, thing in self.objects.items()
                if key.resource == resource and namespace in {"", key.namespace} and _selected(thing, selector)
            ]
        return [{part: value for part, value in one.items() if part not in {"kind", "apiVersion"}} for one in found]

    def create(self, key: Key, body: Object, *, dry_run: bool = False) -> Object:
        """Create an object, unless it exists."""
        with self._lock:
            self._admit(key, body)
            if not key.name and (prefix := body["metadata"].get("generateName")):
                key = key._replace(name=f"{prefix}{uuid.uuid4().hex[:5]}")
            if key in self.objects:
                raise Refused(409, f"{key} already exists", "AlreadyExists")
            metadata = {
                "name": key.name,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "generation": 1,
            }
            if key.resource == "pods":
                body = {"status": {"phase": "Pending"}} | body
            metadata |= {} if key.resource in CLUSTER_WIDE else {"namespace": key.namespace}
            return self._put(key, body | {"metadata": body["metadata"] | metadata}, dry_run=dry_run)

    def patch(self, key: Key, change: Object, *, apply: bool, dry_run: bool = False) -> Object:
        """Apply a merge patch, or a server-side apply, which creates missing objects."""
        with self._lock:
            if apply and key not in self.objects:
                return self.create(key, change, dry_run=dry_run)
            before = self.get(key)
            _check_version(key, before, change.get("metadata", {}))
            after = merged(before, change)
            if after["metadata"]["uid"] != before["metadata"]["uid"]:
                raise Refused(422, f"{key} is invalid: metadata.uid: Invalid value: field is immutable", "Invalid")
            if key.resource in self.immutable and after["spec"]["template"] != before["spec"]["template"]:
                raise Refused(422, f"{key} is invalid: spec.template: field is immutable", "Invalid")
            self._admit(key, after)
            return self._put(key, after, dry_run=dry_run)

    def delete(self, key: Key, preconditions: Object) -> Object:
        """Delete an object and its dependents; one with finalizers is only marked as terminating."""
        with self._lock:
            found = self.get(key)
            _check_uid(key, found, preconditions)
            _check_version(key, found, preconditions)
            if found["metadata"].get("finalizers"):
                marked = found["metadata"] | {"deletionTimestamp": datetime.now(UTC).isoformat()}
                return self._put(key, found | {"metadata": marked})
            self.remove(key)
            return found

    def remove(self, key: Key) -> None:
        """Remove an object and its dependents."""
        uid = self.objects.pop(key)["metadata"]["uid"]
        for child in [one for one, thing in self.objects.items() if uid in _owners(thing)]:
            self.remove(child)

    def _put(self, key: Key, thing: Object, *, dry_run: bool = False) -> Object:
        self._version += not dry_run
        stored = thing | {"metadata": thing["metadata"] | {"resourceVersion": str(self._version)}}
        if not dry_run:
            self.objects[key] = copy.deepcopy(stored)
        return stored

    def _admit(self, key: Key, thing: Object) -> None:
        """Validate an object, and run the admission plug-ins."""
        if key.resource not in CLUSTER_WIDE and key.namespace not in self.namespaces:
            raise Refused(404, f'namespaces "{key.namespace}" not found', "NotFound")
        if key.name and not OBJECT_NAME.fullmatch(key.name):
            raise Refused(422, f"{key} is invalid: metadata.name: Invalid value", "Invalid")
        for label, value in _all_labels(thing):
            if len(value) > 63 or not LABEL_VALUE.fullmatch(value):
                what = f'metadata.labels: Invalid value: "{value}": a valid label must be an empty string or ...'
                raise Refused(422, f"{key} is invalid: {what} ({label})", "Invalid")
        if key.resource == "pods":
            self._check_account(key, thing)
        for plugin in self.admission:
            plugin(key.resource, thing)

    def _check_account(self, key: Key, pod: Object) -> None:
        account = pod["spec"].get("serviceAccountName", "default")
        if account != "default" and Key("serviceaccounts", key.namespace, account) not in self.objects:
            what = f'error looking up service account {key.namespace}/{account}: serviceaccount "{account}" not found'
            raise Refused(403, f"{key} is forbidden: {what}", "Forbidden")


def merged(thing: Object, change: Object) -> Object:
    """Apply a JSON merge patch (RFC 7386)."""
    both = {
        key: merged(thing.get(key) or {}, value) if isinstance(value, dict) else value for key, value in change.items()
    }
    return {key: value for key, value in (thing | both).items() if value is not None}


def _check_uid(key: Key, found: Object, wanted: Object) -> None:
    there = found["metadata"]["uid"]
    if wanted.get("uid") and wanted["uid"] != there:
        what = f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({there}). The object "
        what += "might have been deleted and then recreated"
        raise Refused(409, f"Operation cannot be fulfilled on {key}: {what}", "Conflict")


def _check_version(key: Key, found: Object, wanted: Object) -> None:
    there = found["metadata"]["resourceVersion"]
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != there:
        what = "the object has been modified; please apply your changes to the latest version and try again"
        raise Refused(409, f"Operation cannot be fulfilled on {key}: {what}", "Conflict")


def _owners(thing: Object) -> set[str]:
    return {owner["uid"] for owner in thing["metadata"].get("ownerReferences", [])}


def _all_labels(thing: Object) -> Iterator[tuple[str, str]]:
    """The labels of an object and of its pod template, its selectors too."""
    yield from thing.get("metadata", {}).get("labels", {}).items()
    spec = thing.get("spec") or {}
    yield from (spec.get("nodeSelector") or {}).items()
    if template := spec.get("template"):
        yield from _all_labels(template)


def _selected(thing: Object, selector: str) -> bool:
    """Whether an object's labels match ``a=b,c in (d, e)``."""
    labels = thing["metadata"].get("labels", {})
    wanted = re.findall(r"([^,\s]+?)(?:=([^,]*)|\s+in\s+\(([^)]*)\))", selector)
    return all(
        labels.get(name) in ({one.strip() for one in many.split(",")} if many else {value})
        for name, value, many in wanted
    )
