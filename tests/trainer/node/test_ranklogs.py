"""What ranks print arrives whole, in order and in time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trainer.node.ranklogs import LONGEST_LINE, RankLogs


@pytest.fixture
def logs(tmp_path: Path) -> RankLogs:
    return RankLogs(scratch=tmp_path, log_dir=tmp_path / "kept", warn=pytest.fail)


def begin(logs: RankLogs, *ranks: int) -> dict[int, str]:
    folder = logs.begin(ranks)
    return {local: str(folder / f"{rank}.pipe") for local, rank in enumerate(ranks)}


def test_pieces_of_a_line_arrive_as_one(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pipe = begin(logs, 7)[0]
    with Path(pipe).open("wb", buffering=0) as rank:
        rank.writelines((b"los", b"s 0.", b"5\nlast ", b"words"))
    logs.finish()
    assert capfdbinary.readouterr().out == b"[rank 7]: loss 0.5\n[rank 7]: last words\n"


def test_lines_of_ranks_that_shout_at_once_are_never_mixed(
    logs: RankLogs, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
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
        kept = (tmp_path / "kept" / f"rank-{rank}.log").read_text().splitlines()
        assert kept == [f"{rank} says {number}" for number in range(2000)]


def test_an_endless_line_is_passed_on_in_pieces(logs: RankLogs, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pipe = begin(logs, 0)[0]
    with Path(pipe).open("wb") as rank:
        rank.write(b"x" * (3 * LONGEST_LINE))
    logs.finish()
    out = capfdbinary.readouterr().out
    assert out.count(b"x") == 3 * LONGEST_LINE
    assert out.count(b"[rank 0]: ") > 1


def test_each_round_has_its_own_folder_and_kept_logs_go_on(logs: RankLogs, tmp_path: Path) -> None:
    assert logs.begin([4]) != logs.begin([4])
    for words in (b"first\n", b"second\n"):
        pipe = begin(logs, 4)[0]
        fd = os.open(pipe, os.O_WRONLY)
        os.write(fd, words)
        os.close(fd)
        logs.finish()
    assert (tmp_path / "kept" / "rank-4.log").read_text() == "first\nsecond\n"


def test_copies_that_cannot_be_kept_cost_a_warning_and_not_the_run(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "full").touch()  # no folder can be made in there
    warnings: list[str] = []
    logs = RankLogs(scratch=tmp_path, log_dir=tmp_path / "full" / "node-0", warn=warnings.append)
    for words in (b"first\n", b"second\n"):
        with Path(begin(logs, 0, 1)[1]).open("wb") as rank:
            rank.write(words)
        logs.finish()
    assert capfdbinary.readouterr().out == b"[rank 1]: first\n[rank 1]: second\n"
    assert len(warnings) == 1
    assert "Not a directory" in warnings[0]
