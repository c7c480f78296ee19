"""A command runs in a rank's folder with its variables, and takes no part in the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.trainer.ranks import StartRank

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

ENTER = (sys.executable, "-P", "-m", "kittrain.agent.inside.enter", "--agent")
SLEEPS = "import os, time; os.write(int(os.environ['READY']), b'.')\ntime.sleep(600)\n"
GIVEN = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "KIT_HEARTBEAT_FILE": "/x", "PYTHONPATH": "/p"}


def enter(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [*ENTER, str(os.getpid()), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | env)


def test_a_command_runs_where_the_rank_is(start_rank: StartRank, tmp_path: Path) -> None:
    start_rank(3, SLEEPS)
    (tmp_path / "3.env").write_text(json.dumps(GIVEN))
    done = enter(
        "--rank", "3", "--", "sh", "-c", "pwd; env; exit 7", KIT_SNAPSHOT_DIR="/snapshots", PET_NNODES="2", OWN="1"
    )
    assert done.returncode == 7
    first, *lines = done.stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    assert first == str(tmp_path)
    assert (found["RANK"], found["WORLD_SIZE"], found["PYTHONPATH"], found["OWN"]) == ("3", "4", "/p", "1")
    assert not [name for name in found if name.startswith(("KIT_", "PET_", "TORCHELASTIC_", "MASTER_"))]


def test_a_rank_or_a_command_that_is_not_there(start_rank: StartRank) -> None:
    start_rank(3, SLEEPS)
    done = enter("--rank", "4", "--", "true")
    assert (done.returncode, done.stderr) == (1, "rank 4 does not run here\n")
    done = enter("--rank", "3", "--", "no-such-program", "--option")
    assert (done.returncode, done.stderr) == (127, "no-such-program: command not found\n")


def test_a_command_is_interrupted_with_its_children_by_its_mark(start_rank: StartRank) -> None:
    start_rank(3, SLEEPS)
    mark, other = uuid.uuid4().hex, uuid.uuid4().hex
    words = ["--rank", "3", "--", "sh", "-c", "trap 'exit 9' INT; echo on; while :; do sleep 0.1; done"]
    command = [*ENTER, str(os.getpid()), "--mark", mark, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    process.stdout.readline()
    assert enter("--mark", other, "--interrupt").returncode == 0
    assert enter("--interrupt").returncode == 0, "no mark names no command"
    assert process.poll() is None
    assert enter("--mark", mark, "--interrupt").returncode == 0
    assert process.wait(60) in {9, -signal.SIGINT}
