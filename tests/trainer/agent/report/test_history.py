"""What an agent writes of its run's history, on volumes that do not take it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from kitjob import timeline
from kitjob.report import RankProgress
from kitjob.timeline import AgentState, Event, Row, Writer
from kittrain.agent.processes.rank_watch import RankWatch
from kittrain.agent.report import history
from kittrain.agent.report.history import History
from kittrain.job.env import NodeEnv
from kittrain.system.heartbeat import HeartbeatState, HeartbeatWriter, Phase, ScriptWriter, Stored, prepare

if TYPE_CHECKING:
    from kittrain.agent.processes.rank_logs import RankLogs
    from kittrain.agent.rendezvous.interface import Rendezvous


def started(folder: Path, log: list[str]) -> tuple[History, NodeEnv, Path]:
    node = NodeEnv(run_id="run", snapshot_dir=folder)
    found = History(node, log.append)
    return found, node, folder / timeline.FOLDER / "run" / "node-0" / f"{found._name}.jsonl"


def test_what_was_before_the_volume_is_there_is_written(tmp_path: Path) -> None:
    log: list[str] = []
    found, node, path = started(tmp_path, log)
    found.state("start")
    found.open(node)
    found.state("exit")
    found.close()
    lines = [*timeline.lines(path.read_bytes())]
    assert isinstance(lines[0], Writer)
    assert [one.state for one in lines if isinstance(one, AgentState)] == ["code", "start", "exit"]
    assert not log


def test_when_the_last_step_was_is_told_by_the_clock_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was set by a day since the agent began, or the machine has slept so long."""
    found = History(NodeEnv(run_id="run"), pytest.fail)
    row = Row(time=found.now - 2, seconds=1.0, steps=3)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 86400)
    found._draw(row)
    assert found.last_step == pytest.approx(time.time() - 2, abs=60)


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    found = History(NodeEnv(run_id="run"), pytest.fail)
    found.open(NodeEnv(run_id="run"))
    found.state("exit")
    found.close()
    assert not [*tmp_path.iterdir()]


def test_an_error_of_who_listens_is_told_once_and_ends_nothing() -> None:
    class Broken:
        def add(self, line: timeline.Line) -> None:
            raise KeyError(type(line).__name__)

        def progress(self, known: object) -> None:
            raise NotImplementedError

    log: list[str] = []
    found = History(NodeEnv(run_id="run"), log.append, Broken())
    found.state("start")
    assert log == ["warning: metrics stand still: KeyError: 'AgentState'"]


def test_a_volume_that_takes_nothing_is_warned_of_once(tmp_path: Path) -> None:
    log: list[str] = []
    (tmp_path / "snapshots").write_text("a file where a folder should be")
    found, node, _ = started(tmp_path / "snapshots", log)
    found.open(node)
    for _ in range(3):
        found.event("snapshot")
    found.close()
    (warning,) = log
    assert warning.startswith("warning: cannot write the history of this run: ")


def test_a_full_disk_costs_lines_but_not_the_first(tmp_path: Path) -> None:
    log: list[str] = []
    found, node, path = started(tmp_path, log)
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/full")
    found.open(node)
    found.event("joined")
    while not log:
        time.sleep(0.01)
    path.unlink()  # as if the disk had space again
    found.event("snapshot")
    found.close()
    lines = [*timeline.lines(path.read_bytes())]
    assert isinstance(lines[0], Writer)
    assert [one.what for one in lines if isinstance(one, Event)][-1:] == ["snapshot"]
    assert len(log) == 1


def test_a_volume_that_hangs_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "CLOSE_TIMEOUT", 0.1)
    found, node, path = started(tmp_path, [])
    path.parent.mkdir(parents=True)
    os.mkfifo(path)  # opening it waits for a reader, which never comes
    found.open(node)
    for _ in range(2 * history.QUEUED):
        found.event("snapshot")
    assert len(found._lines.take()) == history.QUEUED
    found.close()
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def test_without_a_volume_a_tail_of_few_bytes_is_kept_over_restarts_of_the_agent() -> None:
    node = NodeEnv(run_id="run")
    tail = ""
    for _ in range(3):
        found = History(node, pytest.fail)
        found.open(node)
        assert not found.has_volume
        tail = found.tail(tail)
        for number in range(500):
            found._put(Row(time=found.now + number, seconds=1.0, round=1, step=number + 1, steps=1, loss=1.0))
            if number % 50 == 0:
                tail = found.tail()
        tail = found.tail()
        assert len(tail) < timeline.TAIL_BYTES + 100
    lines = [*timeline.lines(tail.encode())]
    assert len([line for line in lines if isinstance(line, Writer)]) == 3
    assert sum(line.steps for line in lines if isinstance(line, Row)) == 1500
    assert found.tail(tail) == tail  # it has published these lines itself
    other = History(NodeEnv(run_id="other"), pytest.fail)
    other.open(NodeEnv(run_id="other"))
    other.tail(tail)
    assert len([line for line in timeline.lines(other.tail().encode()) if isinstance(line, Writer)]) == 1


