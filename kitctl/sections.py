"""The parts of a job file, each a frozen type; the docstring under a field is its documentation."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kitctl import names
from kitctl.fields import (
    Count,
    Domain,
    Duration,
    EnvPrefix,
    LabelKey,
    LabelValue,
    ObjectName,
    Patience,
    Port,
    Positive,
    Quantity,
    QueueName,
    ResourceName,
    TaintKey,
)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """A part of a job file: unknown keys are errors, keys are camelCase, values never change."""


class EnvSource(Section, frozen=True, kw_only=True):
    """Environment variables taken from an object that is in the namespace already: one of the two."""

    config_map: ObjectName = ""
    """Name of the ConfigMap whose keys become variables."""
    secret: ObjectName = ""
    """Name of the Secret whose keys become variables."""
    prefix: EnvPrefix = ""
    """Put before each variable's name."""


class Volume(Section, frozen=True, kw_only=True):
    """A volume in every pod: exactly one of the sources."""

    mount_path: str
    """Where the ranks see it."""
    claim: ObjectName = ""
    """An existing PersistentVolumeClaim."""
    config_map: ObjectName = ""
    """An existing ConfigMap."""
    secret: ObjectName = ""
    """An existing Secret."""
    empty_dir: Quantity | None = None
    """Scratch space of this size; gone with the pod."""
    read_only: bool = False
    """Mount it read-only."""


class Resources(Section, frozen=True, kw_only=True):
    """CPU, memory and other resources of a pod, as Kubernetes writes them. GPUs are ``gpusPerNode``."""

    requests: dict[ResourceName, Quantity] = {}
    """What a pod is promised. CPU and memory that neither part names: 100m and 512Mi."""
    limits: dict[ResourceName, Quantity] = {}
    """What a pod may use at most."""


class Nccl(Section, frozen=True, kw_only=True):
    """The network of the collectives."""

    debug: Literal["", "VERSION", "WARN", "INFO", "TRACE"] = ""
    """NCCL_DEBUG."""
    interface: str = ""
    """Interface for NCCL and gloo. Empty: each node takes the one that its route to node 0 leaves by."""
    hca: str = ""
    """NCCL_IB_HCA: which InfiniBand adapters."""
    ib_disable: bool = False
    """NCCL_IB_DISABLE: never InfiniBand or RoCE."""
    p2p_disable: bool = False
    """NCCL_P2P_DISABLE: no direct copies between the GPUs of a node."""


class Rendezvous(Section, frozen=True, kw_only=True):
    """How the nodes find each other."""

    backend: Literal["hub", "c10d"] = "hub"
    """hub: lost nodes are seen at once and ranks follow the order of the pods; c10d: torchrun's own."""
    port: Port = names.RENDEZVOUS_PORT
    """Port of the rendezvous, on node 0."""
    join_timeout: Duration = "15m"
    """How long a node waits for the others (an image that is pulled for the first time counts)."""
    last_call: Duration = "3s"
    """How long an elastic job waits for more nodes once it has its minimum."""
    cluster_domain: Domain = "cluster.local"
    """The cluster's DNS domain."""


