"""When ranks count as stalled."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from kittrain.node.ranklogs import RankLogs
from kittrain.node.watch import LOOK, Watch
from kittrain.rendezvous.backend import Rendezvous
from kittrain.system.heartbeat import Heart, Phase, prepare


class Ranks:
    """Two ranks whose agent looks at them; time passes only where a test says so."""

    def __init__(self, folder: Path, timeout: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.stalled = self.frozen = self.stacks_requested = False
        self.said: list[str] = []
        self.watch = Watch(cast("Rendezvous", self), cast("RankLogs", None), timeout=timeout, say=self.said.append)
        files = [prepare(folder / f"{rank}") for rank in range(2)]
        self.process = subprocess.Popen(["sleep", "600"])  # stands for one of them, and may be stopped
        pids = [os.getpid(), self.process.pid]
        self.watch.begin({rank: (pid, file) for rank, (pid, file) in enumerate(zip(pids, files, strict=True))})
        self.hearts = [Heart(file) for file in files]

    def heartbeat(self, *, stalled: bool, frozen: bool, progress: Mapping[int, tuple[int, float]]) -> None:
        self.stalled, self.frozen = stalled, frozen
        self.progress = progress

    def beat(self, phase: Phase, *, step: int | None = None) -> None:
        for heart in self.hearts:
            heart.beat(phase, step=step)

    def step(self, number: int, seconds: float) -> None:
        self.beat(Phase.FORWARD)
        self.rest(seconds)
        self.beat(Phase.AGREEING, step=number)

    def rest(self, seconds: float) -> bool:
        """Let time pass; whether the agent says that the ranks are stalled."""
        until = self.now + seconds
        while self.now < until:
            self.now += LOOK
            self.watch.look()
        return self.stalled


@pytest.fixture
def ranks(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path, getattr(request, "param", None), monkeypatch)
    yield ranks
    ranks.process.kill()
    ranks.process.wait()


def test_a_script_that_tells_nothing_is_never_stalled(ranks: Ranks) -> None:
    assert not ranks.rest(5000)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="that a process is stopped is seen on Linux only")
@pytest.mark.parametrize(("ranks", "patience"), [(None, 30), (100.0, 100)], indirect=["ranks"])
def test_a_process_that_was_stopped_may_be_so_as_long_as_a_step_may_take_whatever_it_does(
    ranks: Ranks, patience: float
) -> None:
    ranks.beat(Phase.RESTORING)
    os.kill(ranks.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, ranks.process.pid, os.WSTOPPED)
    ranks.rest(patience)
    assert not ranks.frozen
    ranks.rest(1)
    assert (ranks.frozen, ranks.stalled) == (True, False)
    ranks.process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, ranks.process.pid, os.WCONTINUED)
    ranks.rest(1)
    assert not ranks.frozen


def test_the_first_step_may_take_long_the_others_half_a_minute(ranks: Ranks) -> None:
    ranks.step(1, 600)
    assert not ranks.stalled
    ranks.step(2, 1)
    assert not ranks.rest(30)
    assert ranks.rest(1)


def test_one_rank_that_moves_is_enough(ranks: Ranks) -> None:
    ranks.step(1, 1)
    ranks.hearts[0].beat(Phase.EVALUATING)
    assert not ranks.rest(1000)
    ranks.hearts[0].beat(Phase.DATA)
    assert not ranks.rest(30)
    assert ranks.rest(1)
    ranks.hearts[1].beat(Phase.DATA)
    assert not ranks.rest(1)


def test_slow_steps_may_take_ten_times_what_most_of_them_take(ranks: Ranks) -> None:
    ranks.step(1, 300)
    for number in range(2, 8):
        ranks.step(number, 20)
    ranks.beat(Phase.FORWARD)
    assert not ranks.rest(199)
    assert ranks.rest(5)


@pytest.mark.parametrize("ranks", [5.0], indirect=True)
def test_a_time_that_was_set_holds_for_steps_and_shortens_nothing_else(ranks: Ranks) -> None:
    ranks.step(1, 60)
    ranks.beat(Phase.FORWARD)
    assert not ranks.rest(5)
    assert ranks.rest(1)
    ranks.beat(Phase.SAVING)
    assert not ranks.rest(800)


@pytest.mark.parametrize("ranks", [math.inf], indirect=True)
def test_off_is_off(ranks: Ranks) -> None:
    ranks.step(1, 1)
    assert not ranks.rest(5000)


def test_an_agent_that_was_itself_suspended_takes_nobody_for_stalled(ranks: Ranks) -> None:
    ranks.step(1, 1)
    assert not ranks.rest(1)
    ranks.now += 3600
    assert not ranks.rest(1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="what a process uses is seen on Linux only")
@pytest.mark.parametrize(("ranks", "exempt"), [(None, True), (100.0, False)], indirect=["ranks"])
def test_a_rank_that_works_may_take_longer_but_not_for_ever_nor_where_the_job_says_how_long(
    ranks: Ranks, *, exempt: bool
) -> None:
    ranks.step(1, 1)
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        watched = ranks.watch._ranks[1]
        watched.pid = busy.pid
        ranks.rest(105)
        told = ranks.watch._status(1, watched, None)
        assert (told.busy, told.exempt) == (True, exempt)
        watched.still += 3600.0
        told = ranks.watch._status(1, watched, None)
        assert (told.busy, told.exempt) == (True, False)
        busy.kill()
