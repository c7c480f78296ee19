"""The ranks' output is forwarded in whole lines, in order and without delay."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from kittrain.agent.processes.rank_logs import BAR_SECONDS, MAX_LINE, REMEMBERED, REMEMBERED_BYTES, RankLogs


@pytest.fixture
def logs(tmp_path: Path) -> RankLogs:
    return RankLogs(tmp_path)


def begin(logs: RankLogs, *ranks: int) -> dict[int, str]:
    folder = logs.begin(ranks)
    return {local: str(folder / f"{rank}.pipe") for local, rank in enumerate(ranks)}


def test_pieces_of_a_line_are_joined(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pipe = begin(logs, 7)[0]
    with Path(pipe).open("wb", buffering=0) as rank:
        rank.writelines((b"los", b"s 0.", b"5\nlast ", b"words"))
    logs.finish()
    assert capfdbinary.readouterr().out == b"[rank 7]: loss 0.5\n[rank 7]: last words\n"


def test_lines_of_concurrent_ranks_are_never_mixed(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pipes = begin(logs, 0, 1, 2)

    def shout(rank: int) -> None:
        with Path(pipes[rank]).open("wb") as pipe:
            pipe.writelines(f"{rank} says {number}\n".encode() for number in range(2000))

    threads = [threading.Thread(target=shout, args=(rank,)) for rank in pipes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs.finish()
    lines = capfdbinary.readouterr().out.decode().splitlines()
    for rank in range(3):
        own = [line for line in lines if line.startswith(f"[rank {rank}]: ")]
        assert own == [f"[rank {rank}]: {rank} says {number}" for number in range(2000)]


def test_an_endless_line_is_split(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pipe = begin(logs, 0)[0]
    with Path(pipe).open("wb") as rank:
        rank.write(b"x" * (3 * MAX_LINE))
    logs.finish()
    out = capfdbinary.readouterr().out
    assert out.count(b"x") == 3 * MAX_LINE
    assert out.count(b"[rank 0]: ") > 1


def test_each_round_has_its_own_folder_and_its_last_lines_are_kept(logs: RankLogs) -> None:
    assert logs.begin([4]) != logs.begin([4])
    for words in ("first", "second"):
        pipe = begin(logs, 4, 5)[0]
        fd = os.open(pipe, os.O_WRONLY)
        os.write(fd, f"{words}\nand last".encode())
        os.close(fd)
        logs.finish()
        assert (logs.last(4), logs.last(5), logs.last(6)) == ([words, "and last"], [], [])


def test_lines_are_known_by_when_they_were_printed(logs: RankLogs) -> None:
    logs.begin([4])
    with Path(begin(logs, 4)[0]).open("wb", buffering=0) as rank:
        rank.write(b"first\n")
        while not logs.last(4):
            time.sleep(0.01)
        later = time.monotonic()
        rank.write(b"second\nthird\n")
    logs.finish()
    assert logs.last(4, after=later) == ["second", "third"]
    assert logs.last(4, after=time.monotonic()) == []
    assert logs.last(4, within=60.0, after=0.0) == ["first", "second", "third"]


def test_the_last_lines_are_bounded(logs: RankLogs) -> None:
    with Path(begin(logs, 0)[0]).open("wb") as rank:
        rank.writelines(b"x" * 9000 + b"%d\n" % number for number in range(3 * REMEMBERED))
    logs.finish()
    last = logs.last(0)
    assert len(last) == REMEMBERED
    assert last[-1].endswith(f"x{3 * REMEMBERED - 1}")
    assert all(len(line) <= REMEMBERED_BYTES for line in last)


def test_a_progress_bar_is_forwarded_at_intervals(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    began = time.monotonic()
    with Path(begin(logs, 0)[0]).open("wb", buffering=0) as rank:
        for state in range(500):
            rank.write(b"\r%d/500" % state)
            time.sleep(0.002)
        rank.write(b"\r500/500\nlast words\r\n")
    logs.finish()
    lines = capfdbinary.readouterr().out.splitlines()
    assert lines[-2:] == [b"[rank 0]: 500/500", b"[rank 0]: last words"]
    assert 1 <= len(lines) - 2 <= (time.monotonic() - began) / BAR_SECONDS + 1


def test_a_delayed_line_feed_ends_the_same_line(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with Path(begin(logs, 0)[0]).open("wb", buffering=0) as rank:
        for piece in (b"first\r", b"\nsecond\r", b"\n", b"\n"):
            rank.write(piece)
            time.sleep(0.05)  # so that the pieces are mostly read one by one; the output is the same
    logs.finish()
    assert capfdbinary.readouterr().out == b"[rank 0]: first\n[rank 0]: second\n[rank 0]: \n"


def test_an_erased_bar_is_not_a_line_of_spaces(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with Path(begin(logs, 0)[0]).open("wb", buffering=0) as rank:
        rank.write(b"\r 5/9\r      \rafter the bar\n   \n")
    logs.finish()
    assert capfdbinary.readouterr().out.splitlines()[-2:] == [b"[rank 0]: after the bar", b"[rank 0]:    "]
