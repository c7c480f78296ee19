"""The table of flags that describe a job: how each is spelled, which field it sets, and how its value is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kitctl.cli import values
from kitctl.jobinput import merge, nested


class Flag(NamedTuple):
    """A line of the table. Without a ``metavar`` it is a switch; one that ends in ``...`` may be given repeatedly."""

    section: str
    spellings: str
    fields: str  # the field, or the fields, of a job file that it sets
    metavar: str
    help: str
    read: Callable[[Any], Any] = str  # from what was typed to the field's value

    @property
    def repeatable(self) -> bool:
        """Whether each of several is heard, not the last alone."""
        return self.metavar.endswith("...")

    @property
    def parameter(self) -> str:
        """The name that click knows it by: its first long spelling."""
        long = next(spelling for spelling in self.spellings.split() if spelling.startswith("--"))
        return long.removeprefix("--").replace("-", "_")


# One line a flag.
# fmt: off
FLAGS: Final = (
    Flag("Size", "--nodes --num-nodes --nnodes", "nodes", "N|MIN:MAX", "Nodes; 2:4 is elastic.", values.size),
    Flag("Size", "--gpus-per-node", "gpusPerNode", "N", "GPUs of each node.", values.size),
    Flag("Size", "--procs-per-node --nproc-per-node", "procsPerNode", "N|auto", "Ranks of each node.", values.size),
    Flag("Size", "--cpu", "resources.requests.cpu", "AMOUNT", "CPUs that each pod is promised."),
    Flag("Size", "--memory", "resources.requests.memory resources.limits.memory", "AMOUNT", "Memory of each pod."),
    Flag("Size", "--shm", "sharedMemory", "AMOUNT", "Size of /dev/shm."),
    Flag("Job", "--name", "name", "NAME", "Name of the job; made from the script's if left out."),
    Flag("Job", "-n --namespace", "namespace", "NAME", "Namespace of the job."),
    Flag("Job", "--image", "image", "IMAGE", "Container image."),
    Flag("Job", "--pull-secret", "imagePullSecrets", "NAME...", "A Secret to pull the image with.", list),
    Flag("Job", "--kind", "kind", "KIND", "auto, IndexedJob or PyTorchJob."),
    Flag("Environment", "--env-file", "env", "FILE...", "Variables, a K=V on each line.", values.variables_of_files),
    Flag("Environment", "-e --env", "env", "K[=V]...", "A variable; a bare K takes yours.", values.variables),
    Flag("Environment", "--secret", "secrets", "K=SECRET/KEY...", "A variable from a Secret.", values.pairs),
    Flag("Storage", "--volume", "volumes", "CLAIM:/PATH...", "Mount a claim; :ro for read-only.", values.volumes),
    Flag("Storage", "--resume", "resume", "", "Continue from the snapshots of an earlier job of this name.", bool),
    Flag("Storage", "--resume-state", "resume", "", "The same in a new order of the data.", values.state),
    Flag("Storage", "--from-scratch", "fromScratch", "", "Begin anew where no snapshot can be used.", bool),
    Flag("Storage", "--snapshot-every", "snapshots.everySteps", "STEPS", "Steps between two snapshots.", values.size),
    Flag("Storage", "--snapshot-memory-every", "snapshots.memoryEverySteps", "STEPS", "Copies in memory.", values.size),
    Flag("Storage", "--keep", "snapshots.keep", "N", "How many of the latest snapshots are kept.", values.size),
    Flag("Storage", "--storage", "snapshots.size", "AMOUNT", "Size of the claim for snapshots."),
    Flag("Storage", "--claim", "snapshots.claim", "NAME", "Keep snapshots on this claim; it exists already."),
    Flag("Storage", "--storage-class", "snapshots.storageClass", "NAME", "Storage class of the claim for snapshots."),
    Flag("Scheduling", "--queue", "scheduling.queue", "NAME", "Kueue's LocalQueue; Kueue then starts the job."),
    Flag("Scheduling", "--priority", "scheduling.priorityClass", "NAME", "PriorityClass of the pods."),
    Flag("Scheduling", "--selector", "scheduling.nodeSelector", "K=V...", "A label of machines.", values.pairs),
    Flag("Scheduling", "--toleration", "scheduling.tolerations", "TAINT...", "KEY[=V][:EFFECT].", values.tolerations),
    Flag("Policy", "--max-restarts", "policy.maxRestarts", "N", "Failures in a row without progress.", values.size),
    Flag("Policy", "--deadline", "policy.deadline", "TIME", "Longest run time of the whole job, as in 12h."),
    Flag("Policy", "--ttl", "policy.ttl", "TIME", "When the finished job is deleted."),
    Flag("Policy", "--grace-period", "policy.gracePeriod", "TIME", "From SIGTERM to SIGKILL."),
    Flag("Policy", "--hang-timeout", "policy.hangTimeout", "TIME", "How long a training step may take; auto, or off."),
    Flag("Network", "--backend", "backend", "BACKEND", "auto, nccl or gloo."),
    Flag("Network", "--interface", "nccl.interface", "NAME", "Interface for NCCL and gloo; found if left out."),
    Flag("Network", "--nccl-debug", "nccl.debug", "LEVEL", "NCCL_DEBUG, as in INFO."),
)
# fmt: on


def tree(typed: Mapping[Flag, Any]) -> dict[str, Any]:
    """What was typed as a tree with a job file's keys; of two flags for one field the later line wins."""
    planted: dict[str, Any] = {}
    for flag, value in typed.items():
        for field in flag.fields.split():
            planted = merge(planted, nested(field.split("."), value))
    return planted
