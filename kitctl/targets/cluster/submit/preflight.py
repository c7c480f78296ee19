"""Checks before anything is created: what this user may create, and whether the job could ever run.

A check that this user has no permission for is skipped; the API server then reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kitctl import kinds
from kitctl.base import names
from kitctl.base.errors import Forbidden, UnsupportedError, UsageError
from kitctl.base.quantity import amount
from kitctl.render.pod_groups import POD_GROUPS
from kitctl.spec.job_spec import JobSpec
from kitctl.targets.cluster.connection.api import Api
from kitctl.targets.cluster.connection.permissions import Permissions
from kitctl.targets.cluster.read.lifecycle import annotations_of
from kitctl.targets.cluster.submit import kind_choice, room
from kitctl.targets.cluster.submit.namespace_defaults import apply_namespace_defaults
from kitjob.names import REQUIRE
from kitjob.record import replace

MANY: Final = "ReadWriteMany"
READ_ONLY: Final = "ReadOnlyMany"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
NODES_A_PAGE: Final = 250
DEVICES: Final = 4  # of the nodes, that an error names
HOW_TO_SHARE: Final = "pass a class that can be shared with --storage-class, or an existing claim with --claim"

# Provisioners of disks that one node at a time can mount, according to their documentation.
DISKS: Final = frozenset(
    {
        "cinder.csi.openstack.org",
        "csi.vsphere.vmware.com",
        "disk.csi.azure.com",
        "dobs.csi.digitalocean.com",
        "ebs.csi.aws.com",
        "kubernetes.io/aws-ebs",
        "kubernetes.io/azure-disk",
        "kubernetes.io/gce-pd",
        "kubernetes.io/vsphere-volume",
        "linodebs.csi.linode.com",
        "pd.csi.storage.gke.io",
        "rbd.csi.ceph.com",
        "topolvm.io",
    }
)


class OptionalPart(NamedTuple):
    """A part that a job can run without: its field and key, the kinds of its objects, and what is lost without it."""

    field: str
    key: str
    kinds: tuple[str, ...]
    what: str
    without: str


OPTIONAL_PARTS: Final = (
    OptionalPart(
        "report_status",
        "reportStatus",
        ("ServiceAccount", "Role", "RoleBinding"),
        "service accounts and roles",
        "status will show no steps, losses and ranks",
    ),
    OptionalPart(
        "network_policy",
        "networkPolicy",
        ("NetworkPolicy",),
        "network policies",
        "other pods of the cluster can reach the job's ports",
    ),
    OptionalPart(
        "rendezvous_secret",
        "rendezvousSecret",
        ("Secret",),
        "Secrets",
        "anyone who can reach node 0 and knows the run's id can join the job",
    ),
)


def permissions(api: Api, namespace: str) -> Permissions:
    """The permissions of this user in a namespace."""
    return Permissions(api.review("SelfSubjectRulesReview", spec={"namespace": namespace}))


def user(api: Api) -> str:
    """The user name that the API server sees; empty where it does not report it."""
    with suppress(Forbidden, UnsupportedError):
        return str(api.review("SelfSubjectReview").get("userInfo", {}).get("username", ""))
    return ""


def adapt(api: Api, spec: JobSpec, warn: Callable[[str], None]) -> JobSpec:
    """The job adapted to this user's permissions and the namespace's defaults."""
    return apply_namespace_defaults(api, degrade_to_permissions(api, spec, warn))


def degrade_to_permissions(api: Api, spec: JobSpec, warn: Callable[[str], None]) -> JobSpec:
    """The job without the parts that this user may not create; warns of each.

    Raises:
        UsageError: the job requires such a part.
    """
    allowed = permissions(api, spec.namespace)
    missing = f"you may not create {{}} in namespace {spec.namespace!r}: "
    spec = kind_choice.choose(api, spec, allowed, warn)
    for part in OPTIONAL_PARTS:
        given = getattr(spec.security, part.field)
        if not given or allowed.may_apply(*part.kinds):
            continue
        if given == REQUIRE:
            what = f"require, and you may not create {part.what} in namespace {spec.namespace!r}"
            raise UsageError(f"security.{part.key}: {what}", fix="ask for this right, or set it to true")
        warn(missing.format(part.what) + part.without)
        spec = replace(spec, security=replace(spec.security, **{part.field: False}))
    own_claim = spec.snapshots.shared and not spec.snapshots.claim
    if own_claim and not allowed.may_apply("PersistentVolumeClaim"):
        warn(missing.format("claims") + "no snapshots, a restart begins at step 0 (--claim NAME uses an existing one)")
        spec = replace(spec, snapshots=replace(spec.snapshots, enabled=False))
    return spec


def check(api: Api, spec: JobSpec) -> None:
    """Refuse a job that this cluster could never run.

    Raises:
        UnsupportedError: it does not have the job's kind.
        UsageError: it lacks what that kind needs, the claim that it names does not exist or cannot be shared by its
            nodes, no Kubernetes node has that many GPUs, there are no pod groups, or a quota is too small; or there is
            nothing to resume from.
    """
    kind_choice.check(api, kinds.of_spec(spec.kind))
    check_resume(spec)
    if spec.snapshots.enabled:
        with suppress(Forbidden):
            check_storage(api, spec)
    if spec.gpus_per_node:
        with suppress(Forbidden):
            check_gpus(api, spec)
    if spec.scheduling.pod_group:
        with suppress(Forbidden):
            _check_pod_groups(api, spec)
    with suppress(Forbidden):
        _check_quotas(api, spec)


def check_resume(spec: JobSpec) -> None:
    """Refuse a job that is to continue from volumes that went with another job's pods.

    Raises:
        UsageError: it would start at step 0 instead.
    """
    if spec.resume and spec.snapshots.go_with_pods:
        what = "with snapshots.storage: perNode an earlier run's snapshots went with its pods"
        fix = "leave resume out, or continue from a mirror: --continue s3://BUCKET/PREFIX"
        raise UsageError(f"resume: {what}", fix=fix)


def remark(api: Api, spec: JobSpec, pod: Mapping[str, float]) -> str:
    """Why no node of the cluster could hold a pod of the job; empty: one could, or this user may not know.

    Only for a job that says what it needs. It is no error: nodes may be added on demand.
    """
    labels = spec.scheduling.node_selector
    asks = spec.resources.requests or spec.resources.limits or spec.snapshots.in_memory
    if not (labels or asks):
        return ""
    with suppress(Forbidden):
        nodes = [node for page in api.pages("Node", NODES_A_PAGE) for node in page]
        if why := room.too_small(nodes, labels, pod):
            return f"{why}; its pods wait until the cluster gets such a node"
    return ""


def check_storage(api: Api, spec: JobSpec) -> None:
    """Refuse a claim or storage class that the job's nodes could not share, or have. Raises as ``check`` does."""
    if spec.snapshots.storage == "memory":
        return
    if not spec.snapshots.shared:
        _check_class(spec, {one["metadata"]["name"]: one for one in api.select("StorageClass")})
        return
    name = spec.snapshots.claim or names.snapshots_name(spec.name)
    claim = api.find("PersistentVolumeClaim", spec.namespace, name)
    if claim is None and spec.snapshots.claim:
        fix = "create it, or omit --claim: the job then creates its own"
        raise UsageError(f"snapshots.claim: no claim {name!r} in namespace {spec.namespace!r}", fix=fix)
    if claim is None:
        _check_class(spec, {one["metadata"]["name"]: one for one in api.select("StorageClass")})
    elif {*claim["spec"]["accessModes"]} == {READ_ONLY}:
        what = f"claim {name!r} is {READ_ONLY}, and a job writes its snapshots to it"
        raise UsageError(f"snapshots: {what}", fix="use a claim that can be written, or omit --claim: it gets its own")
    elif spec.all_nodes > 1 and MANY not in claim["spec"]["accessModes"]:
        modes = ", ".join(claim["spec"]["accessModes"])
        what = f"claim {name!r} is {modes}, but {spec.nodes} nodes need {MANY}"
        raise UsageError(f"snapshots: {what}", fix="use a claim that can be shared, or run on one node")


