"""The environment of a node: the part that follows from the job alone, whichever target runs it, and a pod's. Pure."""

from __future__ import annotations

from typing import Any

import kitctl
from kitctl import names
from kitctl.quantity import seconds
from kitctl.spec import JobSpec


def launcher(spec: JobSpec) -> dict[str, str]:
    """What torchrun reads. Kubeflow's operator sets these itself, from ``elasticPolicy``."""
    return {
        names.PET_NNODES: str(spec.nodes),
        names.PET_NPROC_PER_NODE: str(spec.ranks_per_node),
        names.PET_RDZV_BACKEND: "c10d",  # the only one that a plain torchrun knows of ours
        names.PET_RDZV_CONF: names.rendezvous_conf(spec.rendezvous.join_timeout, spec.rendezvous.last_call),
        names.PET_MAX_RESTARTS: str(spec.policy.max_restarts),
        "PYTHONUNBUFFERED": "1",
    }


def declared(spec: JobSpec) -> dict[str, str]:
    """What kittrain.agent and the ranks read; a variable that would be empty is left out."""
    variables = {
        names.KIT_JOB: spec.name,
        names.KIT_NAMESPACE: spec.namespace,
        names.KIT_GPUS_PER_NODE: str(spec.gpus_per_node),
        names.KIT_BACKEND: spec.backend,
        names.KIT_RENDEZVOUS: "" if spec.rendezvous.backend == "hub" else spec.rendezvous.backend,
        names.KIT_INTERFACE: spec.nccl.interface,
        names.KIT_GRACE_SECONDS: str(spec.grace_seconds),
        names.KIT_VIRTUAL_RANKS: str(spec.virtual_ranks or ""),
        names.KIT_HANG_TIMEOUT: _hang_timeout(spec.policy.hang_timeout),
        names.KIT_SECRET_REQUIRED: "1" if spec.security.rendezvous_secret == names.REQUIRE else "",
        names.KIT_VERSION: kitctl.__version__,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # rank 0's store must not be the rendezvous' own
        "NCCL_DEBUG": spec.nccl.debug,
        "NCCL_IB_HCA": spec.nccl.hca,
        "NCCL_IB_DISABLE": "1" if spec.nccl.ib_disable else "",
        "NCCL_P2P_DISABLE": "1" if spec.nccl.p2p_disable else "",
    }
    return {name: value for name, value in (variables | _snapshots(spec)).items() if value}


def has_secret(spec: JobSpec) -> bool:
    """Whether the nodes prove to each other that they know the run's secret; torch's own rendezvous cannot."""
    return bool(spec.security.rendezvous_secret) and spec.rendezvous.backend == "hub"


def of_pod(spec: JobSpec, kind: str, *, standalone: bool) -> list[dict[str, Any]]:
    """A pod's variables as Kubernetes writes them: each once; the user's own win over ours.

    Args:
        spec: the job.
        kind: of the object.
        standalone: whether it is applied without kitctl: pods then ask for what submit would tell them.
    """
    texts = declared(spec) | _places(spec, kind) | (_asked(spec, kind) if standalone else {}) | spec.env
    if kind == "IndexedJob":
        texts = launcher(spec) | texts
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _fields(kind).items()),
        *({"name": name, "value": literal(text)} for name, text in texts.items() if name not in spec.secrets),
        *({"name": name, "valueFrom": _secret(reference)} for name, reference in spec.secrets.items()),
    ]


def rendezvous_host(spec: JobSpec, kind: str) -> str:
    """DNS name of node 0: a host name under the job's Service, or a Service of its own from Kubeflow's operator."""
    node = f"{spec.name}-worker-0" if kind == "PyTorchJob" else f"{spec.name}-0.{spec.name}"
    return f"{node}.{spec.namespace}.svc.{spec.rendezvous.cluster_domain}"


def literal(text: str) -> str:
    """Text that Kubernetes hands on as it is: it would expand ``$(NAME)``, and takes ``$$`` for ``$``."""
    return text.replace("$", "$$")


def _hang_timeout(text: str) -> str:
    """What the agent does anyway is not said."""
    return {"auto": "", "off": "off"}[text] if text in {"auto", "off"} else str(seconds(text))


def _snapshots(spec: JobSpec) -> dict[str, str]:
    if not spec.snapshots.enabled:
        return {}
    return {
        names.KIT_SNAPSHOT_EVERY: str(spec.snapshots.every_steps),
        names.KIT_SNAPSHOT_SECONDS: str(seconds(spec.snapshots.every)) if spec.snapshots.every else "",
        names.KIT_SNAPSHOT_KEEP: str(spec.snapshots.keep),
        names.KIT_SNAPSHOT_KEEP_EVERY: str(spec.snapshots.keep_every or ""),
        names.KIT_SNAPSHOT_KEEP_BEST: spec.snapshots.keep_best,
        names.KIT_SNAPSHOT_COPY: "" if spec.snapshots.copy else "0",
        names.KIT_MODEL_FILE: "" if spec.snapshots.model_file else "0",
        names.KIT_MEMORY_EVERY: str(spec.snapshots.memory_every_steps or ""),
        names.KIT_RESUME: "state" if spec.resume == "state" else "1" if spec.resume else "",
        names.KIT_FROM_SCRATCH: "1" if spec.from_scratch else "",
    }


def _fields(kind: str) -> dict[str, str]:
    """What only the pod itself knows, from the downward API."""
    common = {
        names.PET_LOCAL_ADDR: "status.podIP",
        names.KIT_POD: "metadata.name",
        names.KIT_NODE_NAME: "spec.nodeName",
    }
    if kind == "PyTorchJob":
        return common | {names.KIT_NODE_INDEX: f"metadata.labels['{names.LABEL_REPLICA_INDEX}']"}
    return common | {
        names.KIT_NODE_INDEX: f"metadata.annotations['{names.ANNOTATION_JOB_INDEX}']",
        names.PET_RDZV_ID: f"metadata.labels['{names.LABEL_JOB_UID}']",
    }


def _places(spec: JobSpec, kind: str) -> dict[str, str]:
    """Where things are, on a cluster."""
    places = {names.KIT_TERMINATION_LOG: names.TERMINATION_LOG, names.KIT_EXIT_CODES: kind}
    if kind == "IndexedJob":
        places[names.PET_RDZV_ENDPOINT] = f"{rendezvous_host(spec, kind)}:{spec.rendezvous.port}"
    if spec.snapshots.enabled:
        places[names.KIT_SNAPSHOT_DIR] = spec.snapshots.path
        places[names.KIT_LOG_DIR] = f"{spec.snapshots.path}/logs"
    if has_secret(spec):
        places[names.KIT_SECRET_FILE] = f"{names.SECRET_PATH}/{names.SECRET_KEY}"
    if spec.security.report_status:
        places[names.KIT_REPORT] = f"configmap:{names.status_name(spec.name)}"
    return places


def _asked(spec: JobSpec, kind: str) -> dict[str, str]:
    """What pods ask the API server for."""
    asked = {}
    if has_secret(spec) and spec.security.report_status:
        asked[names.KIT_SECRET_NAME] = names.secret_name(spec.name)
    if kind == "PyTorchJob":
        asked[names.KIT_OWNER] = f"{names.PYTORCHJOBS}/{spec.name}"
    return asked


def _secret(reference: str) -> dict[str, Any]:
    name, _, key = reference.partition("/")
    return {"secretKeyRef": {"name": name, "key": key}}
