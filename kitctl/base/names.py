"""Names that several modules must agree on: labels, environment variables, ports, exit codes.

Each has a comment on who sets it and who reads it. ``kittrain.job.env`` and ``kittrain.job.job_spec`` have the
trainer's half, since kitctl and kittrain never import each other; ``tests/contract`` checks that both are equal.
"""

from __future__ import annotations

from typing import Final

from kitctl import __version__
from kitctl.base.quantity import seconds

FIELD_MANAGER: Final = "kitctl"  # server-side apply: kitctl owns the fields that it sets

# -- labels and annotations: set by render on every object, read by list, status and logs -------------------------
LABEL_NAME: Final = "app.kubernetes.io/name"  # always "kitctl-job"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"  # the job's name; what list and logs select by
LABEL_COMPONENT: Final = "app.kubernetes.io/component"  # trainer | rendezvous | status | snapshots | access
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"  # kitctl, or Helm
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
REQUIRE: Final = "require"  # value of a setting: the job fails without it
APP_NAME: Final = "kitctl-job"

# -- the container ------------------------------------------------------------------------------------------------
CONTAINER: Final = "pytorch"  # required by Kubeflow's operator
PORT_NAME: Final = "pytorchjob-port"  # required by Kubeflow's operator
RENDEZVOUS_PORT: Final = 29400  # torchrun's default
SNAPSHOT_PATH: Final = "/snapshots"
SECRET_PATH: Final = "/var/run/secrets/kitctl.dev"  # where the run's secret is mounted
SECRET_KEY: Final = "key"  # of the Secret's data; read by kittrain.agent.setup.secret, too
WORKSPACE: Final = "/workspace"  # where the job's files are mounted, the ranks' working folder then
CODE_PATH: Final = "/var/run/kitctl.dev/code"  # where the folder that was sent is mounted, packed
CODE_SUB_PATH: Final = ".kitctl-code"  # where a claim has the folders that were sent
REQUIREMENTS_PATH: Final = "/var/run/kitctl.dev/requirements"  # where the requirements that were sent are mounted
TERMINATION_LOG: Final = "/dev/termination-log"
DEFAULT_IMAGE: Final = f"kitctl/trainer:{__version__}"
DEFAULT_COMMAND: Final = ("-m", "kittrain.workloads.digits")
AGENT_COMMAND: Final = ("python", "-P", "-m", "kittrain.agent")  # -P: modules next to the script must not hide ours
FORK_SERVER_COMMAND: Final = ("python", "-P", "-m", "kittrain.agent.forkserver")  # then the shim's script
CODE_STORE_COMMAND: Final = ("python", "-P", "-m", "kittrain.helper.code_store")  # then the folder and the verb
SNAPSHOTS_COMMAND: Final = ("python", "-P", "-m", "kittrain.rank.snapshots", "--folder")  # then the folder and the verb

REPORT_KEY: Final = "report"  # of the status ConfigMap: the report as JSON; written by rank 0's agent
PREPARING_KEY: Final = "preparing-"  # and a node's index: what that node does before it joins

# -- objects beside the job, named after it -------------------------------------------------------------------------


def status_name(job: str) -> str:
    """The ConfigMap for the report: written by rank 0's agent, read by status."""
    return f"{job}-status"


def sources_name(job: str) -> str:
    """The ConfigMap with the job's files."""
    return f"{job}-sources"


def requirements_name(job: str) -> str:
    """The ConfigMap with the job's requirements."""
    return f"{job}-requirements"


def secret_name(job: str) -> str:
    """The Secret with the run's secret, which authenticates its nodes."""
    return f"{job}-rendezvous"


def snapshots_name(job: str) -> str:
    """The PersistentVolumeClaim that is created for snapshots."""
    return f"{job}-snapshots"


# -- environment: torchrun's, so that an image with plain `torchrun` works, too -------------------
PET_NNODES: Final = "PET_NNODES"  # "3" or "2:4"
PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
PET_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"
PET_RDZV_ENDPOINT: Final = "PET_RDZV_ENDPOINT"  # host:port of node 0
PET_RDZV_ID: Final = "PET_RDZV_ID"  # unique for each run
PET_RDZV_CONF: Final = "PET_RDZV_CONF"  # key=value,key=value
PET_MAX_RESTARTS: Final = "PET_MAX_RESTARTS"
PET_LOCAL_ADDR: Final = "PET_LOCAL_ADDR"  # the pod's address; torchrun may detect another one

# -- environment: ours, set by manifests and by the local target, read by kittrain.agent and the ranks --------------
KIT_SPEC: Final = "KIT_SPEC"  # the job as one JSON document: ``environment.agent_spec``, ``kittrain.job.job_spec``
KIT_NODE_INDEX: Final = "KIT_NODE_INDEX"  # 0..max-1; node 0 hosts the rendezvous
KIT_NODE_NAME: Final = "KIT_NODE_NAME"  # the Kubernetes node of the pod
KIT_POD: Final = "KIT_POD"
KIT_SNAPSHOT_DIR: Final = "KIT_SNAPSHOT_DIR"  # also read by scripts; absent: no snapshots
KIT_TERMINATION_LOG: Final = "KIT_TERMINATION_LOG"  # also read by agents that cannot read the document
KIT_EXIT_CODES: Final = "KIT_EXIT_CODES"  # agents older than KIT_SPEC fail with its value: ``environment.TOO_OLD``
KIT_AUTO_BACKEND: Final = "KIT_AUTO_BACKEND"  # set by an image: the backend for `auto`
KIT_WARM_WORKERS: Final = "KIT_WARM_WORKERS"  # set by an image or a job: "0" starts each rank as a new interpreter
KIT_SCRIPT_HOOKS: Final = (
    "KIT_SCRIPT_HOOKS"  # set by an image or a job: "0" disables the hooks in torch's optimizers and process groups
)
KIT_RESTART_IN_PLACE: Final = "KIT_RESTART_IN_PLACE"  # set by an image or a job: "0" ends a pod with its agent
KIT_MEMORY_ROOT: Final = "KIT_MEMORY_ROOT"  # set by an image: the folder for in-memory copies, instead of /dev/shm

# Settings of torchrun's c10d rendezvous: a dead node is noticed after 5 x 1 s instead of the default 3 x 5 s.
_RENDEZVOUS_KNOBS: Final = "keep_alive_interval=1,keep_alive_max_attempt=5,read_timeout=15,close_timeout=5"


def rendezvous_conf(join_timeout: str, last_call: str) -> str:
    """PET_RDZV_CONF: durations in whole seconds."""
    return f"join_timeout={seconds(join_timeout)},last_call_timeout={seconds(last_call)},{_RENDEZVOUS_KNOBS}"


SWITCHES: Final = frozenset(
    {KIT_WARM_WORKERS, KIT_SCRIPT_HOOKS, KIT_RESTART_IN_PLACE}
)  # what a job may set of the kit's own: 0 or 1
RESERVED_ENV_PREFIXES: Final = ("PET_", "KIT_", "TORCHELASTIC_")
RESERVED_ENV: Final = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "JOB_COMPLETION_INDEX",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    }
)


def is_reserved(variable: str) -> bool:
    """Whether the launcher sets a variable, so that a job must not."""
    return variable not in SWITCHES and (variable in RESERVED_ENV or variable.startswith(RESERVED_ENV_PREFIXES))


# -- the agent's exit codes, read by what restarts it ----------------------------------------------------------------
# Kinds of job whose controllers need other codes define their own (kitctl.kinds).
EXIT_CODES: Final = {"done": 0, "drained": 75, "retryable": 76, "fatal": 78}
