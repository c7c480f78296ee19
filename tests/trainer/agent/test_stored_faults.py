"""What drills do to what a job stores: a store that is stood in for, by its own requests, and a bit that is flipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kittrain.agent.stored_faults import SUBSTITUTE
from kittrain.rank.snapshots.files.shards import CorruptError
from kittrain.rank.snapshots.folder import copies_status, snapshot
from kittrain.rank.snapshots.folder.copies_status import CopiesStatus
from kittrain.rank.snapshots.mirror.errors import MirrorError, MirrorUnavailableError
from kittrain.rank.snapshots.mirror.store import Store
from tests.local.test_metrics import until
from tests.s3 import serving
from tests.trainer import runs
from tests.trainer.agent.test_fault_injection import inject

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
    pytest.mark.timeout(1800),  # it may build the server
]
TOLD = {
    "DENIED": (MirrorError, r"may not read and write there \(AccessDenied\)"),
    "UNAVAILABLE": (MirrorUnavailableError, "503"),
    "CUT": (MirrorUnavailableError, "does not answer"),
}


@contextmanager
def child(*words: str, **environ: str) -> Iterator[None]:
    """A child of this process, which is its agent, that looks like one that runs a module of the trainer."""
    command = [sys.executable, "-c", "print(flush=True); input()", "-m", *words]
    env = {**os.environ, **environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.kill()


def drill(*words: str) -> subprocess.CompletedProcess[str]:
    return inject(*words, "--agent", str(os.getpid()))


@pytest.mark.parametrize("fault", list(TOLD))
def test_the_store_is_stood_in_for_until_the_drill_is_over(tmp_path: Path, fault: str) -> None:
    status = tmp_path / "mirror.json"
    substitute = status.with_suffix(SUBSTITUTE)
    uploader = ("kittrain.rank.snapshots.mirror", "upload", "--status", str(status))
    with serving(tmp_path / "s3") as s3, child(*uploader):
        s3.bucket("bucket")
        store = Store("s3://bucket/run", s3.environ(), retries=0, substitute=substitute)
        store.put("before", b"1")
        assert "stands in for the mirror's store for 600 s" in drill(fault, "--seconds", "600").stdout
        until(substitute.exists, bool)
        kind, text = TOLD[fault]
        with pytest.raises(kind, match=text):
            store.put("during", b"1")
        with pytest.raises(kind, match=text):
            store.read("before")
        substitute.unlink()  # as the uploader does when training ends
        store.put("after", b"1")
        assert store.list("") == ["after", "before"]
        drill(fault, "--seconds", "0.1")
        until(substitute.exists, lambda there: not there)
        store.put("later", b"1")


def test_without_a_process_that_uploads_nothing_is_stood_in_for() -> None:
    done = drill("DENIED")
    assert (done.returncode, done.stderr) == (1, "no process uploads to a mirror here\n")


def copied(folder: Path, *steps: int) -> None:
    """Snapshots of which the newest has all its copies."""
    newest = runs.run(folder, *steps)[-1]
    copies_status.write(
        folder, CopiesStatus(run="run-1", step=newest.step, copied_step=newest.step, copied_digest=newest.digest)
    )


def test_a_bit_of_the_newest_snapshot_is_flipped_and_the_rank_killed(tmp_path: Path) -> None:
    copied(tmp_path, 10, 20)
    rank = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=_pipe(tmp_path))
    with child("kittrain.rank.snapshots.peers", KIT_SNAPSHOT_DIR=str(tmp_path)):
        done = drill("DAMAGE", "--rank", "0")
    assert rank.wait(60) == -9, done.stderr
    assert "flipped a bit of " in done.stdout
    old, new = sorted(tmp_path.glob("step-*"))
    snapshot.verify(old)
    with pytest.raises(CorruptError):
        snapshot.verify(new)


def test_a_part_that_nothing_would_read_stays(tmp_path: Path) -> None:
    copied(tmp_path, 10)
    rank = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=_pipe(tmp_path))
    environ = {"KIT_SNAPSHOT_DIR": str(tmp_path), "KIT_POLICY_SURVIVORS": "live"}
    with child("kittrain.rank.snapshots.peers", **environ):
        done = drill("DAMAGE", "--rank", "0")
    assert done.stderr.startswith("its ranks live on, and read no snapshot; fix: ")
    assert rank.poll() is None
    rank.kill()
    rank.wait()
    snapshot.verify(next(tmp_path.glob("step-*")))


def _pipe(folder: Path) -> int:
    """The end of a rank's pipe that it writes to."""
    os.mkfifo(folder / "0.pipe")
    return os.open(folder / "0.pipe", os.O_RDWR)
