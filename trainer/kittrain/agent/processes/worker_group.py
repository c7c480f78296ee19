"""This node's part of a round, as torch's agent has it: its specification, its ranks' environment and failures."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from torch.distributed.elastic.agent.server.api import WorkerGroup, WorkerSpec
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from kitjob.variables import KIT_FINISHED_FILE, KIT_ROUND_PIPE
from kittrain.agent.processes.ranks import RankFiles
from kittrain.agent.rendezvous.interface import Rendezvous
from kittrain.job.env import NodeEnv

MONITOR_INTERVAL: Final = 0.05  # seconds between two looks at the ranks, unless something happens
PAUSE: Final = 0.001  # seconds that torch's agent sleeps before each look, whatever happens


def worker_spec(node: NodeEnv, rendezvous: Rendezvous) -> WorkerSpec:
    """The WorkerSpec for torch's agent."""
    return WorkerSpec(
        role="default",
        local_world_size=node.procs_per_node,
        entrypoint=sys.executable,
        rdzv_handler=rendezvous,
        max_restarts=node.job.policy.max_restarts,
        monitor_interval=PAUSE,
    )


def rank_environment(group: Any, worker: Any, *, restarts: int, files: RankFiles) -> dict[str, str]:
    """A rank's environment: torchrun's documented variables, and kittrain's files."""
    spec = group.spec
    return {
        "RANK": str(worker.global_rank),
        "LOCAL_RANK": str(worker.local_rank),
        "GROUP_RANK": str(group.group_rank),
        "ROLE_RANK": str(worker.role_rank),
        "ROLE_NAME": spec.role,
        "WORLD_SIZE": str(worker.world_size),
        "LOCAL_WORLD_SIZE": str(spec.local_world_size),
        "GROUP_WORLD_SIZE": str(group.group_world_size),
        "ROLE_WORLD_SIZE": str(worker.role_world_size),
        "MASTER_ADDR": group.master_addr,
        "MASTER_PORT": str(group.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
        "TORCHELASTIC_USE_AGENT_STORE": str(spec.rdzv_handler.use_agent_store),
        "TORCHELASTIC_ERROR_FILE": str(files.error),
        "KIT_RUN_ID": spec.rdzv_handler.get_run_id(),
        "KIT_HEARTBEAT_FILE": str(files.heartbeat),
        KIT_FINISHED_FILE: str(files.finished),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    } | ({KIT_ROUND_PIPE: str(files.rounds)} if files.rounds.exists() else {})


def process_failures(
    group: WorkerGroup, exit_codes: Sequence[int | None], files: Sequence[RankFiles]
) -> dict[int, ProcessFailure]:
    """Torch's records of the ranks that have failed, by global rank."""
    return {
        worker.global_rank: _process_failure(worker, code, str(own.error))
        for worker, code, own in zip(group.workers, exit_codes, files, strict=True)
        if code
    }


def _process_failure(worker: Any, code: int, file: str) -> ProcessFailure:
    """Torch's record; without the error file if it is none: a full disk cuts it, and a script may write its own."""
    try:
        return ProcessFailure(worker.local_rank, worker.id, code, file)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ProcessFailure(worker.local_rank, worker.id, code, "")
