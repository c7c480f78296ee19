"""When there is no fork server, so that every node starts from a new interpreter; tests/local shows one at work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kitctl.targets.local import shim


@pytest.mark.parametrize(
    ("env", "code", "told"),
    [({"KIT_WARM_WORKERS": "0"}, 1, ""), ({"PET_NNODES": "many"}, 1, "PET_NNODES")],
    ids=["not wanted", "not understood"],
)
def test_it_ends_before_it_says_that_it_is_warm(env: dict[str, str], code: int, told: str) -> None:
    command = [sys.executable, "-P", "-m", "trainer.forkserver", shim.__file__]
    ended = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, input="", check=False)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert told in ended.stderr
