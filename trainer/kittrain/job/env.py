"""The environment of a node and of a rank as typed objects: read once, checked once, never looked up again.

What follows from the job is in ``kittrain.job.job_spec``; here is what only this node or this rank knows. Standard
library only: this is the first thing that runs in the container, before torch is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kittrain.job import job_spec
from kittrain.job.job_spec import Backend, JobSpec
from kittrain.job.variables import EnvError, number_of, pairs_of

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a file system in main memory, in every container
WORKER_DRAINED: Final = 75  # a rank that took its snapshot and wants to be started again; EX_TEMPFAIL
DEVICES: Final = Path("/dev")
PER_GPU: Final = frozenset({"auto", "gpu"})  # values of PET_NPROC_PER_NODE: a rank for each GPU
FORMER: Final = "KIT_EXIT_CODES"  # set by each kitctl; one that sets no KIT_SPEC is older than this package


@dataclass(frozen=True, kw_only=True)
class NodeEnv(JobSpec):
    """What a node knows about the job and about itself."""

    run_id: str = "local"
    node_index: int = 0
    pod: str = "local-0"
    host: str = "localhost"
    local_addr: str | None = None
    warm_workers: bool = True  # set by an image: False starts each rank as a new interpreter
    auto_backend: Backend = "auto"  # set by an image: what ``auto`` means there
    memory_root: Path | None = None  # set by an image: where ranks keep copies of their state
    termination_log: Path | None = None
    packages: Path | None = None  # where the script's requirements are installed; set by the agent
    agent_runs: int = 0  # containers of this node, this one included, as far as they left log copies; set by the agent
    agent_restarts: int = 0  # in this container; set by the agent
    restart_cause: str = ""  # how the previous agent ended; set by the agent

    @property
    def hosts_rendezvous(self) -> bool:
        """Whether the others meet at this node's agent."""
        return self.node_index == 0

    @property
    def grace_period(self) -> float:
        """Seconds from SIGTERM to SIGKILL."""
        return 60.0 if self.grace_seconds is None else float(self.grace_seconds)


@dataclass(frozen=True, kw_only=True)
class RankEnv(JobSpec):
    """What a rank knows: the job, and torchrun's variables. Defaults are one lone process."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node_index: int = 0
    run_id: str = "local"
    auto_backend: Backend = "auto"
    memory_dir: Path | None = None  # set by the agent for its own ranks, as are the next two
    progress_file: Path | None = None
    heartbeat_file: Path | None = None

    @property
    def distributed(self) -> bool:
        """Whether an elastic agent started this process."""
        return "RANK" in os.environ


def node_env(environ: Mapping[str, str] = os.environ) -> NodeEnv:
    """Read a node's environment.

    Raises:
        EnvError: something is missing or is not what it should be.
    """
    if FORMER in environ and job_spec.VARIABLE not in environ:
        raise EnvError(f"{job_spec.VARIABLE} is not set: kitctl is older than the image's kittrain; {job_spec.FIX}")
    index = number_of("JOB_COMPLETION_INDEX", environ.get("JOB_COMPLETION_INDEX") or "0")
    own = {
        "run_id": environ.get("PET_RDZV_ID") or "local",
        "node_index": index,
        "host": environ.get("KIT_NODE_NAME", "localhost"),
        "local_addr": environ.get("PET_LOCAL_ADDR") or None,
    }
    values = _with_backend(job_spec.read(NodeEnv, environ, _launcher(environ) | own))
    if by_node := values.get("procs_by_node"):
        values["procs_per_node"] = _own(by_node, values["node_index"])
    values.setdefault("pod", f"local-{values['node_index']}")
    values["memory_root"] = values.get("memory_root", SHARED_MEMORY) if values.get("memory_every") else None
    return NodeEnv(**values)


def rank_env(environ: Mapping[str, str] = os.environ) -> RankEnv:
    """Read a rank's environment; without an elastic agent it is one lone process.

    Raises:
        EnvError: something is not what it should be.
    """
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    own: dict[str, Any] = {name.lower(): number_of(name, environ[name]) for name in names if environ.get(name)}
    own["run_id"] = environ.get("PET_RDZV_ID", "local")  # of plain torchrun; our agent sets KIT_RUN_ID
    return RankEnv(**_with_backend(job_spec.read(RankEnv, environ, own)))


def _own(by_node: Sequence[int], index: int) -> int:
    """The number of ranks of a node, if nodes differ."""
    if index >= len(by_node):
        raise EnvError(f"{job_spec.VARIABLE}: procs_by_node: none for node {index}: {by_node}")
    return by_node[index]


def _launcher(environ: Mapping[str, str]) -> dict[str, Any]:
    """The values of torchrun's own variables: those that the document omits, and all for an agent without one."""
    low, _, high = (environ.get("PET_NNODES") or "1").partition(":")
    host, _, port = (environ.get("PET_RDZV_ENDPOINT") or "127.0.0.1:29400").rpartition(":")
    ranks = environ.get("PET_NPROC_PER_NODE") or "1"
    gpus = {"gpus_per_node": _gpus()} if ranks in PER_GPU else {}
    return {
        **gpus,
        "min_nodes": number_of("PET_NNODES", low),
        "max_nodes": number_of("PET_NNODES", high or low),
        "procs_per_node": max(1, gpus["gpus_per_node"]) if gpus else number_of("PET_NPROC_PER_NODE", ranks),
        "max_restarts": number_of("PET_MAX_RESTARTS", environ.get("PET_MAX_RESTARTS", "3")),
        "rendezvous_host": host,
        "rendezvous_port": number_of("PET_RDZV_ENDPOINT", port),
        "rendezvous_conf": pairs_of("PET_RDZV_CONF", environ.get("PET_RDZV_CONF", "")),
    }


def _gpus() -> int:
    """The number of GPUs in this container, for a launcher's ``auto``."""
    return sum(path.name[len("nvidia") :].isdecimal() for path in DEVICES.glob("nvidia*"))


def _with_backend(values: dict[str, Any]) -> dict[str, Any]:
    """The job's backend; if it sets none, the image's: one without GPUs uses gloo."""
    if values.get("backend", "auto") == "auto":
        values["backend"] = values.get("auto_backend", "auto")
    return values
