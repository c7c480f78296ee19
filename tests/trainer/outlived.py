"""A lone rank whose rounds end whenever an error says that its peers are lost, and which then outlives them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kittrain import World, attach
from kittrain.rank.training import survival
from tests.trainer.settings import rank_of

CLOSED: Final = "Connection closed by peer"


class Rounds:
    """The agent's part, and that of the other ranks."""

    asked = over = False

    def check(self) -> None:
        return

    def ended_by(self, error: RuntimeError) -> bool:
        return CLOSED in str(error)


def outlive(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no other ranks that form the next round, and nothing that the script did before."""
    monkeypatch.setattr(World, "rejoin", lambda _: None)
    monkeypatch.setattr(survival, "obstacle", lambda **_: "")


def world(folder: Path | None = None) -> World:
    """Of the rank."""
    rounds: Any = Rounds()
    return replace(attach(env=rank_of(run_id="run", snapshot_dir=folder, policy__survivors="live")), rounds=rounds)
