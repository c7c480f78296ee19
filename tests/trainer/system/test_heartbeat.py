"""What a rank tells through its page, and that it costs next to nothing to nobody."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kittrain.system.heartbeat import Beat, Heart, Phase, prepare


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_rank_that_tells_nothing_is_starting(tmp_path: Path) -> None:
    beat = Beat.read(prepare(tmp_path / "heart"))
    assert (beat.beats, beat.step, beat.phase, beat.busy) == (0, 0, Phase.STARTING, 0.0)


def test_the_agent_reads_what_the_rank_does_and_since_when_it_first_did(tmp_path: Path, clock: list[float]) -> None:
    file = prepare(tmp_path / "heart")
    heart = Heart(file)
    for phase, seconds in ((Phase.DATA, 2.0), (Phase.FORWARD, 3.0), (Phase.BACKWARD, 50.0), (Phase.UPDATING, 1.0)):
        heart.beat(phase)
        clock[0] += seconds
    heart.beat(Phase.AGREEING, step=8)
    heart.beat(Phase.DATA)
    beat = Beat.read(file)
    assert (beat.beats, beat.step, beat.phase) == (6, 8, Phase.DATA)
    assert beat.busy == 6.0  # nobody knows how much of the backward pass was waiting
    assert (beat.first[Phase.DATA], beat.first[Phase.FORWARD], beat.first[Phase.SAVING]) == (100.0, 102.0, 0.0)


def test_without_an_agent_nobody_is_told() -> None:
    Heart().beat(Phase.DATA, step=1)
