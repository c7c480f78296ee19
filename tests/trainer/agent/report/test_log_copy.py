"""Copying a node's log never blocks the node, whatever the volume does."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kittrain.agent.report.log_copy import LogCopy, log_copy_path

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (.*)")


def texts(path: Path) -> list[str]:
    found = [LINE.fullmatch(line) for line in path.read_text().splitlines()]
    return [match[1] if match else "" for match in found]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_run_has_a_file_of_lines_with_their_time(tmp_path: Path) -> None:
    for run in (1, 2):
        path = log_copy_path(tmp_path, node_index=3, pod="digits-3-x7k2p", started=1_700_000_000.5 + run)
        copy = LogCopy(path, log=pytest.fail)
        assert copy.agent_runs == run
        copy.write(b"[rank 0]: early\n[rank 1]: early\n")
        copy.start()
        copy.write(b"[agent 3]: late\n")
        copy.close()
        assert copy.agent_runs == run
        assert texts(path) == ["[rank 0]: early", "[rank 1]: early", "[agent 3]: late"]
    assert {path.name for path in (tmp_path / "node-3").iterdir()} == {
        "1700000001500-digits-3-x7k2p.log",
        "1700000002500-digits-3-x7k2p.log",
    }


def test_a_stalled_volume_does_not_block_and_dropped_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "1-pod.log"
    os.mkfifo(path)  # opening it, or writing more than 64 KiB, blocks until there is a reader
    copy = LogCopy(path, log=pytest.fail, limit=1 << 20)
    copy.start()
    for number in range(5000):
        copy.write(b"%d %s\n" % (number, b"x" * 1000))
    received = bytearray()
    with path.open("rb") as reader:

        def read() -> None:
            received.extend(reader.read())

        reading = threading.Thread(target=read)
        reading.start()
        until(lambda: copy._size == 0)
        copy.write(b"last\n")
        copy.close(60)
        reading.join(60)
    lines = [line.split(" ", 2)[1:] for line in received.decode().splitlines()]
    (gap,) = [at for at, line in enumerate(lines) if line[0] == "[log"]
    assert [line[0] for line in lines[:gap]] == [str(number) for number in range(gap)], "the first lines, in order"
    assert lines[gap][1] == f"copy]: {5000 - gap} lines missing: the volume could not keep up"
    assert lines[gap + 1 :] == [["last"]]


def test_a_stalled_volume_does_not_block_close(tmp_path: Path) -> None:
    path = tmp_path / "1-pod.log"
    os.mkfifo(path)
    copy = LogCopy(path, log=lambda _: None)
    copy.start()
    copy.write(b"unheard\n")
    copy.close(timeout=0.1)
    assert copy._thread.is_alive()
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("path", ["/dev/full", "/dev/null/node-0/1-pod.log"])
def test_a_volume_that_cannot_be_written_is_one_warning(path: str) -> None:
    logged: list[str] = []
    copy = LogCopy(Path(path), log=logged.append)
    copy.start()
    for number in range(3):
        copy.write(b"%d\n" % number)
        until(lambda: copy._size == 0)
    copy.close()
    (warning,) = logged
    assert "cannot write the copy of this node's log" in warning


def test_lines_lost_before_a_volume_recovers_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "node-0"
    folder.touch()  # a file, so the folder cannot be created
    logged: list[str] = []
    copy = LogCopy(folder / "1-pod.log", log=logged.append)
    copy.start()
    copy.write(b"lost\n")
    until(lambda: logged)
    folder.unlink()
    copy.write(b"kept\n")
    copy.close()
    assert texts(folder / "1-pod.log") == ["[log copy]: 1 lines missing: the volume could not keep up", "kept"]


def test_a_forked_process_copies_nothing(tmp_path: Path) -> None:
    copy = LogCopy(tmp_path / "1-pod.log", log=pytest.fail)
    child = os.fork()
    if not child:
        copy.write(b"of a rank\n")
        os._exit(0 if not copy._buffer else 1)
    assert os.waitpid(child, 0)[1] == 0
    copy.close()
    assert (tmp_path / "1-pod.log").exists() is False
