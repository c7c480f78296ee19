"""What the agent reads of a rank's heartbeat."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kittrain.system.heartbeat import HeartbeatState, HeartbeatWriter, Phase, prepare


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


def test_without_an_agent_a_beat_does_nothing() -> None:
    HeartbeatWriter().beat(Phase.DATA, step=1)
