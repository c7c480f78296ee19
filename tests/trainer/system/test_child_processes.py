from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

# A process that adopts orphans; it looks for those that have ended with the clock of the test.
PROGRAM = """
import os, subprocess, time
from kittrain.system import child_processes
from kittrain.system.child_processes import OrphanReaper, children
from kittrain.system.parent_death import adopt_orphans

adopt_orphans()
now = 0.0
child_processes.time.monotonic = lambda: now
reaper = OrphanReaper()
own = subprocess.Popen(["sleep", "60"])
subprocess.run(["sh", "-c", "true & sleep 60 &"])
while len([pid for pid in children() if open(f"/proc/{pid}/stat").read().split()[2] == "Z"]) < 1:
    time.sleep(0.01)
for now in (5.0, 10.0, 15.0, 20.0, 30.0):
    reaper.look()
    print(now, len(children()))
dead = subprocess.Popen(["true"])
while open(f"/proc/{dead.pid}/stat").read().split()[2] != "Z":
    time.sleep(0.01)
now = 40.0
reaper.look()
print(dead.wait(), own.poll())
for pid in children():
    os.kill(pid, 9)
"""


# A process that adopts the daemons of two ranks; one of them ends.
DAEMONS = """
import os, signal, subprocess, sys
from kittrain.system.child_processes import children, ranks_left, show_as
from kittrain.system.parent_death import adopt_orphans

adopt_orphans()
own = subprocess.Popen(["sleep", "60"])
for rank in (12, 3):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        show_as(f"kit-rank-{rank}")
        if not os.fork():
            os.setsid()
            os.write(write, b"-")
            signal.pause()
        os._exit(0)
    os.read(read, 1)
    os.waitpid(pid, 0)
print(ranks_left())
daemon = next(pid for pid in children() if open(f"/proc/{pid}/comm").read() == "kit-rank-12\\n")
os.kill(daemon, 9)
while open(f"/proc/{daemon}/stat").read().split()[2] != "Z":
    pass
print(ranks_left())
for pid in children():
    os.kill(pid, 9)
"""


def test_the_ranks_that_went_on_as_daemons_are_known() -> None:
    done = subprocess.run([sys.executable, "-c", DAEMONS], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["[3, 12]", "[3]"]


def test_orphans_that_have_ended_are_reaped_at_the_second_look() -> None:
    """Nobody else's children, and none that its starter may still wait for."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["5.0 3", "10.0 3", "15.0 3", "20.0 2", "30.0 2", "0 None"]
