"""The sections of a job file; the docstring under a field is its documentation, ``Sent`` marks what ranks read."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from kitjob import names
from kitjob.durations import seconds
from kitjob.fields import (
    Bytes,
    Count,
    Domain,
    Duration,
    EnvPrefix,
    GivenName,
    IndexUrl,
    LabelKey,
    LabelValue,
    LeavingTaint,
    Meta,
    MirrorUrl,
    ObjectName,
    Port,
    Positive,
    Quantity,
    QueueName,
    ResourceName,
    Sent,
    TaintKey,
    Timeout,
)
from kitjob.record import Record


class EnvSource(Record):
    """Environment variables from an existing object of the namespace: set ``configMap`` or ``secret``."""

    config_map: ObjectName = ""
    """Name of the ConfigMap whose keys become variables."""
    secret: ObjectName = ""
    """Name of the Secret whose keys become variables."""
    prefix: EnvPrefix = ""
    """Prefix of the variables' names."""


class Volume(Record):
    """A volume of every pod; set exactly one source."""

    mount_path: str
    """Path in the container."""
    claim: ObjectName = ""
    """An existing PersistentVolumeClaim."""
    config_map: ObjectName = ""
    """An existing ConfigMap."""
    secret: ObjectName = ""
    """An existing Secret."""
    empty_dir: Bytes | None = None
    """Scratch space of this size, deleted with the pod."""
    host_path: str = ""
    """A folder or device of the Kubernetes node."""
    csi: dict[str, Any] = {}
    """An ephemeral volume of a CSI driver, as in a pod: {driver: ..., volumeAttributes: {...}}."""
    read_only: bool = False
    """Mount it read-only."""


class Resources(Record):
    """CPU, memory and other resources of a pod, as Kubernetes writes them. GPUs are ``gpusPerNode``."""

    requests: dict[ResourceName, Quantity] = {}
    """Requests of a pod. CPU and memory set in neither part: 100m and 512Mi."""
    limits: dict[ResourceName, Quantity] = {}
    """Limits of a pod."""


class Nccl(Record):
    """The network of the collectives."""

    debug: Literal["", "VERSION", "WARN", "INFO", "TRACE"] = ""
    """NCCL_DEBUG."""
    interface: Sent[str] = ""
    """Interface for NCCL and gloo. Empty: that of the route to node 0, on each node."""
    hca: str = ""
    """NCCL_IB_HCA: which InfiniBand adapters."""
    ib_disable: bool = False
    """NCCL_IB_DISABLE: never InfiniBand or RoCE."""
    p2p_disable: bool = False
    """NCCL_P2P_DISABLE: no direct copies between the GPUs of a node."""


class Rendezvous(Record):
    """How the nodes find each other."""

    port: Port = names.RENDEZVOUS_PORT
    """Port of the rendezvous, on node 0."""
    join_timeout: Sent[Duration] = "15m"
    """How long a node waits for the others, including image pulls."""
    last_call: Sent[Duration] = "3s"
    """How long an elastic job waits for more nodes once the minimum has joined."""
    cluster_domain: Domain = "cluster.local"
    """The cluster's DNS domain."""


