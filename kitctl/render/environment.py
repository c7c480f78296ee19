"""The environment of a node: the variables of every target, and those of a pod with its document. Pure.

The document (``kitjob.document``) carries what follows from the job; what only a pod knows is in variables.

Why: decision 35.
"""

from __future__ import annotations

from typing import Any, Final

import kitctl
from kitctl.base import names
from kitctl.code.code_tree import NO_SOURCES, SentFolder, Sources
from kitctl.kinds import JobKind
from kitctl.spec.job_spec import JobSpec
from kitjob import document, variables
from kitjob.durations import seconds
from kitjob.names import SECRET_KEY
from kitjob.run import Code, Packages, RunFacts

# Settings of torchrun's c10d rendezvous: a dead node is noticed after 5 x 1 s instead of the default 3 x 5 s.
_KEEP_ALIVE: Final = {
    "keep_alive_interval": "1",
    "keep_alive_max_attempt": "5",
    "read_timeout": "15",
    "close_timeout": "5",
}


def torchrun_env(spec: JobSpec) -> dict[str, str]:
    """Torchrun's variables. Kubeflow's operator sets these itself, from ``elasticPolicy``."""
    return {
        variables.PET_NNODES: str(spec.nodes),
        variables.PET_NPROC_PER_NODE: str(spec.ranks_per_node),
        variables.PET_RDZV_BACKEND: "c10d",  # plain torchrun does not know the hub
        variables.PET_RDZV_CONF: ",".join(f"{key}={value}" for key, value in rendezvous_conf(spec).items()),
        variables.PET_MAX_RESTARTS: str(spec.policy.max_restarts),
        "PYTHONUNBUFFERED": "1",
    }


def script_env() -> dict[str, str]:
    """What scripts get on every target, unless the user has set it.

    One order of each set of texts on all ranks and after each restart, as of classes that it numbers: decision 63.
    """
    return {"PYTHONHASHSEED": "0"}


def common_env(spec: JobSpec) -> dict[str, str]:
    """Variables for NCCL, torch and former agents on every target; empty ones are omitted."""
    found = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # rank 0's store must not be the rendezvous' own
        "NCCL_DEBUG": spec.nccl.debug,
        "NCCL_IB_HCA": spec.nccl.hca,
        "NCCL_IB_DISABLE": "1" if spec.nccl.ib_disable else "",
        "NCCL_P2P_DISABLE": "1" if spec.nccl.p2p_disable else "",
    }
    return {name: value for name, value in found.items() if value}


def has_secret(spec: JobSpec) -> bool:
    """Whether nodes authenticate to each other with the run's secret."""
    return bool(spec.security.rendezvous_secret)


def pod_env(spec: JobSpec, kind: JobKind, sources: Sources = NO_SOURCES, *, standalone: bool) -> list[dict[str, Any]]:
    """A pod's variables in Kubernetes' form, each once; the user's own win over ours.

    Args:
        spec: the job.
        kind: of the object.
        sources: what is sent with it.
        standalone: the object is applied without kitctl, so pods ask the API server for what submit would give them.
    """
    told = {variables.KIT_SPEC: document.write(spec, cluster_run(spec, kind, sources, standalone=standalone))}
    texts = script_env() | common_env(spec) | told | _shared_env(spec, kind) | spec.env
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


def launch(kind: JobKind, sources: Sources) -> list[str]:
    """What starts a module of the trainer that is sent with a job; empty: the image has it, and an init of its own."""
    if sources.trainer is None:
        return []
    fatal = str(kind.exit_codes["fatal"])
    return ["python3", "-c", sources.trainer.launcher, names.TRAINER_PATH, sources.trainer.digest, fatal]


def escape_var_refs(text: str) -> str:
    """Text with each ``$`` doubled: Kubernetes expands ``$(NAME)`` and turns ``$$`` into ``$``."""
    return text.replace("$", "$$")


def rendezvous_conf(spec: JobSpec) -> dict[str, str]:
    """PET_RDZV_CONF by key; durations in whole seconds."""
    join, last_call = seconds(spec.rendezvous.join_timeout), seconds(spec.rendezvous.last_call)
    return {"join_timeout": str(join), "last_call_timeout": str(last_call), **_KEEP_ALIVE}


def _downward_api(kind: JobKind) -> dict[str, str]:
    """Values that only the pod itself knows, from the downward API."""
    return {
        variables.PET_LOCAL_ADDR: "status.podIP",
        variables.KIT_POD: "metadata.name",
        variables.KIT_NODE_NAME: "spec.nodeName",
        **kind.downward_env,
    }


def _shared_env(spec: JobSpec, kind: JobKind) -> dict[str, str]:
    """What more than the agent reads: scripts, plain torchrun, and the agent where it cannot read the document."""
    paths = {variables.KIT_TERMINATION_LOG: names.TERMINATION_LOG}
    if not kind.sets_torchrun_env:
        paths[variables.PET_RDZV_ENDPOINT] = f"{rendezvous_host(spec, kind)}:{spec.rendezvous.port}"
    if spec.snapshots.enabled:
        paths[variables.KIT_SNAPSHOT_DIR] = spec.snapshots.path
    return paths


def cluster_run(spec: JobSpec, kind: JobKind, sources: Sources = NO_SOURCES, *, standalone: bool = False) -> RunFacts:
    """What pods are told about their run; the chart's ``training-job.run`` is its twin."""
    fills = standalone and has_secret(spec) and spec.security.report_status
    return RunFacts(
        kitctl=kitctl.__version__,
        rendezvous_host=rendezvous_host(spec, kind),
        rendezvous_port=spec.rendezvous.port,
        exit_codes=kind.exit_codes,
        owner=kind.path(spec.name) if standalone and not kind.pods_know_uid else "",
        secret_file=f"{names.SECRET_PATH}/{SECRET_KEY}" if has_secret(spec) else "",
        secret_name=names.secret_name(spec.name) if fills else "",
        restart_in_place=True,
        log_dir=f"{spec.snapshots.path}/logs" if spec.snapshots.shared else "",
        report=f"configmap:{names.status_name(spec.name)}" if spec.security.report_status else "",
        code=_code(sources.workdir) if sources.workdir else None,
        packages=_packages(sources.requirements) if sources.requirements else None,
    )


def _code(sent: SentFolder) -> Code:
    return Code(digest=sent.tree.digest, store=_store(sent, names.CODE_PATH), workdir=names.WORKSPACE)


def _packages(sent: SentFolder) -> Packages:
    return Packages(digest=sent.tree.digest, store=_store(sent, names.REQUIREMENTS_PATH))


def _store(sent: SentFolder, path: str) -> str:
    """Where pods find a folder that was sent, by where that is mounted: a folder of the claim, or an archive."""
    return path if sent.archive is None else f"{path}/{sent.archive_key}"


def _secret(reference: str) -> dict[str, Any]:
    name, _, key = reference.partition("/")
    return {"secretKeyRef": {"name": name, "key": key}}
