"""A node's files of the run's history, under real kills."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from kitjob import timeline
from kitjob.timeline import Event, Line, Row, Writer
from kittrain.agent.report.history_file import HistoryFile, former
from kittrain.helper import history

LIMIT = 1 << 14
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
