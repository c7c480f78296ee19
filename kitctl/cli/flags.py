"""The table of flags that describe a job: the spelling of each, the field it sets, and how its value is parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kitctl.cli import values
from kitctl.input.job_request import merge, nested
from kitctl.kinds import AUTO, KINDS
from kitjob.names import DEFAULT_IMAGE


class Flag(NamedTuple):
    """A row of the table. Without a ``metavar`` it is a switch; one that ends in ``...`` may be repeated."""

    group: str  # of the help
    spellings: str
    fields: str  # the field, or the fields, of a job file that it sets; one that it switches on ends in "+"
    metavar: str
    default: str  # as help shows it; empty: none
    help: str
    parse: Callable[[Any], Any] = str  # from the command line to the field's value

    @property
    def paths(self) -> list[str]:
        """The fields that have its value."""
        return [field for field in self.fields.split() if not field.endswith("+")]

    @property
    def repeatable(self) -> bool:
        """Whether it may be given several times."""
        return self.metavar.endswith("...")

    @property
    def parameter(self) -> str:
        """The name that click knows it by: its first long spelling."""
        long = next(spelling for spelling in self.spellings.split() if spelling.startswith("--"))
        return long.removeprefix("--").replace("-", "_")


_LEGACY: Final = ", ".join(kind.name for kind in KINDS.values() if kind.legacy)
_KIND: Final = f"One of {', '.join((AUTO, *KINDS))}; {_LEGACY} is legacy."
_MEMORY: Final = "resources.requests.memory resources.limits.memory"

# One line per flag, by group: spellings, fields, metavar, default, help, parser.
# fmt: off
_TABLE: Final[tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]] = (
    ("Job", (
        ("--name", "name", "NAME", "from the script's name", "Name of the job."),
        ("-n --namespace", "namespace", "NAME", "the context's", "Namespace of the job."),
        ("--label", "labels", "K=V...", "", "Label of all objects of the job.", values.pairs),
        ("--image", "image", "IMAGE", "auto",
         f"An image with Python 3.11+ and torch 2.6+; auto: the namespace's, or {DEFAULT_IMAGE}."),
        ("--trainer", "trainer", "auto|image|travels", "auto", "Where pods get kittrain from: sent, or the image's."),
        ("--pull-secret", "imagePullSecrets", "NAME...", "", "Secret to pull the image with.", list),
        ("--workdir", "workdir", "DIR", "none", "Folder to send; the ranks' working folder."),
        ("--outputs", "outputs", "DIR", "none", "Path in the working folder that all nodes share, kept after the job."),
        ("--send", "send", "PATH...", "", "File or folder to send with the script; a path, or a glob.", list),
        ("--requirements", "requirements.file", "FILE", "none",
         "Packages to install: requirements.txt, or pyproject.toml[EXTRA]."),
        ("--index-url", "requirements.indexUrl", "URL", "none", "Package index; none: pip's own."),
        ("--extra-index-url", "requirements.extraIndexUrls", "URL...", "", "Further package index.", list),
        ("--find-links", "requirements.findLinks", "DIR|URL...", "", "Folder with wheels; one of yours is sent.", list),
        ("--no-index", "requirements.noIndex", "", "", "Install from --find-links alone.", bool),
        ("--python", "python", "PATH", "none", "Interpreter of the ranks, on this machine; none: kitctl's own."),
        ("--kind", "kind", "KIND", "auto", _KIND),
    )),
    ("Resources", (
        ("--nodes", "nodes", "N|MIN:MAX|N+SPARES", "1", "Nodes; 2:4: elastic; 8+1: a spare.",
         values.parse_int),
        ("--gpus-per-node", "gpusPerNode", "N", "0", "GPUs per node.", values.parse_int),
        ("--procs-per-node", "procsPerNode", "N|N,N|auto", "auto", "Ranks per node, or of each; auto: one per GPU.",
         values.parse_int),
        ("--cpu", "resources.requests.cpu", "AMOUNT", "100m", "CPU request per pod."),
        ("--memory", _MEMORY, "AMOUNT", "512Mi, no limit", "Memory request and limit per pod."),
        ("--shm", "sharedMemory", "AMOUNT", "2Gi", "Size of /dev/shm."),
    )),
    ("Environment", (
        ("--env-file", "env", "FILE...", "", "File with a KEY=VALUE on each line.", values.variables_of_files),
        ("-e --env", "env", "K[=V]...", "", "KEY=VALUE; KEY alone copies it from your shell.", values.variables),
        ("--secret", "secrets", "K=SECRET/KEY...", "", "Variable from a key of a Secret.", values.pairs),
        ("--volume", "volumes", "CLAIM:/PATH...", "", "Mount a PVC; append :ro for read-only.", values.volumes),
    )),
    ("Snapshots", (
        ("--resume", "resume", "", "", "Continue from the snapshots of an earlier job of this name.", bool),
        ("--continue", "snapshots.mirror resume+", "s3://BUCKET/PREFIX", "none",
         "Continue what a job has copied there, on any cluster, and copy on."),
        ("--resume-state", "resume", "", "", "The same, but with a new order of the data.", values.resume_state),
        ("--from-scratch", "fromScratch", "", "", "Start at step 0 if all snapshots are unusable.", bool),
        ("--snapshot-every", "snapshots.everySteps", "STEPS", "100", "Steps between snapshots.", values.parse_int),
        ("--snapshot-memory-every", "snapshots.memoryEverySteps", "STEPS", "none",
         "Steps between in-memory snapshots.", values.parse_int),
        ("--keep", "snapshots.keep", "N", "3", "Number of latest snapshots to keep.", values.parse_int),
        ("--storage", "snapshots.size", "AMOUNT", "10Gi", "Size of the PVC that is created for snapshots."),
        ("--storage-class", "snapshots.storageClass", "NAME", "the cluster's", "Storage class of that PVC."),
        ("--claim", "snapshots.claim", "NAME", "a new one", "Existing PVC to keep snapshots on."),
    )),
    ("Scheduling", (
        ("--queue", "scheduling.queue", "NAME", "none", "LocalQueue of Kueue, which then starts the job."),
        ("--queue-priority", "scheduling.workloadPriorityClass", "NAME", "none",
         "WorkloadPriorityClass of Kueue, which decides who goes first."),
        ("--priority", "scheduling.priorityClass", "NAME", "the cluster's", "PriorityClass of the pods."),
        ("--node-selector", "scheduling.nodeSelector", "K=V...", "", "Node label that pods require.", values.pairs),
        ("--toleration", "scheduling.tolerations", "KEY[=V][:EFFECT]...", "", "Taint that pods tolerate.",
         values.tolerations),
        ("--pod-overlay", "pod", "FILE", "none", "YAML file with more keys of the section pod.", values.pod_of_file),
    )),
    ("Failures", (
        ("--max-restarts", "policy.maxRestarts", "N", "3", "Allowed failures of each node's ranks without a snapshot.",
         values.parse_int),
        ("--deadline", "policy.deadline", "TIME", "none", "Maximum run time of the whole job, as in 12h."),
        ("--ttl", "policy.ttl", "TIME", "never", "Delete the job this long after it ends."),
        ("--grace-period", "policy.gracePeriod", "TIME", "60s", "Termination grace period."),
        ("--hang-timeout", "policy.hangTimeout", "TIME", "auto", "Maximum time of a training step; auto, or off."),
    )),
    ("Network", (
        ("--backend", "backend", "BACKEND", "auto", "auto, nccl or gloo."),
        ("--interface", "nccl.interface", "NAME", "from the route to node 0", "Interface for NCCL and gloo."),
        ("--metrics", "metrics.enabled", "", "", "Serve metrics for Prometheus.", bool),
        ("--nccl-debug", "nccl.debug", "LEVEL", "none", "NCCL_DEBUG, as in INFO."),
    )),
)
# fmt: on
FLAGS: Final = tuple(Flag(group, *row) for group, rows in _TABLE for row in rows)


def to_mapping(given: Mapping[Flag, Any]) -> dict[str, Any]:
    """Flags with their values as a nested mapping with a job file's keys; later rows of the table win."""
    mapping: dict[str, Any] = {}
    for flag, value in given.items():
        for field in flag.fields.split():
            told = True if field.endswith("+") else value
            mapping = merge(mapping, nested(field.removesuffix("+").split("."), told))
    return mapping
