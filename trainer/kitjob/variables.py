"""Environment variables: who sets and who reads each."""

from __future__ import annotations

from typing import Final

# -- torchrun's variables, so that an image with plain `torchrun` works, too ------------------------------------------
PET_NNODES: Final = "PET_NNODES"  # "3" or "2:4"
PET_NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
PET_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"
PET_RDZV_ENDPOINT: Final = "PET_RDZV_ENDPOINT"  # host:port of node 0
PET_RDZV_ID: Final = "PET_RDZV_ID"  # unique for each run
PET_RDZV_CONF: Final = "PET_RDZV_CONF"  # key=value,key=value
PET_MAX_RESTARTS: Final = "PET_MAX_RESTARTS"
PET_LOCAL_ADDR: Final = "PET_LOCAL_ADDR"  # the pod's address; torchrun may detect another one
JOB_COMPLETION_INDEX: Final = "JOB_COMPLETION_INDEX"  # a node's index; set by Kubernetes

# -- ours, set by manifests and by the local target, read by agents and ranks ------------------------------------------
KIT_SPEC: Final = "KIT_SPEC"  # the job as one JSON document (``document``)
KIT_NODE_INDEX: Final = "KIT_NODE_INDEX"  # 0..max-1; node 0 hosts the rendezvous
KIT_NODE_NAME: Final = "KIT_NODE_NAME"  # the Kubernetes node of the pod
KIT_POD: Final = "KIT_POD"
KIT_SNAPSHOT_DIR: Final = "KIT_SNAPSHOT_DIR"  # also read by scripts; absent: no snapshots
KIT_TERMINATION_LOG: Final = "KIT_TERMINATION_LOG"  # also read by agents that cannot read the document

# -- ours, set by an image or a job -----------------------------------------------------------------------------------
KIT_AUTO_BACKEND: Final = "KIT_AUTO_BACKEND"  # an image: the backend for `auto`
KIT_MEMORY_ROOT: Final = "KIT_MEMORY_ROOT"  # an image: the folder for in-memory copies, instead of /dev/shm
KIT_WARM_WORKERS: Final = "KIT_WARM_WORKERS"  # "0" starts each rank as a new interpreter
KIT_SCRIPT_HOOKS: Final = "KIT_SCRIPT_HOOKS"  # "0" disables the hooks in torch's optimizers and process groups
KIT_RESTART_IN_PLACE: Final = "KIT_RESTART_IN_PLACE"  # "0" ends a pod with its agent
SWITCHES: Final = frozenset({KIT_WARM_WORKERS, KIT_SCRIPT_HOOKS, KIT_RESTART_IN_PLACE})

# -- ours, set by the agent for its ranks -----------------------------------------------------------------------------
KIT_OUTPUTS_DIR: Final = "KIT_OUTPUTS_DIR"  # read by scripts
KIT_RUN_ID: Final = "KIT_RUN_ID"
KIT_MEMORY_DIR: Final = "KIT_MEMORY_DIR"  # where it keeps copies of its state
KIT_PROGRESS_FILE: Final = "KIT_PROGRESS_FILE"  # what rank 0 reports
KIT_HEARTBEAT_FILE: Final = "KIT_HEARTBEAT_FILE"  # how far it is
KIT_ROUND_PIPE: Final = "KIT_ROUND_PIPE"  # where it tells a rank that outlives its round of the next one
KIT_FINISHED_FILE: Final = "KIT_FINISHED_FILE"  # a script creates it when it has finished
KIT_PRIVATE_FOLDER: Final = "KIT_PRIVATE_FOLDER"  # the working folder, if other nodes have one of their own

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


OURS: Final = frozenset(value for name, value in globals().items() if name.startswith("KIT_"))
