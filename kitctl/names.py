"""Names that more than one place must agree on: labels, environment variables, ports, exit codes.

Each says who sets it and who reads it. ``kittrain.env`` states the trainer's half once more (kitctl and kittrain never
import each other); ``tests/contract`` holds the two equal.
"""

from __future__ import annotations

from typing import Final

from kitctl import __version__
from kitctl.quantity import seconds

FIELD_MANAGER: Final = "kitctl"  # server-side apply: kitctl owns the fields that it sets

# -- labels and annotations: set by render on every object, read by list, status and logs -------------------------
LABEL_NAME: Final = "app.kubernetes.io/name"  # always "kitctl-job"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"  # the job's name; what list and logs select by
LABEL_COMPONENT: Final = "app.kubernetes.io/component"  # trainer | rendezvous | status | snapshots | access
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"  # kitctl, or Helm
LABEL_VERSION: Final = "app.kubernetes.io/version"  # kitctl's version
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"  # scheduling.queue; read by Kueue
ANNOTATION_SPEC_HASH: Final = "kitctl.dev/spec-hash"  # which job an object was rendered from; read by submit
ANNOTATION_RELEASED: Final = "kitctl.dev/released"  # "false" from submit until all children are there; read by submit
ANNOTATION_SUBMIT: Final = "kitctl.dev/submit"  # which call of submit may release the job; set and read by submit
ANNOTATION_USER: Final = "kitctl.dev/user"  # who made a job, or its claim; read by submit and delete
ANNOTATION_JOB_UID: Final = "kitctl.dev/job-uid"  # of a claim: the job that has it; read by delete
ANNOTATION_CANCELLED: Final = "kitctl.dev/cancelled"  # when; set by cancel, taken away by restart
REQUIRE: Final = "require"  # of a part of a job: it does not run without
APP_NAME: Final = "kitctl-job"

# Set by Kubernetes' Job controller and by Kubeflow's operator, read through the downward API.
LABEL_JOB_UID: Final = "batch.kubernetes.io/controller-uid"
ANNOTATION_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
LABEL_REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"

PYTORCHJOBS: Final = "apis/kubeflow.org/v1/pytorchjobs"  # where the API server has them; read by the agent

# -- the container ------------------------------------------------------------------------------------------------
CONTAINER: Final = "pytorch"  # Kubeflow's operator insists on this name
PORT_NAME: Final = "pytorchjob-port"  # likewise
RENDEZVOUS_PORT: Final = 29400  # torchrun's own default
SNAPSHOT_PATH: Final = "/snapshots"
SECRET_PATH: Final = "/var/run/secrets/kitctl.dev"  # where the run's secret is mounted
SECRET_KEY: Final = "key"  # of the Secret's data; read by kittrain.node.secret, too
WORKSPACE: Final = "/workspace"  # where synced sources are mounted; the ranks' working folder then
TERMINATION_LOG: Final = "/dev/termination-log"
DEFAULT_IMAGE: Final = f"kitctl/trainer:{__version__}"
DEFAULT_COMMAND: Final = ("-m", "kittrain.workloads.digits")
AGENT_COMMAND: Final = ("python", "-P", "-m", "kittrain.agent")  # -P: modules beside a script must not hide ours
FORK_SERVER_COMMAND: Final = ("python", "-P", "-m", "kittrain.forkserver")  # and the script that keeps one node
SNAPSHOTS_COMMAND: Final = ("python", "-P", "-m", "kittrain.snapshots", "--folder")  # and the folder, and what is asked

REPORT_KEY: Final = "report"  # of the status ConfigMap: the report as JSON; written by rank 0's agent

# -- objects beside the job, named after it -------------------------------------------------------------------------


def status_name(job: str) -> str:
    """The ConfigMap that the agent of rank 0 reports to, and status reads."""
    return f"{job}-status"


def sources_name(job: str) -> str:
    """The ConfigMap with the files that travel with the job."""
    return f"{job}-sources"


def secret_name(job: str) -> str:
    """The Secret with what the run's nodes prove to know."""
    return f"{job}-rendezvous"


def snapshots_name(job: str) -> str:
    """The PersistentVolumeClaim that is made for snapshots."""
    return f"{job}-snapshots"


# -- environment: torchrun's own contract, so that a user's image with plain `torchrun` works too -------------------
PET_NNODES: Final = "PET_NNODES"  # "3" or "2:4"
PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
PET_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"
PET_RDZV_ENDPOINT: Final = "PET_RDZV_ENDPOINT"  # host:port of node 0
PET_RDZV_ID: Final = "PET_RDZV_ID"  # unique for each run
PET_RDZV_CONF: Final = "PET_RDZV_CONF"  # key=value,key=value
PET_MAX_RESTARTS: Final = "PET_MAX_RESTARTS"
PET_LOCAL_ADDR: Final = "PET_LOCAL_ADDR"  # the pod's own address: cures a host that misdetects itself