class Snapshots(Record):
    """Where and how often training state is saved."""

    enabled: bool = True
    """Whether to take snapshots; without, a restart begins at step 0."""
    storage: Sent[Literal["claim", "perNode", "memory"]] = "claim"
    """Where they are. ``claim``: in one folder that all nodes share. ``perNode``: each node has a volume of its own,
    with what its ranks write and copies of another node's part. No storage is shared, and any one node may be lost;
    all volumes go with their pods. ``memory``: the same in each node's memory; it needs a ``mirror``."""
    claim: ObjectName = ""
    """An existing PersistentVolumeClaim. Empty: ``<name>-snapshots`` is created, and outlives the job."""
    size: Bytes = "10Gi"
    """Size of the claim that is created, or of each node's volume. With ``memory`` pods ask for so much more memory:
    four times the training state."""
    storage_class: ObjectName = ""
    """Its storage class. Empty: the cluster's default."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"] = "ReadWriteMany"
    """Its access mode; more than one node needs ReadWriteMany."""
    path: str = names.SNAPSHOT_PATH
    """Path in the container."""
    mirror: Sent[MirrorUrl] = ""
    """A prefix of an S3 bucket that each published snapshot is copied to, behind training; an empty folder is filled
    from there. Takes the package ``obstore`` in the image or the requirements, and credentials: ``secrets`` with
    ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, or a service account's. Empty: no copy."""
    mirror_timeout: Sent[Duration] = "30m"
    """With ``memory``: how long a job that has ended keeps the node with rank 0 while its mirror takes nothing of what
    is there. Each part that it takes begins the time anew. After that it is lost, and the job has failed."""
    every_steps: Sent[Positive] = 100
    """Optimizer steps between snapshots."""
    every: Sent[Duration | None] = None
    """Time between snapshots; the first of this and ``everySteps`` counts."""
    copy: Sent[bool] = True
    """Copy the state in memory, and write the copy while training continues. Without, training waits until the state is
    written, with 16 MiB of memory per rank: for hosts without memory for a second state."""
    model_file: Sent[bool] = True
    """Write the trained model alone to ``model.pt`` when training ends."""
    memory_every_steps: Sent[Positive | None] = None
    """Steps between in-memory snapshots in each node's /dev/shm, for ranks that die while their node lives. Two copies
    of each rank's part of the state must fit in ``sharedMemory``, and count as memory of the pod."""
    keep: Sent[Positive] = 3
    """Number of latest snapshots to keep."""
    keep_every: Sent[Positive | None] = None
    """Also keep the first snapshot after each multiple of this many steps, for good."""
    keep_best: Sent[Annotated[str, Meta(pattern=r"^((max|min):.+)?$", examples=("max:accuracy", "min:loss"))]] = ""
    """Also keep the best snapshot by a metric that the script reports after each epoch; one is then taken there."""

    @property
    def shared(self) -> bool:
        """Whether the job has a claim for them, which all nodes mount."""
        return self.enabled and self.storage == "claim"

    @property
    def in_memory(self) -> bool:
        """Whether they are in the nodes' memory."""
        return self.enabled and self.storage == "memory"

    @property
    def go_with_pods(self) -> bool:
        """Whether nothing is left of them once all pods of the job have ended, on a cluster."""
        return self.enabled and not self.shared and not self.mirror

    @property
    def every_seconds(self) -> int | None:
        """``every`` in seconds."""
        return seconds(self.every) if self.every else None


class Requirements(Record):
    """Packages that the script needs besides those of the image. The nodes install them with pip, once for all of them.

    Only ranks import them. torch, torchvision, triton, numpy and NVIDIA's libraries stay as they are in the image.
    """

    file: str = ""
    """A requirements file; or ``pyproject.toml``, for the project's dependencies, or ``pyproject.toml[extra]``."""
    index_url: IndexUrl = ""
    """Package index. Empty: pip's own default, or PIP_INDEX_URL of the pods."""
    extra_index_urls: tuple[IndexUrl, ...] = ()
    """Further indexes."""
    find_links: tuple[str, ...] = ()
    """Folders with wheels: one of this machine is sent with the job; an absolute path that this machine lacks is one in
    the pods, as on a volume; a URL is that of a page with links."""
    no_index: bool = False
    """Ask no index at all, only ``findLinks``: for clusters without a network."""


class Toleration(Record):
    """A taint that the pods tolerate, as Kubernetes writes it."""

    key: TaintKey = ""
    """The taint's key. Empty, with ``Exists``: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """``Exists``: any value; ``Equal``: this value."""
    value: LabelValue = ""
    """The taint's value, with ``Equal``."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    """The taint's effect. Empty: any."""


class Scheduling(Record):
    """Where and when the pods run."""

    queue: QueueName = ""
    """LocalQueue of Kueue, which then starts the job."""
    workload_priority_class: ObjectName = ""
    """WorkloadPriorityClass of Kueue: who goes first, and who is preempted. Empty: by ``priorityClass``."""
    pod_group: Literal["", "coscheduling", "volcano"] = ""
    """Start the nodes only together, by a PodGroup of Kubernetes' coscheduling plugin or of Volcano; of an elastic job,
    its minimum."""
    priority_class: ObjectName = ""
    """PriorityClass of the pods."""
    node_selector: dict[LabelKey, LabelValue] = {}
    """Node labels that the pods require."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pods tolerate."""
    spread: Literal["require", "prefer", "none"] = "prefer"
    """Whether the pods must, should or need not run on different Kubernetes nodes."""
    scheduler: ObjectName = ""
    """schedulerName; empty: the cluster's default, or that of the pod group."""