class OneRank:
    """A rank as its heartbeat shows it."""

    moved = 0.0
    evaluating = False

    def __init__(self, file: Path, began: float) -> None:
        self._file, self._began, self.read_at = file, began, began

    @property
    def _beat(self) -> HeartbeatState:
        return HeartbeatState.read(self._file)

    def phases(self) -> dict[Phase, float]:
        return self._beat.phases(self._began, self.read_at)

    @property
    def pids(self) -> list[int]:
        return []

    def reached(self, phase: Phase) -> float:
        return self._beat.first[phase]

    @property
    def last(self) -> tuple[Phase, int, float]:
        return self._beat.phase, self._beat.step, self._beat.busy

    @property
    def stored(self) -> Stored:
        return self._beat.stored


def test_checkpoints_of_a_scripts_own_are_events_though_not_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is written and then renamed; and a script may save something every second for days."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    found = History(NodeEnv(run_id="run"), pytest.fail)
    rank = OneRank(prepare(tmp_path / "heartbeat"), found.ranks_start())
    script = ScriptWriter(tmp_path / "heartbeat")

    told: list[str] = []

    def saves(steps: int, count: int = 1) -> list[int | None]:
        for _ in range(steps):
            script.optimizer_called(1)
        for _ in range(count):
            script.stored()
            now[0] += 2.0
            rank.read_at = now[0]
            found.observe(rank, RankProgress)
        events = [line for line in found._lines.take() if isinstance(line, Event) and line.what == "snapshot"]
        told.extend(event.cause for event in events)
        return [event.step for event in events]

    assert saves(0) == []  # data, before the first step
    assert saves(3) == [3]
    assert saves(2, 2) == [5]  # once
    assert {*told} == {"saved by the script"}
    assert sum(len(saves(1)) for _ in range(5000)) < 250
    found.ranks_end(rank, "stop")
    told.extend(event.cause for event in snapshots_in(found))
    unwritten = [int(more[1]) for cause in told if (more := re.search(r", after (\d+) more$", cause))]
    assert sum(unwritten) + len(told) == 5002, "of what is not there it is said how much"


def snapshots_in(found: History) -> list[Event]:
    return [line for line in found._lines.take() if isinstance(line, Event) and line.what == "snapshot"]


def test_checkpoints_between_two_looks_are_counted_and_the_last_one_is_told(tmp_path: Path) -> None:
    found = History(NodeEnv(run_id="run"), pytest.fail)
    rank = OneRank(prepare(tmp_path / "heartbeat"), found.ranks_start())
    script = ScriptWriter(tmp_path / "heartbeat")
    for _ in range(2):
        for _ in range(3):
            script.optimizer_called(1)
            script.stored()
        rank.read_at = time.monotonic() + 2.0
        found.observe(rank, RankProgress)
    found.ranks_end(rank, "stop")
    assert [(one.step, one.cause) for one in snapshots_in(found)] == [
        (3, "saved by the script, after 2 more"),
        (6, "saved by the script, after 2 more"),
    ]


def test_the_first_checkpoint_of_ranks_that_have_resumed_is_told_at_the_same_number_of_steps(tmp_path: Path) -> None:
    """They begin to count anew: both are at the twentieth step of their process."""
    found = History(NodeEnv(run_id="run"), pytest.fail)
    for before in (0, 20):
        rank = OneRank(prepare(tmp_path / f"heartbeat-{before}"), found.ranks_start())
        script = ScriptWriter(tmp_path / f"heartbeat-{before}")
        for _ in range(20):
            script.optimizer_called(1)
        script.stored()
        rank.read_at = time.monotonic() + 2.0
        found.observe(rank, RankProgress, before=before)
        found.ranks_end(rank, "stop")
    assert [(one.step, one.cause) for one in snapshots_in(found)] == [
        (20, "saved by the script"),
        (40, "saved by the script"),
    ]


