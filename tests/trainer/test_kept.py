"""Logs that outlive their nodes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def kept(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.kept", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_ranks_come_in_their_order_each_line_with_its_rank(tmp_path: Path) -> None:
    (tmp_path / "rank-10.log").write_text("ten\n")
    (tmp_path / "rank-9.log").write_text("nine\ncut short")
    (tmp_path / "notes.txt").write_text("not a log\n")
    assert kept(str(tmp_path)).stdout == "[rank 9]: nine\n[rank 9]: cut short\n[rank 10]: ten\n"


def test_where_nothing_was_kept_nothing_is_printed(tmp_path: Path) -> None:
    done = kept(str(tmp_path / "absent"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_a_folder_it_says_how_it_is_called() -> None:
    done = kept()
    assert done.returncode == 1
    assert "usage" in done.stderr
