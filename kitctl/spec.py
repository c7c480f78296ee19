"""What a job is: typed, frozen, validated once at the boundary.

The docstring under a field is its documentation, and its description in ``schema``. What never lives here: reading
files or flags (``specfile``), checks of one field against another (``rules``), Kubernetes objects (``render``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec

from kitctl import names
from kitctl.fields import Count, DeviceName, EnvName, GivenName, Image, Kind, Positive, Quantity, SecretKey, Size
from kitctl.quantity import seconds
from kitctl.sections import (
    EnvSource,
    Nccl,
    Policy,
    Rendezvous,
    Resources,
    Scheduling,
    Section,
    Security,
    Snapshots,
    Volume,
)


class JobSpec(Section, frozen=True, kw_only=True):
    """One training job."""

    version: Literal[1] = 1
    """Version of this file's format."""
    name: str = ""
    """Name of the job: a DNS label that leaves room for ``-<node index>``. Empty: made from the command."""
    namespace: str = "default"
    """Namespace it runs in."""
    kind: Kind = "auto"
    """The Kubernetes kind. ``auto`` takes what the cluster has; rendered without a cluster it is IndexedJob."""
    image: Image = names.DEFAULT_IMAGE
    """Container image; must have torch and this kit's ``kittrain``."""
    image_pull_secrets: tuple[GivenName, ...] = ()
    """Secrets to pull the image with. Empty: ``submit`` takes those of the namespace's default ServiceAccount."""
    nodes: Size = 1
    """Number of nodes: 3, or "2:4" for an elastic job."""
    gpus_per_node: Count = 0
    """GPUs of each node."""
    gpu_resource: DeviceName = "nvidia.com/gpu"
    """The extended resource that a GPU is."""
    procs_per_node: Positive | Literal["auto"] = "auto"
    """Ranks of each node; ``auto``: one a GPU, or one."""
    command: tuple[str, ...] = names.DEFAULT_COMMAND
    """What each rank runs: ["train.py"], or ["-m", "package.module"]."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[EnvName, str] = {}
    """Environment variables of the ranks."""
    env_from: tuple[EnvSource, ...] = ()
    """More of them, from ConfigMaps and Secrets."""
    secrets: dict[EnvName, SecretKey] = {}
    """Variables from a Secret's key: {HF_TOKEN: my-secret/token}. Only the reference is ever written down."""
    volumes: tuple[Volume, ...] = ()
    """More volumes."""
    sync: tuple[str, ...] = ()
    """Files that travel with the job into its working folder: paths, globs and folders; a script given by relative path
    is one of them. Hidden files have to be named, and no link may lead out of the folder that you submit from."""
    resume: bool | Literal["state"] = False
    """Continue from the snapshots of an earlier run of this name. ``true`` takes up its order of the data, exactly;
    ``state`` takes its weights, optimizer and scheduler, and another data set, batch size or seed if there is one."""
    from_scratch: bool = False
    """Begin anew where there are snapshots to go on from, but all are unusable; else that is an error. They stay."""
    virtual_ranks: Count = 0
    """With any but 0 the loss curve has the same bits on any number of ranks; each step is so many small ones then."""
    resources: Resources = Resources()
    """CPU, memory and others."""
    shared_memory: Quantity = "2Gi"
    """Size of /dev/shm: data loaders and NCCL need it, a container's default is 64 MiB."""
    backend: Literal["auto", "nccl", "gloo"] = "auto"
    """Collectives; ``auto``: nccl with GPUs, gloo without. Only ``gloo`` goes on when asked-for GPUs are absent."""
    nccl: Nccl = Nccl()
    """The network of the collectives."""
    rendezvous: Rendezvous = Rendezvous()
    """How the nodes find each other."""
    snapshots: Snapshots = Snapshots()
    """Where training state is kept, and how often."""
    scheduling: Scheduling = Scheduling()
    """Where and when the pods run."""
    policy: Policy = Policy()
    """What happens when something fails, and how long things may take."""
    security: Security = Security()
    """What the pods may do."""

    @property
    def min_nodes(self) -> int:
        """Fewest nodes that the job runs with."""
        return int(str(self.nodes).partition(":")[0])

    @property
    def max_nodes(self) -> int:
        """Most nodes that the job runs with."""
        return int(str(self.nodes).rpartition(":")[2])

    @property
    def elastic(self) -> bool:
        """Whether the number of nodes may change while the job runs."""
        return self.min_nodes < self.max_nodes

    @property
    def ranks_per_node(self) -> int:
        """``procsPerNode`` as a number."""
        return max(self.gpus_per_node, 1) if self.procs_per_node == "auto" else self.procs_per_node

    @property
    def script(self) -> str | None:
        """The script's path, or None for a module."""
        return None if self.command[0].startswith("-") else self.command[0]

    @property
    def grace_seconds(self) -> int:
        """``policy.gracePeriod`` in seconds."""
        return seconds(self.policy.grace_period)

    def digest(self, sources: Mapping[str, str]) -> str:
        """A digest of everything that the job is, and of the files that travel with it: equal jobs, equal digests."""
        return hashlib.sha256(msgspec.json.encode((self, sources), order="sorted")).hexdigest()[:16]
