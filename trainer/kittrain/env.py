"""The environment of a node and of a rank as typed objects: read once, checked once, never looked up again.

Standard library only: this is the first thing that runs in the container, before torch is imported. The names are
also in ``kitctl/names.py`` (the side that sets them); ``tests/contract`` holds the two equal.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from kittrain.variables import EnvError, number_of, optional_number, pairs_of, path_of, text_of

Backend = Literal["auto", "nccl", "gloo"]
Rendezvous = Literal["hub", "c10d"]
Resume = Literal["", "exact", "state"]  # from earlier runs: not at all, in their order of the data, or in a new one

EXIT_CODES: Final[Mapping[str, Mapping[str, int]]] = {
    # Kubeflow's ExitCode policy retries 128 and above only.
    "IndexedJob": {"done": 0, "drained": 75, "retryable": 76, "fatal": 78},
    "PyTorchJob": {"done": 0, "drained": 143, "retryable": 144, "fatal": 78},
}
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a file system in main memory, in every container
WORKER_DRAINED: Final = 75  # a rank that took its snapshot and wants to be started again; EX_TEMPFAIL


@dataclass(frozen=True, kw_only=True)
class NodeEnv:
    """What a node is told about the job and about itself."""

    job: str
    namespace: str
    run_id: str
    node_index: int
    pod: str
    host: str
    min_nodes: int
    max_nodes: int
    procs_per_node: int
    gpus_per_node: int
    backend: Backend
    rendezvous: Rendezvous
    rendezvous_host: str
    rendezvous_port: int
    rendezvous_conf: Mapping[str, str]
    owner: str | None
    secret_file: Path | None
    secret_name: str | None
    secret_required: bool
    local_addr: str | None
    interface: str | None
    max_restarts: int
    hang_timeout: float | None
    warm_workers: bool
    snapshot_dir: Path | None
    memory_root: Path | None
    log_dir: Path | None
    report: str | None
    termination_log: Path | None
    grace_seconds: float
    exit_codes: Mapping[str, int]
    version: str | None
    lives: int = 0  # how often this node was started, as far as its logs were kept; the agent finds that out

    @property
    def hosts_rendezvous(self) -> bool:
        """Whether the others meet at this node's agent."""
        return self.node_index == 0


