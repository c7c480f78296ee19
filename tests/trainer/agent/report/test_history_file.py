"""A node's files of the run's history, under real kills."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from kitjob import timeline
from kitjob.timeline import Event, Line, Row, Writer
from kittrain.agent.report.history_file import HistoryFile, former
from kittrain.helper import history

LIMIT = 1 << 14
CALLS = {"open", "os.rename", "os.remove"}  # Python's audit events before the calls that change files
REWRITE = 3  # calls that a rewrite makes at least
ENDLESS = """
import sys
from pathlib import Path
from kitjob import timeline
from kitjob.timeline import Row, Writer
from kittrain.agent.report.history_file import HistoryFile

name = sys.argv[2]
file = HistoryFile(Path(sys.argv[1]) / f"{name}.jsonl", int(sys.argv[3]))
file.append(timeline.content([Writer(node=0, id=name, time=0.0)]))
print(flush=True)
number = 0
while True:
    number += 1
    file.append(timeline.content([Row(time=float(number), seconds=1.0, round=1, step=number, steps=1)]))
"""


def read(folder: Path) -> list[Line]:
    return [line for path in former(folder) for line in timeline.lines(path.read_bytes())]


def test_no_kill_tears_the_history(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    run = tmp_path / "history" / "run"
    for number in range(10):
        command = [sys.executable, "-c", ENDLESS, str(run / "node-0"), f"{number + 1:013}-1", str(LIMIT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.05))
            process.kill()
    content = b"".join(history.lines(tmp_path))
    assert sum(path.stat().st_size for path in former(run / "node-0")) <= LIMIT
    torn = [text for text in content.split(b"\n")[:-1] if not text.startswith(b'{"run"') and not timeline.decode(text)]
    assert not torn
    found = [*timeline.lines(content)]
    assert {line.id for line in found if isinstance(line, Writer)} >= {"0000000000010-1"}
    covered = 0.0
    for line in found:  # rows follow each other, from the first on, whatever was made coarser
        if isinstance(line, Writer):
            covered = 0.0
        elif isinstance(line, Row):
            assert (line.time - line.seconds, line.step) == (covered, line.time)
            covered = line.time


def grow(folder: Path) -> None:
    """Fill a file of a former agent, and one of this, until the next line makes it shorter."""
    for number in (1, 2):
        file = HistoryFile(folder / f"{number:013}-1.jsonl", LIMIT)
        file.append(timeline.content([Writer(node=0, id=str(number), time=0.0)]))
    while (folder / "0000000000002-1.jsonl").stat().st_size < LIMIT // 2 - 100:
        rows = len(read(folder)) - 2
        file.append(timeline.content([Row(time=float(rows + 1), seconds=1.0, round=1, step=rows + 1, steps=1)]))


def shorten(folder: Path) -> None:
    """Append what the file has no room for."""
    HistoryFile(folder / "0000000000002-1.jsonl", LIMIT).append(b"\n" * 100)


def join(folder: Path) -> None:
    """Begin as the next agent, for which the files of those before are too large."""
    for number in range(3, 8):
        (folder / f"{number:013}-1.jsonl").write_bytes(timeline.content([Writer(node=0, id=str(number), time=0.0)]))
    HistoryFile(folder / "0000000000009-1.jsonl", LIMIT)


def killed_at(call: int, act: Callable[[Path], None], folder: Path) -> bool:
    """Let a process act, and kill it before a system call on a file of this folder; returns whether it came so far."""
    if (child := os.fork()) == 0:
        calls = count()

        def kill(event: str, args: tuple[object, ...]) -> None:
            if event in CALLS and str(folder) in str(args) and next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        act(folder)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("act", [shorten, join])
def test_a_kill_before_any_system_call_of_a_rewrite_loses_nothing(tmp_path: Path, act: Callable[[Path], None]) -> None:
    grow(tmp_path / "whole")
    whole = sum(line.seconds for line in read(tmp_path / "whole") if isinstance(line, Row))
    for call in count():
        folder = tmp_path / f"{call}"
        shutil.copytree(tmp_path / "whole", folder)
        was_killed = killed_at(call, act, folder)
        HistoryFile(folder / "0000000000010-1.jsonl", 16 * LIMIT).append(b"")
        found = {path.name: [*timeline.lines(path.read_bytes())] for path in former(folder)}
        most = max(sum(line.seconds for line in lines if isinstance(line, Row)) for lines in found.values())
        assert most >= whole, f"killed before call {call}"  # a line may be there twice, as readers expect
        assert all(text.startswith(b"{") for path in former(folder) for text in path.read_bytes().split())
        assert not [*folder.glob(".*")], "no draft stays"
        if not was_killed:
            break
    assert call > REWRITE


def test_a_full_file_becomes_shorter_and_goes_on(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "0000000000001-1.jsonl", LIMIT)
    file.append(timeline.content([Writer(node=0, id="a", time=0.0)]))
    for second in range(1, 3001):
        file.append(timeline.content([Row(time=float(second), seconds=1.0, round=1, step=second, steps=1)]))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT // 2
    rows = [line for line in read(tmp_path) if isinstance(line, Row)]
    assert (sum(row.seconds for row in rows), rows[-1].step) == (3000, 3000)


def test_files_of_former_agents_become_one(tmp_path: Path) -> None:
    for number in range(1, 101):
        file = HistoryFile(tmp_path / f"{number:013}-1.jsonl", LIMIT)
        file.append(timeline.content([Writer(node=0, id=str(number), time=0.0), Event(time=1.0, what="started")]))
    assert len(former(tmp_path)) <= 6
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= LIMIT
    writers = [line.id for line in read(tmp_path) if isinstance(line, Writer)]
    assert (writers[0], writers[-1]) == ("1", "100")


def test_after_a_full_disk_the_next_lines_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "0000000000001-1.jsonl"
    file = HistoryFile(path, LIMIT)
    file.append(timeline.content([Writer(node=0, id="a", time=0.0)]))
    file._torn = True  # as after a write that the disk took a part of
    with path.open("ab") as torn:
        torn.write(b'{"kind":"event","ti')
    file.append(timeline.content([Event(time=1.0, what="started")]))
    assert [type(line) for line in read(tmp_path)] == [Writer, Event]
