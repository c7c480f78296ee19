"""The rights that kitctl makes use of: verbs by resource, for each thing that a user does. Pure.

The ClusterRoles of charts/platform have these rights and no others. Tests compare them to this table, and this table to
the requests that kitctl sends.

Why: decision 45.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from kitctl.kinds import JobKind
from kitctl.targets.cluster.connection.permissions import Permissions
from kitctl.targets.cluster.connection.resources import RESOURCES

Verbs: TypeAlias = tuple[str, ...]


class Use(NamedTuple):
    """Something that a user does, and the rights that it takes.

    Attributes:
        what: in words.
        rights: verbs by a key of ``RESOURCES``, which a slash and a subresource may follow, or by ``JOB``.
    """

    what: str
    rights: Mapping[str, Verbs]


class Right(NamedTuple):
    """A verb on a resource, which a slash and a subresource may follow, as rules of RBAC name them."""

    verb: str
    group: str
    resource: str


JOB: Final = "job"  # stands for each kind of job
APPLY: Final[Verbs] = ("get", "create", "patch")  # patch: for diff, which applies as a dry run
READ: Final[Verbs] = ("get", "list")
EXEC: Final[Mapping[str, Verbs]] = {"Pod/exec": ("get", "create")}  # which of both depends on the server's version

# In the job's namespace, for a job that does not exist yet.
SUBMITTING: Final = (
    Use("submit, diff, upload", {JOB: APPLY, "Service": APPLY, "ConfigMap": APPLY}),
    Use("show steps and ranks in status", dict.fromkeys(("ServiceAccount", "Role", "RoleBinding"), APPLY)),
    Use("keep other pods away from a job's ports", {"NetworkPolicy": APPLY}),
    Use("give a job's nodes a secret", {"Secret": APPLY}),
    Use("make a claim for snapshots", {"PersistentVolumeClaim": APPLY}),
    Use("check a job first", {"Pod": ("create",), "LimitRange": ("list",), "ResourceQuota": ("list",)}),
    Use("start nodes only together", {key: ("list", *APPLY) for key in RESOURCES if key.startswith("PodGroup.")}),
)
# In its namespace, once it exists.
AFTERWARDS: Final = (
    Use("list, status, wait", {JOB: READ, "Pod": READ, "ConfigMap": READ, "Event": ("list",)}),
    Use("logs", {"Pod": READ, "Pod/log": ("get",)}),
    Use("suspend, resume, restart, scale, cancel", {JOB: ("get", "patch")}),
    Use("delete", {JOB: ("get", "delete"), "PersistentVolumeClaim": ("get", "delete")}),
    Use("snapshots, audit, logs of deleted pods", {"Pod": ("get", "create", "delete"), **EXEC}),
    Use("drill", {"Pod": ("list", "delete"), **EXEC}),
    Use("stacks, top, exec, profile", {"Pod": ("list",), **EXEC}),
    Use("port-forward", {"Pod": ("list",), "Pod/portforward": ("get", "create")}),
)
# In its namespace, if it waits in a queue of Kueue.
QUEUEING: Final = (
    Use("submit to a queue", {"LocalQueue": READ}),
    Use("show a job's place in its queue", {"Workload": ("list",), "PendingWorkloads/pendingworkloads": ("get",)}),
    Use("suspend, resume, restart, cancel in a queue", {"Workload": ("get", "list", "patch", "delete")}),
)
# What a job's pods do themselves, where an administrator lets them.
OF_PODS: Final = (Use("drain a node by its taints", {"Node": ("get",)}),)
# In the whole cluster; what a user may not read is not checked.
CLUSTER_WIDE: Final = (
    Use("check GPUs and images", {"Node": ("list",)}),
    Use("check storage", {"StorageClass": ("list",)}),
    Use("check a TrainJob's runtime", {"ClusterTrainingRuntime": ("get",)}),
    Use("check quota and priority", {"ClusterQueue": READ, "Cohort": ("get",), "WorkloadPriorityClass": READ}),
)

# Used where a user has it, only to word an error: no role gives it.
WORDING: Final = (Use("tell that a namespace does not exist", {"Namespace": ("get",)}),)


def of(uses: Iterable[Use], kinds: Iterable[JobKind]) -> set[Right]:
    """All rights that these uses take, for jobs of these kinds."""
    jobs = tuple(kind.key for kind in kinds)
    return {right for use in uses for right in _of_use(use, jobs)}


def lacking(allowed: Permissions, uses: Iterable[Use], kind: JobKind) -> Iterator[str]:
    """What a user cannot do with a job of a kind, and the rights that they lack for it, in a line for each use."""
    for use in uses:
        missing = sorted(f"{right.verb} {right.resource}" for right in of([use], [kind]) if not allowed.has(*right))
        if missing:
            yield f"{use.what}: you may not {', '.join(missing)}"


def _of_use(use: Use, jobs: Iterable[str]) -> Iterator[Right]:
    for key, verbs in use.rights.items():
        kind, _, sub = key.partition("/")
        for resource in (RESOURCES[one] for one in (jobs if kind == JOB else (kind,))):
            name = f"{resource.plural}/{sub}" if sub else resource.plural
            yield from (Right(verb, resource.group, name) for verb in verbs)
