"""Listing and printing log copies, from files as ``kittrain.agent.report.log_copy`` writes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kittrain.agent.report.log_copy import log_copy_path


def log_copies(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kittrain.helper.log_copies", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def at(second: int, text: str) -> str:
    return f"2026-11-22T10:00:{second:02}.000000000Z {text}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for (node, pod, started), text in {
        (1, "run-1-a", 100.25): at(1, "[rank 1]: one") + at(4, "[rank 1]: four") + "cut",
        (1, "run-1-b", 200.0): at(5, "[rank 1]: five"),
        (0, "run-0-a", 100.0): at(2, "[agent 0]: two") + at(6, "[rank 0]: six"),
    }.items():
        path = log_copy_path(tmp_path, node_index=node, pod=pod, started=started)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "node-1" / "nccl-trace-rank-9").write_text("not a log\n")
    (tmp_path / "notes.txt").write_text("not a log\n")
    return tmp_path


def test_the_runs_are_listed(folder: Path) -> None:
    assert list(map(json.loads, log_copies(str(folder), "--list").stdout.splitlines())) == [
        {"node": 0, "started": 100.0, "pod": "run-0-a", "file": "node-0/100000-run-0-a.log"},
        {"node": 1, "started": 100.25, "pod": "run-1-a", "file": "node-1/100250-run-1-a.log"},
        {"node": 1, "started": 200.0, "pod": "run-1-b", "file": "node-1/200000-run-1-b.log"},
    ]


def test_all_lines_are_sorted_by_time_with_their_node(folder: Path) -> None:
    assert log_copies(str(folder)).stdout == (
        f"1 {at(1, '[rank 1]: one')}0 {at(2, '[agent 0]: two')}1 {at(4, '[rank 1]: four')}1 cut\n"
        f"1 {at(5, '[rank 1]: five')}0 {at(6, '[rank 0]: six')}"
    )


def test_some_runs_can_be_selected(folder: Path) -> None:
    chosen = ("node-1/200000-run-1-b.log", "node-0/100000-run-0-a.log", "../secret")
    assert [line[0] for line in log_copies(str(folder), *chosen).stdout.splitlines()] == ["0", "1", "0"]


def test_without_copies_nothing_is_printed(tmp_path: Path) -> None:
    for more in ((), ("--list",)):
        done = log_copies(str(tmp_path / "absent"), *more)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_a_folder_it_prints_its_usage() -> None:
    done = log_copies()
    assert done.returncode == 1
    assert "usage" in done.stderr
