"""The copy of a node's log costs the node nothing, whatever its volume does."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kittrain.node.keeping import Keeper, path_of

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (.*)")


def texts(path: Path) -> list[str]:
    found = [LINE.fullmatch(line) for line in path.read_text().splitlines()]
    return [match[1] if match else "" for match in found]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lines_are_kept_with_their_time_in_a_file_for_each_life(tmp_path: Path) -> None:
    for life in (1, 2):
        path = path_of(tmp_path, node_index=3, pod="digits-3-x7k2p", begun=1_700_000_000.5 + life)
        keeper = Keeper(path, say=pytest.fail)
        assert keeper.lives == life
        keeper.put(b"[rank 0]: early\n[rank 1]: early\n")
        keeper.start()
        keeper.put(b"[agent 3]: late\n")
        keeper.close()
        assert keeper.lives == life
        assert texts(path) == ["[rank 0]: early", "[rank 1]: early", "[agent 3]: late"]
    assert {path.name for path in (tmp_path / "node-3").iterdir()} == {
        "1700000001500-digits-3-x7k2p.log",
        "1700000002500-digits-3-x7k2p.log",
    }


def test_a_volume_that_stalls_stops_nobody_and_what_it_did_not_take_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "1-pod.log"
    os.mkfifo(path)  # to open it, and to write more than its 64 KiB, is to wait for a reader
    keeper = Keeper(path, say=pytest.fail, limit=1 << 20)
    keeper.start()
    for number in range(5000):
        keeper.put(b"%d %s\n" % (number, b"x" * 1000))
    received = bytearray()
    with path.open("rb") as reader:

        def read() -> None:
            received.extend(reader.read())

        reading = threading.Thread(target=read)
        reading.start()
        until(lambda: keeper._size == 0)
        keeper.put(b"last\n")
        keeper.close(60)
        reading.join(60)
    lines = [line.split(" ", 2)[1:] for line in received.decode().splitlines()]
    (gap,) = [at for at, line in enumerate(lines) if line[0] == "[kept]:"]
    assert [line[0] for line in lines[:gap]] == [str(number) for number in range(gap)], "the first ones, in their order"
    assert lines[gap][1] == f"{5000 - gap} lines are missing here: the volume did not take them"
    assert lines[gap + 1 :] == [["last"]]


def test_a_volume_that_stays_away_does_not_hold_up_the_end(tmp_path: Path) -> None:
    path = tmp_path / "1-pod.log"
    os.mkfifo(path)
    keeper = Keeper(path, say=lambda _: None)
    keeper.start()
    keeper.put(b"unheard\n")
    keeper.close(patience=0.1)
    assert keeper._thread.is_alive()
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("path", ["/dev/full", "/dev/null/node-0/1-pod.log"])
def test_a_volume_that_cannot_be_written_costs_one_warning(path: str) -> None:
    told: list[str] = []
    keeper = Keeper(Path(path), say=told.append)
    keeper.start()
    for number in range(3):
        keeper.put(b"%d\n" % number)
        until(lambda: keeper._size == 0)
    keeper.close()
    (warning,) = told
    assert "no copy of this node's log is kept" in warning


def test_what_was_lost_on_a_volume_that_comes_back_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "node-0"
    folder.touch()  # no folder yet
    told: list[str] = []
    keeper = Keeper(folder / "1-pod.log", say=told.append)
    keeper.start()
    keeper.put(b"lost\n")
    until(lambda: told)
    folder.unlink()
    keeper.put(b"kept\n")
    keeper.close()
    assert texts(folder / "1-pod.log") == ["[kept]: 1 lines are missing here: the volume did not take them", "kept"]


def test_a_process_that_was_forked_keeps_nothing(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path / "1-pod.log", say=pytest.fail)
    child = os.fork()
    if not child:
        keeper.put(b"of a rank\n")
        os._exit(0 if not keeper._waiting else 1)
    assert os.waitpid(child, 0)[1] == 0
    keeper.close()
    assert (tmp_path / "1-pod.log").exists() is False
