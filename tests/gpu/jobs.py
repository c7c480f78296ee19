"""Jobs of one node on this machine's GPU, whose ranks record their steps."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.trainer.nodes import ColdNodes

MODULE = "tests.gpu.scripts.train"


class GPUJob(ColdNodes):
    """One node whose ranks run :mod:`tests.gpu.scripts.train`. Its agent is a new interpreter, as in a pod.

    Args:
        folder: for the job's files.
        arguments: of the script.
        ranks: number of ranks.
        env: of the agent.
    """

    def __init__(self, folder: Path, *arguments: str, ranks: int = 1, **env: str) -> None:
        self._records = folder / "records"
        self._records.mkdir(parents=True)
        command = ("-m", MODULE, str(self._records), *arguments)
        mine = {"PET_NPROC_PER_NODE": str(ranks), "KIT_GPUS_PER_NODE": "1", "KIT_SNAPSHOTS_EVERY_STEPS": "20"}
        super().__init__(folder, *command, nodes="1", **{**mine, **env})

    def records(self, what: str) -> list[dict[str, Any]]:
        """All ranks' records of one kind so far, ordered by time."""
        texts = [path.read_text() for path in self._records.glob("*.jsonl")]
        lines = [json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return sorted((line for line in lines if line["what"] == what), key=lambda line: line["time"])

    def until_step(self, number: int, *, processes: int = 1) -> None:
        """Wait until ``processes`` ranks have started, and the last one has taken this step."""

        def taken() -> bool:
            started = self.records("joined")
            last = started[-1]["pid"] if len(started) >= processes else 0
            return any(line["pid"] == last and line["step"] >= number for line in self.records("step"))

        self.until_true(taken, f"step {number} of process {processes}")

    def losses(self) -> dict[int, float]:
        """Each step's loss, from the last generation that took it."""
        taken = sorted(self.records("step"), key=lambda line: line["generation"])
        return {line["step"]: line["loss"] for line in taken}


class GPUJobs:
    """The jobs of a test; a context manager that kills the remaining ones on exit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, *arguments: str, ranks: int = 1, **env: str) -> GPUJob:
        """Start a job's node."""
        self._count += 1
        folder = self._folder / f"job-{self._count}"
        job = self._stack.enter_context(GPUJob(folder, *arguments, ranks=ranks, **env))
        job.start(0)
        return job
