"""Each command does its work, and says what happened, after a job's supervisor was killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
TOLD = "its supervisor was killed"
PLAIN = """
import time
from pathlib import Path
print("ready", flush=True)
while not Path("enough").exists():
    time.sleep(0.02)
"""


@pytest.mark.wide
def test_the_commands_that_change_a_job_or_wait_for_it(kit: Kit) -> None:
    (kit.folder / "plain.py").write_text(PLAIN)
    submit = ["submit", "--name", "job", "--nodes", "1:2", "plain.py"]
    kit.run(*submit)
    runs(kit, 2)
    follower = kit.start("logs", "-f", "job")
    assert follower.stdout
    assert follower.stderr
    while "ready" not in follower.stdout.readline():
        pass
    follower.send_signal(signal.SIGINT)  # its stream is silent from now on
    assert (follower.wait(20), "Traceback" in follower.stderr.read()) == (130, False)
    kill_supervisor(kit)
    assert TOLD in kit.run("wait", "job", "--timeout", "1", exit_code=124)
    for nodes in (1, 2):
        kill_supervisor(kit)
        kit.run("scale", "job", "--nodes", str(nodes))
        runs(kit, nodes)
    attempts = kit.job("job").node(0).attempts
    kill_supervisor(kit)
    kit.run("restart", "job")
    kit.until("job", lambda _: kit.job("job").node(0).attempts > attempts)
    runs(kit, 2)
    kill_supervisor(kit)
    kit.run("suspend", "job")
    kit.until("job", lambda state: state["phase"] == "Suspended")
    kit.run("resume", "job")
    runs(kit, 2)
    kill_supervisor(kit)
    kit.run("submit", "--replace", *submit[1:])
    runs(kit, 2)
    (kit.folder / "enough").touch()
    kill_supervisor(kit)
    kit.run("wait", "job")
    assert kit.status("job")["phase"] == "Succeeded"


def runs(kit: Kit, nodes: int) -> None:
    kit.until("job", lambda state: state["phase"] == "Running" and state["worldSize"] == state["readyNodes"] == nodes)


def kill_supervisor(kit: Kit) -> None:
    wait_for(kit, supervised=True)
    folder = os.fsencode(kit.job("job").path)
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes()
        except OSError:
            continue
        if b"targets.local.supervisor" in line and folder in line:
            os.kill(int(file.parent.name), signal.SIGKILL)
    wait_for(kit, supervised=False)


def wait_for(kit: Kit, *, supervised: bool) -> None:
    deadline = time.monotonic() + 20
    while kit.job("job").supervised() != supervised:
        assert time.monotonic() < deadline
        time.sleep(0.02)