@dataclass(frozen=True, kw_only=True)
class RankEnv:
    """What a rank is told: torchrun's variables, and where its snapshots go. Defaults are one lone process."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node_index: int = 0
    job: str = "local"
    run_id: str = "local"
    backend: Backend = "auto"
    gpus_per_node: int = 0
    snapshot_dir: Path | None = None
    snapshot_every: int = 100
    snapshot_seconds: int | None = None
    snapshot_keep: int = 3
    snapshot_keep_every: int | None = None
    snapshot_keep_best: str = ""
    snapshot_copy: bool = True
    model_file: bool = True
    memory_every: int | None = None
    memory_dir: Path | None = None
    grace_seconds: int | None = None
    resume: Resume = ""
    from_scratch: bool = False
    virtual_ranks: int = 0
    progress_file: Path | None = None
    heartbeat_file: Path | None = None
    hang_timeout: float | None = None

    @property
    def distributed(self) -> bool:
        """Whether an elastic agent started this process."""
        return "RANK" in os.environ


def node_env(environ: Mapping[str, str] = os.environ) -> NodeEnv:
    """Read a node's environment.

    Raises:
        EnvError: a variable is missing or is not what it should be.
    """
    nodes = text_of(environ, "PET_NNODES", "1")
    low, _, high = nodes.partition(":")
    host, _, port = text_of(environ, "PET_RDZV_ENDPOINT", "127.0.0.1:29400").rpartition(":")
    kind = environ.get("KIT_EXIT_CODES", "IndexedJob")
    if kind not in EXIT_CODES:
        raise EnvError(f"KIT_EXIT_CODES={kind!r}: not one of {', '.join(EXIT_CODES)}")
    index = environ.get("KIT_NODE_INDEX") or environ.get("JOB_COMPLETION_INDEX") or "0"
    return NodeEnv(
        job=environ.get("KIT_JOB", "local"),
        namespace=environ.get("KIT_NAMESPACE", "default"),
        run_id=text_of(environ, "PET_RDZV_ID", "local"),
        node_index=number_of("KIT_NODE_INDEX", index),
        pod=environ.get("KIT_POD", f"local-{index}"),
        host=environ.get("KIT_NODE_NAME", "localhost"),
        min_nodes=number_of("PET_NNODES", low),
        max_nodes=number_of("PET_NNODES", high or low),
        procs_per_node=number_of("PET_NPROC_PER_NODE", environ.get("PET_NPROC_PER_NODE", "1")),
        gpus_per_node=number_of("KIT_GPUS_PER_NODE", environ.get("KIT_GPUS_PER_NODE", "0")),
        backend=_backend(environ),
        rendezvous=_rendezvous(environ),
        rendezvous_host=host,
        rendezvous_port=number_of("PET_RDZV_ENDPOINT", port),
        rendezvous_conf=pairs_of("PET_RDZV_CONF", environ.get("PET_RDZV_CONF", "")),
        owner=environ.get("KIT_OWNER") or None,
        secret_file=path_of(environ, "KIT_SECRET_FILE"),
        secret_name=environ.get("KIT_SECRET_NAME") or None,
        secret_required=environ.get("KIT_SECRET_REQUIRED") == "1",
        local_addr=environ.get("PET_LOCAL_ADDR") or None,
        interface=environ.get("KIT_INTERFACE") or None,
        max_restarts=number_of("PET_MAX_RESTARTS", environ.get("PET_MAX_RESTARTS", "3")),
        hang_timeout=_hang_timeout(environ),
        warm_workers=environ.get("KIT_WARM_WORKERS") != "0",
        snapshot_dir=path_of(environ, "KIT_SNAPSHOT_DIR"),
        memory_root=_memory_root(environ),
        log_dir=path_of(environ, "KIT_LOG_DIR"),
        report=environ.get("KIT_REPORT") or None,
        termination_log=path_of(environ, "KIT_TERMINATION_LOG"),
        grace_seconds=float(number_of("KIT_GRACE_SECONDS", environ.get("KIT_GRACE_SECONDS", "60"))),
        exit_codes=EXIT_CODES[kind],
        version=environ.get("KIT_VERSION") or None,
    )


def rank_env(environ: Mapping[str, str] = os.environ) -> RankEnv:
    """Read a rank's environment; without an elastic agent it is one lone process.

    Raises:
        EnvError: a variable is not what it should be.
    """

    def number(name: str, default: int) -> int:
        return number_of(name, environ.get(name) or str(default))

    return RankEnv(
        rank=number("RANK", 0),
        local_rank=number("LOCAL_RANK", 0),
        world_size=number("WORLD_SIZE", 1),
        local_world_size=number("LOCAL_WORLD_SIZE", 1),
        node_index=number("KIT_NODE_INDEX", 0),
        job=environ.get("KIT_JOB", "local"),
        run_id=environ.get("PET_RDZV_ID", "local"),
        backend=_backend(environ),
        gpus_per_node=number("KIT_GPUS_PER_NODE", 0),
        snapshot_dir=path_of(environ, "KIT_SNAPSHOT_DIR"),
        snapshot_every=number("KIT_SNAPSHOT_EVERY", 100),
        snapshot_seconds=optional_number(environ, "KIT_SNAPSHOT_SECONDS"),
        snapshot_keep=number("KIT_SNAPSHOT_KEEP", 3),
        snapshot_keep_every=optional_number(environ, "KIT_SNAPSHOT_KEEP_EVERY"),
        snapshot_keep_best=environ.get("KIT_SNAPSHOT_KEEP_BEST", ""),
        snapshot_copy=environ.get("KIT_SNAPSHOT_COPY") != "0",
        model_file=environ.get("KIT_MODEL_FILE") != "0",
        memory_every=optional_number(environ, "KIT_MEMORY_EVERY"),
        memory_dir=path_of(environ, "KIT_MEMORY_DIR"),  # set by the agent for its own ranks
        grace_seconds=optional_number(environ, "KIT_GRACE_SECONDS"),
        resume=_resume(environ),
        from_scratch=environ.get("KIT_FROM_SCRATCH") == "1",
        virtual_ranks=number("KIT_VIRTUAL_RANKS", 0),
        progress_file=path_of(environ, "KIT_PROGRESS_FILE"),  # likewise
        heartbeat_file=path_of(environ, "KIT_HEARTBEAT_FILE"),  # likewise
        hang_timeout=_hang_timeout(environ),
    )


def _memory_root(environ: Mapping[str, str]) -> Path | None:
    """Where ranks may keep copies of their state; None where the job does not ask for them."""
    return (path_of(environ, "KIT_MEMORY_ROOT") or SHARED_MEMORY) if environ.get("KIT_MEMORY_EVERY") else None


def _backend(environ: Mapping[str, str]) -> Backend:
    """What the job says; where it leaves it open, what the image says: one without GPUs means gloo."""
    for name in ("KIT_BACKEND", "KIT_AUTO_BACKEND"):
        match environ.get(name, "auto"):
            case "auto":
                continue
            case "nccl" | "gloo" as backend:
                return backend
            case other:
                raise EnvError(f"{name}={other!r}: not one of auto, nccl, gloo")
    return "auto"


def _rendezvous(environ: Mapping[str, str]) -> Rendezvous:
    """PET_RDZV_BACKEND says what a plain torchrun is to use, which knows only ``c10d`` of the two."""
    match environ.get("KIT_RENDEZVOUS") or "hub":
        case "hub" | "c10d" as backend:
            return backend
        case other:
            raise EnvError(f"KIT_RENDEZVOUS={other!r}: not one of hub, c10d")


def _resume(environ: Mapping[str, str]) -> Resume:
    match environ.get("KIT_RESUME", ""):
        case "":
            return ""
        case "1":
            return "exact"
        case "state":
            return "state"
        case other:
            raise EnvError(f"KIT_RESUME={other!r}: not one of 1, state")


def _hang_timeout(environ: Mapping[str, str]) -> float | None:
    """Seconds that a step may take: infinite for ``off``, None for the agent to find out."""
    match environ.get("KIT_HANG_TIMEOUT") or "auto":
        case "auto":
            return None
        case "off":
            return math.inf
        case seconds:
            return float(number_of("KIT_HANG_TIMEOUT", seconds))
