"""The part of a node's environment that follows from the job alone, whichever target runs it. Pure."""

from __future__ import annotations

import kitctl
from kitctl import names
from kitctl.spec import JobSpec


def launcher(spec: JobSpec) -> dict[str, str]:
    """What torchrun reads. Kubeflow's operator sets these itself, from ``elasticPolicy``."""
    return {
        names.PET_NNODES: str(spec.nodes),
        names.PET_NPROC_PER_NODE: str(spec.ranks_per_node),
        names.PET_RDZV_BACKEND: spec.rendezvous.backend,
        names.PET_RDZV_CONF: names.rendezvous_conf(spec.rendezvous.join_timeout, spec.rendezvous.last_call),
        names.PET_MAX_RESTARTS: str(spec.policy.max_restarts),
        "PYTHONUNBUFFERED": "1",
    }


def declared(spec: JobSpec) -> dict[str, str]:
    """What trainer.agent and the ranks read; a variable that would be empty is left out."""
    variables = {
        names.KIT_JOB: spec.name,
        names.KIT_NAMESPACE: spec.namespace,
        names.KIT_GPUS_PER_NODE: str(spec.gpus_per_node),
        names.KIT_BACKEND: spec.backend,
        names.KIT_INTERFACE: spec.nccl.interface,
        names.KIT_GRACE_SECONDS: str(spec.grace_seconds),
        names.KIT_VERSION: kitctl.__version__,
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # rank 0's store must not be the rendezvous' own
        "NCCL_DEBUG": spec.nccl.debug,
        "NCCL_IB_HCA": spec.nccl.hca,
        "NCCL_IB_DISABLE": "1" if spec.nccl.ib_disable else "",
        "NCCL_P2P_DISABLE": "1" if spec.nccl.p2p_disable else "",
    }
    return {name: value for name, value in (variables | _snapshots(spec)).items() if value}


def _snapshots(spec: JobSpec) -> dict[str, str]:
    if not spec.snapshots.enabled:
        return {}
    return {
        names.KIT_SNAPSHOT_EVERY: str(spec.snapshots.every_steps),
        names.KIT_SNAPSHOT_KEEP: str(spec.snapshots.keep),
        names.KIT_RESUME: "1" if spec.resume else "",
    }
