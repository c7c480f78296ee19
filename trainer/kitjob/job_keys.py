"""The keys of a job file, with their types and defaults, and what follows from them alone.

The docstring under a key is its documentation, and its description in ``kitctl schema``; ``Sent`` marks those that
agents and ranks read. ``kitctl.spec.job_spec.JobSpec`` is a job: these keys, valid.
"""

from __future__ import annotations

from typing import Literal

from kitjob import names
from kitjob.durations import seconds
from kitjob.fields import (
    Bytes,
    Count,
    DeviceName,
    EnvName,
    GivenName,
    Image,
    Kind,
    LabelKey,
    LabelValue,
    Processes,
    Resume,
    SecretKey,
    Sent,
    Size,
    Trainer,
)
from kitjob.pod_section import Pod
from kitjob.record import Record
from kitjob.sections import (
    EnvSource,
    Metrics,
    Nccl,
    Policy,
    Rendezvous,
    Requirements,
    Resources,
    Scheduling,
    Security,
    Snapshots,
    Volume,
)


class JobKeys(Record):
    """The keys of one training job."""

    version: Literal[1] = 1
    """Version of this file's format."""
    name: Sent[str] = ""
    """Name of the job: a DNS label that leaves room for ``-<node index>``. Empty: derived from the command."""
    namespace: Sent[str] = ""
    """Namespace it runs in. Empty: that of the kubeconfig's context; ``default`` when rendered without a cluster."""
    labels: dict[LabelKey, LabelValue] = {}
    """Labels of all objects that are made for the job, its pods among them, as in {team: vision}."""
    annotations: dict[LabelKey, str] = {}
    """Annotations of the job's own object; those of pods are in ``pod.annotations``."""
    kind: Kind = "auto"
    """The Kubernetes kind; PyTorchJob is legacy. ``auto``: IndexedJob, or what you may create and the cluster has."""
    image: Image = names.AUTO
    """Container image: any with Python 3.11 and torch 2.6, or later. ``auto``: the namespace's, or PyTorch's own."""
    trainer: Sent[Trainer] = "auto"
    """Where pods get ``kittrain`` from. ``travels``: it is sent with the job; ``image``: the image has it; ``auto``: it
    is sent, and the image's is used if that is the same."""
    image_pull_secrets: tuple[GivenName, ...] = ()
    """Secrets to pull the image with. Empty: ``submit`` uses those of the namespace's default ServiceAccount."""
    nodes: Sent[Size] = 1
    """Number of nodes: 3, or "2:4" for an elastic job. "8+1" sets ``spares``, too."""
    spares: Sent[Count] = 0
    """Further nodes, which stand by with everything imported: one takes the place of a lost node at once."""
    gpus_per_node: Sent[Count] = 0
    """GPUs per node."""
    gpu_resource: DeviceName = "nvidia.com/gpu"
    """The extended resource of a GPU."""
    procs_per_node: Sent[Processes] = "auto"
    """Ranks per node; ``auto``: one per GPU, or one. "2,4": 2 of node 0 and 4 of node 1."""
    command: tuple[str, ...] = names.DEFAULT_COMMAND
    """The command of each rank: ["train.py"], or ["-m", "package.module"]."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[EnvName, str] = {}
    """Environment variables of the ranks."""
    env_from: tuple[EnvSource, ...] = ()
    """More environment variables, from ConfigMaps and Secrets."""
    secrets: dict[EnvName, SecretKey] = {}
    """Variables from a Secret's key: {HF_TOKEN: my-secret/token}. Only the reference is stored."""
    volumes: tuple[Volume, ...] = ()
    """Further volumes."""
    send: tuple[str, ...] = ()
    """Files to send with the job, into its working folder: paths, globs and folders. A script given by relative path is
    sent, too. Hidden files must be named, and no link may lead out of the folder that you submit from."""
    workdir: str = ""
    """A folder to send with the job: it becomes the working folder of the ranks, a writable copy on each node. Sent are
    the files that git does not ignore, less those that ``.kitignore`` lists; of untracked ones, hidden files and what
    looks like a credential only if ``send`` names them, by path in this folder. The script's path is relative to it."""
    outputs: Sent[str] = ""
    """A path in the working folder, as in ``checkpoints``, that is one folder for all nodes, on the claim for snapshots
    (``outputs/<run>``; ``$KIT_OUTPUTS_DIR`` is its absolute path): what a rank writes there, ranks of all nodes find,
    also after a node was replaced, and it is there after the job. Files that are sent in it are copied there once."""
    requirements: Requirements = Requirements()
    """Packages that the script needs besides those of the image."""
    python: str = ""
    """On this machine: the interpreter of the ranks, from an environment with torch. Empty: kitctl's own."""
    resume: Sent[Resume] = False
    """Continue from the snapshots of an earlier run of this name. ``true``: exactly, in its order of the data;
    ``state``: with its weights, optimizer and scheduler; data set, batch size and seed may differ."""
    from_scratch: Sent[bool] = False
    """Start at step 0 if there are snapshots but all are unusable; else that is an error. The snapshots stay."""
    virtual_ranks: Sent[Count] = 0
    """Not 0: each step is computed as this many virtual ranks, so the loss is bitwise equal on any number of ranks."""
    resources: Resources = Resources()
    """CPU, memory and other resources."""
    shared_memory: Bytes = "2Gi"
    """Size of /dev/shm, which data loaders and NCCL need; a container's default is 64 MiB."""
    backend: Sent[Literal["auto", "nccl", "gloo"]] = "auto"
    """Backend of the collectives; ``auto``: nccl with GPUs, gloo without. Only ``gloo`` continues if requested GPUs are
    missing."""
    nccl: Nccl = Nccl()
    """The network of the collectives."""
    rendezvous: Rendezvous = Rendezvous()
    """How the nodes find each other."""
    snapshots: Snapshots = Snapshots()
    """Where and how often training state is saved."""
    scheduling: Scheduling = Scheduling()
    """Where and when the pods run."""
    policy: Policy = Policy()
    """Restarts and time limits."""
    metrics: Metrics = Metrics()
    """Numbers of a run for Prometheus."""
    security: Security = Security()
    """Permissions of the pods."""
    pod: Pod = Pod()
    """Additions to the pods."""

    @property
    def min_nodes(self) -> int:
        """Minimum number of nodes."""
        return int(self._sizes[0])

    @property
    def max_nodes(self) -> int:
        """Maximum number of nodes."""
        return int(self._sizes[-1])

    @property
    def _sizes(self) -> list[str]:
        return str(self.nodes).partition("+")[0].split(":")

    @property
    def all_nodes(self) -> int:
        """Nodes that are started: the maximum that train, and spares."""
        return self.max_nodes + self.spares

    @property
    def node_range(self) -> str:
        """``3``, ``2:4``, or with spares ``3+1``."""
        return f"{self.nodes}+{self.spares}" if self.spares else str(self.nodes)

    def started(self, nodes: int) -> int:
        """Nodes that are started for so many that train: there are spares only next to the maximum."""
        return nodes + self.spares if nodes == self.max_nodes else nodes

    @property
    def may_lack_nodes(self) -> bool:
        """Whether the job may end well without some of its nodes."""
        return self.elastic or self.spares > 0

    @property
    def elastic(self) -> bool:
        """Whether the number of nodes may change while the job runs."""
        return self.min_nodes < self.max_nodes

    @property
    def ranks_by_node(self) -> tuple[int, ...]:
        """The ranks of each node, if they differ; else empty."""
        given = self.procs_per_node
        return tuple(map(int, given.split(","))) if isinstance(given, str) and given != "auto" else ()

    @property
    def ranks_per_node(self) -> int:
        """``procsPerNode`` as a number; of nodes that differ, the largest."""
        if isinstance(self.procs_per_node, int):
            return self.procs_per_node
        return max(self.ranks_by_node, default=max(self.gpus_per_node, 1))

    @property
    def max_ranks(self) -> int:
        """Maximum number of ranks."""
        return sum(self.ranks_by_node) or self.max_nodes * self.ranks_per_node

    @property
    def script(self) -> str | None:
        """The script's path, or None for a module."""
        return None if self.command[0].startswith("-") else self.command[0]

    @property
    def grace_seconds(self) -> int:
        """``policy.gracePeriod`` in seconds."""
        return seconds(self.policy.grace_period)
