"""The tests' jobs are forked from one process of the session, unless their environment asks for a new interpreter."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.local.test_fork_server import command, parent

if TYPE_CHECKING:
    from tests.local.conftest import Kit

SLEEPS = "import time\ntime.sleep(600)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "warm"),
    [
        ({}, True),
        pytest.param({"MALLOC_ARENA_MAX": "3"}, False, marks=pytest.mark.wide),  # it is read at the start of a process
    ],
)
def test_jobs_are_forked_from_it_or_start_by_themselves(
    kit: Kit, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, warm: bool
) -> None:
    (kit.folder / "sleeps.py").write_text(SLEEPS)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    kit.run("submit", "--name", "job", "sleeps.py")
    server = parent(parent(kit.agent("job", 0)))
    assert ("warm_fork_server.py" in command(server)) == warm
    kit.run("cancel", "job")
    ended = ["timeout", "60", "tail", "--pid", str(server), "-f", "/dev/null"]
    subprocess.run(ended, check=True)  # it ends with the supervisor, whoever its parent is
