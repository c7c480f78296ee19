"""Whether a cluster could run a job: what ``kitctl doctor`` looks at there. Nothing is changed.

Each check gives what it found in a sentence, or raises what is wrong, with its fix (``kitctl.doctor``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import kitctl
from kitctl import names, podview, render
from kitctl.doctor import Doubt, Finding, look
from kitctl.errors import Forbidden, UnsupportedError, UsageError
from kitctl.quantity import amount
from kitctl.spec import JobSpec
from kitctl.targets import Submission
from kitctl.targets.cluster import preflight, rehearsal, submitting
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.resources import Object

OLDEST: Final = (1, 31)  # what a job's fields need: docs/cluster.md
DNS: Final = "k8s-app in (kube-dns, coredns)"


def examine(api: Api, submission: Submission) -> Iterator[Finding]:
    """All checks, in the order in which one depends on another."""
    spec = submission.spec
    checks: list[tuple[str, Callable[[], str]]] = [
        ("server", partial(_server, api)),
        ("rights", partial(_rights, api, spec)),
        ("operator", partial(_operator, api, spec)),
        ("storage", partial(_storage, api, spec)),
        ("GPUs", partial(_gpus, api, spec)),
        ("quota", partial(_quota, api, spec)),
        ("queue", partial(_queue, api, spec)),
        ("image", partial(_image, api, spec)),
        ("DNS", partial(_dns, api)),
        ("network", partial(_network, api, spec)),
        ("dry run", partial(_dry_run, api, submission)),
        ("pods", partial(_pods, api, submission)),
    ]
    return look(checks, first="server")


def _server(api: Api) -> str:
    told = api.version()
    parts = ["".join(filter(str.isdecimal, str(told.get(part, "")))) for part in ("major", "minor")]  # some write 31+
    if not all(parts):
        raise Doubt(f"{api.server} does not say which Kubernetes it runs", fix="kubectl version")
    if tuple(map(int, parts)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(f"{api.server} runs Kubernetes {'.'.join(parts)}, too old", fix=f"use {oldest} or later")
    return f"{api.server}, Kubernetes {told.get('gitVersion') or '.'.join(parts)}"


def _rights(api: Api, spec: JobSpec) -> str:
    missing: list[str] = []
    allowed = preflight.permitted(api, spec, missing.append)
    kind = "PyTorchJob" if allowed.kind == "PyTorchJob" else "Job"
    if not preflight.review(api, spec.namespace).may_apply(kind, "Service", "ConfigMap"):
        what = f"you may not create {kind}s, services and config maps in namespace {spec.namespace!r}"
        raise UsageError(what, fix="ask for these rights, or choose another namespace with -n")
    if missing:
        raise Doubt("; ".join(missing), fix="ask for these rights, or go without")
    return f"all that such a job needs in namespace {spec.namespace!r}"


def _operator(api: Api, spec: JobSpec) -> str:
    try:
        api.select("PyTorchJob", spec.namespace, limit="1")
    except UnsupportedError:
        if spec.kind == "PyTorchJob":
            raise
        return "no training operator; the job is an Indexed Job, which needs none"
    return "Kubeflow's training operator knows PyTorchJobs"


def _storage(api: Api, spec: JobSpec) -> str:
    if not spec.snapshots.enabled:
        raise Doubt("without snapshots a restart begins at step 0", fix="set snapshots.enabled=true")
    preflight.check_storage(api, spec)
    claim = spec.snapshots.claim or names.snapshots_name(spec.name)
    return f"claim {claim!r} can be shared by {spec.nodes} nodes, as far as can be known"


def _gpus(api: Api, spec: JobSpec) -> str:
    if not spec.gpus_per_node:
        return "none asked for"
    preflight.check_gpus(api, spec)
    return f"there are nodes with {spec.gpus_per_node} {spec.gpu_resource} or more"


def _quota(api: Api, spec: JobSpec) -> str:
    quotas = api.select("ResourceQuota", spec.namespace)
    for quota in quotas:
        if lacking := [*_lacking(quota, _needs(spec))]:
            name = quota["metadata"]["name"]
            raise UsageError(
                f"{name} leaves too little: {'; '.join(lacking)}", fix="ask for less, or for a larger quota"
            )
    return f"{len(quotas)} quotas leave enough" if quotas else f"none in namespace {spec.namespace!r}"


def _needs(spec: JobSpec) -> dict[str, float]:
    """What all pods ask for together, by the names that quotas use."""
    needs: dict[str, float] = defaultdict(float, {"pods": spec.max_nodes, "count/pods": spec.max_nodes})
    asked = podview.resources(spec)
    for part in ("requests", "limits"):
        for resource, quantity in {**asked.get("limits", {}), **asked.get(part, {})}.items():
            needs[f"{part}.{resource}"] += amount(quantity) * spec.max_nodes
    return needs | {short: needs[f"requests.{short}"] for short in ("cpu", "memory")}


def _lacking(quota: Object, needs: dict[str, float]) -> Iterator[str]:
    used = quota.get("status", {}).get("used", {})
    for resource, hard in quota.get("status", {}).get("hard", {}).items():
        left = amount(hard) - amount(used.get(resource, "0"))
        if needs.get(resource, 0) > left:
            yield f"{resource}: {needs[resource]:g} needed, {left:g} of {hard} left"


def _queue(api: Api, spec: JobSpec) -> str:
    name = spec.scheduling.queue
    if not name:
        return "none asked for"
    try:
        queue = api.get("LocalQueue", spec.namespace, name)
    except UnsupportedError as error:
        raise UsageError("this cluster has no Kueue, so nobody would start the job", fix="leave --queue out") from error
    told = {one["type"]: one for one in queue.get("status", {}).get("conditions", [])}.get("Active", {})
    if told.get("status") == "False":
        raise UsageError(f"{name!r} admits nothing: {told.get('message')}", fix="see kubectl describe localqueue")
    return f"{name!r} of cluster queue {queue['spec'].get('clusterQueue')!r}"


def _image(api: Api, spec: JobSpec) -> str:
    repository, _, tag = names.DEFAULT_IMAGE.rpartition(":")
    if spec.image.startswith(f"{repository}:") and tag != kitctl.__version__:
        raise Doubt(f"{spec.image} is not of kitctl {kitctl.__version__}", fix="use the image of kitctl's own version")
    nodes = [node for page in api.pages("Node", preflight.NODES_A_PAGE) for node in page]
    having = [node for node in nodes if any(spec.image in _names(image) for image in node["status"].get("images", []))]
    if having:
        return f"{spec.image} is on {len(having)} of {len(nodes)} nodes"
    return f"{spec.image} is on no node yet: whether it can be pulled shows at the first start"


def _names(image: Object) -> list[str]:
    found = [str(name) for name in image.get("names", [])]
    return found + [name.removeprefix("docker.io/").removeprefix("library/") for name in found]


def _dns(api: Api) -> str:
    pods = api.select("Pod", "kube-system", labelSelector=DNS)
    ready = [pod for pod in pods if _ready(pod)]
    if pods and not ready:
        fix = "the nodes of a job find each other by name: kubectl -n kube-system get pods"
        raise UsageError("no DNS server of the cluster is ready", fix=fix)
    return (
        f"{len(ready)} of {len(pods)} DNS servers are ready" if pods else "it is not where it usually is: not checked"
    )


def _ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _network(api: Api, spec: JobSpec) -> str:
    """Whether only the job's own pods can reach its ports, as far as an API server knows."""
    if not spec.security.network_policy:
        raise Doubt("any pod that can reach the job's ports may join it", fix="set security.networkPolicy=true")
    if api.find("NetworkPolicy", spec.namespace, spec.name):
        return f"policy {spec.name!r} is there; whether it is enforced depends on the cluster's network plugin"
    if not preflight.review(api, spec.namespace).may_apply("NetworkPolicy"):
        error = UsageError if spec.security.network_policy == "require" else Doubt
        what = "you may not create a network policy: any pod that can reach the job's ports may join it"
        raise error(what, fix="ask for this right")
    return "the job gets a policy; whether it is enforced depends on the cluster's network plugin"


def _pods(api: Api, submission: Submission) -> str:
    """What admission says to one of the job's pods."""
    spec = preflight.fitted(api, submission.spec, lambda _: None)
    rehearsal.try_pod(api, spec, render.manifests(spec, submission.sources)[-1])
    return "the server would take a pod of the job"


def _dry_run(api: Api, submission: Submission) -> str:
    """What admission says to each object: quotas, policies and webhooks of the cluster have their word."""
    warned: list[str] = []
    try:
        changes = submitting.preview(api, submission, warned.append)
    except Forbidden as error:
        raise UsageError(error.message, fix=error.fix) from error
    refused = [change.refusal for change in changes if change.refusal]
    if refused:
        fix = "kitctl diff shows what would change; submit --replace deletes the job of that name first"
        raise Doubt(f"there is a job of that name, and it cannot be changed so: {refused[0]}", fix=fix)
    return f"the server would take all {len(changes)} objects"
