"""When ranks count as stalled."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from kittrain.agent.processes.rank_logs import RankLogs
from kittrain.agent.processes.rank_watch import LISTENING, POLL_INTERVAL, SAYING, RankWatch
from kittrain.agent.rendezvous.diagnosis import RankStatus
from kittrain.agent.rendezvous.interface import Rendezvous
from kittrain.system.heartbeat import HeartbeatWriter, Phase, ScriptWriter, prepare


class Ranks:
    """Two ranks and their watch, with a fake clock."""

    def __init__(self, folder: Path, timeout: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.stalled = self.frozen = self.quiet = self.stacks_requested = self.look_requested = False
        self.seen: list[RankStatus] = []
        self.logged: list[str] = []
        self.printed: list[str] = []
        self.before: dict[int, list[str]] = {}
        self.heard: dict[int, list[tuple[float, str]]] = {}  # with its moment
        watch = partial(RankWatch, cast("Rendezvous", self), cast("RankLogs", self))
        self.watch = watch(timeout=timeout, log=self.logged.append)
        files = [prepare(folder / f"{rank}") for rank in range(2)]
        self.process = subprocess.Popen(["sleep", "600"])  # stands for one of them, and can be stopped
        pids = [os.getpid(), self.process.pid]
        self.ranks = {rank: (pid, file) for rank, (pid, file) in enumerate(zip(pids, files, strict=True))}
        self.watch.begin(self.ranks)
        self.heartbeats = [HeartbeatWriter(file) for file in files]
        self.hooks = [ScriptWriter(file) for file in files]

    def heartbeat(self, *, stalled: bool, frozen: bool, progress: Mapping[int, tuple[int, float]], quiet: bool) -> None:
        self.stalled, self.frozen, self.quiet = stalled, frozen, quiet
        self.progress = progress

    def last(self, number: int, *, within: float = float("inf"), after: float = 0.0) -> list[str]:
        if after:
            return [line for heard, line in self.heard.get(number, []) if heard >= after]
        return self.printed if within == SAYING else self.before.get(number, [])

    def report_look(self, ranks: list[RankStatus]) -> None:
        self.look_requested, self.seen = False, ranks

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
        tick = POLL_INTERVAL if seconds < 400 else 2 * POLL_INTERVAL  # more would be a pause of the agent
        while self.now < until:
            self.now += tick
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


@pytest.mark.wide
@pytest.mark.parametrize("resumed_at", [0, 3, 700])
def test_a_second_training_of_the_script_has_time_for_its_first_step_and_a_speed_of_its_own(
    ranks: Ranks, resumed_at: int
) -> None:
    for number in range(3):
        ranks.step(number + 1, 1)
    ranks.beat(Phase.FINISHING)
    assert not ranks.rest(1500), "the script's own code between the two"
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


def quiet_after(ranks: Ranks) -> float:
    """Seconds until the watched ranks count as quiet; they do nothing meanwhile."""
    began = ranks.now
    ranks.rest(POLL_INTERVAL)
    while not ranks.quiet and ranks.now < began + 100:
        ranks.rest(POLL_INTERVAL)
    return ranks.now - began


def test_fifteen_seconds_without_a_step_are_unusual_and_ten_times_the_median_if_that_is_longer(ranks: Ranks) -> None:
    for _ in range(5):
        ranks.script_step(1.0)
    assert quiet_after(ranks) == pytest.approx(15.0, abs=1.0)
    ranks.script_step(20.0)  # one long step among short ones changes nothing
    assert quiet_after(ranks) == pytest.approx(15.0, abs=1.0)
    for _ in range(8):
        ranks.script_step(4.0)
    assert not ranks.quiet
    assert quiet_after(ranks) == pytest.approx(40.0, abs=1.0)
    assert not ranks.stalled  # and nothing is judged by it


def test_a_rank_that_lives_on_has_reached_nothing_of_its_new_round(ranks: Ranks) -> None:
    ranks.beat(Phase.PREPARING)
    ranks.step(1, 3.0)
    ranks.rest(1.0)
    before = ranks.watch.reached(Phase.SYNCING)
    assert before
    ranks.watch.begin(ranks.ranks)
    assert (ranks.watch.reached(Phase.PREPARING), ranks.watch.reached(Phase.SYNCING)) == (0.0, 0.0)
    for heartbeat in ranks.heartbeats:
        heartbeat.renew()
    ranks.step(2, 3.0)
    ranks.rest(1.0)
    assert ranks.watch.reached(Phase.SYNCING) == before + 4.0


def test_what_a_rank_that_lives_on_did_in_the_round_before_counts_in_that_one_only(ranks: Ranks) -> None:
    ranks.beat(Phase.JOINING)
    ranks.beat(Phase.PREPARING)
    ranks.step(1, 100.0)
    ranks.watch.begin(ranks.ranks)
    ranks.rest(2.0)  # they have not noticed that their round is over
    assert ranks.watch.phases() == {Phase.STARTING: 2.0}
    assert ranks.watch.last == (Phase.STARTING, 1, 0.0)
    for heartbeat in ranks.heartbeats:
        heartbeat.renew()
        heartbeat.beat(Phase.JOINING)
    ranks.rest(3.0)
    ranks.beat(Phase.PREPARING)
    ranks.rest(4.0)
    ranks.step(2, 5.0)
    assert ranks.watch.phases() == {Phase.STARTING: 2.0, Phase.JOINING: 3.0, Phase.PREPARING: 4.0, Phase.FORWARD: 5.0}


def test_the_time_in_which_a_rank_waited_for_its_round_is_no_part_of_that(ranks: Ranks) -> None:
    for heartbeat in ranks.heartbeats:
        heartbeat.renew()
        heartbeat.beat(Phase.JOINING)
    ranks.rest(100.0)
    ranks.watch.begin(ranks.ranks)
    ranks.rest(3.0)
    assert ranks.watch.phases() == {Phase.STARTING: 0.0, Phase.JOINING: 3.0}
    ranks.beat(Phase.PREPARING)
    ranks.rest(1.0)
    assert ranks.watch.phases() == {Phase.STARTING: 0.0, Phase.JOINING: 3.0, Phase.PREPARING: 1.0}


def test_while_one_rank_evaluates_its_node_does(ranks: Ranks) -> None:
    ranks.script_step(5.0)
    ranks.hooks[0].evaluation_begins()
    ranks.rest(20.0)
    during = ranks.watch.evaluating
    assert ranks.watch.phases()[Phase.EVALUATING] == pytest.approx(20.0)
    assert ranks.watch.last[2] == pytest.approx(20.0)  # it is busy: ranks of other nodes wait for it
    ranks.hooks[0].evaluation_ends()
    ranks.hooks[1].evaluation_begins()
    ranks.rest(10.0)
    ranks.hooks[1].evaluation_ends()
    ranks.script_step(2.0)
    ranks.rest(1.0)
    assert [during, ranks.watch.evaluating] == [True, False]
    assert ranks.watch.phases()[Phase.EVALUATING] == pytest.approx(20.0)
    assert sum(ranks.watch.phases().values()) == pytest.approx(38.0)


def test_steps_of_the_librarys_loop_count_as_well(ranks: Ranks) -> None:
    for number in range(1, 20):
        ranks.step(number, 3.0)
    ranks.beat(Phase.EVALUATING)
    assert quiet_after(ranks) == pytest.approx(30.0, abs=1.0)


def test_before_the_first_step_that_counts_from_the_group_on(ranks: Ranks) -> None:
    ranks.rest(14.0)
    for hooks in ranks.hooks:
        hooks.group_formed(2)
    assert quiet_after(ranks) == pytest.approx(15.0, abs=1.0)


def test_one_rank_that_takes_steps_is_enough_unless_all_others_have_ended(ranks: Ranks) -> None:
    ranks.script_step(1.0)
    for _ in range(30):
        ranks.rest(1.0)
        ranks.hooks[1].optimizer_called(1)
    assert not ranks.quiet
    ranks.process.kill()
    ranks.process.wait()
    ranks.rest(1.0)
    assert ranks.quiet


def test_an_error_that_a_rank_has_printed_since_its_last_step_is_told_of_a_good_end(ranks: Ranks) -> None:
    error = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "KeyError: 'ids'"]
    ranks.before = {1: error}
    assert ranks.watch.note == "rank 1 printed a traceback, and ended with exit code 0: KeyError: 'ids'", (
        "it has taken no step"
    )
    ranks.heard = {1: [(ranks.now, line) for line in error]}
    ranks.script_step(1.0)
    ranks.rest(5.0)
    assert ranks.watch.note == "", "it went on"
    ranks.heard[1] += [(ranks.now, line) for line in error]
    assert ranks.watch.note == "rank 1 printed a traceback, and ended with exit code 0: KeyError: 'ids'"


def test_of_ranks_that_end_well_without_a_step_the_last_line_is_told(ranks: Ranks) -> None:
    ranks.before = {0: ["", "\x1b[31mno GPU here:\x1b[0m nothing to do", " "], 1: ["bye"]}
    assert ranks.watch.note == "rank 0 printed last: no GPU here: nothing to do"
    ranks.before = {1: ["bye"]}
    assert ranks.watch.note == "rank 1 printed last: bye"
    ranks.script_step(1.0)
    ranks.rest(1.0)
    assert ranks.watch.note == "", "it has trained"


def test_an_error_that_a_rank_has_printed_last_without_a_traceback_is_told_of_a_good_end(ranks: Ranks) -> None:
    ranks.script_step(1.0)
    ranks.rest(1.0)
    ranks.heard = {1: [(ranks.now, "epoch 1"), (ranks.now, "ERROR:root:'ids'")]}
    assert ranks.watch.note == "rank 1 printed an error last, and ended with exit code 0: ERROR:root:'ids'"
    ranks.heard[1] += [(ranks.now, "trained")]
    assert ranks.watch.note == "", "it went on"


def test_a_loss_that_does_not_change_is_told_of_a_good_end(ranks: Ranks) -> None:
    ranks.script_step(1.0)
    ranks.rest(1.0)
    ranks.before = {1: [f"step {step} loss 0.6931" for step in range(10)]}
    assert ranks.watch.note == "rank 1: the loss was 0.6931 in the last 10 lines that show it"


def test_a_loss_that_is_not_finite_is_looked_for_seldom(ranks: Ranks) -> None:
    ranks.before = {1: ["step 1 loss nan"] * 3}
    ranks.rest(LISTENING / 2)
    assert ranks.watch.printed_loss == ""
    ranks.rest(LISTENING)
    assert ranks.watch.printed_loss == "as rank 1 prints it: step 1 loss nan"
    ranks.before[1].append("step 4 loss 0.5")
    ranks.watch.listen()
    assert ranks.watch.printed_loss == ""


WAITING = """
import time
from kittrain.agent.processes import stack_file
stack_file.register()
print("asks may come", flush=True)
time.sleep(600)
"""


def test_ranks_are_asked_where_they_are_and_one_that_has_ended_or_cannot_answer_is_told_so(
    ranks: Ranks, tmp_path: Path
) -> None:
    script, environ = tmp_path / "waiting.py", os.environ | {"KIT_HEARTBEAT_FILE": str(tmp_path / "0")}
    script.write_text(WAITING)
    with subprocess.Popen([sys.executable, str(script)], env=environ, stdout=subprocess.PIPE) as rank:
        try:
            assert rank.stdout
            rank.stdout.readline()
            ranks.watch.begin({0: (rank.pid, ranks.ranks[0][1]), 1: ranks.ranks[1]})
            ranks.script_step(1.0)
            ranks.look_requested = True
            ranks.printed = ["loading", "fetch failed: connection refused, try 3"]
            ranks.before = {
                1: ["Exception in thread Thread-1 (produce):", "Traceback", "KeyError: 'ids'", *ranks.printed]
            }
            ranks.rest(POLL_INTERVAL)  # they are asked
            while not any("in <module>" in line for line in Path(tmp_path / "0.stacks").read_text().splitlines()):
                time.sleep(0.01)
            ranks.rest(3.0)
        finally:
            rank.kill()
    first, second = ranks.seen
    assert first.has_stack
    assert "waiting.py:" in first.location.line
    assert (first.stepped, first.ended) == (True, False)
    assert first.said == "fetch failed: connection refused, try 3"
    assert second.said == "Exception in thread Thread-1 (produce): KeyError: 'ids'"
    assert first.stalled_seconds == pytest.approx(3.0, abs=1.5)
    assert (second.has_stack, second.ended) == (False, False)  # `sleep`, which such a signal would end
    assert ranks.process.poll() is None
    ranks.process.kill()
    ranks.process.wait()
    ranks.look_requested = True
    ranks.before = {}  # nor has it said anything
    ranks.rest(3.0)
    assert ranks.seen[1].ended
