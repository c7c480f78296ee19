"""A snapshot folder that cannot be written: what the job says, and whether it is tried again."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from tests.trainer.mounts import make_read_only, tmpfs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.local.conftest import Kit

pytestmark = [pytest.mark.slow, pytest.mark.needs_root, pytest.mark.timeout(1200)]
TOY = ["-m", "kittrain.workloads.toy", "100", "--samples", "512", "--batch_size", "16", "--step-time", "0.05"]


@pytest.mark.wide
def test_from_the_start_the_job_ends_at_once_with_its_cause_and_a_fix(kit: Kit) -> None:
    folder = kit.snapshots("sealed")
    folder.parent.mkdir(parents=True)
    with tmpfs(folder, size="1m"):
        make_read_only(folder)
        told = kit.run("submit", "--name", "sealed", "--nodes", "2", "--wait", *TOY, exit_code=100)
        assert "Read-only file system" in told
        assert "which no restart can fix" in told
        assert "fix: make that folder writable for you" in told
        assert kit.status("sealed")["restarts"] == 0
        kit.run("delete", "sealed", "-y")


@pytest.mark.wide
def test_in_the_midst_training_continues_and_status_and_drain_say_what_is_missing(kit: Kit) -> None:
    folder = kit.snapshots("midway")
    folder.parent.mkdir(parents=True)
    with tmpfs(folder, size="100m"):
        kit.run("submit", "--name", "midway", "--nodes", "2", "--snapshot-every", "20", *TOY)
        kit.until("midway", lambda job: job["progress"]["snapshotStep"])
        _seal(kit, folder)
        state = kit.until("midway", lambda job: "no snapshot at step" in job["reason"])
        assert state["phase"] == "Running"
        assert "Read-only file system" in state["reason"]
        kit.run("suspend", "midway")
        lines = kit.run("logs", "midway")
        assert (
            f"as requested, without a snapshot of it: the last one is of step {state['progress']['snapshotStep']}"
            in lines
        )
        kit.run("delete", "midway", "-y")


@pytest.mark.wide
def test_at_the_finish_the_job_fails_with_its_cause_and_a_fix(kit: Kit) -> None:
    """It has trained to its end, but neither the last snapshot nor the model can be stored."""
    folder = kit.snapshots("midway")
    folder.parent.mkdir(parents=True)
    with tmpfs(folder, size="100m"):
        kit.run("submit", "--name", "midway", "--nodes", "2", "--snapshot-every", "100000", *TOY[:2], "8", *TOY[3:])
        kit.until("midway", lambda job: (job["progress"]["step"] or 0) > 5)
        _seal(kit, folder)
        told = kit.run("wait", "midway", exit_code=100)
        assert "Read-only file system" in told
        assert "fix: make that folder writable for you" in told
        state = kit.status("midway")
        assert state["phase"] == "Failed"
        assert state["restarts"] <= 1, "the next start finds the folder read-only, and ends at once"
        kit.run("delete", "midway", "-y")


@pytest.mark.wide
@pytest.mark.parametrize("model_file", ["true", "false"], ids=["model file", "last snapshot"])
def test_without_room_at_the_finish_the_result_is_kept_until_there_is_some(kit: Kit, model_file: str) -> None:
    folder = kit.snapshots("narrow")
    folder.parent.mkdir(parents=True)
    where = ("--nodes", "2", "--snapshot-every", "100000", "--set", f"snapshots.modelFile={model_file}")
    with tmpfs(folder, size="1m"):
        kit.run("submit", "--name", "narrow", *where, *TOY[:2], "8", *TOY[3:])
        kit.until("narrow", lambda job: (job["progress"]["step"] or 0) > 5)
        _fill(folder / "filler")
        state = kit.until("narrow", _waits_for_room)
        assert (state["phase"], state["restarts"]) == ("Running", 0)
        assert "its result is kept for up to 10 min: " in state["reason"]
        assert "free space at the path in the message" in kit.run("why", "narrow")
        (folder / "filler").unlink()
        kit.run("wait", "narrow")
        assert kit.status("narrow")["reason"] == ""
        assert (folder / "model.pt").exists() == (model_file == "true")
        assert "proved: 8 epochs" in kit.run("audit", "narrow")
        kit.run("delete", "narrow", "-y")


@pytest.mark.wide
def test_a_job_that_waits_for_room_can_be_suspended(kit: Kit) -> None:
    folder = kit.snapshots("narrow")
    folder.parent.mkdir(parents=True)
    with tmpfs(folder, size="1m"):
        kit.run("submit", "--name", "narrow", "--nodes", "2", "--snapshot-every", "100000", *TOY[:2], "8", *TOY[3:])
        kit.until("narrow", lambda job: (job["progress"]["step"] or 0) > 5)
        _fill(folder / "filler")
        kit.until("narrow", _waits_for_room)
        kit.run("suspend", "narrow")
        assert "as requested, without a snapshot of it: the last one is of step 0" in kit.run("logs", "narrow")
        (folder / "filler").unlink()
        kit.run("resume", "narrow")
        kit.run("wait", "narrow")
        kit.run("delete", "narrow", "-y")


def _waits_for_room(job: dict[str, Any]) -> bool:
    return "training has ended" in job["reason"]


def _fill(path: Path) -> None:
    """Write until there is no room left."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _seal(kit: Kit, folder: Path) -> None:
    """Make it read-only between two snapshots: a mount with a file open for writing refuses."""

    def sealed(_job: object) -> bool:
        with suppress(subprocess.CalledProcessError):
            make_read_only(folder)
            return True
        return False

    kit.until("midway", sealed)
