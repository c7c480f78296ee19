"""The folder for in-memory snapshots: removed with the node, reused by its next agent, and never left for good."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kittrain.agent.setup.memory import UNUSED, memory_folder
from kittrain.job.env import NodeEnv, node_env

AGENT = """
from kittrain.job.env import node_env
from kittrain.agent.setup.memory import memory_folder
with memory_folder(node_env()):
    print("here", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _no_folder_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_MEMORY_DIR", "")


def variables(root: Path, index: int, **more: str) -> dict[str, str]:
    return {
        "KIT_SNAPSHOTS_MEMORY_EVERY_STEPS": "10",
        "KIT_MEMORY_ROOT": str(root),
        "KIT_NODE_INDEX": str(index),
        **more,
    }


def node(root: Path, index: int, **more: str) -> NodeEnv:
    return node_env(variables(root, index, **more))


def agent(root: Path, index: int) -> subprocess.Popen[str]:
    """The agent of another node, with a folder."""
    env = os.environ | variables(root, index)
    process = subprocess.Popen([sys.executable, "-c", AGENT], env=env, stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process


def test_it_is_removed_with_the_node(tmp_path: Path) -> None:
    with memory_folder(node(tmp_path, 0)):
        (folder,) = tmp_path.iterdir()
        assert os.environ["KIT_MEMORY_DIR"] == str(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "0").mkdir()
    assert not list(tmp_path.iterdir())


def age(folder: Path) -> None:
    """Make it look unused for longer than a restart of its agent takes."""
    then = time.time() - UNUSED - 1
    for path in [*folder.iterdir(), folder]:
        os.utime(path, (then, then))


def test_the_folder_of_a_killed_agent_is_reused_or_removed(tmp_path: Path) -> None:
    with agent(tmp_path, 1) as first, agent(tmp_path, 2) as living:
        mine, others = (next(tmp_path.glob(f"*-{index}-*")) for index in (1, 2))
        (mine / "copy").touch()
        first.kill()
        first.wait()
        with memory_folder(node(tmp_path, 1)):
            assert (mine / "copy").exists()
            assert others.exists(), "its agent is alive"
        with agent(tmp_path, 1) as second:
            second.kill()
        with memory_folder(node(tmp_path, 0)):
            assert mine.exists(), "its agent may be restarting"
        age(mine)
        age(others)
        with memory_folder(node(tmp_path, 1, PET_RDZV_ID="another run")):
            assert not mine.exists()
            assert others.exists()
        living.kill()
        living.wait()
    age(others)
    with memory_folder(node(tmp_path, 1)):
        assert not others.exists()


def test_a_missing_root_is_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with memory_folder(node(tmp_path / "nowhere", 0)):
        assert not os.environ["KIT_MEMORY_DIR"]
    assert "warning: no in-memory snapshots: cannot create a folder in" in capfd.readouterr().out


def test_without_a_root_there_is_no_folder(tmp_path: Path) -> None:
    with memory_folder(node(tmp_path, 0, KIT_SNAPSHOTS_MEMORY_EVERY_STEPS="")):
        assert not list(tmp_path.iterdir())
