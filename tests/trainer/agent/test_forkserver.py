"""When the fork server refuses to serve, or to fork an agent. tests/local tests it as kitctl uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kitctl.targets.local import shim
from tests.trainer.nodes import TIMEOUT


@pytest.mark.parametrize(
    ("env", "code", "error"),
    [({"KIT_WARM_WORKERS": "0"}, 1, ""), ({"PET_NNODES": "many"}, 1, "PET_NNODES")],
    ids=["disabled", "invalid environment"],
)
def test_it_exits_before_it_reports_that_it_is_ready(env: dict[str, str], code: int, error: str) -> None:
    command = [sys.executable, "-P", "-m", "kittrain.agent.forkserver", shim.__file__]
    ended = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, input="", check=False)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert error in ended.stderr


SHIM = """
def main(arguments, start):
    agent = start([])
    print("agent:", agent.stdout.read().decode(), "ended", agent.wait(), flush=True)
    return 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", pytest.param("2", marks=pytest.mark.wide)])
def test_an_agent_whose_environment_changes_the_interpreter_starts_a_new_one(tmp_path: Path, seed: str) -> None:
    (tmp_path / "shim.py").write_text(SHIM)
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    request = {"shim": [], "agent": [], "env": env | {"PYTHONHASHSEED": seed}}
    command = [sys.executable, "-P", "-m", "kittrain.agent.forkserver", str(tmp_path / "shim.py")]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    server.communicate(json.dumps(request).encode() + b"\n")
    deadline = time.monotonic() + TIMEOUT
    while "ended" not in (output := (tmp_path / "log").read_text()):
        assert time.monotonic() < deadline, output
        time.sleep(0.05)
    assert "fatal: no command" in output
    assert ("PYTHONHASHSEED was read before it had the job's value" in output) == (seed == "2")
