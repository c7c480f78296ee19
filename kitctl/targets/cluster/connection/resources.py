"""The API paths of each kind of object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kitctl.kinds import all_kinds

Object: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """The API group, version and plural name of a kind.

    An add-on's versions differ between clusters: ``versions`` are those that kitctl knows, the preferred one first, and
    ``Api`` takes the first that the server has. Empty: every server has that of ``group_version``.
    """

    group_version: str
    plural: str
    versions: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.group_version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str = "", sub: str = "") -> str:
        """The URL path of one object, or of all of a namespace (or of all namespaces)."""
        scope = ("namespaces", namespace) if namespace else ()
        root = "apis" if self.group else "api"
        return "/" + "/".join(filter(None, (root, self.group_version, *scope, self.plural, name, sub)))

    def typed(self, thing: Object, key: str) -> Object:
        """An object with its API version and kind, which the items of a list lack."""
        return thing | {"apiVersion": self.group_version, "kind": key.partition(".")[0]}


KUEUE_VERSIONS: Final = ("v1beta2", "v1beta1")  # what is read and changed of an object is the same in both


def _of_kueue(plural: str, group: str = "kueue.x-k8s.io") -> Resource:
    return Resource(f"{group}/{KUEUE_VERSIONS[0]}", plural, KUEUE_VERSIONS)


RESOURCES: Final[Mapping[str, Resource]] = {
    "ClusterQueue": _of_kueue("clusterqueues"),
    "Cohort": _of_kueue("cohorts"),
    "ConfigMap": Resource("v1", "configmaps"),
    "Event": Resource("v1", "events"),
    "LimitRange": Resource("v1", "limitranges"),
    "LocalQueue": _of_kueue("localqueues"),
    "Namespace": Resource("v1", "namespaces"),
    "NetworkPolicy": Resource("networking.k8s.io/v1", "networkpolicies"),
    "Node": Resource("v1", "nodes"),
    "PendingWorkloads": _of_kueue("localqueues", "visibility.kueue.x-k8s.io"),
    "PodGroup.scheduling.volcano.sh": Resource("scheduling.volcano.sh/v1beta1", "podgroups"),
    "PodGroup.scheduling.x-k8s.io": Resource("scheduling.x-k8s.io/v1alpha1", "podgroups"),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "Pod": Resource("v1", "pods"),
    "ResourceQuota": Resource("v1", "resourcequotas"),
    "Role": Resource("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Resource("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Secret": Resource("v1", "secrets"),
    "SelfSubjectAccessReview": Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews"),
    "SelfSubjectReview": Resource("authentication.k8s.io/v1", "selfsubjectreviews"),
    "SelfSubjectRulesReview": Resource("authorization.k8s.io/v1", "selfsubjectrulesreviews"),
    "Service": Resource("v1", "services"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
    "StorageClass": Resource("storage.k8s.io/v1", "storageclasses"),
    "Workload": _of_kueue("workloads"),
    "WorkloadPriorityClass": _of_kueue("workloadpriorityclasses"),
    **{kind.key: Resource(kind.api_version, kind.plural) for kind in all_kinds().values()},
    **{
        needed.resource: Resource(needed.api_version, needed.plural)
        for needed in (kind.prerequisite for kind in all_kinds().values())
        if needed
    },
}


def key_of(thing: Object) -> str:
    """An object's key in ``RESOURCES``: its kind, with the API group if other groups have such a kind, too."""
    kind: str = thing["kind"]
    full = f"{kind}.{thing.get('apiVersion', '').rpartition('/')[0]}"
    return full if full in RESOURCES else kind
