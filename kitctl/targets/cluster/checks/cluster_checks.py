"""The checks of ``kitctl doctor`` on a cluster: whether it could run a job. Changes nothing.

Each check returns what it found in a sentence, or raises an error with its fix (``kitctl.state.checks``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from kitctl import kinds
from kitctl.base import names
from kitctl.base.errors import Forbidden, UnsupportedError, UsageError
from kitctl.base.quantity import format_bytes, pluralize
from kitctl.render import objects as render
from kitctl.spec.job_spec import JobSpec
from kitctl.state.checks import CheckWarning, Finding, run_checks
from kitctl.targets import Submission, mirrors
from kitctl.targets.cluster.checks import rights
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.api_errors import ANONYMOUS
from kitctl.targets.cluster.connection.resources import Object
from kitctl.targets.cluster.queue import queue_checks
from kitctl.targets.cluster.submit import (
    code_sending,
    dry_run,
    kind_choice,
    namespace_defaults,
    preflight,
    room,
    submitting,
)

OLDEST: Final = (1, 31)  # what a job's fields need: docs/cluster.md
ASK: Final = "ask for these permissions (docs/platform.md has a role for users)"
DNS: Final = "k8s-app in (kube-dns, coredns)"


def check_cluster(api: Api, submission: Submission) -> Iterator[Finding]:
    """All checks, in the order of their dependencies."""
    spec = submission.spec
    checks: list[tuple[str, Callable[[], str]]] = [
        ("server", partial(_server, api)),
        ("rights", partial(_rights, api, spec)),
        ("operator", partial(_operator, api, spec)),
        ("storage", partial(_storage, api, spec)),
        ("workdir", partial(_sent, api, submission, "workdir")),
        ("requirements", partial(_sent, api, submission, "requirements")),
        ("GPUs", partial(_gpus, api, spec)),
        ("quota", partial(_quota, api, spec)),
        ("queue", partial(_queue, api, spec)),
        ("image", partial(_image, api, spec)),
        ("DNS", partial(_dns, api)),
        ("network", partial(_network, api, spec)),
        ("mirror", partial(_mirror, spec)),
        ("dry run", partial(_dry_run, api, submission)),
        ("pods", partial(_pods, api, submission)),
    ]
    return run_checks(checks, first="server")


def _server(api: Api) -> str:
    """Its version; a server tells that to users without credentials too, to whom all other checks would say the same.

    Raises:
        UsageError: the server is too old, or this user has no credentials.
    """
    version = api.version()
    try:
        with suppress(UnsupportedError):
            api.review("SelfSubjectReview")
    except Forbidden as error:
        if ANONYMOUS in error.message:
            raise UsageError(error.message, fix=error.fix) from error
    parts = [
        "".join(filter(str.isdecimal, str(version.get(part, "")))) for part in ("major", "minor")
    ]  # some report 31+
    if not all(parts):
        raise CheckWarning(f"{api.server} does not report its Kubernetes version", fix="kubectl version")
    if tuple(map(int, parts)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(
            f"{api.server} runs Kubernetes {'.'.join(parts)}, which is too old", fix=f"use {oldest} or later"
        )
    return f"{api.server}, Kubernetes {version.get('gitVersion') or '.'.join(parts)}"


def _rights(api: Api, spec: JobSpec) -> str:
    missing: list[str] = []
    adapted = preflight.degrade_to_permissions(api, spec, missing.append)
    kind, allowed = kinds.of_spec(adapted.kind), preflight.permissions(api, spec.namespace)
    if not allowed.may_apply(kind.key, "Service", "ConfigMap"):
        what = f"you may not create {kind.resource}s, services and config maps in namespace {spec.namespace!r}"
        raise UsageError(what, fix=f"{ASK}, or choose another namespace with -n")
    missing += rights.lacking(allowed, rights.AFTERWARDS + (rights.QUEUEING if spec.scheduling.queue else ()), kind)
    if missing:
        raise CheckWarning("; ".join(missing), fix=f"{ASK}, or run without")
    return f"all permissions for such a job in namespace {spec.namespace!r}"


def _sent(api: Api, submission: Submission, field: str) -> str:
    """The place for a folder that is sent with the job."""
    folder = next((one for one in submission.sources.folders if one.key == field), None)
    if folder is None:
        return "none is sent"
    code_sending.check(api, submission.spec, folder)
    where = "the claim" if folder.archive is None else "a ConfigMap"
    count = len(folder.tree.files)
    fit = "fits" if count == 1 else "fit"
    return f"{pluralize(count, 'file')} ({format_bytes(folder.tree.size)}) {fit} into {where}"


def _operator(api: Api, spec: JobSpec) -> str:
    """Which kinds of operators the server has; whether these run is not known.

    Raises:
        UnsupportedError: the job's kind is not served.
        UsageError: what that kind needs is missing.
    """
    found = []
    for kind in kinds.all_kinds().values():
        try:
            if kind.operator:
                api.select(kind.key, spec.namespace, limit="1")
                found.append(f"{kind.resource}s of {kind.operator}")
        except UnsupportedError:
            if spec.kind == kind.name:
                raise
    kind_choice.check(api, kinds.of_spec(spec.kind))
    if found:
        return f"the server has {'; '.join(found)}; whether what runs them is up shows once a job starts"
    return f"none installed; {kinds.DEFAULT.name} needs none"


def _storage(api: Api, spec: JobSpec) -> str:
    if not spec.snapshots.enabled:
        raise CheckWarning("without snapshots a restart begins at step 0", fix="set snapshots.enabled=true")
    preflight.check_storage(api, spec)
    if spec.snapshots.in_memory:
        return f"{spec.snapshots.size} of each node's memory, and {spec.snapshots.mirror}"
    if not spec.snapshots.shared:
        return "each node can have a volume of its own, as far as the API server knows"
    claim = spec.snapshots.claim or names.snapshots_name(spec.name)
    return f"claim {claim!r} can be shared by {spec.nodes} nodes, as far as the API server knows"


def _mirror(spec: JobSpec) -> str:
    if warnings := mirrors.warnings_from_afar(spec):
        raise CheckWarning("; ".join(warnings))
    return spec.snapshots.mirror or "none"


def _gpus(api: Api, spec: JobSpec) -> str:
    if not spec.gpus_per_node:
        return "none requested"
    preflight.check_gpus(api, spec)
    return f"there are nodes with {spec.gpus_per_node} {spec.gpu_resource} or more"


def _quota(api: Api, spec: JobSpec) -> str:
    quotas = api.select("ResourceQuota", spec.namespace)
    for quota in quotas:
        if lacking := [*room.lacking(quota, room.needs(spec, spec.all_nodes), free=True)]:
            name = quota["metadata"]["name"]
            raise UsageError(
                f"{name} leaves too little: {'; '.join(lacking)}", fix="request less, or ask for a larger quota"
            )
    return f"{len(quotas)} quotas leave enough" if quotas else f"none in namespace {spec.namespace!r}"


def _queue(api: Api, spec: JobSpec) -> str:
    name = spec.scheduling.queue
    if not name:
        return "none requested"
    manifest = render.manifests(preflight.adapt(api, spec, lambda _: None))[-1]
    if remarks := list(queue_checks.check(api, spec, manifest)):
        raise CheckWarning("; ".join(remarks), fix="see kubectl describe localqueue, and docs/kueue.md")
    queue = queue_checks.local_queue(api, spec)
    return f"{name!r} of cluster queue {queue['spec'].get('clusterQueue')!r} could admit it"


def _image(api: Api, spec: JobSpec) -> str:
    given = namespace_defaults.apply_namespace_defaults(api, spec)
    image = given.image
    source = namespace_defaults.image_source(api, spec, given)
    source = f", from {source}," if source else ""
    nodes = [node for page in api.pages("Node", preflight.NODES_A_PAGE) for node in page]
    having = [node for node in nodes if any(image in _names(one) for one in node["status"].get("images") or ())]
    if having:
        return f"{image}{source} is on {len(having)} of {pluralize(len(nodes), 'node')}"
    return f"{image}{source} is on no node yet; whether it can be pulled is not known before the first start"


def _names(image: Object) -> list[str]:
    found = [str(name) for name in image.get("names") or ()]
    return found + [name.removeprefix("docker.io/").removeprefix("library/") for name in found]


def _dns(api: Api) -> str:
    pods = api.select("Pod", "kube-system", labelSelector=DNS)
    ready = [pod for pod in pods if _ready(pod)]
    if pods and not ready:
        fix = "a job's nodes find each other by name: kubectl -n kube-system get pods"
        raise UsageError("no DNS server of the cluster is ready", fix=fix)
    return (
        f"{len(ready)} of {len(pods)} DNS servers are ready"
        if pods
        else "not found under its usual labels: not checked"
    )


def _ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _network(api: Api, spec: JobSpec) -> str:
    """Whether only the job's pods can reach its ports, as far as the API server knows."""
    if not spec.security.network_policy:
        raise CheckWarning("any pod that can reach the job's ports can join it", fix="set security.networkPolicy=true")
    if api.find("NetworkPolicy", spec.namespace, spec.name):
        return f"policy {spec.name!r} exists; whether it is enforced depends on the cluster's network plugin"
    if not preflight.permissions(api, spec.namespace).may_apply("NetworkPolicy"):
        error = UsageError if spec.security.network_policy == "require" else CheckWarning
        what = "you may not create a network policy: any pod that can reach the job's ports can join it"
        raise error(what, fix="ask for this permission")
    return "the job gets a policy; whether it is enforced depends on the cluster's network plugin"


def _pods(api: Api, submission: Submission) -> str:
    """Whether admission accepts one of the job's pods."""
    spec = preflight.adapt(api, submission.spec, lambda _: None)
    dry_run.dry_run_pod(api, spec, render.manifests(spec, submission.sources)[-1])
    return "the server would accept a pod of the job"


def _dry_run(api: Api, submission: Submission) -> str:
    """Whether admission accepts each object: with the cluster's quotas, policies and webhooks."""
    warned: list[str] = []
    try:
        changes = submitting.preview(api, submission, warned.append)
    except Forbidden as error:
        raise UsageError(error.message, fix=error.fix) from error
    refused = [change.refusal for change in changes if change.refusal]
    if refused:
        fix = "kitctl diff shows what would change; submit --replace deletes the job of that name first"
        raise CheckWarning(f"a job of that name exists, and this change is refused: {refused[0]}", fix=fix)
    return f"the server would accept all {len(changes)} objects"
