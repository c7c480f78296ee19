"""Trainings in processes that a rank's script starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from kittrain.agent.hooks.child_training import ChildTraining
from kittrain.system.heartbeat import HeartbeatState, ScriptWriter, prepare
from kittrain.system.heartbeat_files import LoadedFile
from tests.trainer.hooked import run_warm

SPAWNED: Final = """
import sys, torch
from pathlib import Path
from torch.utils.data import DataLoader

def work(index):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if Path("last.pt").exists():
        model.load_state_dict(torch.load("last.pt"))
    for x in DataLoader(torch.ones(6, 2), batch_size=2, num_workers={workers}, multiprocessing_context={how}):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    if index == 0:
        torch.save(model.state_dict(), "last.pt")

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs={processes})
"""


@pytest.mark.slow
def test_the_steps_of_spawned_processes_are_the_ranks(tmp_path: Path) -> None:
    seen = run_warm(tmp_path, SPAWNED.format(processes=1, workers=1, how="'spawn'"))
    assert (seen.step, seen.loaded, seen.stored[0]) == (3, 0, 3)
    changed = (tmp_path / "last.pt").stat().st_mtime_ns
    again = run_warm(tmp_path, SPAWNED.format(processes=2, workers=0, how=None))
    assert (again.step, again.loaded) == (3, changed), "two processes take the same three steps"


def child(file: Path) -> ChildTraining:
    training = ChildTraining(file)
    for _ in range(2):
        training.steps(object(), (), {})
    return training


def test_one_process_counts_until_it_ends_and_none_beside_the_rank_itself(tmp_path: Path) -> None:
    file = prepare(tmp_path / "heartbeat")
    child(file)
    child(file)  # of this test's own process, too
    assert HeartbeatState.read(file).step == 2
    (tmp_path / "heartbeat.trains").write_text("999999999")
    training = child(prepare(file))
    assert HeartbeatState.read(file).step == 2, "that process has ended"
    assert (tmp_path / "heartbeat.trains").read_text() == str(os.getpid())
    training.saves("out/last.pt")
    assert HeartbeatState.read(file).files.saved == "out/last.pt"

    own = prepare(tmp_path / "own")
    rank = ScriptWriter(own)
    rank.optimizer_called(1)
    child(own)
    assert HeartbeatState.read(own).step == 1


def test_what_is_loaded_before_the_first_step_is_told_with_it_and_without_a_step_nothing_is(tmp_path: Path) -> None:
    file = prepare(tmp_path / "heartbeat")
    training = ChildTraining(file)
    for changed in (5, 7, 6):
        training.loads(changed, LoadedFile(name=f"{changed}.pt", digest=changed, private=False, age=0.0))
    training.stores()
    assert file.read_bytes() == bytes(len(file.read_bytes())), "as a worker of a data loader"
    training.steps(object(), (), {})
    assert HeartbeatState.read(file).loaded == 7
    gone = ChildTraining(tmp_path / "gone")
    gone.steps(object(), (), {})
