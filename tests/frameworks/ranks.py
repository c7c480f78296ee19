"""Runs a framework's script on real ranks, in the environment of ``make test-frameworks``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from tests.trainer.nodes import free_port
from tests.trainer.reports import progress_in
from tests.trainer.worlds import placed
from tools.test_frameworks import INTERPRETER

SCRIPTS: Final = Path(__file__).parent / "scripts"
TIMEOUT: Final = 500  # seconds; on a busy machine the imports alone take minutes
DRAINED: Final = 75
OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}


def run(script: str, folder: Path, *flags: str, size: int = 2, seconds: float = TIMEOUT) -> list[int]:
    """Exit codes of a job's ranks; snapshots go to ``folder/snapshots``, output to ``log-RANK``."""
    port = free_port()
    folder.mkdir(exist_ok=True)
    ranks = [_start(script, folder, flags, placed(rank, size, port)) for rank in range(size)]
    try:
        return [rank.wait(seconds) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def _start(script: str, folder: Path, flags: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    rank = variables["RANK"]
    own = {
        "KIT_BACKEND": "gloo",
        "TORCHELASTIC_RUN_ID": "run",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "KIT_SNAPSHOTS_EVERY_STEPS": "3",
        "KIT_SNAPSHOT_DIR": str(folder / "snapshots"),
        "KIT_PROGRESS_FILE": str(folder / f"progress-{rank}.json"),
        "OMP_NUM_THREADS": "1",
    }
    command = [str(INTERPRETER), "-m", "kittrain.agent.processes.worker", str(SCRIPTS / script), *flags]
    with (folder / f"log-{rank}").open("ab") as log:
        env = {**os.environ, **variables, **own, **OFFLINE}
        return subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)


def log(folder: Path, rank: int = 0) -> str:
    """The output of a rank."""
    return (folder / f"log-{rank}").read_text(encoding="utf-8", errors="replace")


def progress(folder: Path) -> dict[str, Any]:
    """Rank 0's latest progress."""
    found: dict[str, Any] = progress_in(folder / "progress-0.json")
    return found


def weights(file: Path) -> dict[str, torch.Tensor]:
    """A trained model's tensors by name."""
    found: dict[str, torch.Tensor] = torch.load(file, weights_only=True)
    return found