# -- environment: ours, set by manifests and by the local target, read by kittrain.agent and the ranks --------------
KIT_JOB: Final = "KIT_JOB"
KIT_NAMESPACE: Final = "KIT_NAMESPACE"
KIT_NODE_INDEX: Final = "KIT_NODE_INDEX"  # 0..max-1; node 0 hosts the rendezvous
KIT_NODE_NAME: Final = "KIT_NODE_NAME"  # the machine that the pod runs on
KIT_POD: Final = "KIT_POD"
KIT_GPUS_PER_NODE: Final = "KIT_GPUS_PER_NODE"  # what was asked for; fewer visible ones are a failure
KIT_BACKEND: Final = "KIT_BACKEND"  # auto | nccl | gloo
KIT_AUTO_BACKEND: Final = "KIT_AUTO_BACKEND"  # what `auto` means in an image; set by one that is made for no GPUs
KIT_RENDEZVOUS: Final = "KIT_RENDEZVOUS"  # c10d; absent: the hub (plain torchrun reads PET_RDZV_BACKEND, always c10d)
KIT_WARM_WORKERS: Final = "KIT_WARM_WORKERS"  # "0", set by an image: start each rank as a new interpreter
KIT_INTERFACE: Final = "KIT_INTERFACE"  # nccl.interface; absent: the agent finds it from the route to node 0
KIT_SNAPSHOT_DIR: Final = "KIT_SNAPSHOT_DIR"  # absent: no snapshots
KIT_SNAPSHOT_EVERY: Final = "KIT_SNAPSHOT_EVERY"  # optimizer steps
KIT_SNAPSHOT_SECONDS: Final = "KIT_SNAPSHOT_SECONDS"  # whichever comes first; absent: steps alone count
KIT_SNAPSHOT_KEEP: Final = "KIT_SNAPSHOT_KEEP"
KIT_SNAPSHOT_KEEP_EVERY: Final = "KIT_SNAPSHOT_KEEP_EVERY"  # steps; absent: none stays for good
KIT_SNAPSHOT_KEEP_BEST: Final = "KIT_SNAPSHOT_KEEP_BEST"  # max:<metric> | min:<metric>
KIT_SNAPSHOT_COPY: Final = "KIT_SNAPSHOT_COPY"  # "0": training waits while its state is written, and no copy is made
KIT_MODEL_FILE: Final = "KIT_MODEL_FILE"  # "0": no model.pt at the end
KIT_MEMORY_EVERY: Final = "KIT_MEMORY_EVERY"  # steps; absent: no copies of the state in main memory
KIT_MEMORY_ROOT: Final = "KIT_MEMORY_ROOT"  # where they lie, set by an image; absent: /dev/shm
KIT_RESUME: Final = (
    "KIT_RESUME"  # "1": continue from an earlier run's snapshots too; "state": in a new order of the data
)
KIT_FROM_SCRATCH: Final = "KIT_FROM_SCRATCH"  # "1": begin anew where no snapshot can be used, instead of an error
KIT_VIRTUAL_RANKS: Final = "KIT_VIRTUAL_RANKS"  # absent: the ranks are the real ones
KIT_LOG_DIR: Final = "KIT_LOG_DIR"  # per-rank logs that outlive the pod
KIT_REPORT: Final = "KIT_REPORT"  # file:<path> | configmap:<name>
KIT_TERMINATION_LOG: Final = "KIT_TERMINATION_LOG"
KIT_GRACE_SECONDS: Final = "KIT_GRACE_SECONDS"
KIT_HANG_TIMEOUT: Final = "KIT_HANG_TIMEOUT"  # auto | off | seconds that a step may take
KIT_EXIT_CODES: Final = "KIT_EXIT_CODES"  # IndexedJob | PyTorchJob: which table of exit codes the agent uses
KIT_OWNER: Final = (
    "KIT_OWNER"  # <group>/<version>/<resource>/<name>, whose uid tells runs apart; absent: PET_RDZV_ID does
)
KIT_SECRET_FILE: Final = "KIT_SECRET_FILE"  # what the run's nodes prove to know; absent: nothing
KIT_SECRET_NAME: Final = "KIT_SECRET_NAME"  # the Secret that the first agent fills; absent: it is filled, or none may
KIT_SECRET_REQUIRED: Final = "KIT_SECRET_REQUIRED"  # "1": not without
KIT_VERSION: Final = "KIT_VERSION"  # kitctl's; the agent compares it with the image's

# Knobs of torchrun's c10d rendezvous: a dead node is noticed after 5 x 1 s, not after 3 x 5 s as by default.
_RENDEZVOUS_KNOBS: Final = "keep_alive_interval=1,keep_alive_max_attempt=5,read_timeout=15,close_timeout=5"


def rendezvous_conf(join_timeout: str, last_call: str) -> str:
    """PET_RDZV_CONF: durations as whole seconds, as torchrun wants them."""
    return f"join_timeout={seconds(join_timeout)},last_call_timeout={seconds(last_call)},{_RENDEZVOUS_KNOBS}"


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

# -- what the agent's exit code means to whoever restarts it --------------------------------------------------------
# Kubeflow's ExitCode policy retries 128 and above only, so there "restart me" has to be a large number.
EXIT_CODES: Final = {
    "IndexedJob": {"done": 0, "drained": 75, "retryable": 76, "fatal": 78},
    "PyTorchJob": {"done": 0, "drained": 143, "retryable": 144, "fatal": 78},
}
