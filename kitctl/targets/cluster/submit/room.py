"""Whether a namespace's quotas, and the nodes of the cluster, could ever hold a job if nothing else ran. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kitctl.base.quantity import amount, format_bytes, significant
from kitctl.render import template_values
from kitctl.spec.job_spec import JobSpec

Object: TypeAlias = dict[str, Any]
IN_BYTES: Final = ("memory", "storage", "hugepages-")  # what such a resource's name contains


def needs(spec: JobSpec, nodes: int) -> dict[str, float]:
    """The sum of the requests and limits of that many pods, by the names that quotas use."""
    found: dict[str, float] = defaultdict(float, {"pods": nodes, "count/pods": nodes})
    resources = template_values.resources(spec)
    for part in ("requests", "limits"):
        for resource, quantity in {**resources.get("limits", {}), **resources.get(part, {})}.items():
            found[f"{part}.{resource}"] += amount(quantity) * nodes
    return found | {short: found[f"requests.{short}"] for short in ("cpu", "memory")}


def lacking(quota: Object, wanted: Mapping[str, float], *, free: bool) -> Iterator[str]:
    """What a ResourceQuota has too little of; with ``free`` only what is not used counts."""
    used = quota.get("status", {}).get("used", {}) if free else {}
    for resource, hard in quota.get("status", {}).get("hard", {}).items():
        left = amount(hard) - amount(used.get(resource, "0"))
        if wanted.get(resource, 0) > left:
            there = f"{quantity(resource, left)} of {hard} left" if free else f"at most {hard}"
            yield f"{resource}: {quantity(resource, wanted[resource])} needed, {there}"


def is_of_all_pods(quota: Object) -> bool:
    """Whether a quota counts every pod of its namespace."""
    return not (quota.get("spec", {}).get("scopes") or quota.get("spec", {}).get("scopeSelector"))


def too_small(nodes: Sequence[Object], labels: Mapping[str, str], pod: Mapping[str, float]) -> str:
    """Why no node of the cluster could hold a pod, however empty; nothing if one could, or no node is known.

    Args:
        nodes: of the cluster.
        labels: that a node has to have.
        pod: what a pod requests, by resource.
    """
    if not nodes:
        return ""
    right = [one for one in nodes if labels.items() <= one["metadata"].get("labels", {}).items()]
    if not right:
        return f"no node has the labels {', '.join(f'{key}={value}' for key, value in labels.items())}"
    if any(_holds(node, pod) for node in right):
        return ""
    return f"no node{' with its labels' if labels else ''} can hold one of its pods: {_shortest(right, pod)}"


def _shortest(nodes: Iterable[Object], pod: Mapping[str, float]) -> str:
    """The resources of which no node has enough; else that no node has enough of all."""
    most: dict[str, float] = defaultdict(float)
    for node in nodes:
        for resource in pod:
            most[resource] = max(most[resource], _allocatable(node, resource))
    short = [
        f"{resource}: {quantity(resource, one)} requested, at most {quantity(resource, most[resource])} there"
        for resource, one in pod.items()
        if one > most[resource]
    ]
    return "; ".join(short) or f"none has enough of all of {', '.join(pod)}"


def _holds(node: Object, pod: Mapping[str, float]) -> bool:
    return all(one <= _allocatable(node, resource) for resource, one in pod.items())


def _allocatable(node: Object, resource: str) -> float:
    return amount(node["status"].get("allocatable", {}).get(resource, "0"))


def quantity(resource: str, number: float) -> str:
    """An amount of a resource, in words."""
    return format_bytes(number) if any(part in resource for part in IN_BYTES) else significant(number)
