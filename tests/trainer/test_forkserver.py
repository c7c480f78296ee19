"""When there is no fork server, so that every node starts from a new interpreter; tests/local shows one at work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kitctl.targets.local import shim
from tests.trainer.nodes import PATIENCE


@pytest.mark.parametrize(
    ("env", "code", "told"),
    [({"KIT_WARM_WORKERS": "0"}, 1, ""), ({"PET_NNODES": "many"}, 1, "PET_NNODES")],
    ids=["not wanted", "not understood"],
)
def test_it_ends_before_it_says_that_it_is_warm(env: dict[str, str], code: int, told: str) -> None:
    command = [sys.executable, "-P", "-m", "kittrain.forkserver", shim.__file__]
    ended = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, input="", check=False)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert told in ended.stderr


KEEPER = """
def main(arguments, start):
    agent = start([])
    print("agent:", agent.stdout.read().decode(), "ended", agent.wait(), flush=True)
    return 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_an_agent_with_another_environment_for_its_interpreter_gets_an_interpreter_of_its_own(
    tmp_path: Path, seed: str
) -> None:
    (tmp_path / "keeper.py").write_text(KEEPER)
    env = {**os.environ, "PYTHONHASHSEED": "1"}
    order = {"keeper": [], "agent": [], "env": env | {"PYTHONHASHSEED": seed}}
    command = [sys.executable, "-P", "-m", "kittrain.forkserver", str(tmp_path / "keeper.py")]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    server.communicate(json.dumps(order).encode() + b"\n")
    deadline = time.monotonic() + PATIENCE
    while "ended" not in (told := (tmp_path / "log").read_text()):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    assert "fatal: no command" in told
    assert ("PYTHONHASHSEED was read before it had the job's value" in told) == (seed == "2")
