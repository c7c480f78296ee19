"""Faults reach the processes of a local job: those inside a node through the trainer's own program."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kitctl.base.errors import ConflictError
from kitctl.state.faults import FaultInjection
from kitctl.targets.local import process_faults
from kitctl.targets.local.folder import JobFolder, create
from kitctl.targets.local.locks import acquire_lock
from kitctl.targets.local.records import Desired, Started
from tests.kitctl.targets.local.test_folder import job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a rank is found in /proc")


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    """A process in the place of an agent; it has no ranks."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def folder(tmp_path: Path, agent: subprocess.Popen[bytes]) -> Iterator[JobFolder]:
    """Of a job whose node 0 runs."""
    create(tmp_path / "job", job(), Desired(nodes=1))
    found = JobFolder(tmp_path / "job")
    node = found.node(0)
    node.path.mkdir(parents=True, exist_ok=True)
    node.log(1).touch()
    (node.path / "1.start.json").write_bytes(msgspec.json.encode(Started(time=0.0, pid=agent.pid, restarts=0)))
    with acquire_lock(node.lock):
        yield found


@pytest.mark.parametrize(
    ("fault", "number"),
    [("kill-agent", signal.SIGKILL), ("kill-node", signal.SIGKILL), ("preempt", signal.SIGTERM)],
)
def test_a_fault_of_a_node_signals_its_agent(
    folder: JobFolder, agent: subprocess.Popen[bytes], fault: str, number: signal.Signals
) -> None:
    process_faults.inject(folder, FaultInjection(fault=fault, node=0))
    assert agent.wait(60) == -number


def test_a_rank_that_a_node_has_not_is_named_by_the_trainer(folder: JobFolder, agent: subprocess.Popen[bytes]) -> None:
    with pytest.raises(ConflictError, match=r"kill-rank cannot hit rank 3 \(node 0\): rank 3 does not run here"):
        process_faults.inject(folder, FaultInjection(fault="kill-rank", node=0, rank=3))
    assert agent.poll() is None
