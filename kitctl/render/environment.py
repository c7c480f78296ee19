"""The environment of a node: the variables of every target, the document in ``KIT_SPEC``, and a pod's. Pure.

The document carries what follows from the job; what only a pod knows is in variables. ``kittrain.job.job_spec`` reads
it.

Why: decision 35.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

import kitctl
from kitctl.base import names
from kitctl.base.quantity import seconds
from kitctl.code.code_tree import NO_SOURCES, SentFolder, Sources
from kitctl.kinds import JobKind
from kitctl.spec.job_spec import JobSpec

SPEC_VERSION: Final = 1  # of the document's format; raised when a field changes its meaning
# The value of KIT_EXIT_CODES: an agent from before KIT_SPEC refuses it and prints it; a newer one ignores it.
TOO_OLD: Final = "the image's kittrain is older than kitctl: rebuild the image, or name another with --image"
FORMER: Final = {"report": "KIT_REPORT", "log_dir": "KIT_LOG_DIR"}  # variables before KIT_SPEC, by field


def torchrun_env(spec: JobSpec) -> dict[str, str]:
    """Torchrun's variables. Kubeflow's operator sets these itself, from ``elasticPolicy``."""
    return {
        names.PET_NNODES: str(spec.nodes),
        names.PET_NPROC_PER_NODE: str(spec.ranks_per_node),
        names.PET_RDZV_BACKEND: "c10d",  # plain torchrun does not know the hub
        names.PET_RDZV_CONF: names.rendezvous_conf(spec.rendezvous.join_timeout, spec.rendezvous.last_call),
        names.PET_MAX_RESTARTS: str(spec.policy.max_restarts),
        "PYTHONUNBUFFERED": "1",
    }


def common_env(spec: JobSpec) -> dict[str, str]:
    """Variables for NCCL, torch and former agents on every target; empty ones are omitted."""
    found = {
        names.KIT_EXIT_CODES: TOO_OLD,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # rank 0's store must not be the rendezvous' own
        "NCCL_DEBUG": spec.nccl.debug,
        "NCCL_IB_HCA": spec.nccl.hca,
        "NCCL_IB_DISABLE": "1" if spec.nccl.ib_disable else "",
        "NCCL_P2P_DISABLE": "1" if spec.nccl.p2p_disable else "",
    }
    return {name: value for name, value in found.items() if value}


def agent_spec(spec: JobSpec, exit_codes: Mapping[str, int], target: Mapping[str, str | int]) -> str:
    """The document that agents and ranks read, as JSON; ``charts/training-job/templates/_environment.tpl`` is its twin.

    Args:
        spec: the job.
        exit_codes: the agent's exit codes by outcome.
        target: the fields that depend on the target: rendezvous_host and rendezvous_port; if there is one, log_dir,
            report, secret_file, secret_name and owner; in pods restart_in_place; those of ``code_fields`` with a
            folder, and of ``requirement_fields`` with requirements.
    """
    document = {
        "version": SPEC_VERSION,
        "kitctl_version": kitctl.__version__,
        "job": spec.name,
        "namespace": spec.namespace,
        "min_nodes": spec.min_nodes,
        "max_nodes": spec.max_nodes,
        "procs_per_node": spec.ranks_per_node,
        "gpus_per_node": spec.gpus_per_node,
        "backend": spec.backend,
        "interface": spec.nccl.interface,
        "rendezvous": spec.rendezvous.backend,
        "rendezvous_conf": rendezvous_conf(spec),
        "secret_required": spec.security.rendezvous_secret == names.REQUIRE,
        "exit_codes": exit_codes,
        "max_restarts": spec.policy.max_restarts,
        "grace_seconds": spec.grace_seconds,
        "hang_timeout": _hang_timeout(spec.policy.hang_timeout),
        "virtual_ranks": spec.virtual_ranks,
        **({"procs_by_node": spec.ranks_by_node} if spec.ranks_by_node else {}),
        **({"outputs": spec.outputs} if spec.outputs else {}),
        **(_snapshots(spec) if spec.snapshots.enabled else {}),
        **target,
    }
    return msgspec.json.encode(document).decode()


def read_agent_spec(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """The document of an existing job's container, by field; empty if it cannot be read.

    Args:
        environ: the container's variables as the API server has them. A job that a former release submitted has a
            variable for each field: of those, the ones in FORMER.
    """
    text = environ.get(names.KIT_SPEC)
    if text is None:
        return {field: environ[name] for field, name in FORMER.items() if name in environ}
    try:
        return msgspec.json.decode(text.replace("$$", "$"), type=dict[str, Any])
    except msgspec.DecodeError:  # not written by kitctl
        return {}


def has_secret(spec: JobSpec) -> bool:
    """Whether nodes authenticate to each other with the run's secret; torch's own rendezvous cannot."""
    return bool(spec.security.rendezvous_secret) and spec.rendezvous.backend == "hub"


def pod_env(spec: JobSpec, kind: JobKind, sources: Sources = NO_SOURCES, *, standalone: bool) -> list[dict[str, Any]]:
    """A pod's variables in Kubernetes' form, each once; the user's own win over ours.

    Args:
        spec: the job.
        kind: of the object.
        sources: what is sent with it.
        standalone: the object is applied without kitctl, so pods ask the API server for what submit would give them.
    """
    fields = _cluster_fields(spec, kind) | (_standalone_fields(spec, kind) if standalone else {})
    fields |= _code(sources.workdir) if sources.workdir else {}
    fields |= _requirements(sources.requirements) if sources.requirements else {}
    document = {names.KIT_SPEC: agent_spec(spec, kind.exit_codes, fields)}
    texts = common_env(spec) | document | _shared_env(spec, kind) | spec.env
    if not kind.sets_torchrun_env:
        texts = torchrun_env(spec) | texts
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _downward_api(kind).items()),
        *({"name": name, "value": escape_var_refs(text)} for name, text in texts.items() if name not in spec.secrets),
        *({"name": name, "valueFrom": _secret(reference)} for name, reference in spec.secrets.items()),
    ]


def rendezvous_host(spec: JobSpec, kind: JobKind) -> str:
    """DNS name of node 0."""
    return f"{kind.dns_name(spec.name, 0)}.{spec.namespace}.svc.{spec.rendezvous.cluster_domain}"


def escape_var_refs(text: str) -> str:
    """Text with each ``$`` doubled: Kubernetes expands ``$(NAME)`` and turns ``$$`` into ``$``."""
    return text.replace("$", "$$")


def rendezvous_conf(spec: JobSpec) -> dict[str, str]:
    """PET_RDZV_CONF by key."""
    conf = names.rendezvous_conf(spec.rendezvous.join_timeout, spec.rendezvous.last_call)
    return dict(pair.split("=") for pair in conf.split(","))


def _hang_timeout(text: str) -> str | int:
    return text if text in {"auto", "off"} else seconds(text)


def _snapshots(spec: JobSpec) -> dict[str, Any]:
    snapshots = spec.snapshots
    return {
        "snapshot_every": snapshots.every_steps,
        "snapshot_seconds": seconds(snapshots.every) if snapshots.every else None,
        "snapshot_keep": snapshots.keep,
        "snapshot_keep_every": snapshots.keep_every,
        "snapshot_keep_best": snapshots.keep_best,
        "snapshot_copy": snapshots.copy,
        "model_file": snapshots.model_file,
        "memory_every": snapshots.memory_every_steps,
        "resume": spec.resume,
        "from_scratch": spec.from_scratch,
    }


def _downward_api(kind: JobKind) -> dict[str, str]:
    """Values that only the pod itself knows, from the downward API."""
    return {
        names.PET_LOCAL_ADDR: "status.podIP",
        names.KIT_POD: "metadata.name",
        names.KIT_NODE_NAME: "spec.nodeName",
        **kind.downward_env,
    }


def _shared_env(spec: JobSpec, kind: JobKind) -> dict[str, str]:
    """What more than the agent reads: scripts, plain torchrun, and the agent where it cannot read the document."""
    paths = {names.KIT_TERMINATION_LOG: names.TERMINATION_LOG}
    if not kind.sets_torchrun_env:
        paths[names.PET_RDZV_ENDPOINT] = f"{rendezvous_host(spec, kind)}:{spec.rendezvous.port}"
    if spec.snapshots.enabled:
        paths[names.KIT_SNAPSHOT_DIR] = spec.snapshots.path
    return paths


def _cluster_fields(spec: JobSpec, kind: JobKind) -> dict[str, str | int]:
    """The document's fields that depend on the target, for pods."""
    return {
        "rendezvous_host": rendezvous_host(spec, kind),
        "rendezvous_port": spec.rendezvous.port,
        "log_dir": f"{spec.snapshots.path}/logs" if spec.snapshots.enabled else "",
        "report": f"configmap:{names.status_name(spec.name)}" if spec.security.report_status else "",
        "secret_file": f"{names.SECRET_PATH}/{names.SECRET_KEY}" if has_secret(spec) else "",
        "restart_in_place": True,
    }


