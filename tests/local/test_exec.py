"""A command runs in a local rank's folder with its variables, nothing need be forwarded, and ps names the rank."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.local.conftest import Kit

WAITS = """
import json, multiprocessing, os, subprocess, threading, time

def name(pipe=None):
    found = open("/proc/thread-self/comm").read().strip()
    return pipe.send(found) if pipe else found

def seen():
    read, write = multiprocessing.Pipe()
    forked = multiprocessing.get_context("fork").Process(target=name, args=(write,))
    forked.start()
    names = {"fork": read.recv(), "rank": name()}
    forked.join()
    thread = threading.Thread(target=lambda: names.update(thread=name()))
    thread.start()
    thread.join()
    program = subprocess.run(["cat", "/proc/self/comm"], capture_output=True, text=True)
    return names | {"program": program.stdout.strip(), "pid": os.getpid()}

with open(f"seen-{os.environ['RANK']}", "w") as file:
    json.dump(seen(), file)
open(f"here-{os.environ['RANK']}", "w").close()
while not os.path.exists("go"):
    time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_command_runs_where_a_rank_is(kit: Kit) -> None:
    (project := kit.folder / "project").mkdir()
    (project / "waits.py").write_text(WAITS)
    options = ["--nodes", "2", "--workdir", str(project), "--set", "env.OWN=value", "--", "waits.py"]
    kit.run("submit", "--name", "waits", *options)
    kit.until("waits", lambda state: state["worldSize"] == 2 and (workdir(kit, 1) / "here-1").exists())
    output = kit.run("exec", "waits", "--rank", "1", "--", "sh", "-c", "ls; pwd; env; exit 4", exit_code=4)
    assert output.splitlines()[0] == "here-1", output
    names = json.loads((workdir(kit, 1) / "seen-1").read_text())
    process_of_rank = Path(f"/proc/{names.pop('pid')}")
    assert names == dict.fromkeys(["rank", "fork", "thread"], "kit-rank-1") | {"program": "cat"}
    assert (process_of_rank / "comm").read_text() == "kit-rank-1\n"
    agent = Path(f"/proc/{kit.agent('waits', 1)}/cmdline").read_bytes()
    assert (process_of_rank / "cmdline").read_bytes() == agent, "the name is not written over it"
    assert f"\n{workdir(kit, 1)}\n" in output
    for variable in ("RANK=1", "WORLD_SIZE=2", "OWN=value"):
        assert f"\n{variable}\n" in output
    assert "MASTER_ADDR" not in output
    assert "KIT_SNAPSHOT_DIR" not in output
    assert "rank 1: node 1 on this machine, as " in output

    script = "trap 'exit 9' INT; echo on; while :; do sleep 0.1; done"
    process = kit.start("exec", "waits", "--rank", "1", "--", "sh", "-c", script)
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 9
    process.communicate()
    assert "nothing to forward: rank 1 runs on this machine, its port is 127.0.0.1:6006" in kit.run(
        "port-forward", "waits", "--rank", "1", "6006"
    )
    for node in range(2):
        (workdir(kit, node) / "go").touch()
    kit.run("wait", "waits")
    assert "node 0 is not running" in kit.run("exec", "waits", "--", "true", exit_code=2)


def workdir(kit: Kit, node: int) -> Path:
    """The working folder of a node."""
    return kit.job("waits").node(node).workdir
