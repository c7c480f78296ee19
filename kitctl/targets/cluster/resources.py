"""The API paths of each kind of object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kitctl.kinds import all_kinds

Object: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """The API group, version and plural name of a kind."""

    group_version: str
    plural: str

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.group_version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str = "", sub: str = "") -> str:
        """The URL path of one object, or of all of a namespace (or of all namespaces)."""
        scope = ("namespaces", namespace) if namespace else ()
        root = "apis" if self.group else "api"
        return "/" + "/".join(filter(None, (root, self.group_version, *scope, self.plural, name, sub)))


RESOURCES: Final[Mapping[str, Resource]] = {
    "ConfigMap": Resource("v1", "configmaps"),
    "Event": Resource("v1", "events"),
    "LimitRange": Resource("v1", "limitranges"),
    "LocalQueue": Resource("kueue.x-k8s.io/v1beta1", "localqueues"),
    "NetworkPolicy": Resource("networking.k8s.io/v1", "networkpolicies"),
    "Node": Resource("v1", "nodes"),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "Pod": Resource("v1", "pods"),
    "ResourceQuota": Resource("v1", "resourcequotas"),
    "Role": Resource("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": Resource("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Secret": Resource("v1", "secrets"),
    "SelfSubjectReview": Resource("authentication.k8s.io/v1", "selfsubjectreviews"),
    "SelfSubjectRulesReview": Resource("authorization.k8s.io/v1", "selfsubjectrulesreviews"),
    "Service": Resource("v1", "services"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
    "StorageClass": Resource("storage.k8s.io/v1", "storageclasses"),
    **{kind.resource: Resource(kind.api_version, kind.plural) for kind in all_kinds().values()},
}