class Policy(Record):
    """Restarts and time limits."""

    max_restarts: Sent[Count] = 3
    """Allowed failures of each node's ranks without a new snapshot; one more fails the job."""
    backoff_limit: Count = 100
    """Allowed losses of pods (killed, evicted, preempted); one more fails the job."""
    deadline: Duration | None = None
    """Maximum run time of the whole job."""
    ttl: Duration | None = None
    """Delete the job this long after it ends; its snapshots stay."""
    grace_period: Sent[Duration] = "60s"
    """Time from SIGTERM to SIGKILL; a step and a snapshot must fit in."""
    hang_timeout: Sent[Timeout] = "auto"
    """Maximum time of a step before the job counts as hung; ``auto``: no limit while its ranks work, else ten times the
    slowest steps, at least 30 s."""
    lost_after: Sent[Duration] = "3s"
    """Time without an answer after which a node's machine counts as lost: at least 2s. A network may be silent for a
    second less."""
    on_non_finite: Sent[Literal["warn", "stop"]] = "warn"
    """What a loss does that is NaN or infinite: ``stop`` ends the job with that step as its reason. The last finite
    snapshot stays in any case."""
    survivors: Sent[Literal["restart", "live"]] = "restart"
    """What becomes of the other ranks when one is lost: ``restart`` starts them anew from the last snapshot, ``live``
    keeps their processes and their state in memory, and repeats no finished step: for ``Training.fit()`` and
    ``run_rounds()`` on CPUs."""
    grow: Sent[Literal["auto", "never"]] = "auto"
    """Whether an elastic job takes nodes that come later: ``never`` lets them stand by until a node is lost or the job
    is started again."""
    grow_every: Sent[Duration] = "30s"
    """Least time from one such growth to the next: each costs a snapshot and a start of all ranks."""

    interruption_notice: Sent[
        Annotated[
            str, Meta(pattern=r"^(aws|gcp|azure|https?://\S+)?$", examples=("aws", "http://127.0.0.1:8080/notice"))
        ]
    ] = ""
    """Who announces that a machine is about to be taken away: the metadata service of ``aws``, ``gcp`` or ``azure``, or
    a URL. Each node asks it every 5 s, and is drained at once. Empty: only SIGTERM does."""
    drain_taints: Sent[tuple[LeavingTaint, ...]] = ()
    """Keys of taints that say the same of a Kubernetes node, such as ``karpenter.sh/disrupted``. Each pod reads its
    node every 5 s, for which its ServiceAccount needs the right (``nodeTaints`` of charts/platform)."""

    @property
    def grow_seconds(self) -> int | None:
        """Least seconds between two growths; None for ``never``."""
        return None if self.grow == "never" else seconds(self.grow_every)

    @property
    def hang_seconds(self) -> float | None:
        """``hangTimeout`` in seconds: infinite for ``off``, None for ``auto``."""
        known = {"auto": None, "off": math.inf}
        return known[self.hang_timeout] if self.hang_timeout in known else float(seconds(self.hang_timeout))


class Metrics(Record):
    """Numbers of a run: for Prometheus, as each agent serves them at ``/metrics``, and for TensorBoard."""

    enabled: Sent[bool] = False
    """Whether agents serve them, in OpenMetrics' text."""
    port: Sent[Port] = names.METRICS_PORT
    """Their port in each pod. On this machine: of node 0, on loopback; node 1 has the next one, and so on. A port that
    is taken there or on the host's network is replaced by a free one, which the agent logs."""
    from_: tuple[GivenName, ...] = ()
    """Namespaces whose pods may connect to that port: the NetworkPolicy admits no others."""
    tensorboard: Sent[bool] = False
    """Write TensorBoard events of the library's loop next to the run's history, by torchtitan's tags. Takes the package
    ``tensorboard`` in the image or the requirements; without it there is a warning."""


class Security(Record):
    """Permissions of the pods. The default passes the ``restricted`` Pod Security profile."""

    profile: Literal["restricted", "none"] = "restricted"
    """``none`` renders no securityContext: for images that must run as root."""
    run_as_user: Positive = 1000
    """User id of the ranks."""
    fs_group: Positive = 1000
    """Group id of mounted volumes."""
    read_only_root: bool = True
    """Mount the root file system read-only; /tmp is a volume."""
    network_policy: bool | Literal["require"] = True
    """Create a NetworkPolicy: only the job's pods reach its ports, since torch's store has no authentication. True:
    without one where you may not create it; ``require``: the job is rejected there."""
    rendezvous_secret: Sent[bool | Literal["require"]] = True
    """Nodes authenticate to each other with a Secret that is created with the job. True: without it where you may not
    create one, or nothing fills it; ``require``: the job does not run without it."""
    report_status: bool = True
    """Allow node 0 to write this job's status ConfigMap."""
    service_account: ObjectName = ""
    """An existing ServiceAccount. Empty: one is created if ``reportStatus`` needs it."""
