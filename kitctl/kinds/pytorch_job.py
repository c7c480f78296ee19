"""The PyTorchJob of Kubeflow's training operator: workers alone, all equal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from kitctl.kinds.job_kind import JobKind, Object, Result
from kitjob import variables
from kitjob.names import EXIT_CODES

REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"  # a label of each pod


class PyTorchJob(JobKind):
    """A ``kubeflow.org/v1`` PyTorchJob. The operator sets ``PET_*`` from elasticPolicy, and makes a Service per worker.

    It does not count the pods that failed, its pods do not bear its uid, and elasticPolicy holds the run's id.
    """

    name = "PyTorchJob"
    title = "PyTorchJob"
    api_version = "kubeflow.org/v1"
    resource = "PyTorchJob"
    plural = "pytorchjobs"
    operator = "Kubeflow's training operator"
    legacy = "PyTorchJob is legacy: Kubeflow replaces it by TrainJob, and Kueue no longer manages it by default"
    template = "pytorchjob"
    # Its restart policy ExitCode restarts a pod for 128 and above only.
    exit_codes = {**EXIT_CODES} | {"drained": 143, "retryable": 144}
    terminal_conditions: ClassVar[Mapping[str, Result]] = {"Succeeded": "Succeeded", "Failed": "Failed"}
    index_label = REPLICA_INDEX
    downward_env: ClassVar[Mapping[str, str]] = {variables.KIT_NODE_INDEX: f"metadata.labels['{REPLICA_INDEX}']"}
    pods_know_uid = False
    sets_torchrun_env = True
    headless_service = False
    restart_policy = ""
    size_field = "replicas"

    def pod_name(self, job: str, index: int) -> str:
        """The operator names pods after their replica type."""
        return f"{job}-worker-{index}"

    def pod_template(self, job: Object) -> Object:
        """The workers'."""
        template: Object = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        return template

    def nodes(self, job: Object) -> str:
        """The range of ``elasticPolicy``."""
        policy = job["spec"].get("elasticPolicy", {})
        low, high = (policy.get(key, self.desired_nodes(job)) for key in ("minReplicas", "maxReplicas"))
        return str(high) if low == high else f"{low}:{high}"

    def desired_nodes(self, job: Object) -> int:
        """The workers' ``replicas``."""
        count: int = job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
        return count

    def suspended(self, job: Object) -> bool:
        """``spec.runPolicy.suspend``."""
        return bool(job["spec"].get("runPolicy", {}).get("suspend", False))

    def run_id(self, job: Object) -> str:
        """``elasticPolicy.rdzvId`` without the job's name."""
        identity: str = job["spec"].get("elasticPolicy", {}).get("rdzvId", "")
        return identity.removeprefix(f"{job['metadata']['name']}-")

    def suspend(self, *, suspended: bool) -> Object:
        """Sets ``spec.runPolicy.suspend``."""
        return {"spec": {"runPolicy": {"suspend": suspended}}}

    def scale(self, nodes: int) -> Object:
        """Sets the workers' ``replicas``."""
        return {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": nodes}}}}