class Snapshots(Section, frozen=True, kw_only=True):
    """Where training state is kept, and how often."""

    enabled: bool = True
    """Without snapshots a restart begins at step 0."""
    claim: ObjectName = ""
    """An existing PersistentVolumeClaim. Empty: ``<name>-snapshots`` is made, and outlives the job."""
    size: Quantity = "10Gi"
    """Size of the claim that is made."""
    storage_class: ObjectName = ""
    """Its storage class. Empty: the cluster's default."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"] = "ReadWriteMany"
    """Its access mode; more than one node needs ReadWriteMany."""
    path: str = names.SNAPSHOT_PATH
    """Where the ranks see it."""
    every_steps: Positive = 100
    """Optimizer steps between two snapshots."""
    every: Duration | None = None
    """Time between two snapshots; whichever comes first of this and ``everySteps``."""
    copy: bool = True
    """Training waits for a copy of the state in memory, which is written while it goes on. Without, it waits until the
    state is written, and each rank needs 16 MiB for that: for hosts without memory for a second state."""
    model_file: bool = True
    """At the end of training the folder gets ``model.pt``, the trained model alone."""
    memory_every_steps: Positive | None = None
    """Besides, steps between two copies in each node's /dev/shm, for ranks that are killed while their node lives. Two
    copies of what a rank holds of the state have to fit in ``sharedMemory``, and count as memory of the pod."""
    keep: Positive = 3
    """How many of the latest are kept."""
    keep_every: Positive | None = None
    """Besides, the first snapshot behind each multiple of so many steps stays for good."""
    keep_best: Annotated[str, Meta(pattern=r"^((max|min):.+)?$", examples=["max:accuracy", "min:loss"])] = ""
    """Besides, the best one by a metric that the script gives behind each epoch; there a snapshot is then due."""


class Toleration(Section, frozen=True, kw_only=True):
    """A taint that the pods accept, as Kubernetes writes it."""

    key: TaintKey = ""
    """The taint's key. Empty, with ``Exists``: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the key is enough, or its value counts, too."""
    value: LabelValue = ""
    """The taint's value, with ``Equal``."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """The taint's effect. Empty: any."""


class Scheduling(Section, frozen=True, kw_only=True):
    """Where and when the pods run."""

    queue: QueueName = ""
    """Kueue's LocalQueue; Kueue then releases the job."""
    priority_class: ObjectName = ""
    """PriorityClass of the pods."""
    node_selector: dict[LabelKey, LabelValue] = {}
    """Labels that a machine must have."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pods accept."""
    spread: Literal["require", "prefer", "none"] = "prefer"
    """Whether the pods must, should or need not be on different machines."""
    scheduler: ObjectName = ""
    """schedulerName; empty: the cluster's default."""


class Policy(Section, frozen=True, kw_only=True):
    """What happens when something fails, and how long things may take."""

    max_restarts: Count = 3
    """Failures of a node's own ranks in a row, without a new snapshot in between, before the job fails."""
    backoff_limit: Count = 100
    """Pods that may be lost (killed, evicted, preempted) before the job fails."""
    deadline: Duration | None = None
    """Longest run time of the whole job."""
    ttl: Duration | None = None
    """When the finished job is deleted; its snapshots stay."""
    grace_period: Duration = "60s"
    """From SIGTERM to SIGKILL: a step and a snapshot must fit in."""
    hang_timeout: Patience = "auto"
    """How long a step may take before the job counts as hung; ``auto``: as long as its ranks work, else ten times the
    slowest steps, at least 30 s."""


class Security(Section, frozen=True, kw_only=True):
    """What the pods may do. The default passes the ``restricted`` Pod Security profile."""

    profile: Literal["restricted", "none"] = "restricted"
    """``none`` renders no securityContext: for images that must run as root."""
    run_as_user: Positive = 1000
    """User id of the ranks."""
    fs_group: Positive = 1000
    """Group that owns mounted volumes."""
    read_only_root: bool = True
    """Root file system read-only; /tmp is a volume."""
    network_policy: bool | Literal["require"] = True
    """Let only the job's own pods reach its ports, where the cluster's network enforces that: torch's store has no
    authentication. True: without it where you may not create one; ``require``: the job is refused there."""
    rendezvous_secret: bool | Literal["require"] = True
    """Nodes prove to each other that they know the run's secret, a Secret that is made with the job. True: without it
    where you may not create one, or nobody fills it; ``require``: the job does not run without."""
    report_status: bool = True
    """Give node 0 the right to write this job's one status ConfigMap."""
    service_account: ObjectName = ""
    """An existing ServiceAccount. Empty: one is made if ``reportStatus`` needs it."""
