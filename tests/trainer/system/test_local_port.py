"""A port that a script has fixed is its own: no process of another job or session is met there."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kittrain.system.local_port import local_port, taken_by_others
from tests.trainer.nodes import free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CHOOSE = """
import sys, time
from pathlib import Path
from kittrain.system.local_port import local_port
print(local_port(int(sys.argv[1]), Path(sys.argv[2])).number, flush=True)
sys.stdin.read()
"""


def test_a_free_port_is_kept_and_so_is_one_at_which_this_session_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert not taken_by_others(port)
        assert local_port(port, tmp_path / "own") == (port, True)
    assert local_port(port, tmp_path / "own") == (port, False)


def test_a_port_at_which_another_session_listens_is_replaced(tmp_path: Path) -> None:
    listen = (
        "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", listen]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, start_new_session=True) as other:
        assert other.stdout
        port = int(other.stdout.readline())
        assert taken_by_others(port)
        chosen = local_port(port, tmp_path / "port")
        assert chosen.number != port
        assert local_port(port, tmp_path / "port") == (chosen.number, False)
        other.communicate()


def test_of_sessions_that_choose_before_any_listens_one_gets_the_port(tmp_path: Path) -> None:
    port = free_port()
    choosing = [
        subprocess.Popen(
            [sys.executable, "-c", CHOOSE, str(port), str(tmp_path / str(number))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for number in range(3)
    ]
    chosen = [int(process.stdout.readline()) for process in choosing if process.stdout]
    for process in choosing:
        process.communicate()
    assert len(set(chosen)) == 3
    assert chosen.count(port) == 1
