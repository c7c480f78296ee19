"""What a node does that cannot find node 0."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trainer.env import node_env
from trainer.node import supervise
from trainer.node.drain import Drain
from trainer.node.supervise import Supervisor
from trainer.outcome import marker
from trainer.outcome.termination import FINISHED, Ending
from trainer.rendezvous.knobs import Knobs

NOWHERE = "node-0.invalid"  # RFC 2606: never resolves


def ending_of(index: int, folder: Path, *, host: str = NOWHERE, patience: int = 1) -> Ending:
    """How node ``index`` of a 2:3 job ends, which waits so many seconds for the others."""
    node = node_env(
        {
            "PET_NNODES": "2:3",
            "PET_RDZV_ENDPOINT": f"{host}:1",
            "PET_RDZV_CONF": f"join_timeout={patience}",
            "PET_RDZV_ID": "run",
            "KIT_SNAPSHOT_DIR": str(folder),
            "KIT_NODE_INDEX": str(index),
        }
    )
    knobs = Knobs.of(node.rendezvous_conf)
    return Supervisor(node, ["train.py"], knobs=knobs, hub=None, zygote=None, drain=Drain(), scratch=folder).run()


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_PROGRESS_FILE", "")  # what is set for the ranks ends with the test
    monkeypatch.setattr(supervise, "PLACE_PATIENCE", 0.1)


def test_a_node_beyond_the_minimum_makes_room_for_node_0(tmp_path: Path) -> None:
    assert ending_of(2, tmp_path).outcome == "drained"


def test_a_node_that_is_needed_waits_for_node_0(tmp_path: Path) -> None:
    ending = ending_of(1, tmp_path)
    assert (ending.outcome, "no rendezvous in 1 s" in ending.reason) == ("retryable", True)


def test_nobody_makes_room_for_a_node_0_that_has_a_place_and_is_not_up_yet(tmp_path: Path) -> None:
    assert ending_of(2, tmp_path, host="127.0.0.1").outcome == "retryable"


def test_a_node_that_waits_for_a_node_0_that_has_finished_is_done(tmp_path: Path) -> None:
    threading.Timer(0.5, marker.mark, (tmp_path, "run", {})).start()
    assert ending_of(1, tmp_path, host="127.0.0.1", patience=60) == FINISHED
