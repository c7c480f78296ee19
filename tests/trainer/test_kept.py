"""Logs that outlive their nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def kept(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.kept", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_ranks_come_in_their_order_each_line_with_its_rank(tmp_path: Path) -> None:
    """In the folders that agents make: see ``tests/trainer/test_agent.py``."""
    for age, (name, text) in enumerate(
        {
            "node-1/rank-10.log": "ten\n",
            "node-3/rank-9.log": "nine\ncut short",
            "node-1/rank-9.log": "nine again, elsewhere\n",
            "node-1/nccl-trace-rank-9": "not a log\n",
            "notes.txt": "not a log\n",
        }.items()
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (age, age))
    assert kept(str(tmp_path)).stdout.splitlines() == [
        "[rank 9]: nine",
        "[rank 9]: cut short",
        "[rank 9]: nine again, elsewhere",
        "[rank 10]: ten",
    ]


def test_where_nothing_was_kept_nothing_is_printed(tmp_path: Path) -> None:
    done = kept(str(tmp_path / "absent"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_a_folder_it_says_how_it_is_called() -> None:
    done = kept()
    assert done.returncode == 1
    assert "usage" in done.stderr
