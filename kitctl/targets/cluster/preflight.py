"""What is found out before anything is created: what this user may make, and whether the job could ever run.

A check that the user has no right to make is left out; the cluster then says in its own words what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from kitctl import names
from kitctl.errors import Forbidden, NotFound, UnsupportedError, UsageError
from kitctl.quantity import amount
from kitctl.spec import JobSpec
from kitctl.targets.cluster.api import Api
from kitctl.targets.cluster.inherited import inherit
from kitctl.targets.cluster.lifecycle import noted
from kitctl.targets.cluster.permissions import Permissions

MANY: Final = "ReadWriteMany"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
NODES_A_PAGE: Final = 250
HOW_TO_SHARE: Final = "name a class that can be shared with --storage-class, or an existing claim with --claim"

# Provisioners of disks that one machine at a time can mount; each one's documentation says so.
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


class Part(NamedTuple):
    """What a job can go without: its field and key, the kinds of its objects, and what they are for."""

    field: str
    key: str
    kinds: tuple[str, ...]
    what: str
    without: str


PARTS: Final = (
    Part(
        "report_status",
        "reportStatus",
        ("ServiceAccount", "Role", "RoleBinding"),
        "service accounts and roles",
        "status will show no steps, losses and ranks",
    ),
    Part(
        "network_policy",
        "networkPolicy",
        ("NetworkPolicy",),
        "network policies",
        "other pods of the cluster can reach the job's ports",
    ),
    Part(
        "rendezvous_secret",
        "rendezvousSecret",
        ("Secret",),
        "Secrets",
        "whoever reaches node 0 and knows the run's id can take part in the job",
    ),
)


def review(api: Api, namespace: str) -> Permissions:
    """What this user may do in a namespace."""
    return Permissions(api.ask("SelfSubjectRulesReview", spec={"namespace": namespace}))


def user(api: Api) -> str:
    """Who this user is to the API server; empty where it does not say."""
    with suppress(Forbidden, UnsupportedError):
        return str(api.ask("SelfSubjectReview").get("userInfo", {}).get("username", ""))
    return ""


def fitted(api: Api, spec: JobSpec, tell: Callable[[str], None]) -> JobSpec:
    """The job as it can be made here: what this user may make of it, with what the namespace has for it."""
    return inherit(api, permitted(api, spec, tell))


def permitted(api: Api, spec: JobSpec, tell: Callable[[str], None]) -> JobSpec:
    """The job without what this user may not make; tells what it goes without, and what for.

    Raises:
        UsageError: it must not go without that.
    """
    permissions = review(api, spec.namespace)
    missing = f"you may not create {{}} in namespace {spec.namespace!r}: "
    if spec.kind == "auto":
        operator_only = not permissions.may_apply("Job") and permissions.may_apply("PyTorchJob")
        spec = replace(spec, kind="PyTorchJob" if operator_only else "IndexedJob")
    for part in PARTS:
        given = getattr(spec.security, part.field)
        if not given or permissions.may_apply(*part.kinds):
            continue
        if given == names.REQUIRE:
            what = f"require, and you may not create {part.what} in namespace {spec.namespace!r}"
            raise UsageError(f"security.{part.key}: {what}", fix="ask for this right, or set it to true")
        tell(missing.format(part.what) + part.without)
        spec = replace(spec, security=replace(spec.security, **{part.field: False}))
    own_claim = spec.snapshots.enabled and not spec.snapshots.claim
    if own_claim and not permissions.may_apply("PersistentVolumeClaim"):
        tell(missing.format("claims") + "no snapshots, a restart begins at step 0 (--claim NAME uses an existing one)")
        spec = replace(spec, snapshots=replace(spec.snapshots, enabled=False))
    return spec


def check(api: Api, spec: JobSpec) -> None:
    """Refuse a job that this cluster could never run.

    Raises:
        UsageError: its snapshots could not be shared by its nodes, or no machine has that many GPUs.
        NotFound: the claim that it names is not there.
    """
    if spec.snapshots.enabled:
        with suppress(Forbidden):
            check_storage(api, spec)
    if spec.gpus_per_node:
        with suppress(Forbidden):
            check_gpus(api, spec)


def check_storage(api: Api, spec: JobSpec) -> None:
    """Refuse a claim, or a storage class, that the job's nodes could not share. Raises as ``check`` does."""
    name = spec.snapshots.claim or names.snapshots_name(spec.name)
    claim = api.find("PersistentVolumeClaim", spec.namespace, name)
    if claim is None and spec.snapshots.claim:
        fix = "create it, or leave --claim out: the job then makes its own"
        raise NotFound(f"snapshots.claim: no claim {name!r} in namespace {spec.namespace!r}", fix=fix)
    if claim is None:
        _check_class(spec, {one["metadata"]["name"]: one for one in api.select("StorageClass")})
    elif spec.max_nodes > 1 and MANY not in claim["spec"]["accessModes"]:
        modes = ", ".join(claim["spec"]["accessModes"])
        what = f"claim {name!r} is {modes}, but {spec.nodes} nodes need {MANY}"
        raise UsageError(f"snapshots: {what}", fix="use a claim that can be shared, or run on one node")


def _check_class(spec: JobSpec, classes: Mapping[str, Any]) -> None:
    default = next((name for name, one in classes.items() if noted(one).get(DEFAULT_CLASS) == "true"), "")
    name = spec.snapshots.storage_class or default
    if name not in classes:
        what = f"the cluster has no storage class {name!r}" if name else "the cluster has no default storage class"
        there = f"there {'are' if len(classes) > 1 else 'is'} {', '.join(classes)}" if classes else "there are none"
        raise UsageError(f"snapshots.storageClass: {what}; {there}", fix=HOW_TO_SHARE)
    if spec.max_nodes > 1 and classes[name]["provisioner"] in DISKS:
        what = f"class {name!r} makes disks ({classes[name]['provisioner']}) that one node at a time can mount"
        raise UsageError(f"snapshots.storageClass: {what}, but the job has {spec.nodes}", fix=HOW_TO_SHARE)


def check_gpus(api: Api, spec: JobSpec) -> None:
    """Refuse a job that asks for more GPUs a node than any machine has. Raises as ``check`` does."""
    most = 0
    for page in api.pages("Node", NODES_A_PAGE):
        most = max(most, *(_allocatable(node, spec.gpu_resource) for node in page), 0)
        if most >= spec.gpus_per_node:
            return
    what = f"{spec.gpus_per_node}, but no node of the cluster has more than {most} {spec.gpu_resource}"
    fix = "ask for fewer, or use --no-checks if nodes are added on demand"
    raise UsageError(f"gpusPerNode: {what}", fix=fix)


def _allocatable(node: Mapping[str, Any], resource: str) -> int:
    return int(amount(node["status"].get("allocatable", {}).get(resource, "0")))
