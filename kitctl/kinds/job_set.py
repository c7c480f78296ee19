"""The JobSet of Kubernetes' batch working group: here a set of one Indexed Job, whose pods are the nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from kitctl.kinds.indexed_job import INDEX
from kitctl.kinds.job_kind import JobKind, Object, Result, plain_env
from kitjob import variables
from kitjob.names import EXIT_CODES

NODE: Final = "node"  # the name of its one replicated Job
SET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"  # a label of each pod
SET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"  # a label of each pod


class JobSetPods(JobKind):
    """A kind whose pods are those of a JobSet's only Job: named after it, and labelled with the set."""

    random_suffix = len("-abcde")
    index_label = INDEX
    downward_env: ClassVar[Mapping[str, str]] = {
        variables.KIT_NODE_INDEX: f"metadata.annotations['{INDEX}']",
        variables.PET_RDZV_ID: f"metadata.labels['{SET_UID}']",
    }
    pods_know_uid = True

    def pod_name(self, job: str, index: int) -> str:
        """Named after its Job, ``<job>-node-0``."""
        return f"{self.pod_owner(job)}-{index}"

    def pod_owner(self, job: str) -> str:
        """The only Job of its JobSet."""
        return f"{job}-{NODE}-0"


class JobSet(JobSetPods):
    """A ``jobset.x-k8s.io/v1alpha2`` JobSet. Its Job replaces pods and reads exit codes; the set never recreates it."""

    name = "JobSet"
    title = "JobSet"
    api_version = "jobset.x-k8s.io/v1alpha2"
    resource = "JobSet"
    plural = "jobsets"
    operator = "the JobSet controller"
    template = "jobset"
    exit_codes = EXIT_CODES
    terminal_conditions: ClassVar[Mapping[str, Result]] = {"Completed": "Succeeded", "Failed": "Failed"}
    fixed_size = "the number of nodes of a JobSet cannot be changed"
    sets_torchrun_env = False
    headless_service = True
    restart_policy = "Never"

    def owns_pod(self, job: Object, pod: Object) -> bool:
        """By the label with its uid: the pods' owner is its Job."""
        return bool(pod["metadata"].get("labels", {}).get(SET_UID) == job["metadata"]["uid"])

    def pod_template(self, job: Object) -> Object:
        """Its Job's."""
        template: Object = _job_spec(job)["template"]
        return template

    def nodes(self, job: Object) -> str:
        """The pods' environment holds the range, as for an Indexed Job."""
        return plain_env(self.pod_template(job)).get(variables.PET_NNODES, str(self.desired_nodes(job)))

    def desired_nodes(self, job: Object) -> int:
        """Its Job's ``parallelism``."""
        count: int = _job_spec(job)["parallelism"]
        return count


def _job_spec(job: Object) -> Object:
    found: Object = next(one for one in job["spec"]["replicatedJobs"] if one["name"] == NODE)["template"]["spec"]
    return found
