"""The section ``pod`` of a job file; the docstring under a field is its documentation."""

from __future__ import annotations

from typing import Any

from kitjob.fields import CapabilityName, GivenName, LabelKey, LabelValue, ObjectName
from kitjob.record import Record


class ResourceClaim(Record):
    """A claim to devices, by Dynamic Resource Allocation; set one of ``claim`` and ``template``."""

    name: GivenName
    """Name of the claim within the pod."""
    claim: ObjectName = ""
    """An existing ResourceClaim, which all pods share."""
    template: ObjectName = ""
    """An existing ResourceClaimTemplate: each pod gets a claim of its own."""


class Pod(Record):
    """Additions to the pods. They must not overwrite anything that kitctl or another key sets: that is an error."""

    labels: dict[LabelKey, LabelValue] = {}
    """Labels of the pods."""
    annotations: dict[LabelKey, str] = {}
    """Annotations of the pods."""
    host_network: bool = False
    """Use the Kubernetes node's network, as some fabrics need."""
    capabilities: tuple[CapabilityName, ...] = ()
    """Linux capabilities of the ranks' container, such as IPC_LOCK for InfiniBand."""
    affinity: dict[str, Any] = {}
    """Affinity, as in a pod; ``scheduling.spread`` sets its podAntiAffinity."""
    topology_spread: tuple[dict[str, Any], ...] = ()
    """topologySpreadConstraints, as in a pod."""
    init_containers: tuple[dict[str, Any], ...] = ()
    """Containers that run before the ranks, as in a pod."""
    sidecars: tuple[dict[str, Any], ...] = ()
    """Containers that run next to the ranks and end with them: init containers with restartPolicy Always."""
    resource_claims: tuple[ResourceClaim, ...] = ()
    """Claims to devices, for the ranks' container."""
    metadata: dict[str, Any] = {}
    """More metadata, merged into the pod template's."""
    spec: dict[str, Any] = {}
    """More of the pod's spec, merged into the template's: maps by key; containers, env, volumes, ports and claims by
    name; mounts by path. The ranks' container is ``pytorch``."""
