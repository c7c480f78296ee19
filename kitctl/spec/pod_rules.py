"""The checks of a job's ``pod``: fields that would break kitctl, and the Pod Security level that it needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kitctl.base import names
from kitctl.base.errors import Problem
from kitjob import variables

if TYPE_CHECKING:
    from kitjob.job_keys import JobKeys
    from kitjob.pod_section import Pod

_KIT: Final = "is reserved by kitctl"
_POD_FIELDS: Final = ("restartPolicy", "hostname", "subdomain", "setHostnameAsFQDN", "activeDeadlineSeconds")
_SHARED: Final = "tini has to be process 1 of the ranks' container, and other containers would see the ranks' variables"
_HOOKS: Final = "a hook of the ranks' container runs next to the agent, and takes from its grace period"
_CONTAINER_FIELDS: Final = ("command", "args", "workingDir", "terminationMessagePath", "terminationMessagePolicy")
# Fields of a pod's spec that take part of the node's own; Pod Security allows them at level privileged alone.
_HOST_FIELDS: Final = ("hostNetwork", "hostPID", "hostIPC")
# Capabilities that may be added at level baseline: the Pod Security Standards of Kubernetes.
_BASELINE: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip


def problems(spec: JobKeys) -> Iterator[Problem]:
    """Additions that would break kitctl, whatever the template contains."""
    yield from _pod_fields(spec.pod.spec)
    yield from _containers(spec.pod)
    for number, claim in enumerate(spec.pod.resource_claims):
        if bool(claim.claim) == bool(claim.template):
            yield Problem.of(f"pod.resourceClaims[{number}]", "needs one source", "set claim or template")
    for kind, containers in (("initContainers", spec.pod.init_containers), ("sidecars", spec.pod.sidecars)):
        for number, container in enumerate(containers):
            if not (container.get("name") and container.get("image")):
                yield Problem.of(f"pod.{kind}[{number}]", "needs a name and an image", "set name and image")


def _pod_fields(pod: Mapping[str, Any]) -> Iterator[Problem]:
    for field in _POD_FIELDS:
        if field in pod:
            yield Problem.of(f"pod.spec.{field}", _KIT, "remove it")
    if pod.get("shareProcessNamespace"):
        yield Problem.of("pod.spec.shareProcessNamespace", _SHARED, "remove it; kubectl debug --target sees the ranks")
    if machine := pod.get("nodeName"):
        fix = f"scheduling.nodeSelector: {{kubernetes.io/hostname: {machine}}}"
        yield Problem.of(
            "pod.spec.nodeName", "binds all pods to one machine, whether it is there and has room or not", fix
        )
    if "ephemeralContainers" in pod:
        yield Problem.of("pod.spec.ephemeralContainers", "are of a running pod only", "use kubectl debug")


def _containers(pod: Pod) -> Iterator[Problem]:
    containers = pod.spec.get("containers", [])
    if not isinstance(containers, list):
        yield Problem.of("pod.spec.containers", "is not a list", f"begin with - name: {names.CONTAINER}")
        return
    for container in containers:
        name = container.get("name") if isinstance(container, Mapping) else None
        if name != names.CONTAINER:
            fix = f"the ranks' container is {names.CONTAINER}; add others as pod.sidecars or pod.initContainers"
            yield Problem.of(f"pod.spec.containers[{name}]", "a job waits for it, and it may never end", fix)
            continue
        where = f"pod.spec.containers[{name}]"
        for field in _CONTAINER_FIELDS:
            if field in container:
                yield Problem.of(f"{where}.{field}", _KIT, "remove it; command and args are keys of the job")
        if container.get("lifecycle"):
            fix = "use pod.initContainers for what comes before; a script is told of its end by SIGTERM"
            yield Problem.of(f"{where}.lifecycle", _HOOKS, fix)
        for variable in _items(container.get("env")):
            given = str(variable.get("name", ""))
            if variables.is_reserved(given):
                yield Problem.of(f"{where}.env[{given}]", "is set by the launcher for every rank", "use another name")


def privileges(pod: Mapping[str, Any]) -> list[str]:
    """Fields of a pod's spec that the Pod Security levels ``baseline`` and ``restricted`` forbid, in words."""
    found = [field for field in _HOST_FIELDS if pod.get(field)]
    found += [f"volume {one.get('name')} of the host" for one in _items(pod.get("volumes")) if "hostPath" in one]
    for container in [*_items(pod.get("initContainers")), *_items(pod.get("containers"))]:
        security, name = container.get("securityContext") or {}, container.get("name")
        added = (security.get("capabilities") or {}).get("add") or []
        found += [f"capability {one} of {name}" for one in added if one not in _BASELINE]
        found += [f"privileged container {name}"] if security.get("privileged") else []
        found += [f"host port of {name}" for port in _items(container.get("ports")) if port.get("hostPort")]
    return found


def _items(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; empty for other values, which the API server rejects."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
