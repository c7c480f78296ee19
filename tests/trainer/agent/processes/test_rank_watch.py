"""When ranks count as stalled."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from kittrain.agent.processes.rank_logs import RankLogs
from kittrain.agent.processes.rank_watch import POLL_INTERVAL, RankWatch
from kittrain.agent.rendezvous.backend import Rendezvous
from kittrain.system.heartbeat import HeartbeatWriter, Phase, ScriptWriter, prepare


class Ranks:
    """Two ranks and their watch, with a fake clock."""

    def __init__(self, folder: Path, timeout: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.stalled = self.frozen = self.stacks_requested = False
        self.logged: list[str] = []
        watch = partial(RankWatch, cast("Rendezvous", self), cast("RankLogs", None))
        self.watch = watch(timeout=timeout, log=self.logged.append)
        files = [prepare(folder / f"{rank}") for rank in range(2)]
        self.process = subprocess.Popen(["sleep", "600"])  # stands for one of them, and can be stopped
        pids = [os.getpid(), self.process.pid]
        self.watch.begin({rank: (pid, file) for rank, (pid, file) in enumerate(zip(pids, files, strict=True))})
        self.heartbeats = [HeartbeatWriter(file) for file in files]
        self.hooks = [ScriptWriter(file) for file in files]

    def heartbeat(self, *, stalled: bool, frozen: bool, progress: Mapping[int, tuple[int, float]]) -> None:
        self.stalled, self.frozen = stalled, frozen
        self.progress = progress

    def beat(self, phase: Phase, *, step: int | None = None) -> None:
        for writer in self.heartbeats:
            writer.beat(phase, step=step)

    def step(self, number: int, seconds: float) -> None:
        self.beat(Phase.FORWARD)
        self.rest(seconds)
        self.beat(Phase.SYNCING, step=number)

    def script_step(self, seconds: float) -> None:
        """A step of the script's own loop, and what comes before it."""
        self.rest(seconds)
        for hooks in self.hooks:
            hooks.optimizer_called(1)

    def rest(self, seconds: float) -> bool:
        """Advance the clock; returns whether the ranks were reported as stalled."""
        until = self.now + seconds
        while self.now < until:
            self.now += POLL_INTERVAL
            self.watch.poll()
        return self.stalled


@pytest.fixture
def ranks(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path, getattr(request, "param", None), monkeypatch)
    yield ranks
    ranks.process.kill()
    ranks.process.wait()


def test_a_script_without_optimizer_steps_is_never_stalled(ranks: Ranks) -> None:
    assert not ranks.rest(5000)
    assert ranks.watch.script_progress == {}


def test_between_steps_of_its_own_loop_a_script_has_five_minutes(ranks: Ranks) -> None:
    ranks.script_step(2000)
    ranks.script_step(1)
    assert not ranks.rest(300)
    assert ranks.rest(1)
    assert ranks.progress == {0: (0, 0.0), 1: (0, 0.0)}, "none of their steps were timed"
    ranks.hooks[0].optimizer_called(1)
    assert not ranks.rest(1)
    assert ranks.watch.script_progress["step"] == 3


def test_a_script_that_has_paused_for_long_may_do_so_again(ranks: Ranks) -> None:
    ranks.script_step(1)
    ranks.script_step(100)  # it evaluates
    ranks.script_step(1)
    assert not ranks.rest(1000)
    assert ranks.rest(5)


@pytest.mark.parametrize("ranks", [5.0], indirect=True)
def test_a_given_timeout_applies_to_a_scripts_own_loop(ranks: Ranks) -> None:
    ranks.script_step(60)
    assert not ranks.rest(5)
    assert ranks.rest(1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(("ranks", "timeout"), [(None, 30), (100.0, 100)], indirect=["ranks"])
def test_a_stopped_process_has_the_step_timeout_in_any_phase(ranks: Ranks, timeout: float) -> None:
    ranks.beat(Phase.RESTORING)
    os.kill(ranks.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, ranks.process.pid, os.WSTOPPED)
    ranks.rest(timeout)
    assert not ranks.frozen
    ranks.rest(1)
    assert (ranks.frozen, ranks.stalled) == (True, False)
    ranks.process.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, ranks.process.pid, os.WCONTINUED)
    ranks.rest(1)
    assert not ranks.frozen


def test_the_first_step_may_take_long_and_others_half_a_minute(ranks: Ranks) -> None:
    ranks.step(1, 600)
    assert not ranks.stalled
    ranks.step(2, 1)
    assert not ranks.rest(30)
    assert ranks.rest(1)


@pytest.mark.parametrize("resumed_at", [0, 3, 700])
def test_a_second_training_of_the_script_has_time_for_its_first_step_and_a_speed_of_its_own(
    ranks: Ranks, resumed_at: int
) -> None:
    for number in range(3):
        ranks.step(number + 1, 1)
    ranks.beat(Phase.FINISHING)
    assert not ranks.rest(5000), "the script's own code between the two"
    ranks.beat(Phase.RESTORING)
    ranks.rest(1)
    ranks.beat(Phase.DATA, step=resumed_at)
    assert not ranks.rest(600)
    ranks.step(resumed_at + 1, 100)
    ranks.step(resumed_at + 2, 20)
    ranks.step(resumed_at + 3, 20)
    ranks.beat(Phase.DATA)
    assert not ranks.rest(190)
    assert ranks.rest(20)


def test_one_rank_with_progress_is_enough(ranks: Ranks) -> None:
    ranks.step(1, 1)
    ranks.heartbeats[0].beat(Phase.EVALUATING)
    assert not ranks.rest(1000)
    ranks.heartbeats[0].beat(Phase.DATA)
    assert not ranks.rest(30)
    assert ranks.rest(1)
    ranks.heartbeats[1].beat(Phase.DATA)
    assert not ranks.rest(1)


def test_a_step_may_take_ten_times_the_usual_time(ranks: Ranks) -> None:
    ranks.step(1, 300)
    for number in range(2, 8):
        ranks.step(number, 20)
    ranks.beat(Phase.FORWARD)
    assert not ranks.rest(199)
    assert ranks.rest(5)


@pytest.mark.parametrize("ranks", [5.0], indirect=True)
def test_a_given_timeout_applies_to_steps_and_shortens_nothing_else(ranks: Ranks) -> None:
    ranks.step(1, 60)
    ranks.beat(Phase.FORWARD)
    assert not ranks.rest(5)
    assert ranks.rest(1)
    ranks.beat(Phase.SAVING)
    assert not ranks.rest(800)


@pytest.mark.parametrize("ranks", [math.inf], indirect=True)
def test_an_infinite_timeout_disables_detection(ranks: Ranks) -> None:
    ranks.step(1, 1)
    assert not ranks.rest(5000)


def test_a_suspended_agent_sees_no_stall(ranks: Ranks) -> None:
    ranks.step(1, 1)
    assert not ranks.rest(1)
    ranks.now += 3600
    assert not ranks.rest(1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(("ranks", "exempt"), [(None, True), (100.0, False)], indirect=["ranks"])
def test_a_busy_rank_may_take_longer_but_not_forever_nor_with_a_given_timeout(ranks: Ranks, *, exempt: bool) -> None:
    ranks.step(1, 1)
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        watched = ranks.watch._ranks[1]
        watched.pid = busy.pid
        ranks.rest(105)
        status = ranks.watch._status(1, watched, None)
        assert (status.busy, status.exempt) == (True, exempt)
        watched.still += 3600.0
        status = ranks.watch._status(1, watched, None)
        assert (status.busy, status.exempt) == (True, False)
        busy.kill()
