"""Whether a ClusterQueue of Kueue could ever admit a job, if nothing else ran. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kitctl.base.quantity import amount, format_bytes

Object: TypeAlias = dict[str, Any]
IN_BYTES: Final = frozenset({"memory", "ephemeral-storage", "storage"})


def pod_requests(template: Object) -> dict[str, float]:
    """What one pod requests, as the scheduler and Kueue count it; a limit without a request is one."""
    spec = template["spec"]
    running = Counter[str]()
    for container in spec["containers"]:
        running.update(_requests(container))
    starting, sidecars = Counter[str](), Counter[str]()
    for container in spec.get("initContainers", ()):
        if container.get("restartPolicy") == "Always":
            sidecars.update(_requests(container))
        else:
            starting |= sidecars + Counter(_requests(container))
    overhead = {name: amount(str(one)) for name, one in spec.get("overhead", {}).items()}
    return dict(((running + sidecars) | starting) + Counter(overhead))


def obstacles(queue: Object, others: Sequence[Object] | None, pod: Mapping[str, float], nodes: int) -> Iterator[str]:
    """Why a ClusterQueue can never admit that many pods at once; none: it might.

    Args:
        queue: the ClusterQueue.
        others: the other ones of its cohort, from which it may borrow; None: they are not known.
        pod: what each pod requests.
        nodes: the number of pods.
    """
    groups = queue["spec"].get("resourceGroups") or ()
    covered = {name for group in groups for name in group["coveredResources"]}
    for name in sorted({name for name, one in pod.items() if one} - covered):
        yield f"it has no quota of {name}"
    needs = {name: one * nodes for name, one in {**pod, "pods": 1}.items() if name in covered and one}
    for group in groups:
        most = [_most(queue, others, flavor) for flavor in group["flavors"]]
        wanted = {name: one for name, one in needs.items() if name in group["coveredResources"]}
        if not any(all(one <= flavor.get(name, 0) for name, one in wanted.items()) for flavor in most):
            yield "; ".join(_too_little(wanted, most))


def _too_little(wanted: Mapping[str, float], most: Sequence[Mapping[str, float]]) -> Iterator[str]:
    """The resources that are short, in the flavor that has most of each; else that no single flavor is sufficient."""
    best = {name: max((flavor.get(name, 0.0) for flavor in most), default=0.0) for name in wanted}
    short = [name for name, one in wanted.items() if one > best[name]]
    for name in short:
        yield f"{name}: {_text(name, wanted[name])} needed, at most {_text(name, best[name])}"
    if not short:
        yield f"no flavor has enough of all of {', '.join(wanted)}"


def _most(queue: Object, others: Sequence[Object] | None, flavor: Object) -> dict[str, float]:
    """The most of each resource that a queue can have of a flavor: its own quota, and what it may borrow."""
    return {
        one["name"]: _number(one["nominalQuota"]) + _borrowable(queue, others, flavor["name"], one)
        for one in flavor["resources"]
    }


def _borrowable(queue: Object, others: Sequence[Object] | None, flavor: str, quota: Object) -> float:
    if not cohort_of(queue):
        return 0.0
    limit = _number(quota["borrowingLimit"]) if "borrowingLimit" in quota else math.inf
    if others is None:
        return limit
    return min(limit, sum(_lendable(other, flavor, quota["name"]) for other in others))


def _lendable(queue: Object, flavor: str, resource: str) -> float:
    """What others may borrow of it."""
    return sum(
        _number(quota.get("lendingLimit", quota["nominalQuota"]))
        for group in queue["spec"].get("resourceGroups") or ()
        for one in group["flavors"]
        if one["name"] == flavor
        for quota in one["resources"]
        if quota["name"] == resource
    )


def cohort_of(queue: Object) -> str:
    """The cohort of a ClusterQueue; empty: none."""
    return str(queue["spec"].get("cohortName") or queue["spec"].get("cohort") or "")


def _requests(container: Object) -> dict[str, float]:
    resources = container.get("resources", {})
    both = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {name: _number(one) for name, one in both.items()}


def _number(quantity: str | float) -> float:
    return amount(str(quantity))


def _text(resource: str, number: float) -> str:
    return format_bytes(number) if resource in IN_BYTES else f"{number:g}"
