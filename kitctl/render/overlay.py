"""A job's additions to its pods, merged into the rendered pod template. Pure.

Maps are merged; lists of objects with a name (containers, volumes, env, ports, resource claims) and mounts (by path)
are merged item by item; anything else is added. Nothing is overwritten: a field that kitctl or another key of the job
sets is refused, so an overlay cannot break the agent, the rendezvous or the snapshots.

Why: decision 40.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kitctl.base import names
from kitctl.base.errors import Problem, SpecError
from kitctl.spec import pod_rules
from kitctl.spec.job_spec import JobSpec
from kitjob.pod_section import Pod

KEYED: Final = {  # lists that are merged by a key of their items
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "ports": "name",
    "resourceClaims": "name",
    "claims": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
}
# Its last lines in the pod's status, so that a container that fails says why.
SAYS_WHY: Final = {"terminationMessagePolicy": "FallbackToLogsOnError"}
_MAIN: Final = f"pod.spec.containers[{names.CONTAINER}]"
OWNERS: Final = {  # which key of the job sets a field of the template, by the beginning of the path
    "pod.metadata.labels": "labels, or to kitctl; choose another label",
    "pod.spec.terminationGracePeriodSeconds": "policy.gracePeriod",
    "pod.spec.priorityClassName": "scheduling.priorityClass",
    "pod.spec.schedulerName": "scheduling.scheduler",
    "pod.spec.nodeSelector": "scheduling.nodeSelector",
    "pod.spec.tolerations": "scheduling.tolerations",
    "pod.spec.affinity.podAntiAffinity": "scheduling.spread",
    "pod.spec.serviceAccountName": "security.serviceAccount",
    "pod.spec.automountServiceAccountToken": "security.reportStatus",
    "pod.spec.securityContext": "security",
    "pod.spec.imagePullSecrets": "imagePullSecrets",
    "pod.spec.volumes": "volumes",
    f"{_MAIN}.image": "image",
    f"{_MAIN}.env": "env",
    f"{_MAIN}.envFrom": "envFrom",
    f"{_MAIN}.resources": "resources",
    f"{_MAIN}.securityContext": "security",
    f"{_MAIN}.volumeMounts": "volumes",
}


def of_spec(spec: JobSpec) -> dict[str, Any]:
    """A job's additions to its pods, as a partial pod template.

    Raises:
        SpecError: ``pod.metadata`` or ``pod.spec`` has a field that another key of ``pod`` sets.
    """
    given = _filled({"metadata": spec.pod.metadata, "spec": spec.pod.spec})
    return apply(_plain(spec.pod), given)


def warning(spec: JobSpec) -> str:
    """Fields of a job's pods that namespaces with a Pod Security level reject; empty: none."""
    of_host = [{"name": volume.mount_path, "hostPath": {}} for volume in spec.volumes if volume.host_path]
    pod = of_spec(spec).get("spec", {})
    if not (found := pod_rules.privileges(pod | {"volumes": [*pod.get("volumes", ()), *of_host]})):
        return ""
    level = "pod-security.kubernetes.io/enforce: privileged"
    return f"the pods need a namespace with the label {level}, because of: {', '.join(found)}"


def apply(template: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template with an overlay.

    Raises:
        SpecError: with one line for every field that is set already.
    """
    merged = copy.deepcopy(dict(template))
    if problems := list(_merge_into(merged, overlay, "pod")):
        raise SpecError(problems)
    return merged


def _says_why(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """With its last words as why it has failed, unless the job says where that is."""
    return {**container, **SAYS_WHY} if SAYS_WHY.keys().isdisjoint(container) else container


def _plain(pod: Pod) -> dict[str, Any]:
    """The fields that the plain keys stand for."""
    claims = [
        _filled({"name": one.name, "resourceClaimName": one.claim, "resourceClaimTemplateName": one.template})
        for one in pod.resource_claims
    ]
    main = {
        "resources": _filled({"claims": [{"name": one.name} for one in pod.resource_claims]}),
        "securityContext": _filled({"capabilities": _filled({"add": list(pod.capabilities)})}),
    }
    spec = {
        "hostNetwork": pod.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if pod.host_network else "",
        "affinity": pod.affinity,
        "topologySpreadConstraints": list(pod.topology_spread),
        "initContainers": [
            *map(_says_why, pod.init_containers),
            *({**_says_why(one), "restartPolicy": "Always"} for one in pod.sidecars),
        ],
        "resourceClaims": claims,
        "containers": [{"name": names.CONTAINER, **_filled(main)}] if _filled(main) else [],
    }
    metadata = _filled({"labels": pod.labels, "annotations": pod.annotations})
    return _filled({"metadata": metadata, "spec": _filled(spec)})


def _filled(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty values."""
    return {key: value for key, value in mapping.items() if value}


def _merge_into(target: dict[str, Any], above: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Add ``above`` to a mapping; yields a problem for each field that exists already."""
    for key, value in above.items():
        where = f"{path}.{key}"
        if key not in target:
            target[key] = copy.deepcopy(value)
        elif isinstance(target[key], dict) and isinstance(value, Mapping):
            yield from _merge_into(target[key], value, where)
        elif isinstance(target[key], list) and isinstance(value, list) and key in KEYED:
            yield from _merge_items(target[key], value, KEYED[key], where)
        else:
            yield conflict(where)


def _merge_items(target: list[Any], above: list[Any], key: str, path: str) -> Iterator[Problem]:
    known = {item.get(key): item for item in target if isinstance(item, dict)}
    for item in above:
        name = item.get(key) if isinstance(item, Mapping) else None
        if name is None:
            yield Problem.of(path, f"an item has no {key}", f"give it a {key}")
        elif name not in known:
            known[name] = copy.deepcopy(dict(item))
            target.append(known[name])
        else:
            rest = {field: value for field, value in item.items() if field != key}
            where = f"{path}[{name}]"
            yield from _merge_into(known[name], rest, where) if rest else [conflict(where)]


def conflict(path: str) -> Problem:
    """The problem of a field that is already set."""
    owner = next((owner for start, owner in OWNERS.items() if path.startswith(start)), "")
    if not owner:
        return Problem.of(path, "is reserved by kitctl", "remove it")
    return Problem.of(path, "is set already", f"remove it; it belongs to {owner}")
