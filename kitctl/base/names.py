"""Names of kitctl's objects: labels, annotations, paths, commands, each with who sets and who reads it.

Those that the trainer reads, too, are in ``kitjob``.
"""

from __future__ import annotations

from typing import Final

FIELD_MANAGER: Final = "kitctl"  # server-side apply: kitctl owns the fields that it sets

# -- labels and annotations: set by render on every object, read by list, status and logs -------------------------
LABEL_NAME: Final = "app.kubernetes.io/name"  # always "kitctl-job"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"  # the job's name; what list and logs select by
LABEL_COMPONENT: Final = "app.kubernetes.io/component"  # trainer | rendezvous | status | snapshots | access
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"  # kitctl, or Helm
HELM: Final = "Helm"  # a manager of objects, as that label has it
LABEL_VERSION: Final = "app.kubernetes.io/version"  # kitctl's version
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"  # scheduling.queue; read by Kueue
QUEUE_OF_UNRELEASED: Final = "kitctl-submitting"  # no LocalQueue; without a name, Kueue may give a job its default one
LABEL_WORKLOAD_PRIORITY: Final = "kueue.x-k8s.io/priority-class"  # scheduling.workloadPriorityClass; read by Kueue
LABEL_JOB_UID: Final = "kueue.x-k8s.io/job-uid"  # of a Workload: its job's uid; set by Kueue
ANNOTATION_SPEC_HASH: Final = "kitctl.dev/spec-hash"  # which job an object was rendered from; read by submit
ANNOTATION_RELEASED: Final = "kitctl.dev/released"  # "false" until submit has created all objects; read by submit
ANNOTATION_SUBMIT: Final = "kitctl.dev/submit"  # the call of submit that may release the job; set and read by submit
ANNOTATION_USER: Final = "kitctl.dev/user"  # the user who created a job or its claim; read by submit and delete
ANNOTATION_JOB_UID: Final = "kitctl.dev/job-uid"  # of a claim: the job that uses it; read by delete
ANNOTATION_CANCELLED: Final = "kitctl.dev/cancelled"  # time of the cancellation; set by cancel, removed by restart
# Of a queued job that may run on fewer nodes: admitted with fewer, as long as they are the whole job; and scaled.
ANNOTATION_MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
ANNOTATION_EQUAL_COMPLETIONS: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
ANNOTATION_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
ANNOTATION_WORKLOAD: Final = "kueue.x-k8s.io/workload"  # of a queued job's pods: their Workload; set by Kueue
GATE_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"  # holds a new pod until its node is admitted; set by Kueue
ANNOTATION_METRICS_PORT: Final = "kitctl.dev/metrics-port"  # of pods: where metrics are; read by Prometheus' relabeling
APP_NAME: Final = "kitctl-job"

# -- the container ------------------------------------------------------------------------------------------------
CONTAINER: Final = "pytorch"  # required by Kubeflow's operator
PORT_NAME: Final = "pytorchjob-port"  # required by Kubeflow's operator
METRICS_PORT_NAME: Final = "kitctl-metrics"
SECRET_PATH: Final = "/var/run/secrets/kitctl.dev"  # where the run's secret is mounted
WORKSPACE: Final = "/workspace"  # where the job's files are mounted, the ranks' working folder then
CODE_PATH: Final = "/var/run/kitctl.dev/code"  # where the folder that was sent is mounted, packed
CODE_SUB_PATH: Final = ".kitctl-code"  # where a claim has the folders that were sent
TRAINER_PATH: Final = "/var/run/kitctl.dev/trainer"  # where the trainer is mounted, packed
UNPACKED_PATH: Final = "/var/run/kitctl.dev/unpacked"  # memory that it is unpacked to; bootstrap.py knows it, too
REQUIREMENTS_PATH: Final = "/var/run/kitctl.dev/requirements"  # where the requirements that were sent are mounted
TERMINATION_LOG: Final = "/dev/termination-log"
PYTHON: Final = ("python", "-P", "-m")  # then a module of kittrain; -P: modules next to the script must not hide ours
AGENT: Final = "kittrain.agent"
FORK_SERVER: Final = "kittrain.agent.forkserver"  # then the shim's script
ENTER_RANK: Final = "kittrain.agent.inside.enter"
PROFILE_RANK: Final = "kittrain.agent.inside.profile"
RANK_STACKS: Final = "kittrain.agent.inside.stacks"
RANK_USAGE: Final = "kittrain.agent.inside.usage"
CODE_STORE: Final = "kittrain.helper.code_store"  # then the folder and the command
HISTORY: Final = "kittrain.helper.history"  # then the folder
MIRROR: Final = "kittrain.rank.snapshots.mirror"  # then the command
SNAPSHOTS: Final = ("kittrain.rank.snapshots", "--folder")  # then the folder and the command


NAMESPACE_DEFAULTS: Final = "kitctl-defaults"  # the ConfigMap in which an administrator sets a namespace's image


# -- objects next to the job, named after it -------------------------------------------------------------------------


def profile_command(rank: int, steps: int, seconds: float) -> list[str]:
    """The module that prints a trace of a rank, and its arguments."""
    return [PROFILE_RANK, "--rank", str(rank), "--steps", str(steps), "--timeout", str(seconds)]


def status_name(job: str) -> str:
    """The ConfigMap for the report: written by rank 0's agent, read by status."""
    return f"{job}-status"


def sources_name(job: str) -> str:
    """The ConfigMap with the job's files."""
    return f"{job}-sources"


def requirements_name(job: str) -> str:
    """The ConfigMap with the job's requirements."""
    return f"{job}-requirements"


def trainer_names(job: str) -> tuple[str, str]:
    """The ConfigMaps with the trainer, of a job that kitctl does not submit itself."""
    return f"{job}-trainer", f"{job}-trainer-2"


def shared_trainer_name(version: str, digest: str) -> str:
    """The ConfigMap with the trainer that all jobs of a namespace share which kitctl submits."""
    return f"kittrain-{version}-{digest[:12]}".lower().replace("+", "-")


def secret_name(job: str) -> str:
    """The Secret with the run's secret, which authenticates its nodes."""
    return f"{job}-rendezvous"


def snapshots_name(job: str) -> str:
    """The PersistentVolumeClaim that is created for snapshots."""
    return f"{job}-snapshots"