def code_fields(digest: str, store: str, workdir: str) -> dict[str, str]:
    """The document's fields for a job with a folder: which tree, where it is stored, and where it is unpacked."""
    return {"code": digest, "code_store": store, "workdir": workdir}


def requirement_fields(digest: str, store: str, cache: str = "") -> dict[str, str]:
    """The document's fields for a job with requirements: which, where they are, and a cache for all jobs of a user."""
    return {"requirements": digest, "requirements_store": store} | ({"packages_dir": cache} if cache else {})


def _code(workdir: SentFolder) -> dict[str, str]:
    return code_fields(workdir.tree.digest, _store(workdir, names.CODE_PATH), names.WORKSPACE)


def _requirements(sent: SentFolder) -> dict[str, str]:
    return requirement_fields(sent.tree.digest, _store(sent, names.REQUIREMENTS_PATH))


def _store(sent: SentFolder, path: str) -> str:
    """Where pods find a folder that was sent, by where that is mounted: a folder of the claim, or an archive."""
    return path if sent.archive is None else f"{path}/{sent.archive_key}"


def _standalone_fields(spec: JobSpec, kind: JobKind) -> dict[str, str | int]:
    """The document's fields for pods that ask the API server for what submit would give them."""
    fills = has_secret(spec) and spec.security.report_status
    return {
        "secret_name": names.secret_name(spec.name) if fills else "",
        "owner": "" if kind.pods_know_uid else kind.path(spec.name),
    }


def _secret(reference: str) -> dict[str, Any]:
    name, _, key = reference.partition("/")
    return {"secretKeyRef": {"name": name, "key": key}}