def test_a_checkpoint_that_was_told_is_not_told_again_of_ranks_that_live_on(tmp_path: Path) -> None:
    found = History(NodeEnv(run_id="run"), pytest.fail)
    rank = OneRank(prepare(tmp_path / "heartbeat"), found.ranks_start())
    script = ScriptWriter(tmp_path / "heartbeat")
    for _ in range(2):
        script.optimizer_called(1)
        script.stored()
    for _ in range(2):
        rank.read_at = time.monotonic() + 2.0
        found.observe(rank, RankProgress)
        found.ranks_start()
    script.optimizer_called(1)
    script.stored()
    rank.read_at = time.monotonic() + 4.0
    found.observe(rank, RankProgress)
    found.ranks_end(rank, "stop")
    assert [(one.step, one.cause) for one in snapshots_in(found)] == [
        (2, "saved by the script, after 1 more"),
        (3, "saved by the script"),
    ]


def test_checkpoints_of_ranks_that_have_resumed_have_the_step_of_the_run(tmp_path: Path) -> None:
    found = History(NodeEnv(run_id="run"), pytest.fail)
    for before in (0, 27):
        rank = OneRank(prepare(tmp_path / f"heartbeat-{before}"), found.ranks_start())
        script = ScriptWriter(tmp_path / f"heartbeat-{before}")
        script.optimizer_called(1)
        script.stored()
        rank.read_at = time.monotonic() + 2.0
        found.observe(rank, RankProgress, before=before)
        found.ranks_end(rank, "stop")
    steps = [one.step for one in found._lines.take() if isinstance(one, Event) and one.what == "snapshot"]
    assert steps == [1, 28]


def test_a_script_s_evaluations_are_rows_and_events_though_one_each_step_is_not_an_event_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    found = History(NodeEnv(run_id="run"), pytest.fail)
    watch = RankWatch(cast("Rendezvous", None), cast("RankLogs", None), timeout=None, log=pytest.fail)
    watch.begin({0: (os.getpid(), prepare(tmp_path / "heartbeat"))}, began=found.ranks_start())
    script = ScriptWriter(tmp_path / "heartbeat")

    def passes(seconds: float) -> None:
        now[0] += seconds
        watch.finish()
        found.observe(watch, RankProgress)

    script.optimizer_called(1)
    for _ in range(100):
        passes(3.0)
        script.evaluation_begins()
        passes(2.0)
        script.evaluation_ends()
        script.optimizer_called(1)
    script.evaluation_begins()  # and ends in it
    passes(1.0)
    now[0] += 0.5
    watch.finish()
    found.ranks_end(watch, "stop")
    lines = found._lines.take()
    rows = [line for line in lines if isinstance(line, Row)]
    assert [sum(row.phases.values()) for row in rows] == pytest.approx([row.seconds for row in rows])
    assert rows[1].phases == pytest.approx({"EVALUATING": 2.0})
    assert all(row.of_own_loop for row in rows)
    events = [line for line in lines if isinstance(line, Event) and line.what == "evaluated"]
    assert events[0].seconds == pytest.approx(2.0)
    assert len(events) < 60
    assert sum(event.seconds or 0 for event in events) == pytest.approx(201.5)


def test_a_row_has_as_many_seconds_of_phases_as_have_passed_when_the_library_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hooks take an import for joining; then the library's loop, which has not counted it, joins and restores."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    found = History(NodeEnv(run_id="run"), pytest.fail)
    began = found.ranks_start()
    rank = OneRank(prepare(tmp_path / "heartbeat"), began)

    def passes(seconds: float) -> None:
        now[0] += seconds
        rank.read_at = now[0]
        found.observe(rank)

    now[0] += 0.5
    ScriptWriter(tmp_path / "heartbeat")
    passes(1.0)
    passes(2.0)
    library = HeartbeatWriter(tmp_path / "heartbeat")
    for phase in (Phase.JOINING, Phase.RESTORING):
        library.beat(phase)
        now[0] += 0.25
    passes(0.75)
    rows = [line for line in found._lines.take() if isinstance(line, Row)]
    assert [sum(row.phases.values()) for row in rows] == pytest.approx([row.seconds for row in rows])
    assert rows[-1].phases == pytest.approx({"STARTING": 0.25, "RESTORING": 1.0})
