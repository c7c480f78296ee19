"""How long a rank may be still, and when it is unusually quiet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kittrain.agent.processes.watched_rank import (
    FIRST_STEP_TIMEOUT,
    MIN_QUIET,
    MIN_SCRIPT_TIMEOUT,
    MIN_STEP_TIMEOUT,
    WatchedRank,
)
from kittrain.system import heartbeat
from kittrain.system.heartbeat import HeartbeatState, Phase

NONE = (0.0,) * len(Phase)
STEPPED = tuple(float(phase is Phase.SYNCING) for phase in Phase)


@pytest.fixture
def rank(tmp_path: Path) -> WatchedRank:
    return watched(os.getpid(), tmp_path)


def watched(pid: int, folder: Path, still: float = 0.0) -> WatchedRank:
    file = heartbeat.prepare(folder / "rank")
    return WatchedRank(pid=pid, file=file, beat=HeartbeatState.read(file), still=still)


def in_phase(rank: WatchedRank, phase: Phase, *, stepped: bool) -> WatchedRank:
    rank.beat = replace(rank.beat, phase=phase, first=STEPPED if stepped else NONE)
    return rank


@pytest.mark.parametrize(
    ("phase", "stepped", "timeout", "limit"),
    [
        (Phase.JOINING, False, None, FIRST_STEP_TIMEOUT),
        (Phase.JOINING, False, 2000.0, 2000.0),
        (Phase.EVALUATING, True, 5.0, 3600.0),
        (Phase.BACKWARD, False, 5.0, FIRST_STEP_TIMEOUT),
        (Phase.BACKWARD, True, 5.0, 5.0),
        (Phase.BACKWARD, True, None, MIN_STEP_TIMEOUT),
        (Phase.SCRIPT, True, None, MIN_SCRIPT_TIMEOUT),
        (Phase.SCRIPT, True, 5.0, 5.0),
        (Phase.FINISHING, True, 5.0, float("inf")),
    ],
)
def test_each_phase_has_its_limit(
    rank: WatchedRank, phase: Phase, timeout: float | None, limit: float, *, stepped: bool
) -> None:
    assert in_phase(rank, phase, stepped=stepped).limit(timeout) == limit


def test_slow_steps_and_slow_scripts_get_longer_limits(rank: WatchedRank) -> None:
    rank.steps.extend([1.0] * 50 + [20.0])
    rank.longest = 100.0
    assert in_phase(rank, Phase.BACKWARD, stepped=True).limit(None) == 200.0
    assert in_phase(rank, Phase.SCRIPT, stepped=True).limit(None) == 1000.0


def test_a_rank_is_quiet_after_ten_of_its_usual_steps_and_not_while_it_starts(rank: WatchedRank) -> None:
    in_phase(rank, Phase.BACKWARD, stepped=False).stepping = 1e6
    assert not rank.is_quiet(time.monotonic()), "it has joined no group yet"
    in_phase(rank, Phase.BACKWARD, stepped=True)
    rank.paces.extend([3.0] * 5)
    assert rank.quiet_limit == 30.0
    for seconds, quiet in ((MIN_QUIET + 1, False), (31.0, True)):
        rank.stepping = seconds
        assert rank.is_quiet(time.monotonic()) is quiet


def test_only_a_process_that_is_stopped_for_longer_than_a_step_may_take_counts_as_stopped(tmp_path: Path) -> None:
    with spinning() as process:
        rank = watched(process.pid, tmp_path, still=MIN_STEP_TIMEOUT + 1)
        assert (rank.is_stopped(None), rank.frozen, rank.ended) == (False, False, False)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert (rank.is_stopped(None), rank.is_stopped(1000.0)) == (True, False)
    assert (rank.frozen, rank.ended) == (False, True)


@contextmanager
def spinning() -> Iterator[subprocess.Popen[bytes]]:
    """A process that computes, until the end of the block."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"message": {"message": "ValueError: bad row\\nmore", "extraInfo": {}}}', "ValueError: bad row"),
        ('{"message": "ValueError: bad row"}', "ValueError: bad row"),
        ('{"message": {"message": "' + 99 * "x" + '"}}', 59 * "x" + "…"),
        ('{"message": {"mess', ""),  # it is being written
        ('{"message": null}', ""),
        ("[]", ""),
        (None, ""),
    ],
)
def test_the_error_with_which_its_script_has_ended(rank: WatchedRank, written: str | None, told: str) -> None:
    rank.file = rank.file.with_name("3.heartbeat")
    if written is not None:
        rank.file.with_name("3.error.json").write_text(written)
    assert rank.failed == told
