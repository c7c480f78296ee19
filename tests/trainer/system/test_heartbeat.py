"""What the agent reads of a rank's heartbeat."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import pytest

from kittrain.system.heartbeat import HeartbeatState, HeartbeatWriter, Phase, ScriptWriter, prepare


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_rank_without_a_beat_is_starting(tmp_path: Path) -> None:
    beat = HeartbeatState.read(prepare(tmp_path / "heartbeat"))
    assert (beat.beats, beat.step, beat.phase, beat.busy) == (0, 0, Phase.STARTING, 0.0)


def test_the_agent_reads_the_phase_and_when_each_first_began(tmp_path: Path, clock: list[float]) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = HeartbeatWriter(file)
    for phase, seconds in ((Phase.DATA, 2.0), (Phase.FORWARD, 3.0), (Phase.BACKWARD, 50.0), (Phase.UPDATING, 1.0)):
        writer.beat(phase)
        clock[0] += seconds
    writer.beat(Phase.SYNCING, step=8)
    writer.beat(Phase.DATA)
    beat = HeartbeatState.read(file)
    assert (beat.beats, beat.step, beat.phase) == (6, 8, Phase.DATA)
    assert beat.busy == 6.0  # the backward pass does not count: it includes waiting
    assert (beat.first[Phase.DATA], beat.first[Phase.FORWARD], beat.first[Phase.SAVING]) == (100.0, 102.0, 0.0)


def test_without_an_agent_a_beat_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        pytest.fail("it maps a file")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mmap, "mmap", fail)
    monkeypatch.setattr(Path, "open", fail)
    HeartbeatWriter().beat(Phase.DATA, step=1)
    assert not list(tmp_path.iterdir())


def test_the_steps_of_a_scripts_own_loop_are_those_of_its_optimizer(tmp_path: Path, clock: list[float]) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = ScriptWriter(file)
    assert HeartbeatState.read(file).phase is Phase.STARTING
    clock[0] = 103.0
    writer.group_formed(4)
    clock[0] = 105.0
    for _ in range(3):
        writer.optimizer_called(7)
    beat = HeartbeatState.read(file)
    assert (beat.beats, beat.step, beat.phase, beat.group) == (3, 3, Phase.SCRIPT, 4)
    assert [beat.first[one] for one in (Phase.JOINING, Phase.PREPARING, Phase.SCRIPT)] == [100.0, 103.0, 105.0]


def test_a_script_s_evaluations_are_no_part_of_the_next_step(tmp_path: Path, clock: list[float]) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = ScriptWriter(file)
    writer.group_formed(2)
    writer.optimizer_called(7)
    writer.backward_began(4)
    writer.backward_ended(4)
    clock[0] += 5.0
    writer.evaluation_begins()
    clock[0] += 30.0
    beat = HeartbeatState.read(file)
    assert (beat.evaluated, beat.evaluating(clock[0])) == ((0.0, 105.0), 30.0)
    writer.evaluation_ends()
    clock[0] += 1.0
    writer.backward_began(4)
    writer.optimizer_called(7)
    beat = HeartbeatState.read(file)
    assert (beat.busy, beat.evaluated, beat.evaluating(clock[0])) == (1.0, (30.0, 0.0), 30.0)
    HeartbeatWriter(file).beat(Phase.RESTORING)  # of the library's loop
    assert HeartbeatState.read(file).evaluated == (0.0, 0.0)


@pytest.mark.parametrize(
    ("calls", "steps"),
    [("GDGDGD", 3), ("DDDDDGDDDDDG", 10), ("DGDGEEE", 4), ("ABCABC", 2), ("A", 1), ("AAABBB", 5)],
)
def test_optimizers_that_take_turns_count_once(tmp_path: Path, calls: str, steps: int) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = ScriptWriter(file)
    for name in calls:
        writer.optimizer_called(ord(name))
    beat = HeartbeatState.read(file)
    assert (beat.step, beat.beats) == (steps, len(calls))


def test_exchanges_of_known_bytes_count_as_whole_models(tmp_path: Path) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = ScriptWriter(file)

    def met() -> int:
        writer.ended(begun)
        return HeartbeatState.read(file).met

    writer.exchanged(1, 5000)  # the first weights
    begun = 1
    writer.backward_began(begun)
    writer.backward_ended(begun)
    writer.exchanged(1, 150)  # the model's size is not known yet
    begun += 2  # one of them in C++
    writer.optimizer_called(1)
    assert met() == 1
    writer.trains(100)
    writer.trains(1)  # a second optimizer's
    assert met() == 2
    writer.exchanged(2, 49)
    begun += 2
    assert met() == 2
    assert writer.exchanged(0, 1)  # a message that is no collective
    assert met() == 3
    assert not writer.exchanged(0, 1300)


def test_steps_of_the_librarys_loop_are_not_counted_twice(tmp_path: Path) -> None:
    file = prepare(tmp_path / "heartbeat")
    hooks, library = ScriptWriter(file), HeartbeatWriter(file)
    library.beat(Phase.PREPARING)
    hooks.optimizer_called(1)  # the script's own, ahead of the loop
    assert HeartbeatState.read(file).phase is Phase.SCRIPT
    library.beat(Phase.RESTORING)
    library.beat(Phase.DATA)
    hooks.optimizer_called(1)
    library.beat(Phase.SYNCING, step=1)
    beat = HeartbeatState.read(file)
    assert (beat.beats, beat.step, beat.phase, beat.first[Phase.SCRIPT]) == (4, 1, Phase.SYNCING, 0.0)


def test_how_many_collectives_a_rank_had_begun_is_known_from_its_end_to_its_next_group(tmp_path: Path) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = ScriptWriter(file)
    for end, known in ((9, 9), (0, 9)):  # 0: its groups are gone already
        writer.ended(end)
        assert HeartbeatState.read(file).begun == known
    writer.group_formed(2)
    assert HeartbeatState.read(file).begun == 0


@pytest.mark.parametrize(("can", "waits"), [(False, False), (True, False), (True, True)])
def test_a_rank_says_whether_it_can_go_on_and_whether_it_waits_for_that(
    tmp_path: Path, *, can: bool, waits: bool
) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = HeartbeatWriter(file)
    writer.survives(can=can, waits=waits)
    writer.left(3)
    beat = HeartbeatState.read(file)
    assert (beat.survives, beat.waits, beat.left) == (can, waits, 3)


def test_a_step_that_torch_takes_before_the_first_backward_pass_is_none(tmp_path: Path) -> None:
    file = prepare(tmp_path / "heartbeat")
    writer = ScriptWriter(file)
    writer.optimizer_called(1)
    for _ in range(3):
        writer.backward_began(0)
        writer.backward_ended(0)
        writer.optimizer_called(1)
    assert (writer.steps, HeartbeatState.read(file).step) == (3, 3)
    own = ScriptWriter(prepare(tmp_path / "own"))
    for _ in range(3):
        own.optimizer_called(1)  # with gradients that the script has computed itself
    own.backward_began(0)
    assert own.steps == 3
