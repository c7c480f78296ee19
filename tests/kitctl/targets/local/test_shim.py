"""The shim with real processes and real signals."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kitctl.targets.local import shim
from kitctl.targets.local.folder import NodeFolder
from tests.trainer.mounts import tmpfs

WAIT_SECONDS = 120.0


def start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", shim.__file__, str(folder), "1", "0", "--", *command])


def eventually(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not check():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("command", "end"), [("exit 0", {"code": 0}), ("exit 75", {"code": 75}), ("kill -9 $$", {"signal": 9})]
)
def test_it_records_how_the_agent_ended(tmp_path: Path, command: str, end: dict[str, int]) -> None:
    start(tmp_path, "sh", "-c", command).wait(WAIT_SECONDS)
    recorded = json.loads((tmp_path / "1.exit.json").read_text())
    assert {key: recorded[key] for key in end} == end
    assert ("code" in recorded) != ("signal" in recorded)


def test_it_logs_both_streams_line_by_line_with_times(tmp_path: Path) -> None:
    start(tmp_path, "sh", "-c", "echo one; echo two >&2; printf three").wait(WAIT_SECONDS)
    lines = (tmp_path / "1.log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["one", "two", "three"]
    assert all(len(line.partition(" ")[0]) == len("2026-01-01T00:00:00.000000Z") for line in lines)


def test_a_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    start(tmp_path, str(tmp_path / "absent")).wait(WAIT_SECONDS)
    assert json.loads((tmp_path / "1.exit.json").read_text())["code"] == 127
    assert "cannot start" in (tmp_path / "1.log").read_text()


def test_it_holds_its_lock_while_the_agent_runs(tmp_path: Path) -> None:
    node = NodeFolder(tmp_path, 0)
    process = start(tmp_path, "sleep", "60")
    eventually(lambda: node.alive() and node.started(1))
    started = node.started(1)
    assert started is not None
    assert os.getsid(started.pid) == started.pid, "the agent has its own session"
    os.kill(started.pid, signal.SIGTERM)
    process.wait(WAIT_SECONDS)
    assert not node.alive()
    exited = node.exited(1)
    assert exited is not None
    assert exited.signal == signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="child subreapers are Linux'; elsewhere ranks watch their agent")
def test_the_descendants_of_a_killed_agent_are_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    tree = f"(setsid sh -c 'echo $$ >> {pids}; sleep 60' & setsid sh -c 'echo $$ >> {pids}; sleep 60' & sleep 60)"
    process = start(tmp_path, "sh", "-c", f"echo $$ >> {pids}; {tree}; true")
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    agent, *ranks = map(int, pids.read_text().split())
    os.kill(agent, signal.SIGKILL)
    process.wait(WAIT_SECONDS)
    assert not [pid for pid in ranks if alive(pid)]
    assert json.loads((tmp_path / "1.exit.json").read_text())["signal"] == signal.SIGKILL


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "])
def test_a_node_whose_folder_is_deleted_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: str) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    short = f"import sys; sys.path[0] = {str(Path(shim.__file__).parent)!r}; import shim; "
    short += "shim.CHECK_SECONDS = shim.END_SECONDS = 0.05; sys.exit(shim.main(sys.argv[1:]))"
    agent = ["sh", "-c", f"{stubborn}echo $$ > {tmp_path}/pid; while true; do sleep 0.05; done"]
    running = subprocess.Popen([sys.executable, "-S", "-c", short, str(folder), "1", "0", "--", *agent])
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    assert running.poll() is None
    folder.rename(tmp_path / "removed")  # at once: what still writes there would keep a folder that is being emptied
    assert running.wait(WAIT_SECONDS) == 0
    assert not alive(int((tmp_path / "pid").read_text()))
    assert not folder.exists()


@pytest.mark.needs_root
def test_on_a_full_disk_the_agent_goes_on_and_its_end_is_recorded(tmp_path: Path) -> None:
    """An agent whose lines nobody reads would stop in one of them, for ever."""
    with tmpfs(tmp_path / "node", size="200k") as folder:
        said, go = tmp_path / "said", tmp_path / "go"
        lines = "i=0; while [ $i -lt 6000 ]; do echo line $i of many, each of a hundred bytes or so; i=$((i+1)); done"
        waits = f"touch {said}; while ! [ -e {go} ]; do sleep 0.02; done"
        process = start(folder, "sh", "-c", f"{lines}; {waits}; echo last; exit 75")
        written = folder / "1.log"
        eventually(said.exists)  # it has said all that, of which a third has no room
        eventually(lambda: written.stat().st_size > 4096 and unchanged(written))
        written.write_bytes(written.read_bytes()[:4096])  # room again
        go.touch()
        process.wait(WAIT_SECONDS)
        assert json.loads((folder / "1.exit.json").read_text())["code"] == 75
        *_, told, last = written.read_text().splitlines()
        assert "lines before this one could not be kept: No space left on device" in told
        assert last.endswith(" last")


def unchanged(path: Path) -> bool:
    before = path.stat().st_size
    time.sleep(0.5)
    return path.stat().st_size == before


@pytest.mark.needs_root
def test_an_end_on_a_disk_that_is_full_by_then_is_recorded(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "node", size="200k") as folder:
        filler = folder / "filler"
        process = start(folder, "sh", "-c", f"dd if=/dev/zero of={filler} bs=1k; exit 75")
        process.wait(WAIT_SECONDS)
        assert filler.stat().st_size > 100 << 10
        assert json.loads((folder / "1.exit.json").read_text())["code"] == 75
        assert NodeFolder(folder, 0).exited(1) is not None


class Disk(io.RawIOBase):
    """A log on a disk with so many bytes left at each write; -1: with room."""

    def __init__(self, *left: int) -> None:
        self.left = list(left)
        self.kept = b""

    def write(self, data: Any) -> int:
        room = self.left.pop(0)
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.kept += bytes(data)[: None if room < 0 else room]
        return len(data) if room < 0 else min(room, len(data))


def test_all_lines_without_room_are_counted_also_if_the_disk_is_full_again_within_that_line() -> None:
    disk = Disk(-1, 0, 0, 40, 0, -1, -1)
    shim.copy(io.BytesIO(b"".join(b"line %d\n" % number for number in range(7))), disk)  # type: ignore[arg-type]
    first, cut, told, *last = disk.kept.decode().splitlines()
    assert first.endswith(" line 0")
    assert len(cut) == 40
    assert told.endswith("[agent] 4 lines before this one could not be kept: No space left on device")
    assert [line.partition(" ")[2] for line in last] == ["line 5", "line 6"]
