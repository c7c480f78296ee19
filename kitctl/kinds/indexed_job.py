"""The Indexed Job of Kubernetes itself: one pod per node, replaced by the Job controller. Pure.

Why: decision 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from kitctl.kinds.job_kind import JobKind, Object, Result, plain_env
from kitjob import variables
from kitjob.names import EXIT_CODES

INDEX: Final = "batch.kubernetes.io/job-completion-index"  # an annotation of each pod, and a label
JOB_UID: Final = "batch.kubernetes.io/controller-uid"  # a label of each pod


class IndexedJob(JobKind):
    """A ``batch/v1`` Job with ``completionMode: Indexed``. Its podFailurePolicy reads the agent's exit codes."""

    name = "IndexedJob"
    title = "Indexed Job"
    api_version = "batch/v1"
    resource = "Job"
    plural = "jobs"
    template = "indexed-job"
    exit_codes = EXIT_CODES
    terminal_conditions: ClassVar[Mapping[str, Result]] = {
        "SuccessCriteriaMet": "Succeeded",
        "Complete": "Succeeded",
        "FailureTarget": "Failed",
        "Failed": "Failed",
    }
    index_label = INDEX
    downward_env: ClassVar[Mapping[str, str]] = {
        variables.KIT_NODE_INDEX: f"metadata.annotations['{INDEX}']",
        variables.PET_RDZV_ID: f"metadata.labels['{JOB_UID}']",
    }
    pods_know_uid = True
    sets_torchrun_env = False
    headless_service = True
    restart_policy = "Never"
    queue_admits_fewer = True
    size_field = "parallelism"
    pod_finalizer = "batch.kubernetes.io/job-tracking"
    identity_labels = frozenset(
        f"{prefix}{name}" for prefix in ("", "batch.kubernetes.io/") for name in ("controller-uid", "job-name")
    )

    def pod_name(self, job: str, index: int) -> str:
        """The Job controller appends a random suffix to the pod's name, but not to its host name."""
        return f"{job}-{index}"

    def pod_template(self, job: Object) -> Object:
        """``spec.template``."""
        template: Object = job["spec"]["template"]
        return template

    def nodes(self, job: Object) -> str:
        """A Job has no field for a range; the pods' environment holds it."""
        return plain_env(self.pod_template(job)).get(variables.PET_NNODES, str(self.desired_nodes(job)))

    def desired_nodes(self, job: Object) -> int:
        """``spec.parallelism``."""
        count: int = job["spec"]["parallelism"]
        return count

    def failed_pods(self, job: Object) -> int:
        """``status.failed``."""
        count: int = job.get("status", {}).get("failed", 0)
        return count

    def scale(self, nodes: int) -> Object:
        """Sets both numbers: the API server refuses to change one without the other."""
        return {"spec": {"parallelism": nodes, "completions": nodes}}