def _check_class(spec: JobSpec, classes: Mapping[str, Any]) -> None:
    default = next((name for name, one in classes.items() if annotations_of(one).get(DEFAULT_CLASS) == "true"), "")
    name = spec.snapshots.storage_class or default
    if name not in classes:
        what = f"the cluster has no storage class {name!r}" if name else "the cluster has no default storage class"
        there = f"there {'are' if len(classes) > 1 else 'is'} {', '.join(classes)}" if classes else "there are none"
        raise UsageError(f"snapshots.storageClass: {what}; {there}", fix=HOW_TO_SHARE)
    if spec.snapshots.shared and spec.all_nodes > 1 and classes[name]["provisioner"] in DISKS:
        what = f"class {name!r} provides disks ({classes[name]['provisioner']}) that one node at a time can mount"
        raise UsageError(f"snapshots.storageClass: {what}, but the job has {spec.nodes}", fix=HOW_TO_SHARE)


def check_gpus(api: Api, spec: JobSpec) -> None:
    """Refuse a job that requests more GPUs per node than any Kubernetes node has. Raises as ``check`` does."""
    most, others = 0, set[str]()
    for page in api.pages("Node", NODES_A_PAGE):
        most = max(most, *(_allocatable(node, spec.gpu_resource) for node in page), 0)
        if most >= spec.gpus_per_node:
            return
        others |= {name for node in page for name in node["status"].get("allocatable", {}) if "/" in name}
    what = f"{spec.gpus_per_node}, but no node of the cluster has more than {most} {spec.gpu_resource}"
    fix = "request fewer, or use --no-checks if nodes are added on demand"
    if not most:
        named = f"the nodes have {', '.join(sorted(others)[:DEVICES])}" if others else "the nodes have no devices"
        what = f"{spec.gpus_per_node}, but no node of the cluster has any {spec.gpu_resource}: {named}"
        fix = "name what they have (gpuResource), see to the device plugin, or --no-checks if nodes are added on demand"
    raise UsageError(f"gpusPerNode: {what}", fix=fix)


def _check_pod_groups(api: Api, spec: JobSpec) -> None:
    name = spec.scheduling.pod_group
    group = POD_GROUPS[name].api_version.rpartition("/")[0]
    try:
        api.select(f"PodGroup.{group}", spec.namespace, limit="1")
    except UnsupportedError as error:
        what = f"the cluster has no PodGroups of {group}, so {name} is not installed"
        raise UsageError(f"scheduling.podGroup: {what}", fix="install it, or omit podGroup") from error


def _check_quotas(api: Api, spec: JobSpec) -> None:
    """Refuse a job that a quota could never hold, if nothing else ran; doctor says what is left of it now."""
    for quota in filter(room.is_of_all_pods, api.select("ResourceQuota", spec.namespace)):
        if lacking := [*room.lacking(quota, room.needs(spec, spec.min_nodes), free=False)]:
            what = f"quota {quota['metadata']['name']!r} of namespace {spec.namespace!r} can never hold it"
            raise UsageError(f"{what}: {'; '.join(lacking)}", fix="request less, or ask for a larger quota")


def _allocatable(node: Mapping[str, Any], resource: str) -> int:
    return int(amount(node["status"].get("allocatable", {}).get(resource, "0")))
